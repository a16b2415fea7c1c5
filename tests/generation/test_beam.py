"""Beam search against brute force, with a cache and without, on a vocabulary of four."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.beam import BeamSearch, Hypothesis
from llmcli.generation.strategies.sequential import Greedy
from llmcli.model import Decoder
from tests.generation.twins import llama_twins
from tests.tiny import random_decoder, small_spec

VOCAB, LENGTH = 4, 3
STOP = frozenset({3})
PROMPT = [1, 2]


@pytest.fixture(scope="module", params=range(3))
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return random_decoder(small_spec(VOCAB), seed=request.param)


def _search(
    decoder: Decoder,
    prompt: list[int] = PROMPT,
    *,
    kind: Any = "growing",
    new: int = LENGTH,
    stop: frozenset[int] = STOP,
    **options: Any,
) -> list[Hypothesis]:
    every = {"num_return": options.get("num_beams", 4)}
    search = BeamSearch(SamplingParams(), StrategyOptions(**every, **options))
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    tokens = list(search.run(stepper, prompt, StopRule(stop, new, 100)))
    best = search.outcome.hypotheses[0]
    assert tuple(token.id for token in tokens) == best.beam.ids
    assert [token.finish_reason for token in tokens] == [None] * (len(tokens) - 1) + [
        best.finish_reason
    ]
    return search.outcome.hypotheses


def _brute_force(
    decoder: Decoder, prompt: list[int], penalty: float, stop: frozenset[int] = STOP
) -> list[tuple[tuple[int, ...], float]]:
    """Every continuation that ends in a stop id or fills the length, best first."""
    found: dict[tuple[int, ...], float] = {}
    for ids in product(range(VOCAB), repeat=LENGTH):
        end = next((at + 1 for at, id_ in enumerate(ids) if id_ in stop), LENGTH)
        ids = ids[:end]
        with torch.inference_mode():
            logits = decoder(torch.tensor([[*prompt, *ids]]), last_only=False)[0].double()
        logprobs = logits.log_softmax(-1)[len(prompt) - 1 :]
        total = sum(logprobs[at, id_].item() for at, id_ in enumerate(ids))
        found[ids] = total / len(ids) ** penalty
    return sorted(found.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("kind", ["growing", "none"])
def test_as_many_beams_as_prefixes_is_brute_force(
    decoder: Decoder, penalty: float, kind: str
) -> None:
    expected = _brute_force(decoder, PROMPT, penalty)[:16]
    got = _search(decoder, kind=kind, num_beams=16, length_penalty=penalty, early_stopping="never")
    assert [one.beam.ids for one in got] == [ids for ids, _ in expected]
    for one, (_, score) in zip(got, expected, strict=True):
        assert one.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("early", ["off", "never"])
def test_the_best_is_found_by_either_exact_rule(decoder: Decoder, early: Any) -> None:
    for penalty in (-1.0, 0.0):
        best = _brute_force(decoder, PROMPT, penalty)[0][0]
        got = _search(decoder, num_beams=16, length_penalty=penalty, early_stopping=early)
        assert got[0].beam.ids == best


def test_early_stopping_on_ends_with_enough_finished(decoder: Decoder) -> None:
    got = _search(decoder, num_beams=2, new=20, early_stopping="on")
    assert len(got) == 2


@pytest.mark.parametrize("length", [1, 50])
def test_the_prompts_length_does_not_enter(decoder: Decoder, length: int) -> None:
    prompt = [1] * length
    expected = _brute_force(decoder, prompt, 1.0)[0]
    got = _search(decoder, prompt, num_beams=16, early_stopping="never")
    assert got[0].beam.ids == expected[0]
    assert got[0].score == pytest.approx(expected[1], abs=1e-4)


def test_more_beams_than_ids(decoder: Decoder) -> None:
    got = _search(decoder, num_beams=50, early_stopping="never")
    assert [one.beam.ids for one in got] == [ids for ids, _ in _brute_force(decoder, PROMPT, 1.0)]


def test_one_beam_is_greedy(decoder: Decoder) -> None:
    greedy = Greedy(SamplingParams(), StrategyOptions()).run(
        Stepper(decoder, make_cache("growing", decoder.spec)), PROMPT, StopRule(STOP, 8, 100)
    )
    got = _search(decoder, new=8, num_beams=1, length_penalty=0.0, early_stopping="on")
    assert list(got[0].beam.ids) == [token.id for token in greedy]


def test_finished_beams_are_kept_when_the_budget_ends(decoder: Decoder) -> None:
    got = _search(decoder, num_beams=16, length_penalty=0.0, early_stopping="never")
    assert {one.finish_reason for one in got} == {"stop", "length"}


def test_beams_really_swap_places_and_the_cache_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a cache that is not reordered, the scores would be of other beams' histories."""
    decoder = random_decoder(small_spec(40), seed=3)
    options = {"num_beams": 3, "new": 15, "stop": frozenset[int]()}
    swaps: list[list[int]] = []
    real = Stepper.reorder

    def spy(stepper: Stepper, rows: torch.Tensor) -> None:
        swaps.append(rows.tolist())
        real(stepper, rows)

    monkeypatch.setattr(Stepper, "reorder", spy)
    cached = _search(decoder, kind="growing", **options)
    fresh = _search(decoder, kind="none", **options)
    assert [one.beam.ids for one in cached] == [one.beam.ids for one in fresh]
    for one, other in zip(cached, fresh, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
    assert any(rows != sorted(rows) for rows in swaps)


def test_groups_avoid_each_others_ids() -> None:
    decoder = random_decoder(small_spec(40), seed=3)
    options = {"num_beams": 4, "num_beam_groups": 4, "new": 1, "stop": frozenset[int]()}
    alike = _search(decoder, **options)
    assert len({one.beam.ids for one in alike}) == 1
    apart = _search(decoder, diversity_penalty=1e3, **options)
    assert len({one.beam.ids for one in apart}) == 4


def test_as_transformers() -> None:
    model, decoder = llama_twins()
    prompt = [3, 9, 4]
    for penalty in (0.0, 1.0, 2.0):
        made = model.generate(
            torch.tensor([prompt]), num_beams=4, max_new_tokens=12, do_sample=False,
            length_penalty=penalty, early_stopping=False, num_return_sequences=1,
        )  # fmt: skip
        expected = [id_ for id_ in made[0, 3:].tolist() if id_ != 0]
        got = _search(
            decoder, prompt, new=12, stop=frozenset({7}), num_beams=4, length_penalty=penalty
        )
        assert list(got[0].beam.ids) == expected
