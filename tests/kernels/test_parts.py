"""The exponential that all activations and the softmax stand on."""

import numba
import numpy as np
import pytest

from llmcli.kernels.parts import capped, tanh
from llmcli.kernels.words import exp


@numba.njit
def each_exp(x, y):
    for i in range(x.size):
        y[i] = exp(x[i])


@numba.njit
def each_tanh(x, y, cap):
    for i in range(x.size):
        y[i] = capped(x[i], cap) if cap > 0 else tanh(x[i])


def test_exp_is_right_to_a_few_units_in_the_last_place() -> None:
    x = np.linspace(-87, 88, 200_001, dtype=np.float32)
    y = np.empty_like(x)
    each_exp(x, y)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(y - exact) / exact).max() < 3e-7


def test_exp_at_its_ends() -> None:
    x = np.array([-np.inf, -1e30, -200, 0, np.nan], np.float32)
    y = np.empty_like(x)
    each_exp(x, y)
    assert (y[:3] < 1e-37).all()
    assert y[3] == 1
    assert np.isnan(y[4])
    high = np.array([200, np.inf], np.float32)
    each_exp(high, high)
    assert (high > 1e38).all()


@pytest.mark.parametrize("cap", [0, 30])
def test_tanh(cap: int) -> None:
    x = np.linspace(-100, 100, 20_001, dtype=np.float32)
    y = np.empty_like(x)
    each_tanh(x, y, np.float32(cap))
    wide = x.astype(np.float64)
    exact = cap * np.tanh(wide / cap) if cap else np.tanh(wide)
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=3e-7 * max(cap, 1))
