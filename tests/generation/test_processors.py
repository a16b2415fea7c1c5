"""Logits processors on vocabularies of a few tokens, and against those of transformers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers.generation import logits_process as theirs

from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import make_processors
from llmcli.generation.processors.base import Processor
from llmcli.generation.processors.filters import (
    epsilon_cutoff,
    eta_cutoff,
    min_p,
    temperature,
    top_k,
    top_p,
    typical_p,
)
from llmcli.generation.processors.penalties import no_repeat_ngram, repetition_penalty

NONE = torch.empty(1, 0, dtype=torch.long)
# Logits of the probabilities [.3, .1, .1, .5].
FOUR = torch.tensor([[0.3, 0.1, 0.1, 0.5]]).log()
CUT = float("-inf")


def _run(processor: Processor, logits: Tensor, ids: Tensor = NONE) -> Tensor:
    before = logits.clone()
    after = processor(ids, logits)
    assert torch.equal(logits, before), "a processor may not write into its input"
    assert not after.isnan().any()
    assert after.dtype == torch.float32
    return after


def _kept(logits: Tensor) -> list[int]:
    return logits[0].isfinite().nonzero()[:, 0].tolist()


def _rows(vocab: int, count: int = 4, spread: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(vocab)
    return torch.randn(count, vocab, generator=generator) * spread


# temperature


@pytest.mark.parametrize("value", [1e-9, 1e-45, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiny_temperature_is_greedy_and_finite(value: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, -50.0, 2.5]], dtype=dtype).float()
    probs = _run(temperature(value), logits).softmax(-1)
    assert probs[0].tolist() == [0, 1, 0, 0, 0]


def test_huge_temperature_is_nearly_uniform() -> None:
    probs = _run(temperature(1e6), _rows(5)).softmax(-1)
    assert (probs - 0.2).abs().max() < 1e-4


def test_temperature_of_huge_logits_does_not_overflow() -> None:
    probs = _run(temperature(0.01), torch.tensor([[6e37, 5e37, -6e37]])).softmax(-1)
    assert probs[0].tolist() == [1, 0, 0]


def test_temperature_keeps_what_is_cut() -> None:
    assert _kept(_run(temperature(0.5), torch.tensor([[CUT, 1.0, 0.0]]))) == [1, 2]


# top-k


@pytest.mark.parametrize(
    ("count", "kept"), [(1, [3]), (2, [0, 3]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3])]
)
def test_top_k(count: int, kept: list[int]) -> None:
    assert _kept(_run(top_k(count), FOUR)) == kept


@pytest.mark.parametrize("count", [4, 5, 10**9])
def test_top_k_from_the_vocabulary_up_changes_nothing(count: int) -> None:
    assert torch.equal(_run(top_k(count), FOUR), FOUR)


def test_top_k_keeps_ties_at_the_last_place() -> None:
    assert _kept(_run(top_k(3), FOUR)) == [0, 1, 2, 3]
    assert _kept(_run(top_k(2), torch.zeros(1, 5))) == [0, 1, 2, 3, 4]


def test_top_k_never_brings_back_what_is_cut() -> None:
    assert _kept(_run(top_k(3), torch.tensor([[CUT, 2.0, CUT, 1.0, CUT]]))) == [1, 3]


# top-p


@pytest.mark.parametrize(
    ("mass", "kept"),
    [
        (0.0, [3]),
        (1e-8, [3]),
        (1e-3, [3]),
        (0.5, [3]),
        (0.79, [0, 3]),
        (0.8, [0, 3]),
        (0.81, [0, 1, 3]),
        (0.95, [0, 1, 2, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_the_mass(mass: float, kept: list[int]) -> None:
    found = _kept(_run(top_p(mass), FOUR))
    # The two tokens of .1 are equal: either may be the third.
    assert found in (kept, [0, 2, 3] if kept == [0, 1, 3] else kept)


@pytest.mark.parametrize("mass", [1e-8, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiny_top_p_over_4096_tokens_keeps_the_best(mass: float, dtype: torch.dtype) -> None:
    logits = _rows(4096, 1).to(dtype).float()
    kept = _kept(_run(top_p(mass), logits))
    assert kept == [int(logits.argmax())]


def test_top_p_of_equal_tokens() -> None:
    """Of 4096 equal tokens five make up 0.1%."""
    assert len(_kept(_run(top_p(1e-3), torch.zeros(1, 4096)))) == 5
    assert len(_kept(_run(top_p(0.9), torch.zeros(1, 4096)))) == math.ceil(0.9 * 4096)


@pytest.mark.parametrize("mass", [0.05, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0])
def test_top_p_of_a_large_vocabulary(mass: float, spread: float) -> None:
    """Above 2048 tokens a shorter list is tried first; where it falls short, all are sorted."""
    logits = _rows(5000, 3, spread)
    for row in logits:
        probs = row.double().softmax(-1).sort(descending=True).values
        wanted = int((probs.cumsum(-1) < mass).sum()) + 1
        kept = _kept(_run(top_p(mass), row[None]))
        assert abs(len(kept) - wanted) <= max(1, wanted // 1000)
        assert row[kept].min() >= row.sort(descending=True).values[len(kept) - 1]


# min-p


@pytest.mark.parametrize(
    ("fraction", "kept"),
    [(0.0, [0, 1, 2, 3]), (0.1, [0, 1, 2, 3]), (0.3, [0, 3]), (0.61, [3]), (1.0, [3])],
)
def test_min_p(fraction: float, kept: list[int]) -> None:
    assert _kept(_run(min_p(fraction), FOUR)) == kept


def test_min_p_one_keeps_all_that_tie_with_the_best() -> None:
    assert _kept(_run(min_p(1.0), torch.tensor([[2.0, 1.0, 2.0]]))) == [0, 2]


# repetition penalty


def test_repetition_penalty_once_for_each_token_seen() -> None:
    logits = torch.tensor([[2.0, 3.0, -2.0, 1.0]])
    ids = torch.tensor([[0, 0, 2]])
    assert _run(repetition_penalty(2.0), logits, ids).tolist() == [[1.0, 3.0, -4.0, 1.0]]


def test_repetition_penalty_of_nothing_seen() -> None:
    assert torch.equal(_run(repetition_penalty(2.0), FOUR), FOUR)


def test_repetition_penalty_row_by_row() -> None:
    got = _run(repetition_penalty(2.0), torch.ones(2, 3), torch.tensor([[0, 0], [1, 2]]))
    assert got.tolist() == [[0.5, 1, 1], [1, 0.5, 0.5]]


# against transformers

PAIRS = {
    "temperature 0.7": (temperature(0.7), theirs.TemperatureLogitsWarper(0.7)),
    "temperature 3": (temperature(3.0), theirs.TemperatureLogitsWarper(3.0)),
    "top_k 1": (top_k(1), theirs.TopKLogitsWarper(1)),
    "top_k 7": (top_k(7), theirs.TopKLogitsWarper(7)),
    "top_k 1000000": (top_k(10**6), theirs.TopKLogitsWarper(10**6)),
    "top_p 0": (top_p(0.0), theirs.TopPLogitsWarper(0.0)),
    "top_p 0.3": (top_p(0.3), theirs.TopPLogitsWarper(0.3)),
    "top_p 0.9": (top_p(0.9), theirs.TopPLogitsWarper(0.9)),
    "min_p 0.05": (min_p(0.05), theirs.MinPLogitsWarper(0.05)),
    "min_p 0.9": (min_p(0.9), theirs.MinPLogitsWarper(0.9)),
    "repetition 1.3": (repetition_penalty(1.3), theirs.RepetitionPenaltyLogitsProcessor(1.3)),
    "repetition 0.5": (repetition_penalty(0.5), theirs.RepetitionPenaltyLogitsProcessor(0.5)),
    "typical_p .3": (typical_p(0.3), theirs.TypicalLogitsWarper(0.3)),
    "typical_p .95": (typical_p(0.95), theirs.TypicalLogitsWarper(0.95)),
    "epsilon .01": (epsilon_cutoff(0.01), theirs.EpsilonLogitsWarper(0.01)),
    "epsilon .9": (epsilon_cutoff(0.9), theirs.EpsilonLogitsWarper(0.9)),
    "eta .02": (eta_cutoff(0.02), theirs.EtaLogitsWarper(0.02)),
    "eta .5": (eta_cutoff(0.5), theirs.EtaLogitsWarper(0.5)),
    "no repeat 2": (no_repeat_ngram(2), theirs.NoRepeatNGramLogitsProcessor(2)),
    "no repeat 4": (no_repeat_ngram(4), theirs.NoRepeatNGramLogitsProcessor(4)),
}


@pytest.mark.parametrize("vocab", [5, 300, 3000])
@pytest.mark.parametrize("name", PAIRS)
def test_as_transformers(name: str, vocab: int) -> None:
    ours, reference = PAIRS[name]
    logits = _rows(vocab, 8)
    ids = torch.randint(vocab, (8, 9), generator=torch.Generator().manual_seed(3))
    got, expected = _run(ours, logits, ids), reference(ids, logits.clone())
    assert torch.equal(got.isfinite(), expected.isfinite())
    # Temperature moves all logits alike, which changes no probability.
    assert torch.allclose(got.softmax(-1), expected.softmax(-1), rtol=1e-5, atol=1e-8)


def test_whole_chain_as_transformers() -> None:
    params = SamplingParams(
        temperature=0.8, top_k=50, top_p=0.9, min_p=0.02, repetition_penalty=1.2
    )
    reference = [
        theirs.RepetitionPenaltyLogitsProcessor(1.2),
        theirs.TemperatureLogitsWarper(0.8),
        theirs.TopKLogitsWarper(50),
        theirs.TopPLogitsWarper(0.9),
        theirs.MinPLogitsWarper(0.02),
    ]
    logits = _rows(3000, 8, 2.0)
    ids = torch.randint(3000, (8, 40), generator=torch.Generator().manual_seed(3))
    got, expected = logits, logits.clone()
    for (_, ours), one in zip(make_processors(params, sampling=True), reference, strict=True):
        got, expected = _run(ours, got, ids), one(ids, expected)
    assert torch.equal(got.isfinite(), expected.isfinite())
    assert torch.allclose(got.softmax(-1), expected.softmax(-1), rtol=1e-5, atol=1e-8)


# the chain


def test_neutral_parameters_make_no_processor() -> None:
    assert make_processors(SamplingParams(), sampling=True) == []
    assert make_processors(SamplingParams(), sampling=False) == []


def test_greedy_takes_the_penalty_alone() -> None:
    params = SamplingParams(temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=2.0)
    assert len(make_processors(params, sampling=False)) == 1
    assert len(make_processors(params, sampling=True)) == 4


@pytest.mark.parametrize("top", [0, 1, 3, 10**9])
@pytest.mark.parametrize("mass", [0.0, 1e-8, 0.5, 1.0])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("heat", [0.0, 1e-45, 0.8, 1e6])
def test_some_token_is_always_left(top: int, mass: float, fraction: float, heat: float) -> None:
    params = SamplingParams(top_k=top, top_p=mass, min_p=fraction, temperature=heat)
    for logits in (torch.zeros(1, 5), _rows(5), torch.tensor([[CUT, CUT, 0.0, CUT, CUT]])):
        shaped = logits
        for _, process in make_processors(params, sampling=True):
            shaped = _run(process, shaped)
        best = logits.amax(-1, keepdim=True)
        assert (shaped.isfinite() & (logits == best)).any(-1).all()
