"""Which ids may follow, so that the text stays within a grammar. Must not know models.

The engine sees an id as the bytes that it adds to the text. Special and stop ids add none, so
they are never part of a text; ends are the caller's business.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llmcli.errors import GenerationError
from llmcli.text.detokenizer import Detokenizer
from llmcli.text.grammar import Grammar, after_spaces, one_line
from llmcli.text.token_bytes import bytes_of_pieces
from llmcli.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# Stands before a text to be encoded in mid-text; no token of ordinary text begins with it.
_BEFORE = "\x02"
# More spaces than any decoder drops.
_PROBES = 8


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer as the engine sees it; costly to make, so one serves all runs.

    `probe` is an id whose text begins with a space, and that text; None where there is none.
    """

    engine: LLTokenizer
    size: int
    probe: tuple[int, str] | None


def make_vocabulary(tokenizer: Tokenizer, silent: Collection[int]) -> Vocabulary:
    """The bytes of every id, those that are `silent` (special ids, stop ids) aside.

    Raises TokenizerError where the tokenizer does not give each token bytes of its own.
    """
    from llguidance import LLTokenizer, TokenizerWrapper

    find = bytes_of_pieces(tokenizer.decoder)
    tokens = []
    for id_ in range(tokenizer.vocab_size):
        piece = None if id_ in silent else tokenizer.piece(id_)
        tokens.append(b"" if piece is None else find(piece))
    named = [id_ for id_ in silent if id_ < len(tokens)]
    for id_ in named:
        tokens[id_] = (tokenizer.piece(id_) or "").encode("utf-8", "replace")
    encoder = _Encoder(tokenizer, tokens, named)
    return Vocabulary(
        LLTokenizer(TokenizerWrapper(encoder), n_vocab=len(encoder.tokens)),
        len(tokens),
        _probe(tokens, frozenset(named)),
    )


def _probe(tokens: list[bytes], silent: frozenset[int]) -> tuple[int, str] | None:
    spaced = [
        (len(text), id_)
        for id_, text in enumerate(tokens)
        if text.startswith(b" ") and text.isascii() and id_ not in silent
    ]
    return (min(spaced)[1], tokens[min(spaced)[1]].decode()) if spaced else None


class _Encoder:
    """What the engine asks of a tokenizer, under the engine's own names; bytes to ids.

    It takes the encoding of forced text on trust, so what does not spell that text is replaced
    by the longest tokens that do. The end of text is an id of our own, above all others.
    """

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, tokens: list[bytes], special: list[int]) -> None:
        self.tokens = [*tokens, b"<|end of text|>"]
        self.eos_token_id = len(tokens)
        self.special_token_ids = [*special, self.eos_token_id]
        self._tokenizer = tokenizer
        silent = frozenset(special)
        self._ids = {text: id_ for id_, text in enumerate(tokens) if text and id_ not in silent}
        self._longest = max(map(len, self._ids), default=0)
        self._before = tokenizer.encode_raw(_BEFORE, bos=False)

    def __call__(self, data: bytes) -> list[int]:
        for prefix, ids_before in ((_BEFORE, self._before), ("", [])):
            ids = self._tokenizer.encode_raw(prefix + data.decode("utf-8", "replace"), bos=False)
            start = len(ids_before)
            if ids[:start] == ids_before and self._spelled(ids[start:]) == data:
                return ids[start:]
        return self._greedily(data)

    def _spelled(self, ids: list[int]) -> bytes | None:
        special = self.special_token_ids
        if any(id_ >= len(self.tokens) or id_ in special for id_ in ids):
            return None
        return b"".join([self.tokens[id_] for id_ in ids])

    def _greedily(self, data: bytes) -> list[int]:
        """The longest tokens first; it ends at a byte that no token has."""
        ids: list[int] = []
        at = 0
        while at < len(data):
            sizes = range(min(self._longest, len(data) - at), 0, -1)
            size = next((size for size in sizes if data[at : at + size] in self._ids), 0)
            if not size:
                break
            ids.append(self._ids[data[at : at + size]])
            at += size
        return ids


class Matcher:
    """Follows a grammar id by id; a question about other ids takes back what differs."""

    def __init__(self, engine: LLMatcher, size: int) -> None:
        self._engine, self._size = engine, size
        self._ids: list[int] = []

    @classmethod
    def start(cls, grammar: Grammar, vocabulary: Vocabulary, context: Detokenizer) -> Matcher:
        """At the beginning of the text that the detokenizer, fed with the prompt, continues.

        Some decoders drop spaces at the start of everything; the grammar then follows them.
        """
        from llguidance import LLMatcher

        dropped = _dropped(vocabulary, context)
        if dropped and vocabulary.probe is not None and vocabulary.probe[1] != " ":
            raise GenerationError(
                f"--{grammar.kind} cannot begin a text with this tokenizer, which drops the first "
                "space and has no token of a space alone",
                hint="give a prompt that the constrained text continues",
            )
        text = after_spaces(grammar, dropped) if dropped else grammar.engine_text
        matcher = cls(LLMatcher(vocabulary.engine, text, log_level=0), vocabulary.size)
        matcher._check()
        return matcher

    def allowed(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        self._follow(ids)
        bits = np.frombuffer(self._engine.compute_bitmask(), dtype=np.uint8)
        if self._engine.get_error().startswith("NoExtensionBias"):
            # No token can spell what comes next: nothing is allowed, which the caller reports.
            return np.zeros(self._size, dtype=np.bool_)
        self._check()
        return np.unpackbits(bits, bitorder="little")[: self._size].view(np.bool_)

    def may_end(self, ids: Sequence[int]) -> bool:
        self._follow(ids)
        return bool(self._engine.is_accepting())

    def ended(self, ids: Sequence[int]) -> bool:
        return self.may_end(ids) and not self.allowed(ids).any()

    def fork(self) -> Matcher:
        other = Matcher(self._engine.deep_copy(), self._size)
        other._ids = [*self._ids]
        return other

    def _follow(self, ids: Sequence[int]) -> None:
        held = self._ids
        new = list(ids)
        if new == held:
            return
        most = min(len(held), len(new))
        shared = (
            most
            if new[:most] == held[:most]
            else next(at for at in range(most) if held[at] != new[at])
        )
        if shared < len(held):
            self._engine.rollback(len(held) - shared)
        self._engine.consume_tokens(new[shared:])
        self._check()
        self._ids = new

    def _check(self) -> None:
        if self._engine.is_error():
            raise GenerationError(
                f"the grammar's engine gives up: {one_line(self._engine.get_error())}",
                hint="a simpler grammar, or tighter bounds in it, may help",
            )


def _dropped(vocabulary: Vocabulary, context: Detokenizer) -> int:
    """How many spaces the start of the text would lose."""
    if vocabulary.probe is None:
        return 0
    id_, text = vocabulary.probe
    shown = "".join([context.feed(id_) for _ in range(_PROBES)]) + context.flush()
    return max(0, len(text) * _PROBES - len(shown))
