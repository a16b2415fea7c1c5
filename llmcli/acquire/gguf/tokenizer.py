"""tokenizer.json and tokenizer_config.json from a GGUF file's vocabulary and merges.

Two kinds: `gpt2` (byte-level, merges given, cut by a named pre-tokenizer) and `llama`
(SentencePiece: scores, a byte fallback, no cutting). Must not know weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llmcli.acquire.gguf.merges import implied_merges, stored_merges
from llmcli.acquire.gguf.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from llmcli.acquire.gguf.reader import GgufFile
from llmcli.acquire.gguf.rules import Sentences
from llmcli.acquire.gguf.vocabulary import TokenKind, Vocabulary, respelled

_PREFIX = "tokenizer.ggml."
_SPACE = "▁"


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a kind of tokenizer settles: parts of tokenizer.json, and defaults."""

    parts: dict[str, Any]
    vocabulary: Vocabulary
    adds_bos: bool
    # Special tokens after which white space is dropped.
    eaters: frozenset[int] = frozenset()


def tokenizer_files(
    file: GgufFile, vocabulary: Vocabulary, sentences: Sentences
) -> dict[str, dict[str, Any]]:
    """Both files by name; `sentences` settles what a SentencePiece vocabulary leaves unsaid."""
    kind = file.text(_PREFIX + "model") or ""
    if kind not in _KINDS:
        raise file.fault(
            f"has the tokenizer kind {kind!r:.60}",
            f"the kinds that can be imported are {', '.join(_KINDS)}",
        )
    made = _KINDS[kind](file, vocabulary, sentences)
    vocabulary = made.vocabulary
    adds_bos = file.flag(_PREFIX + "add_bos_token")
    adds_bos = made.adds_bos if adds_bos is None else adds_bos
    begin = vocabulary.bos if adds_bos else None
    end = vocabulary.eos if file.flag(_PREFIX + "add_eos_token") else None
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary, made.eaters),
        "post_processor": _frame(vocabulary, begin, end),
        **made.parts,
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": begin is not None,
        "add_eos_token": end is not None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.integer(f"{file.text('general.architecture')}.context_length"),
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": vocabulary.text(vocabulary.eos),
        "unk_token": vocabulary.text(vocabulary.unknown),
        "pad_token": vocabulary.text(vocabulary.padding),
    }
    named = {key: value for key, value in config.items() if value is not None}
    template = _chat_template(file)
    if template is not None:
        named["chat_template"] = template
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": named}


def _byte_level(file: GgufFile, vocabulary: Vocabulary, _sentences: Sentences) -> _Parts:
    rule = _pre_tokenizer(file)
    stages = list(rule.stages)
    parts = {
        "normalizer": rule.normalizer,
        "pre_tokenizer": (
            {"type": "Sequence", "pretokenizers": stages} if len(stages) > 1 else stages[0]
        ),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": _bpe(vocabulary, stored_merges(file, vocabulary), whole_words=rule.whole_words),
    }
    return _Parts(parts, vocabulary, rule.adds_bos)


def _sentencepiece(file: GgufFile, vocabulary: Vocabulary, sentences: Sentences) -> _Parts:
    if sentences.spaces:
        vocabulary = respelled(file, vocabulary, _SPACE)
    special = vocabulary.special if sentences.eats_space else []
    eaters = {i for i in special if vocabulary.tokens[i] not in sentences.eats_no_space}
    prefixed = file.flag(_PREFIX + "add_space_prefix")
    prefixed = True if prefixed is None else prefixed
    prepend = [{"type": "Prepend", "prepend": _SPACE}] if prefixed else []
    spell = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    unspell = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    merges = stored_merges(file, vocabulary) or implied_merges(
        file, vocabulary, sentences.merge_order
    )
    unknown = vocabulary.text(vocabulary.unknown)
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, spell]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [unspell, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "model": _bpe(vocabulary, merges)
        | {
            "unk_token": unknown,
            "fuse_unk": unknown is not None,
            "byte_fallback": TokenKind.BYTE in vocabulary.kinds or "<0x00>" in vocabulary.ids,
        },
    }
    return _Parts(parts, vocabulary, adds_bos=True, eaters=frozenset(eaters))


_KINDS: Mapping[str, Callable[[GgufFile, Vocabulary, Sentences], _Parts]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
}


def _pre_tokenizer(file: GgufFile) -> PreTokenizer:
    name = file.text(_PREFIX + "pre") or ""
    if name not in PRE_TOKENIZERS:
        raise file.fault(
            f"names the pre-tokenizer {name!r:.60}" if name else "names no pre-tokenizer",
            f"the pre-tokenizers that can be imported are {', '.join(sorted(PRE_TOKENIZERS))}",
        )
    return PRE_TOKENIZERS[name]


def _bpe(
    vocabulary: Vocabulary, merges: list[tuple[str, str]], *, whole_words: bool = False
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": whole_words,
        "vocab": dict(vocabulary.ids),
        "merges": [list(pair) for pair in merges],
    }


def _added_tokens(vocabulary: Vocabulary, eaters: frozenset[int]) -> list[dict[str, Any]]:
    special = set(vocabulary.special)
    return [
        {
            "id": token,
            "content": vocabulary.tokens[token],
            "single_word": False,
            "lstrip": False,
            "rstrip": token in eaters,
            "normalized": False,
            "special": token in special,
        }
        for token in sorted(special | set(vocabulary.added))
    ]


def _frame(vocabulary: Vocabulary, begin: int | None, end: int | None) -> dict[str, Any] | None:
    if begin is None and end is None:
        return None
    ids = {vocabulary.tokens[token]: token for token in (begin, end) if token is not None}

    def framed(sequence: str, type_id: int) -> list[dict[str, Any]]:
        def mark(token: int | None) -> list[dict[str, Any]]:
            if token is None:
                return []
            return [{"SpecialToken": {"id": vocabulary.tokens[token], "type_id": type_id}}]

        return [*mark(begin), {"Sequence": {"id": sequence, "type_id": type_id}}, *mark(end)]

    return {
        "type": "TemplateProcessing",
        "single": framed("A", 0),
        "pair": framed("A", 0) + framed("B", 1),
        "special_tokens": {
            text: {"id": text, "ids": [token], "tokens": [text]} for text, token in ids.items()
        },
    }


def _chat_template(file: GgufFile) -> str | list[dict[str, str]] | None:
    key = "tokenizer.chat_template"
    default = file.text(key)
    named = {
        name[len(key) + 1 :]: file.text(name) or ""
        for name in file.metadata
        if name.startswith(key + ".")
    }
    if not named:
        return default
    if default is not None:
        named = {"default": default} | named
    return [{"name": name, "template": template} for name, template in named.items()]
