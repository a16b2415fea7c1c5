"""How a text is cut into tokens. Must not know torch: no weights are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmcli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One token: the vocabulary's own spelling, its text, and its bytes in hexadecimal.

    `special` are control tokens; other tokens that were added to the vocabulary are `added`.
    """

    position: int
    id: int
    piece: str
    text: str
    bytes: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """`text_bytes` is the UTF-8 length of what was encoded, `unknown` counts the unknown token.

    `template` tells that a chat template wrote a part of the text.
    """

    text: str
    text_bytes: int
    tokens: tuple[Cut, ...]
    specials: int
    unknown: int
    bytes_per_token: float
    template: bool
    vocabulary: int
    context: int


def cut(
    tokenizer: Tokenizer, ids: Sequence[int], *, text: str, template: bool, context: int
) -> TokenTable:
    """The table of the ids that `text` became; `context` is what the decoder can hold."""
    unknown = None if tokenizer.unk_token is None else tokenizer.token_id(tokenizer.unk_token)
    size = len(text.encode("utf-8"))
    return TokenTable(
        text=text,
        text_bytes=size,
        tokens=tuple(_cut(tokenizer, at, id_) for at, id_ in enumerate(ids)),
        specials=sum(id_ in tokenizer.special_ids for id_ in ids),
        unknown=sum(id_ == unknown for id_ in ids),
        bytes_per_token=size / len(ids) if ids else 0.0,
        template=template,
        vocabulary=tokenizer.vocab_size,
        context=context,
    )


def _cut(tokenizer: Tokenizer, position: int, id_: int) -> Cut:
    kind = "text"
    if id_ in tokenizer.special_ids:
        kind = "special"
    elif id_ in tokenizer.added_tokens:
        kind = "added"
    return Cut(
        position=position,
        id=id_,
        piece=tokenizer.piece(id_) or "",
        text=tokenizer.token_text(id_),
        bytes=tokenizer.token_bytes(id_).hex(" "),
        kind=kind,
    )
