"""What a token costs by its place, fitted: linear with a cache, quadratic in pieces without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

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

    No coefficient may be negative: no token takes less than no time, or gets cheaper by standing
    later. Of all fits without negative ones this is the best. `piece` is how many tokens go through
    the layers at a time; a term for pieces is fitted where points lie in several.
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
    found = _solved(points, terms)
    curve = Curve(
        found.get("constant", 0.0),
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
    """The coefficients above 0. The best fit without negative ones is the plain best of its terms,
    and these are so few that all choices of them are tried.
    """
    every = torch.tensor([[term(at) for term in terms.values()] for at, _ in points]).double()
    wanted = torch.tensor([seconds for _, seconds in points], dtype=torch.float64)[:, None]
    weights = 1 / wanted.clamp(min=wanted.max().item() * 1e-6 or 1.0)
    # Columns are scaled to 1, else the squares drown the constant.
    scales = every.abs().amax(0).clamp(min=1.0)
    every, wanted = every / scales * weights, wanted * weights
    least, best = torch.inf, dict[str, float]()
    for count in range(1, len(terms) + 1):
        for chosen in combinations(range(len(terms)), count):
            columns = every[:, chosen]
            found = torch.linalg.lstsq(columns, wanted, driver="gelsd").solution[:, 0]
            left = (columns @ found - wanted[:, 0]).square().sum().item()
            if left < least and bool((found >= 0).all()):
                names = [[*terms][one] for one in chosen]
                values = (found / scales[[*chosen]]).tolist()
                least, best = left, dict(zip(names, values, strict=True))
    return best
