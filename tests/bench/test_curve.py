"""Fits find the numbers that made the points; crossovers lie where the curves meet."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from llmcli.bench.curve import Curve, crossover, fit


def test_a_fit_finds_what_made_the_points() -> None:
    points = [(n, 2e-3 + 3e-6 * n + 4e-9 * n * n) for n in range(10, 2000, 37)]
    curve = fit(points, degree=2)
    assert curve is not None
    assert curve.constant == pytest.approx(2e-3, rel=1e-6)
    assert curve.linear == pytest.approx(3e-6, rel=1e-6)
    assert curve.quadratic == pytest.approx(4e-9, rel=1e-6)
    assert curve.explained == pytest.approx(1)


def test_pieces_of_a_text_are_a_term_of_their_own() -> None:
    places = [*range(480, 560), *range(990, 1100)]
    points = [(n, 2e-3 + 3e-6 * n + 4e-9 * n * n + 5e-4 * (n // 512)) for n in places]
    curve = fit(points, degree=2, piece=512)
    assert curve is not None
    assert curve.per_piece == pytest.approx(5e-4, rel=1e-6)
    assert curve.constant == pytest.approx(2e-3, rel=1e-6)
    assert curve.quadratic == pytest.approx(4e-9, rel=1e-6)
    assert curve.at(1024) - curve.at(1023) == pytest.approx(5e-4 + 3e-6 + 2047 * 4e-9, rel=1e-6)


def test_of_one_piece_nothing_is_told() -> None:
    curve = fit([(n, 1.0 + n) for n in range(512)], degree=2, piece=512)
    assert curve is not None
    assert (curve.per_piece, curve.piece) == (0, None)


def test_noise_is_told_from_the_line() -> None:
    draw = random.Random(0)
    points = [(n, 1e-3 + 1e-6 * n + draw.gauss(0, 2e-4)) for n in range(1000)]
    curve = fit(points, degree=1)
    assert curve is not None
    assert curve.linear == pytest.approx(1e-6, rel=0.1)
    assert 0.3 < curve.explained < 0.9


def test_no_token_gets_cheaper_by_standing_later() -> None:
    curve = fit([(n, 1.0 - n / 1000) for n in range(100)], degree=2)
    assert curve is not None
    assert (curve.linear, curve.quadratic) == (0, 0)
    # What is least off in proportion: sum of 1/s over sum of 1/s^2.
    seconds = [1.0 - n / 1000 for n in range(100)]
    constant = sum(1 / s for s in seconds) / sum(1 / s**2 for s in seconds)
    assert curve.constant == pytest.approx(constant)


def test_no_token_takes_less_than_no_time() -> None:
    """What lies on a line through -50 at place 0, or on a parabola, is not told as it lies."""
    line = fit([(n, n - 50.0) for n in range(100, 200)], degree=1)
    assert line is not None
    assert line.constant == 0
    # What is least off in proportion: sum of n/s over sum of n^2/s^2.
    ratios = [n / (n - 50) for n in range(100, 200)]
    assert line.linear == pytest.approx(sum(ratios) / sum(ratio**2 for ratio in ratios))
    assert line.explained < 0.98
    bent = fit([(n, 1e-3 * n - 30.0 / n) for n in range(300, 400)], degree=2)
    assert bent is not None
    assert min(bent.constant, bent.linear, bent.quadratic) == 0
    assert bent.quadratic > 0


@pytest.mark.parametrize("seed", range(8))
def test_no_other_fit_without_negative_terms_is_better(seed: int) -> None:
    """Nothing near is, and where nothing near is better nothing is."""
    draw = random.Random(seed)
    bend, start = draw.uniform(-1e-5, 1e-5), draw.uniform(-0.02, 0.05)
    points = [(n, max(0.01, start + 1e-3 * n + bend * n * n)) for n in range(20, 120, 7)]

    def off(curve: Curve) -> float:
        return sum((curve.at(n) / seconds - 1) ** 2 for n, seconds in points)

    best = fit(points, degree=2)
    assert best is not None
    for name, step in (("constant", 1e-6), ("linear", 1e-8), ("quadratic", 1e-10)):
        value = getattr(best, name)
        assert value >= 0
        for other in (value + step, value - step):
            assert other < 0 or off(replace(best, **{name: other})) > off(best)


def test_noise_of_slow_tokens_does_not_move_the_fast_ones() -> None:
    draw = random.Random(2)
    fast = [(n, 0.01 + 1e-5 * n) for n in range(30, 130)]
    slow = [(n, (0.01 + 1e-5 * n) * draw.choice([1, 1, 1, 8])) for n in range(400, 500)]
    curve = fit([*fast, *slow], degree=1)
    assert curve is not None
    assert curve.at(30) == pytest.approx(0.0103, rel=0.03)


def test_times_of_zero_are_no_trouble() -> None:
    curve = fit([(n, 0.0) for n in range(9)], degree=1)
    assert curve is not None
    assert (curve.constant, curve.linear) == (0, 0)


@pytest.mark.parametrize(("places", "degree"), [([1, 2], 1), ([1, 2, 3], 2), ([5] * 9, 1)])
def test_too_few_positions_tell_nothing(places: list[int], degree: int) -> None:
    assert fit([(place, 1.0) for place in places], degree=degree) is None


@pytest.mark.parametrize(
    ("on", "off", "expected"),
    [
        (Curve(2, 0, 0, 1), Curve(1, 0.125, 0, 1), 9),
        (Curve(1, 0, 0, 1), Curve(2, 0.1, 0, 1), 1),
        (Curve(5, 0, 0, 1), Curve(1, 0, 1, 1), 3),
        (Curve(1, 1, 0, 1), Curve(2, 0, 0.01, 1), 99),
        # Without the cache it costs more from the second piece on, and at the end of the first.
        (Curve(10, 0, 0, 1), Curve(1, 0.1, 0, 1, 5, 50), 50),
        (Curve(5.5, 0, 0, 1), Curve(1, 0.1, 0, 1, 5, 50), 46),
        (Curve(2, 1, 0, 1), Curve(1, 0.5, 0, 1), None),
        (Curve(1, 0, 0, 1), Curve(1, 0, 0, 1), None),
        (Curve(1, 0, 0, 1), Curve(2, 0, 0, 1), 1),
        # They meet past what was measured, which says nothing.
        (Curve(6, 0.5, 0, 1), Curve(160, 0, 0, 1), 1),
        (Curve(160, 0, 0, 1), Curve(6, 0.5, 0, 1), None),
    ],
)
def test_crossover(on: Curve, off: Curve, expected: int | None) -> None:
    assert crossover(on, off, first=1, last=200) == expected
