"""Limit: how many tokens a cache may hold, and which of them go where more come.

Numbers of tokens only. Must not import torch, nor know what the tokens say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Tokens at the start that attention leans on, whatever they say (StreamingLLM, arXiv 2309.17453).
SINKS = 4


@dataclass(frozen=True, slots=True)
class Limit:
    """A cache holds at most `size` tokens.

    The first `head` of a prompt never go. Behind them lie `parts`, counts of tokens that go one
    after the other, each whole. The next `body` tokens stay too; of those behind them a quarter
    goes at a time, so that moving the rest costs little a token.
    """

    size: int
    head: int = SINKS
    parts: tuple[int, ...] = ()
    body: int = 0

    @property
    def fixed(self) -> int:
        """How many tokens never go."""
        return self.head + self.body

    @property
    def least(self) -> int:
        """The smallest size that leaves something between what is fixed and the newest token."""
        return self.fixed + SINKS

    @property
    def at_once(self) -> int:
        """How many tokens go together once the parts are gone."""
        return max(1, (self.size - self.fixed) // 4)

    def drop(self, dropped: int) -> tuple[int, int]:
        """Behind how many tokens the next drop begins and how many go, after `dropped` went."""
        for part in self.parts:
            if dropped < part:
                return self.head, part
            dropped -= part
        return self.fixed, self.at_once

    def drops(self) -> Iterator[tuple[int, int]]:
        """Every drop that there can be, as `drop` gives them."""
        yield from ((self.head, part) for part in self.parts)
        yield self.fixed, self.at_once
