"""What a token costs by its place, fitted: linear with a cache, quadratic in pieces without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

# What a position adds to the cost of its token, but for a factor.
Term = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds a token = constant + linear * n + quadratic * n^2 with n tokens before it.

    For every `piece` tokens before it, where it goes in pieces, `per_piece` comes on top: each
    piece reads the weights. `explained` is the share of the variance that the fit explains (R
    squared), 1 where there is none.
    """

    constant: float
    linear: float
    quadratic: float
    explained: float
    per_piece: float = 0.0
    piece: int | None = None

    def at(self, position: float) -> float:
        smooth = self.constant + self.linear * position + self.quadratic * position**2
        return smooth + (self.per_piece * (position // self.piece) if self.piece else 0.0)


def fit(
    points: Sequence[tuple[int, float]], *, degree: int, piece: int | None = None
) -> Curve | None:
    """Least squares of relative errors over (position, seconds); None for too few positions.

    A slow token's noise is larger in proportion, and must not decide where fast ones lie.

    No coefficient but the constant may be negative, since no token gets cheaper by standing
    later: a fit that wants one is made again without that term. `piece` is how many tokens go
    through the layers at a time; a term for pieces is fitted where points lie in several.
    """
    positions = {position for position, _ in points}
    if len(positions) < degree + 2:
        return None
    terms: dict[str, Term] = {"constant": lambda _: 1.0, "linear": float}
    if piece is not None and len({position // piece for position in positions}) > 1:
        whole = piece
        terms["per_piece"] = lambda position: float(position // whole)
    if degree == 2:
        terms["quadratic"] = lambda position: float(position) ** 2
    while True:
        found = _solved(points, terms)
        negative = [name for name in terms if name != "constant" and found[name] < 0]
        if not negative:
            break
        del terms[negative[-1]]
    curve = Curve(
        found["constant"],
        found.get("linear", 0.0),
        found.get("quadratic", 0.0),
        1.0,
        found.get("per_piece", 0.0),
        piece if "per_piece" in found else None,
    )
    mean = sum(seconds for _, seconds in points) / len(points)
    total = sum((seconds - mean) ** 2 for _, seconds in points)
    left = sum((seconds - curve.at(position)) ** 2 for position, seconds in points)
    explained = 1 - left / total if total else 1.0
    return replace(curve, explained=explained)


def crossover(on: Curve, off: Curve, *, first: int, last: int) -> int | None:
    """The position from which on to the last measured one a token costs less with the cache.

    It is `first` where it always does, and None where it does not at `last`: curves say nothing
    of lengths that were not measured.
    """
    # The curves may jump, so that no formula tells where they meet; there are few positions.
    for position in range(last, first - 1, -1):
        if off.at(position) <= on.at(position):
            return position + 1 if position < last else None
    return first


def _solved(points: Sequence[tuple[int, float]], terms: Mapping[str, Term]) -> dict[str, float]:
    rows = [[term(position) for term in terms.values()] for position, _ in points]
    matrix = torch.tensor(rows, dtype=torch.float64)
    # Columns are scaled to 1, else the squares drown the constant.
    scales = matrix.abs().amax(0).clamp(min=1.0)
    wanted = torch.tensor([seconds for _, seconds in points], dtype=torch.float64)[:, None]
    weights = 1 / wanted.clamp(min=wanted.max().item() * 1e-6 or 1.0)
    weighed = torch.linalg.lstsq(matrix / scales * weights, wanted * weights, driver="gelsd")
    return dict(zip(terms, (weighed.solution[:, 0] / scales).tolist(), strict=True))
