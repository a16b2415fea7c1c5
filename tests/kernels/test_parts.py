"""The exponential, and the activations and the softmax that stand on it."""

import numba
import numpy as np
import pytest
import torch
from torch.nn import functional

from llmcli.kernels import layout
from llmcli.kernels.sources.parts import activate, capped, weighed
from llmcli.kernels.sources.words import address_of, exp


@numba.njit
def each_exp(x, y):
    for i in range(x.size):
        y[i] = exp(x[i])


@numba.njit
def each_capped(x, y, cap):
    for i in range(x.size):
        y[i] = capped(x[i], cap)


@numba.njit
def activated(kind, gate, up, y, start, stop):
    activate(kind, gate, up, y, start, stop)


@numba.njit
def softened(scores, low, high, count, scale, cap, peak):
    return weighed(address_of(scores), low, high, count, scale, cap, peak)


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


def test_capping() -> None:
    x = np.linspace(-100, 100, 20_001, dtype=np.float32)
    y = np.empty_like(x)
    each_capped(x, y, np.float32(30))
    np.testing.assert_allclose(y, 30 * np.tanh(x.astype(np.float64) / 30), rtol=1e-6, atol=1e-5)


ACTIVATIONS = {
    layout.SILU: functional.silu,
    layout.GELU: functional.gelu,
    layout.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    layout.GELU_QUICK: lambda x: x * torch.sigmoid(1.702 * x),
    layout.RELU: functional.relu,
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("gated", [True, False])
def test_activations(kind: np.int64, gated: bool) -> None:
    gate = torch.cat([torch.linspace(-60, 60, 4_099), torch.tensor([-1e30, -200, 0.0, 200, 1e30])])
    up = torch.linspace(-2, 2, len(gate))
    # Neither end at a whole chunk of numbers, and what lies beyond them is left alone.
    start, stop = 3, len(gate) - 2
    y = np.full(len(gate), 7, np.float32)
    activated(kind, gate.numpy(), up.numpy() if gated else up.numpy()[:0], y, start, stop)
    expected = ACTIVATIONS[kind](gate.double()) * (up if gated else 1)
    np.testing.assert_allclose(y[start:stop], expected[start:stop], rtol=1e-5, atol=2e-6)
    assert (np.delete(y, np.s_[start:stop]) == 7).all()


def test_what_is_not_finite_is_not_hidden_by_an_activation() -> None:
    gate = np.full(23, 1, np.float32)
    gate[[3, 20]] = np.nan, np.inf
    for kind in ACTIVATIONS:
        y = np.empty_like(gate)
        activated(kind, gate, gate[:0], y, 0, 23)
        np.testing.assert_array_equal(np.flatnonzero(~np.isfinite(y)), [3, 20])


@pytest.mark.parametrize(("low", "high"), [(0, 40), (0, 1), (5, 6), (7, 33), (8, 16), (39, 40)])
@pytest.mark.parametrize("cap", [0, 3])
@pytest.mark.parametrize("peak", [float("-inf"), 1.5, 100.0])
def test_softmax_of_a_part(low: int, high: int, cap: float, peak: float) -> None:
    scores = torch.randn(40, generator=torch.Generator().manual_seed(0)) * 9
    seen = scores[low:high].double() * 0.5
    if cap:
        seen = cap * torch.tanh(seen / cap)
    new_peak = max(peak, seen.max().item())
    expected = torch.zeros(40, dtype=torch.float64)
    expected[low:high] = torch.exp(seen - new_peak)
    got = scores.numpy().copy()
    half, limit, before = np.float32(0.5), np.float32(cap), np.float32(peak)
    found, shrunk, total = softened(got, low, high, 40, half, limit, before)
    assert found == pytest.approx(new_peak, rel=1e-5)
    assert shrunk == pytest.approx(np.exp(peak - new_peak), rel=1e-4, abs=1e-30)
    assert total == pytest.approx(expected.sum().item(), rel=1e-4, abs=1e-30)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-30)
    assert (np.delete(got, np.s_[low:high]) == 0).all()


def test_exponentials_are_right_to_a_few_units_in_the_last_place() -> None:
    scores = np.linspace(-87, 0, 80_000, dtype=np.float32)
    got, one, none = scores.copy(), np.float32(1), np.float32(0)
    softened(got, 0, scores.size, scores.size, one, none, np.float32(-np.inf))
    exact = np.exp(scores.astype(np.float64))
    assert (np.abs(got - exact) / exact).max() < 3e-7


def test_a_score_that_is_no_number_shows_in_the_sum() -> None:
    scores = np.zeros(24, np.float32)
    scores[9] = np.nan
    one, none, lowest = np.float32(1), np.float32(0), np.float32(-np.inf)
    assert np.isnan(softened(scores, 0, 24, 24, one, none, lowest)[2])
