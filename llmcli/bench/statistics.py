"""Medians, spreads, percentiles, and how sure a ratio is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Enough for a 95 % interval whose ends move by less than their last shown digit.
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of `count` values, with the quartiles around it and the extremes."""

    median: float
    low: float
    high: float
    least: float
    most: float
    count: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians with a 95 % interval; the ends are None for fewer than three values."""

    value: float
    low: float | None
    high: float | None


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError for no values."""
    return Spread(
        percentile(values, 50),
        percentile(values, 25),
        percentile(values, 75),
        min(values),
        max(values),
        len(values),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """With linear interpolation between the two nearest values, as numpy's default."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    paired: bool = True,
    seed: int = 0,
) -> Ratio:
    """The ratio of the medians; the interval is the percentile bootstrap's.

    `paired`: where both sides are equally many, run n of the one stood beside run n of the other,
    so both are drawn anew by the same places.
    """
    value = statistics.median(numerators) / statistics.median(denominators)
    if min(len(numerators), len(denominators)) < 3:
        return Ratio(value, None, None)
    draw = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        places = draw.choices(range(len(numerators)), k=len(numerators))
        others = places
        if not paired or len(denominators) != len(numerators):
            others = draw.choices(range(len(denominators)), k=len(denominators))
        found.append(
            statistics.median([numerators[at] for at in places])
            / statistics.median([denominators[at] for at in others])
        )
    return Ratio(value, percentile(found, 2.5), percentile(found, 97.5))
