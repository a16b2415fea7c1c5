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
    """Least squares over (position, seconds); None where the positions are too few to tell.

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


def crossover(on: Curve, off: Curve) -> float | None:
    """The position from which a token costs less with the cache for good; 0 where it always does.

    None where it never does.
    """
    a, b, c = (
        off.quadratic - on.quadratic,
        off.linear - on.linear,
        off.constant - on.constant,
    )
    if not a and not b:
        return 0.0 if c > 0 else None
    if a < 0 or (a == 0 and b < 0):
        return None
    if a == 0:
        return max(0.0, -c / b)
    under = b * b - 4 * a * c
    return 0.0 if under < 0 else max(0.0, (-b + math.sqrt(under)) / (2 * a))


def _solved(points: Sequence[tuple[float, float]], powers: Sequence[int]) -> dict[int, float]:
    # Positions are scaled to 1, else their squares drown the constant.
    scale = max(abs(position) for position, _ in points) or 1.0
    places = torch.tensor([position / scale for position, _ in points], dtype=torch.float64)
    wanted = torch.tensor([seconds for _, seconds in points], dtype=torch.float64)[:, None]
    matrix = torch.stack([places**power for power in powers], 1)
    solution = torch.linalg.lstsq(matrix, wanted, driver="gelsd").solution[:, 0]
    return {
        power: value / scale**power for power, value in zip(powers, solution.tolist(), strict=True)
    }
