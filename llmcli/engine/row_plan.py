"""Which rows share a batch. Must not know prompts or what runs them: it gets lengths."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

# Within so many batches' rows those of like length are put together, to save padding.
LOOK_AHEAD = 8


def plan_batches(
    lengths: Mapping[int, tuple[int, int]], *, size: int, padded: bool
) -> list[list[int]]:
    """Batches of at most `size` rows; where nothing can be padded, of equally long ones.

    `lengths` are each row's, in the order of the rows: of its prompt, and as long as it may get.
    """
    rows, batches = list(lengths), []
    for start in range(0, len(rows), LOOK_AHEAD * size):
        near = sorted(rows[start : start + LOOK_AHEAD * size], key=lambda row: lengths[row])
        for _, alike in groupby(near, key=lambda row: padded or lengths[row]):
            together = list(alike)
            batches += [together[at : at + size] for at in range(0, len(together), size)]
    return batches
