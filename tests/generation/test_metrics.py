"""Variety counted on ids made by hand."""

from __future__ import annotations

import pytest

from llmcli.generation.metrics import distinct, repeated


@pytest.mark.parametrize(
    ("ids", "n", "expected"),
    [
        ([], 1, None),
        ([7], 1, 1.0),
        ([7], 2, None),
        ([1, 2, 3, 4], 1, 1.0),
        ([1, 1, 1, 1], 1, 0.25),
        ([1, 2, 1, 2, 1], 1, 0.4),
        ([1, 2, 1, 2, 1], 2, 0.5),
        ([1, 1, 1, 1], 2, 1 / 3),
        ([1, 2, 2, 1], 2, 1.0),
    ],
)
def test_distinct(ids: list[int], n: int, expected: float | None) -> None:
    assert distinct(ids, n) == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], None),
        ([1, 2, 3], 0.0),
        ([1, 1, 1, 1], 0.0),
        # the same run twice, overlapping itself
        ([1, 1, 1, 1, 1], 1.0),
        ([1, 2, 3, 4, 5, 6, 7, 8], 0.0),
        ([1, 2, 3, 4, 9, 1, 2, 3, 4, 8], 0.8),
        ([1, 2, 3, 9, 1, 2, 3], 0.0),
        ([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], 1.0),
    ],
)
def test_repeated(ids: list[int], expected: float | None) -> None:
    assert repeated(ids) == expected
