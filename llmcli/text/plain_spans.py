"""Encoding a text of which some stretches must not be matched as control tokens.

The control tokens that do count are swapped for one-off anchor tokens in a second backend that
knows no other added token, so that one ordinary encoding splits the text just where the real
tokens would. Must not know where the stretches come from.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Backend

from llmcli.errors import TokenizerError
from llmcli.text.rendered import Rendered


class LiteralEncoder:
    """Makes the second backend once, since a large vocabulary takes a second to copy."""

    def __init__(self, backend: Backend, added: Mapping[int, AddedToken]) -> None:
        self._backend = backend
        self._added = added
        self._special = frozenset(token for token, entry in added.items() if entry.special)
        self._plain = _without_added_tokens(backend)
        # Random, so that no text can hold an anchor; it never leaves this object
        self._nonce = secrets.token_hex(16)
        self._anchors: dict[str, int] = {}

    def encode(self, rendered: Rendered) -> list[int]:
        """The ids of `rendered.text`, its literal spans taken as plain text."""
        masked, places = _mask(rendered)
        self._backend.encode_special_tokens = False
        encoding = self._backend.encode(masked, add_special_tokens=False)
        parts: list[str] = []
        wanted: list[int] = []
        at = 0
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            entry = self._added.get(token)
            if entry is None or masked[start:end].strip() != entry.content.strip():
                continue
            wanted.append(token)
            parts += [_restore(masked[at:start], places), self._anchor(token)]
            at = end
        parts.append(_restore(masked[at:], places))
        result = self._plain.encode("".join(parts), add_special_tokens=False)
        found = [self._anchors[piece] for piece in result.tokens if piece in self._anchors]
        if found != wanted:
            raise TokenizerError(
                f"the chat has {len(wanted)} control tokens, but {len(found)} could be encoded",
                hint="take the control-token text out of the message",
            )
        return spell_out(self._plain, result, self._special, self._anchors)

    def _anchor(self, token: int) -> str:
        anchor = f"\ue000{self._nonce}x{token}x\ue000"
        if anchor not in self._anchors:
            self._anchors[anchor] = token
            entry = AddedToken(anchor, normalized=self._added[token].normalized, special=False)
            self._plain.add_tokens([entry])
        return anchor


def spell_out(
    backend: Backend,
    encoding: Encoding,
    forbidden: frozenset[int],
    anchors: Mapping[str, int] | None = None,
) -> list[int]:
    """The ids of `encoding`, where a forbidden id that the model itself made is spelled in parts.

    A vocabulary that holds "<s>" as an ordinary piece can make the control id from plain text.
    """
    unknown = backend.token_to_id(getattr(backend.model, "unk_token", None) or "")
    ids: list[int] = []
    for token, piece in zip(encoding.ids, encoding.tokens, strict=True):
        if anchors and piece in anchors:
            ids.append(anchors[piece])
        elif token not in forbidden or token == unknown:
            ids.append(token)
        else:
            parts = [part.id for char in piece for part in backend.model.tokenize(char)]
            if forbidden.intersection(parts) - {unknown}:
                raise TokenizerError(
                    f"{piece!r} cannot be written as plain text: the tokenizer always makes "
                    f"id {token} of it",
                    hint="take it out of the text, or parse special tokens on purpose",
                )
            ids += parts
    return ids


def _mask(rendered: Rendered) -> tuple[str, dict[str, str]]:
    """The text with each literal span as one character that occurs nowhere else in it."""
    free = (chr(code) for code in range(0xF0000, 0xFFFFE) if chr(code) not in rendered.text)
    places: dict[str, str] = {}
    by_text: dict[str, str] = {}
    parts: list[str] = []
    at = 0
    for start, end in rendered.literals:
        text = rendered.text[start:end]
        if text not in by_text:
            by_text[text] = next(free)
            places[by_text[text]] = text
        parts += [rendered.text[at:start], by_text[text]]
        at = end
    parts.append(rendered.text[at:])
    return "".join(parts), places


def _restore(text: str, places: Mapping[str, str]) -> str:
    return text.translate({ord(char): literal for char, literal in places.items()})


def _without_added_tokens(backend: Backend) -> Backend:
    state = json.loads(backend.to_str())
    state["added_tokens"] = []
    return Backend.from_str(json.dumps(state))
