"""The sampler: seeds, the distribution drawn, and the ends of the unit interval."""

from __future__ import annotations

import math

import pytest
import torch

from llmcli.generation.sampler import Mirostat, Sampler, invert

CUT = float("-inf")
LAST = 1 - 2**-53  # the largest double below 1


def _uniform(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def _draw(seed: int | None, count: int = 50) -> list[int]:
    sampler = Sampler(seed)
    logits = torch.zeros(1, 1000)
    return [int(sampler.draw(logits)) for _ in range(count)]


def test_same_seed_same_ids() -> None:
    assert _draw(7) == _draw(7)
    assert _draw(7) != _draw(8)


def test_no_seed_is_another_run_each_time() -> None:
    assert _draw(None) != _draw(None)


def test_global_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    ids = _draw(7)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert _draw(7) == ids


def test_a_draw_does_not_depend_on_what_the_logits_were_before() -> None:
    """One number a draw, whatever the vocabulary: the tenth draw is the same number."""
    short, long = Sampler(3), Sampler(3)
    for _ in range(9):
        short.draw(torch.zeros(1, 2))
        long.draw(torch.zeros(1, 5000))
    logits = torch.randn(1, 100, generator=torch.Generator().manual_seed(0))
    assert short.draw(logits).item() == long.draw(logits).item()


def test_twenty_thousand_draws_follow_the_distribution() -> None:
    probs = torch.tensor([0.3, 0.1, 0.0, 0.1, 0.5])
    count = 20_000
    drawn = Sampler(1).draw(probs.log().expand(count, -1))
    seen = drawn.bincount(minlength=5).double()
    assert seen[2] == 0
    expected = probs.double() * count
    kept = probs > 0
    chi_square = ((seen - expected)[kept].square() / expected[kept]).sum()
    # The 99.9% point with three degrees of freedom; the seed is fixed.
    assert chi_square < 16.27


@pytest.mark.parametrize(
    ("logits", "at_zero", "at_last"),
    [
        ([0.0, 0.0, 0.0], 0, 2),
        ([CUT, 0.0, 0.0], 1, 2),
        ([0.0, 0.0, CUT], 0, 1),
        ([CUT, CUT, 0.0, CUT, CUT], 2, 2),
        ([CUT, 0.0, CUT, 0.0, CUT], 1, 3),
        ([0.0, -200.0, -800.0], 0, 0),
    ],
)
def test_ends_of_the_interval(logits: list[float], at_zero: int, at_last: int) -> None:
    rows = torch.tensor([logits, logits])
    assert invert(rows, _uniform(0.0, LAST)).tolist() == [at_zero, at_last]


def test_nothing_cut_is_ever_drawn_from_a_large_vocabulary() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 50_000, generator=generator) * 4
    logits[torch.rand(1, 50_000, generator=generator) < 0.9] = CUT
    logits[:, -100:] = CUT
    uniform = torch.cat((_uniform(0.0, LAST), torch.linspace(0, LAST, 300).double()[:, None]))
    drawn = invert(logits.expand(len(uniform), -1), uniform)
    assert logits[0, drawn].isfinite().all()
    # Ids rise with the uniform number, as a cumulative distribution does.
    assert (drawn[2:].diff() >= 0).all()


def test_rows_are_drawn_apart() -> None:
    rows = torch.tensor([[0.0, CUT, CUT], [CUT, 0.0, CUT], [CUT, CUT, 0.0]])
    assert Sampler(0).draw(rows).tolist() == [0, 1, 2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), CUT])
def test_a_broken_row_gives_an_id_of_the_vocabulary(bad: float) -> None:
    """The finite check comes right after the choice, and must be reached."""
    for row in (torch.full((1, 5), bad), torch.tensor([[0.0, bad, 1.0, 0.0, 0.0]])):
        assert 0 <= int(invert(row, _uniform(0.5))) < 5


@pytest.mark.parametrize("tau", [2.0, 4.0, 6.0])
def test_mirostat_steers_the_mean_surprise_to_tau(tau: float) -> None:
    logits = torch.linspace(4, 0, 300)[None]
    bits = -logits.log_softmax(-1)[0] / math.log(2)
    sampler = Mirostat(1, tau=tau, eta=0.1)
    surprises = []
    for _ in range(1500):
        kept = bits <= max(sampler.bar, bits.min().item())
        chosen = int(sampler.draw(logits))
        assert kept[chosen]
        among = logits[0].masked_fill(~kept, float("-inf")).log_softmax(-1)
        surprises.append(-among[chosen].item() / math.log(2))
    assert sum(surprises) / len(surprises) == pytest.approx(tau, abs=0.15)
