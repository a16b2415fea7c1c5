"""Every strategy with every cache and none: the same ids, ends, counts and logprobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from llmcli.cache import CacheKind, make_cache
from llmcli.errors import UsageError
from llmcli.generation.params import SAMPLING_KEYS, SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import (
    STRATEGY_NAMES,
    StrategyOptions,
    make_strategy,
    reads,
)
from llmcli.generation.token import Token
from llmcli.model import Decoder
from tests.generation.strategy_cases import CASES, Case
from tests.tiny import random_decoder, small_spec

VOCAB, NEW = 40, 14
PROMPT = [1, 2, 3, 1, 2]

SHAPED = {
    "temperature": 1.3, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.99,
    "top_n_sigma": 3.0, "epsilon_cutoff": 1e-3, "eta_cutoff": 1e-3, "xtc_probability": 0.3,
    "repetition_penalty": 1.1, "repetition_last": 8, "presence_penalty": 0.2,
    "frequency_penalty": 0.1, "no_repeat_ngram": 3, "dry_multiplier": 0.5, "min_new_tokens": 2,
    "logit_bias": ((7, 1.5),), "suppress": (9, 10),
}  # fmt: skip
PARAMS = {"neutral": SamplingParams(seed=5), "shaped": SamplingParams(seed=5, **SHAPED)}

cases = pytest.mark.parametrize("case", CASES, ids=str)
# Caches that hold what was computed exactly; tests/cache has the others.
EXACT: tuple[CacheKind, ...] = ("growing", "ring")
kinds = pytest.mark.parametrize("kind", [*EXACT, "none"])
params_ = pytest.mark.parametrize("params", PARAMS)


# The windows of two layers; a text of 19 ids goes far beyond the narrow one.
FAMILIES: dict[str, tuple[int | None, ...]] = {"llama": (None, None), "windowed": (4, None)}


@pytest.fixture(scope="module", params=FAMILIES)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    spec = small_spec(VOCAB)
    windows = FAMILIES[request.param]
    layers = tuple(replace(spec.layers[0], window=window) for window in windows)
    return random_decoder(replace(spec, layers=layers), seed=22, dtype=torch.float64)


def _free(new: int = NEW, room: int = 100) -> StopRule:
    return StopRule(frozenset(), new, room)


def _ids(tokens: list[Token]) -> list[int]:
    return [token.id for token in tokens]


def test_every_strategy_has_a_case() -> None:
    assert {case.name for case in CASES} == set(STRATEGY_NAMES)


@params_
@cases
def test_every_cache_gives_what_none_gives_and_logprobs_are_those_of_one_prefill(
    decoder: Decoder, case: Case, params: str
) -> None:
    expected = case.run(decoder, PROMPT, "none", stop=_free(), params=PARAMS[params])
    # What edits logits knows no cache.
    for kind in EXACT if params == "neutral" else EXACT[1:]:
        got = case.run(decoder, PROMPT, kind, stop=_free(), params=PARAMS[params])
        assert _ids(got) == _ids(expected)
        for one, other in zip(got, expected, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-9)
    ids = torch.tensor([PROMPT + _ids(expected)])
    with torch.inference_mode():
        logprobs = decoder(ids, last_only=False)[0].log_softmax(-1)
    for place, token in enumerate(expected, start=len(PROMPT)):
        assert token.logprob == pytest.approx(logprobs[place - 1, token.id].item(), abs=1e-9)


# The ids of all kinds are the same, by the test above.
@cases
def test_stop_ids(decoder: Decoder, case: Case) -> None:
    kind: CacheKind = "ring"
    free = _ids(case.run(decoder, PROMPT, kind, stop=_free()))
    last = next(at for at in range(2, NEW) if free[at] not in free[:at])
    stop = StopRule(frozenset({free[last], VOCAB - 1}), NEW, 100)
    tokens = case.run(decoder, PROMPT, kind, stop=stop)
    stopped = tokens[-1].id in stop.stop_ids
    assert tokens[-1].finish_reason == ("stop" if stopped else "length")
    assert not {*_ids(tokens)[:-1]} & stop.stop_ids
    if case.name != "beam":
        assert _ids(tokens) == free[: last + 1]


@cases
def test_budget(decoder: Decoder, case: Case) -> None:
    for new, room, reason in ((5, 100, "length"), (5, 5, "length"), (100, 3, "context")):
        tokens = case.run(decoder, PROMPT, stop=_free(new, room))
        assert [token.finish_reason for token in tokens] == [None] * (min(new, room) - 1) + [reason]
    assert len(case.run(decoder, PROMPT, stop=_free(1))) == 1
    assert case.run(decoder, PROMPT, stop=_free(0)) == []


@cases
def test_the_same_seed_says_the_same(decoder: Decoder, case: Case) -> None:
    assert case.run(decoder, PROMPT, stop=_free()) == case.run(decoder, PROMPT, stop=_free())


@kinds
def test_beams_swap_places_and_every_cache_follows(
    decoder: Decoder, kind: CacheKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cache that is not reordered, scores would be of other beams' histories."""
    swaps: list[list[int]] = []
    real = Stepper.reorder

    def spy(stepper: Stepper, rows: torch.Tensor) -> None:
        swaps.append(rows.tolist())
        real(stepper, rows)

    monkeypatch.setattr(Stepper, "reorder", spy)
    case = Case("beam", {"num_beams": 3, "num_return": 3})
    found: list[Any] = []
    for one in (kind, "none"):
        strategy = case.make(decoder)
        stepper = Stepper(decoder, make_cache(one, decoder.spec))
        list(strategy.run(stepper, PROMPT, _free()))
        found.append(strategy.outcome.hypotheses)
    assert any(rows != sorted(rows) for rows in swaps)
    for got, expected in zip(*found, strict=True):
        assert got.beam.ids == expected.beam.ids
        assert got.score == pytest.approx(expected.score, abs=1e-9)


# what each reads


class _Spied:
    """Stands for a dataclass and notes which of its fields are looked at."""

    def __init__(self, real: Any) -> None:
        self.real, self.seen = real, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self.real, name)


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_the_table_says_what_is_read(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, name: Any, sampling: bool
) -> None:
    """Every option set, and most ids stop ids, so that beams finish early."""
    seen: set[str] = set()

    def spy(real_name: Any, params: Any, options: Any) -> Any:
        spies = _Spied(params), _Spied(options)
        strategy = make_strategy(real_name, *spies)  # type: ignore[arg-type]
        seen.update(*(one.seen for one in spies))
        for one in spies:
            one.seen = seen
        return strategy

    monkeypatch.setattr("tests.generation.strategy_cases.make_strategy", spy)
    params = SamplingParams(seed=5, mirostat_tau=4.0, **SHAPED)
    options = {"guidance_scale": 2.0, "sampling": sampling, "num_beams": 2}
    stop = StopRule(frozenset(range(20, VOCAB)), NEW, 100)
    Case(name).run(decoder, PROMPT, stop=stop, params=params, **options)
    known = {*SAMPLING_KEYS, *StrategyOptions.__dataclass_fields__}
    assert seen <= known
    assert seen == reads(name, sampling=sampling)


def test_no_option_is_read_by_none() -> None:
    every = {*SAMPLING_KEYS, *StrategyOptions.__dataclass_fields__}
    assert set().union(*(reads(name, sampling=True) for name in STRATEGY_NAMES)) == every


# refusals


def test_speculative_needs_a_draft() -> None:
    with pytest.raises(UsageError, match="draft"):
        make_strategy("speculative", SamplingParams())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_beams": 0}, "num-beams"),
        ({"num_beams": 4, "num_beam_groups": 3}, "3 groups"),
        ({"diversity_penalty": 1.0}, "diversity-penalty"),
        ({"length_penalty": float("nan")}, "length-penalty"),
        ({"num_draft_tokens": 0}, "num-draft-tokens"),
        ({"top_logprobs": -1}, "top-logprobs"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        StrategyOptions(**options)
