"""What a token costs by its place, fitted: linear with a cache, quadratic without one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds a token = constant + linear * n + quadratic * n^2 with n tokens before it.

    `explained` is the share of the variance that the fit explains (R squared), 1 where there is
    none.
    """

    constant: float
    linear: float
    quadratic: float
    explained: float

    def at(self, position: float) -> float:
        return self.constant + self.linear * position + self.quadratic * position**2


def fit(points: Sequence[tuple[float, float]], *, degree: int) -> Curve | None:
    """Least squares of relative errors over (position, seconds); None for too few positions.

    A slow token's noise is larger in proportion, and must not decide where fast ones lie.

    No coefficient of a power may be negative, since no token gets cheaper by standing later: a
    fit that wants one is made again without that power.
    """
    positions = {position for position, _ in points}
    if len(positions) < degree + 2:
        return None
    powers = list(range(degree + 1))
    while True:
        found = _solved(points, powers)
        negative = [power for power in powers if power and found[power] < 0]
        if not negative:
            break
        powers.remove(max(negative))
    curve = Curve(found.get(0, 0.0), found.get(1, 0.0), found.get(2, 0.0), 1.0)
    mean = sum(seconds for _, seconds in points) / len(points)
    total = sum((seconds - mean) ** 2 for _, seconds in points)
    left = sum((seconds - curve.at(position)) ** 2 for position, seconds in points)
    explained = 1 - left / total if total else 1.0
    return Curve(curve.constant, curve.linear, curve.quadratic, explained)


def crossover(on: Curve, off: Curve, *, first: float, last: float) -> float | None:
    """The position from which on to the last measured one a token costs less with the cache.

    It is `first` where it always does, and None where it does not at `last`: curves say nothing
    of lengths that were not measured.
    """
    a, b, c = (
        off.quadratic - on.quadratic,
        off.linear - on.linear,
        off.constant - on.constant,
    )
    if off.at(last) <= on.at(last):
        return None
    return max([first, *(root for root in _roots(a, b, c) if first < root < last)])


def _roots(a: float, b: float, c: float) -> list[float]:
    """Where a n^2 + b n + c is 0."""
    if not a:
        return [-c / b] if b else []
    under = b * b - 4 * a * c
    root = math.sqrt(max(0.0, under))
    return [(-b + sign * root) / (2 * a) for sign in (-1, 1)] if under >= 0 else []


def _solved(points: Sequence[tuple[float, float]], powers: Sequence[int]) -> dict[int, float]:
    # Positions are scaled to 1, else their squares drown the constant.
    scale = max(abs(position) for position, _ in points) or 1.0
    places = torch.tensor([position / scale for position, _ in points], dtype=torch.float64)
    wanted = torch.tensor([seconds for _, seconds in points], dtype=torch.float64)[:, None]
    matrix = torch.stack([places**power for power in powers], 1)
    weights = 1 / wanted.clamp(min=wanted.max().item() * 1e-6 or 1.0)
    weighed = torch.linalg.lstsq(matrix * weights, wanted * weights, driver="gelsd")
    solution = weighed.solution[:, 0]
    return {
        power: value / scale**power for power, value in zip(powers, solution.tolist(), strict=True)
    }
