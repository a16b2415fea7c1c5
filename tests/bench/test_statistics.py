"""Medians, percentiles and intervals on numbers worked out by hand."""

from __future__ import annotations

import random

import pytest

from llmcli.bench.statistics import percentile, ratio, spread


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (25, 2), (50, 3), (90, 4.6), (99, 4.96), (100, 5)]
)
def test_percentiles(percent: float, expected: float) -> None:
    assert percentile([5, 1, 4, 2, 3], percent) == pytest.approx(expected)


def test_one_value_is_every_percentile() -> None:
    assert {percentile([7.0], percent) for percent in (0, 50, 99)} == {7.0}


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_a_spread() -> None:
    one = spread([4, 1, 2, 3, 100])
    assert (one.median, one.low, one.high, one.least, one.most, one.count) == (3, 2, 4, 1, 100, 5)


def test_a_ratio_is_of_medians_and_lies_in_its_interval() -> None:
    one = ratio([2, 2, 20], [1, 1, 1])
    assert one.value == 2
    assert one.low is not None
    assert one.high is not None
    assert one.low <= 2 <= one.high
    assert one.high > 2


def test_an_interval_narrows_with_the_noise() -> None:
    draw = random.Random(1)
    widths = []
    for noise in (0.01, 0.3):
        slow = [2 + draw.gauss(0, noise) for _ in range(15)]
        fast = [1 + draw.gauss(0, noise / 2) for _ in range(15)]
        one = ratio(slow, fast)
        assert one.low is not None
        assert one.high is not None
        assert one.low < one.value < one.high
        assert one.value == pytest.approx(2, rel=2 * noise)
        widths.append(one.high - one.low)
    assert widths[0] < widths[1]


def test_two_runs_have_no_interval() -> None:
    assert ratio([4, 4], [1, 1]).low is None


def test_the_interval_is_repeatable() -> None:
    slow, fast = [random.Random(1).random() for _ in range(9)], [1.0, 2.0, 3.0]
    assert ratio(slow, fast, seed=1) == ratio(slow, fast, seed=1)
