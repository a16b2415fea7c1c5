"""Tells the reasoning of a reply from its answer, piece by piece. Must not know terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from llmcli.text.thought_marks import THOUGHT_MARKS


class Part(NamedTuple):
    """Some text, and whether it is reasoning; its marks count as reasoning."""

    text: str
    reasoning: bool


class Reasoning:
    """Feed the pieces of one reply; joined, the parts' texts are the pieces'.

    `prompt` is the text that the reply continues: some templates open the reasoning themselves.
    """

    def __init__(self, prompt: str = "") -> None:
        tail = prompt.rstrip()
        self._close = next(
            (THOUGHT_MARKS[mark] for mark in THOUGHT_MARKS if tail.endswith(mark)), None
        )
        self._held = ""

    @property
    def open(self) -> bool:
        """Whether what comes next is still reasoning."""
        return self._close is not None

    def feed(self, piece: str) -> list[Part]:
        """What became certain; the beginning of what may be a mark is held back."""
        self._held += piece
        return list(self._parts())

    def flush(self) -> list[Part]:
        """The rest, once no more comes."""
        rest, self._held = self._held, ""
        return [Part(rest, self.open)] if rest else []

    def _parts(self) -> Iterator[Part]:
        while True:
            wanted = tuple(THOUGHT_MARKS) if self._close is None else (self._close,)
            found = [(at, mark) for mark in wanted if (at := self._held.find(mark)) >= 0]
            if not found:
                kept = _overlap(self._held, wanted)
                certain = self._held[: len(self._held) - kept]
                self._held = self._held[len(certain) :]
                if certain:
                    yield Part(certain, self.open)
                return
            at, mark = min(found)
            before, self._held = self._held[:at], self._held[at + len(mark) :]
            if before:
                yield Part(before, self.open)
            self._close = THOUGHT_MARKS[mark] if self._close is None else None
            yield Part(mark, reasoning=True)


def _overlap(text: str, marks: tuple[str, ...]) -> int:
    """How many last characters of `text` may be the beginning of a mark."""
    longest = min(max(map(len, marks)) - 1, len(text))
    for count in range(longest, 0, -1):
        if any(mark.startswith(text[len(text) - count :]) for mark in marks):
            return count
    return 0
