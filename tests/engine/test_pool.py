"""The few sessions of a conversation: which is used, which is copied, which goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from llmcli.cache import CacheKind
from llmcli.engine.pool import SessionPool
from llmcli.engine.session import Session
from llmcli.model import Decoder
from tests.tiny import random_decoder, tiny_spec

DECODER = random_decoder()
STEM = list(range(10, 30))


class Branches:
    """Runs prompts in a pool; each returns how many ids were computed."""

    def __init__(
        self, *, decoder: Decoder = DECODER, kind: CacheKind = "growing", **bounds: int
    ) -> None:
        self.pool = SessionPool(lambda: Session(decoder, kind), **bounds)

    def run(self, tail: Sequence[int], *, after: int | None, turn: int) -> int:
        ids = [*STEM, *tail]
        session = self.pool.take(ids, after=after)
        stepper = session.stepper(ids)
        stepper.feed(torch.tensor([ids]))
        self.pool.mark(session, turn)
        assert stepper.prefilled is not None
        return stepper.prefilled

    @property
    def lengths(self) -> list[int]:
        return [tokens for tokens, _ in self.pool.sizes()]


def test_a_branch_that_goes_on_keeps_its_session() -> None:
    made = Branches()
    assert made.run([1], after=None, turn=1) == 21
    assert made.run([1, 2], after=1, turn=2) == 1
    # Rendered otherwise from here on: what is lost is of no use
    assert made.run([7, 7, 7], after=2, turn=3) == 3
    assert made.lengths == [23]


def test_a_branch_that_begins_leaves_the_other_whole() -> None:
    made = Branches()
    made.run([1, 2, 3], after=None, turn=1)
    assert made.run([1, 9], after=None, turn=2) == 1
    assert made.run([1, 2, 3, 4], after=1, turn=3) == 1
    assert made.run([1, 9, 9], after=2, turn=4) == 1
    assert made.lengths == [23, 24]


def test_the_one_not_used_for_longest_goes() -> None:
    made = Branches(most=3)
    for turn, tail in enumerate([[1, 1], [2, 2], [3, 3]], start=1):
        made.run(tail, after=None, turn=turn)
    assert made.run([1, 1, 1], after=1, turn=4) == 1
    made.run([4, 4], after=None, turn=5)
    assert len(made.lengths) == 3
    assert made.run([1, 1, 1, 1], after=4, turn=6) == 1
    assert made.run([3, 3, 3], after=3, turn=7) == 1
    # [2, 2] had to go: only the stem is left of it
    assert made.run([2, 2, 2], after=2, turn=8) == 3


@pytest.mark.parametrize(("copies", "left"), [(1, 1), (2, 2), (3, 3)])
def test_no_more_bytes_than_allowed(copies: int, left: int) -> None:
    made = Branches()
    made.run([1], after=None, turn=1)
    size = made.pool.sizes()[0][1]
    made = Branches(most_bytes=copies * size)
    for turn in range(1, 4):
        made.run([turn], after=None, turn=turn)
        # The last one is always held, even where one alone is too many
        assert made.lengths[0] == 21
    assert len(made.lengths) == left


def test_turns_of_another_conversation_mean_nothing() -> None:
    made = Branches()
    made.run([1, 2], after=None, turn=1)
    made.pool.forget_turns()
    assert made.run([5], after=1, turn=2) == 1
    assert made.run([1, 2, 3], after=None, turn=1) == 1


def test_without_a_cache_one_session_is_enough() -> None:
    made = Branches(kind="none")
    for turn in range(1, 4):
        assert made.run([turn], after=turn - 1 or None, turn=turn) == 21
    assert made.pool.sizes() == [(0, 0)]


def test_a_ring_that_cannot_be_cut_back_is_no_help() -> None:
    spec = tiny_spec()
    windowed = replace(spec, layers=(replace(spec.layers[0], window=8), spec.layers[1]))
    made = Branches(decoder=random_decoder(windowed), kind="ring")
    made.run([1, 2, 3], after=None, turn=1)
    assert made.run([], after=None, turn=2) == 20
    # The first shares more ids, the second can be gone on from
    assert made.run([1, 2, 9], after=2, turn=3) == 3
