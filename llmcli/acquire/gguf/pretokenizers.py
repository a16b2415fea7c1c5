"""How each named pre-tokenizer cuts text before merging, as tokenizer.json says it.

GGUF only names the rule (`tokenizer.ggml.pre`); what the name means is this table.
Must not know vocabularies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

_LLAMA3 = rf"{_CONTRACTION}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`stages` cut the text; the defaults hold where the GGUF file itself is silent.

    `whole_words` takes a piece that is a token as it stands, without merging.
    """

    stages: tuple[dict[str, Any], ...]
    normalizer: dict[str, Any] | None = None
    whole_words: bool = False
    adds_bos: bool = False


def _bytes(*, cut: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": cut,
    }


def _split(pattern: str) -> tuple[dict[str, Any], ...]:
    cut = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return cut, _bytes(cut=False)


_PLAIN = PreTokenizer((_bytes(cut=True),))
_SINGLE_DIGITS = PreTokenizer(({"type": "Digits", "individual_digits": True}, _bytes(cut=True)))
_LLAMA3_RULE = PreTokenizer(_split(_LLAMA3), whole_words=True, adds_bos=True)
_LLAMA3_PLAIN = PreTokenizer(_split(_LLAMA3))
_QWEN2_RULE = PreTokenizer(_split(_QWEN2), normalizer={"type": "NFC"})

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": _PLAIN,
    "mpt": _PLAIN,
    "olmo": _PLAIN,
    "jais": _PLAIN,
    "phi-2": _PLAIN,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "exaone": _SINGLE_DIGITS,
    "minerva-7b": _SINGLE_DIGITS,
    "llama3": _LLAMA3_RULE,
    "llama-v3": _LLAMA3_RULE,
    "llama-bpe": _LLAMA3_RULE,
    "dbrx": _LLAMA3_PLAIN,
    "smaug-bpe": _LLAMA3_PLAIN,
    "qwen2": _QWEN2_RULE,
    "deepseek-r1-qwen": _QWEN2_RULE,
    "megrez": _QWEN2_RULE,
    "tekken": PreTokenizer(_split(_TEKKEN), whole_words=True, adds_bos=True),
    "gpt-4o": PreTokenizer(_split(_GPT4O)),
    "llama4": PreTokenizer(_split(_GPT4O)),
}
