"""The vocabulary of a GGUF file: tokens, their kinds, special ids and stop ids.

Must not know tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from llmcli.acquire.gguf.reader import GgufFile
from llmcli.checkpoint.escape import printable

_PREFIX = "tokenizer.ggml."
# How other files name the end of a turn when they do not give its id.
_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>")


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`, as the format numbers it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens in id order with their kinds, and the ids that have a role."""

    tokens: list[str]
    kinds: list[int]
    ids: Mapping[str, int]
    bos: int | None
    eos: int | None
    unknown: int | None
    padding: int | None
    stops: list[int]

    def text(self, token: int | None) -> str | None:
        return None if token is None else self.tokens[token]

    @property
    def special(self) -> list[int]:
        """Ids that are never text: control tokens, the unknown token and whatever has a role."""
        kinds = (TokenKind.CONTROL, TokenKind.UNKNOWN)
        roles = {token for token in (self.bos, *self.stops) if token is not None}
        return [i for i, kind in enumerate(self.kinds) if kind in kinds or i in roles]

    @property
    def added(self) -> list[int]:
        """Ids that are matched whole in a text and shown like any other."""
        special = set(self.special)
        return [
            i
            for i, kind in enumerate(self.kinds)
            if kind == TokenKind.USER_DEFINED and i not in special
        ]


def read_vocabulary(file: GgufFile) -> Vocabulary:
    """The proved vocabulary of `file`."""
    tokens = file.items(_PREFIX + "tokens", str)
    if not tokens:
        raise file.fault("holds no tokens", "get a file with a tokenizer in it")
    kinds = file.items(_PREFIX + "token_type", int) or [TokenKind.NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise file.fault(f"holds {len(tokens)} tokens and {len(kinds)} token types")
    ids = _ids(file, tokens)
    role = {
        name: _role(file, name, len(tokens))
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    if role["eot"] is None:
        role["eot"] = _turn_end(ids, kinds)
    stops = [role[name] for name in ("eos", "eot", "eom")]
    return Vocabulary(
        tokens=tokens,
        kinds=kinds,
        ids=ids,
        bos=role["bos"],
        eos=role["eos"],
        unknown=role["unknown"],
        padding=role["padding"],
        stops=list(dict.fromkeys(stop for stop in stops if stop is not None)),
    )


def respelled(file: GgufFile, vocabulary: Vocabulary, space: str) -> Vocabulary:
    """With tokens of several spaces spelled by `space`, as the text they are looked up in is."""
    tokens, kinds = list(vocabulary.tokens), list(vocabulary.kinds)
    for i, token in enumerate(tokens):
        if len(token) > 1 and not token.strip(" "):
            tokens[i] = space * len(token)
            kinds[i] = TokenKind.NORMAL
    return replace(vocabulary, tokens=tokens, kinds=kinds, ids=_ids(file, tokens))


def _ids(file: GgufFile, tokens: list[str]) -> Mapping[str, int]:
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if token in ids:
            raise file.fault(f"holds the token {printable(token)!r} as {ids[token]} and as {i}")
        ids[token] = i
    return ids


def _role(file: GgufFile, name: str, count: int) -> int | None:
    key = f"{_PREFIX}{name}_token_id"
    token = file.integer(key)
    if token is not None and not 0 <= token < count:
        raise file.fault(f"{key} is {token}, the vocabulary has {count} tokens")
    return token


def _turn_end(ids: Mapping[str, int], kinds: list[int]) -> int | None:
    found = [ids[text] for text in _TURN_ENDS if text in ids]
    return next((token for token in found if kinds[token] == TokenKind.CONTROL), None)
