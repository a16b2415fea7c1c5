"""The stop rule: which of id, count and room ends a generation."""

from __future__ import annotations

import pytest

from llmcli.generation.stop import StopRule


@pytest.mark.parametrize(
    ("new", "room", "produced", "last", "reason"),
    [
        (5, 9, 4, 0, None),
        (5, 9, 5, 0, "length"),
        (9, 5, 4, 0, None),
        (9, 5, 5, 0, "context"),
        (5, 5, 5, 0, "length"),
        (5, 9, 1, 7, "stop"),
        (5, 9, 1, 8, "stop"),
        (5, 9, 5, 7, "stop"),
        (9, 5, 5, 8, "stop"),
    ],
)
def test_reason(new: int, room: int, produced: int, last: int, reason: str | None) -> None:
    rule = StopRule(frozenset({7, 8}), new, room)
    assert rule.reason(last, produced) == reason


@pytest.mark.parametrize(("new", "room", "budget"), [(5, 9, 5), (9, 5, 5), (0, 9, 0), (9, 0, 0)])
def test_budget(new: int, room: int, budget: int) -> None:
    assert StopRule(frozenset(), new, room).budget == budget


def test_no_stop_ids_never_stop() -> None:
    assert StopRule(frozenset(), 5, 9).reason(0, 1) is None
