"""A narrowed chain is the plain one: the same logits, every stage told whole, all rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.processors.narrow import run_narrowed

VOCAB = 4000
IDS = torch.arange(30)[None]
SETTINGS = {
    "top-k alone": {"top_k": 20},
    "top-k, top-p": {"top_k": 20, "top_p": 0.9},
    "all filters": {
        "temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.9,
        "epsilon_cutoff": 1e-4, "eta_cutoff": 1e-4, "top_n_sigma": 2.0,
    },
    "without top-k": {"top_p": 0.5, "typical_p": 0.9, "eta_cutoff": 1e-3},
    "wide": {"top_p": 0.999999, "min_p": 1e-9},
    "exclude top choices": {
        "top_k": 40, "min_p": 0.001, "xtc_probability": 1.0, "xtc_threshold": 0.05,
    },
    "before the filters": {"repetition_penalty": 1.3, "suppress": (1, 2), "top_k": 9, "top_p": 0.9},
}  # fmt: skip


def rows(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    ranks = torch.stack([torch.randperm(VOCAB, generator=generator) for _ in range(count)])
    # Rounded, so that there are ties.
    return (-1.5 * (ranks + 1).float().log()).mul(8).round() / 8


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [1, 3])
def test_it_equals_the_plain_chain(name: str, count: int) -> None:
    params = SamplingParams(seed=0, **SETTINGS[name])  # type: ignore[arg-type]

    def chain() -> list:  # type: ignore[type-arg]
        return make_processors(
            params, sampling=True, surroundings=Surroundings(5, {3}, {9}),
            generator=torch.Generator().manual_seed(1),
        )  # fmt: skip

    ids, plain, stages = IDS.expand(count, -1), rows(count), []
    for stage, process in chain():
        plain = process(ids, plain)
        stages.append((stage, plain))
    told: list[tuple[str, Tensor]] = []
    got = run_narrowed(chain(), ids, rows(count), lambda *one: told.append(one))
    assert [stage for stage, _ in told] == [stage for stage, _ in stages]
    for (_, ours), (_, theirs) in zip(told, stages, strict=True):
        assert torch.equal(ours > float("-inf"), theirs > float("-inf"))
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert torch.equal(got, run_narrowed(chain(), ids, rows(count)))
    torch.testing.assert_close(got, plain, atol=1e-6, rtol=0)


def test_filters_behind_top_k_see_few_ids() -> None:
    widths = []

    def looking(ids: Tensor, logits: Tensor) -> Tensor:
        widths.append(logits.shape[-1])
        return logits

    chain = make_processors(SamplingParams(top_k=7, seed=0), sampling=True)
    chain += [("min-p", looking), ("xtc", looking), ("top-p", looking)]
    out = run_narrowed(chain, IDS, torch.randn(1, VOCAB, generator=torch.Generator()))
    assert widths == [7, VOCAB, 7]
    assert out.shape == (1, VOCAB)
    assert int((out > float("-inf")).sum()) == 7


def test_infinite_logits_are_left_for_the_caller_to_refuse() -> None:
    logits = torch.full((1, VOCAB), float("nan"))
    chain = make_processors(SamplingParams(top_k=7, min_p=0.5, seed=0), sampling=True)
    assert not run_narrowed(chain, IDS, logits).isfinite().any()
