"""Greedy and sample: the loop, what it reports, when it ends; with a cache and without."""

from __future__ import annotations

import pytest
import torch

from llmcli.cache import CacheKind, make_cache
from llmcli.generation.params import SAMPLING_KEYS, SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import READS, STRATEGY_NAMES, StrategyName, make_strategy
from llmcli.generation.token import Token
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec
from tests.tiny import random_decoder, random_parameters, small_spec

PROMPT = [1, 2, 3, 4]

strategies = pytest.mark.parametrize("name", STRATEGY_NAMES)
kinds = pytest.mark.parametrize("kind", ["growing", "none"])


def _run(
    decoder: Decoder,
    name: StrategyName,
    params: SamplingParams | None = None,
    *,
    kind: CacheKind = "growing",
    new: int = 12,
    room: int = 100,
    stop_ids: frozenset[int] = frozenset(),
    top: int = 0,
) -> list[Token]:
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    strategy = make_strategy(name, params or SamplingParams(seed=5), top_logprobs=top)
    return list(strategy.run(stepper, PROMPT, StopRule(stop_ids, new, room)))


def _ids(tokens: list[Token]) -> list[int]:
    return [token.id for token in tokens]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return random_decoder(seed=4)


def _constant(logits: list[float]) -> Decoder:
    """A decoder that says the same logits always: the head reads one direction of a lone row."""
    spec: DecoderSpec = small_spec(len(logits))
    parameters = random_parameters(spec)
    for name, tensor in parameters.items():
        tensor.fill_(1.0 if name.endswith("norm.weight") or name.startswith("embed") else 0.0)
    parameters["lm_head.weight"][:, 0] = torch.tensor(logits)
    return Decoder.filled(spec, parameters.items()).eval()


# reported logprobs


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=5),
        SamplingParams(seed=5, temperature=2.0, top_k=9, repetition_penalty=1.5),
    ],
)
@kinds
@strategies
def test_logprobs_are_those_of_one_prefill(
    decoder: Decoder, name: StrategyName, kind: CacheKind, params: SamplingParams
) -> None:
    """The model's own, before any processor; and the cache gave what a fresh pass gives."""
    tokens = _run(decoder, name, params, kind=kind, new=30)
    whole = torch.tensor([PROMPT + _ids(tokens)])
    with torch.inference_mode():
        logprobs = decoder(whole, last_only=False)[0].log_softmax(-1)
    at = torch.arange(len(PROMPT) - 1, whole.shape[1] - 1)
    expected = logprobs[at, whole[0, len(PROMPT) :]]
    got = torch.tensor([token.logprob for token in tokens], dtype=torch.float64)
    assert (got - expected).abs().max() < 1e-9


@strategies
def test_top_logprobs(decoder: Decoder, name: StrategyName) -> None:
    for token in _run(decoder, name, top=5, new=6):
        ids, logprobs = zip(*token.top, strict=True)
        assert len(set(ids)) == 5
        assert list(logprobs) == sorted(logprobs, reverse=True)
        if name == "greedy":
            assert token.top[0] == (token.id, pytest.approx(token.logprob, abs=1e-9))
    assert all(len(token.top) == 320 for token in _run(decoder, name, top=10**6, new=2))
    assert all(token.top == () for token in _run(decoder, name, new=2))


# ending


@kinds
@strategies
def test_length(decoder: Decoder, name: StrategyName, kind: CacheKind) -> None:
    tokens = _run(decoder, name, kind=kind, new=5)
    assert [token.finish_reason for token in tokens] == [None] * 4 + ["length"]


@strategies
def test_context(decoder: Decoder, name: StrategyName) -> None:
    tokens = _run(decoder, name, new=9, room=3)
    assert [token.finish_reason for token in tokens] == [None, None, "context"]


@strategies
def test_stop_id_is_given_and_is_the_last(decoder: Decoder, name: StrategyName) -> None:
    whole = _ids(_run(decoder, name))
    third = whole[2]
    assert third not in whole[:2]
    tokens = _run(decoder, name, stop_ids=frozenset({third, 319}))
    assert _ids(tokens) == whole[:3]
    assert tokens[-1].finish_reason == "stop"


@pytest.mark.parametrize(("new", "room"), [(0, 9), (9, 0), (-1, 9), (9, -3)])
@strategies
def test_no_budget_runs_nothing(decoder: Decoder, name: StrategyName, new: int, room: int) -> None:
    assert _run(decoder, name, new=new, room=room) == []


@kinds
def test_a_token_is_given_before_the_next_is_computed(decoder: Decoder, kind: CacheKind) -> None:
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    run = make_strategy("greedy", SamplingParams()).run(
        stepper, PROMPT, StopRule(frozenset(), 9, 9)
    )
    next(run)
    assert stepper.ids.shape[1] == len(PROMPT)
    next(run)
    assert stepper.ids.shape[1] == len(PROMPT) + 1


# choice


@strategies
def test_cache_on_and_off_choose_alike(decoder: Decoder, name: StrategyName) -> None:
    on, off = (_ids(_run(decoder, name, kind=kind, new=30)) for kind in ("growing", "none"))
    assert on == off


def test_greedy_takes_the_best() -> None:
    assert _ids(_run(_constant([0.0, 1.0, 3.0, 2.0, -1.0]), "greedy", new=3)) == [2, 2, 2]


def test_greedy_with_a_penalty_moves_on() -> None:
    """With [2, 3, -2, 1, 1.9] and every prompt id 1..4 seen, halved positives leave id 0 best."""
    params = SamplingParams(repetition_penalty=2.0)
    assert _ids(_run(_constant([2.0, 3.0, -2.0, 1.0, 1.9]), "greedy", params, new=2)) == [0, 1]


@pytest.mark.parametrize("heat", [0.0, 1e-9, 1e-45])
@pytest.mark.parametrize("others", [{}, {"top_k": 3}, {"top_p": 0.5, "min_p": 0.1}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temperature_nought_is_greedy(heat: float, others: dict, dtype: torch.dtype) -> None:
    decoder = random_decoder(seed=4, dtype=dtype)
    greedy = _ids(_run(decoder, "greedy", new=8))
    for seed in range(2):
        params = SamplingParams(temperature=heat, seed=seed, **others)
        assert _ids(_run(decoder, "sample", params, new=8)) == greedy


@pytest.mark.parametrize("heat", [0.0, -0.0])
def test_temperature_nought_breaks_ties_as_greedy_does(heat: float) -> None:
    decoder = _constant([0.0, 1.0, 1.0, 1.0, 0.0])
    for seed in range(4):
        params = SamplingParams(temperature=heat, seed=seed, top_k=2)
        assert _ids(_run(decoder, "sample", params, new=5)) == [1] * 5


@pytest.mark.parametrize("params", [{"top_k": 1}, {"top_p": 0.0}, {"top_p": 1e-8}, {"min_p": 1.0}])
def test_narrowest_filters_are_greedy(decoder: Decoder, params: dict) -> None:
    greedy = _ids(_run(decoder, "greedy"))
    assert _ids(_run(decoder, "sample", SamplingParams(seed=1, **params))) == greedy


def test_seeds(decoder: Decoder) -> None:
    def sample(seed: int | None) -> list[int]:
        return _ids(_run(decoder, "sample", SamplingParams(seed=seed), new=30))

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)
    assert sample(None) != sample(None)


def test_filters_bound_what_is_drawn() -> None:
    decoder = _constant([5.0, 4.0, 3.0, 2.0, 1.0])
    params = SamplingParams(seed=1, top_k=2, temperature=10.0)
    assert set(_ids(_run(decoder, "sample", params, new=40))) == {0, 1}


# the registry


def test_each_strategy_says_what_it_reads() -> None:
    assert set(READS) == set(STRATEGY_NAMES)
    assert all(keys <= set(SAMPLING_KEYS) for keys in READS.values())
    # Every parameter is read by some strategy.
    assert frozenset().union(*READS.values()) == set(SAMPLING_KEYS)
