"""Which rows share a batch, from lengths alone."""

from __future__ import annotations

import pytest

from llmcli.engine.row_plan import LOOK_AHEAD, plan_batches


def lengths(*prompts: int) -> dict[int, tuple[int, int]]:
    return {row: (prompt, prompt + 10) for row, prompt in enumerate(prompts)}


@pytest.mark.parametrize(
    ("prompts", "size", "padded", "batches"),
    [
        ((), 2, True, []),
        ((5, 1, 4, 1, 9), 2, True, [[1, 3], [2, 0], [4]]),
        ((5, 1, 4, 1, 5), 2, False, [[1, 3], [2], [0, 4]]),
        ((3, 3, 3), 2, False, [[0, 1], [2]]),
        ((3, 2, 1), 1, True, [[2], [1], [0]]),
    ],
)
def test_batches(
    prompts: tuple[int, ...], size: int, padded: bool, batches: list[list[int]]
) -> None:
    assert plan_batches(lengths(*prompts), size=size, padded=padded) == batches


def test_rows_that_were_left_out_stay_out() -> None:
    known = lengths(4, 2, 3)
    del known[1]
    assert plan_batches(known, size=8, padded=True) == [[2, 0]]


def test_no_row_waits_for_one_far_behind_it() -> None:
    planned = plan_batches(lengths(*range(3 * LOOK_AHEAD, 0, -1)), size=1, padded=True)
    flat = [row for batch in planned for row in batch]
    assert all(abs(at - row) < LOOK_AHEAD for at, row in enumerate(flat))
