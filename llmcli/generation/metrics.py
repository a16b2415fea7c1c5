"""How varied a text is, counted on its ids. Must not know text or models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

REPEAT_LENGTH = 4


def distinct(ids: Sequence[int], n: int) -> float | None:
    """Different runs of `n` ids over all such runs; None where there is none.

    That is distinct-n (arXiv 1510.03055): 1 where nothing recurs.
    """
    grams = _grams(ids, n)
    return len(set(grams)) / len(grams) if grams else None


def repeated(ids: Sequence[int], n: int = REPEAT_LENGTH) -> float | None:
    """The share of ids that lie inside a run of `n` ids that occurs more than once.

    Every occurrence counts, the first too, and runs may overlap. None where there are no ids.
    """
    if not ids:
        return None
    grams = _grams(ids, n)
    often = {gram for gram, count in Counter(grams).items() if count > 1}
    inside = {at + step for at, gram in enumerate(grams) if gram in often for step in range(n)}
    return len(inside) / len(ids)


def _grams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(ids[at : at + n]) for at in range(len(ids) - n + 1)]
