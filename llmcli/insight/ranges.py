"""Layers that are alike, and how a set of indices is written. Must not know specs or torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def alike(keys: Iterable[K]) -> dict[K, tuple[int, ...]]:
    """The indices of each distinct key, in the order in which the keys first appear."""
    found: dict[K, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return {key: tuple(indices) for key, indices in found.items()}


def written(indices: Sequence[int]) -> str:
    """Rising indices as runs: `0-4, 6-10`; three or more of equal distance as `5-23 by 6`."""
    parts = []
    at = 0
    while at < len(indices):
        step = indices[at + 1] - indices[at] if at + 1 < len(indices) else 1
        end = at
        while end + 1 < len(indices) and indices[end + 1] - indices[end] == step:
            end += 1
        if step == 1 and end > at:
            parts.append(f"{indices[at]}-{indices[end]}")
        elif end - at >= 2:
            parts.append(f"{indices[at]}-{indices[end]} by {step}")
        else:
            end = at
            parts.append(str(indices[at]))
        at = end + 1
    return ", ".join(parts)
