"""What the recorder takes down, on vocabularies of five; and that it changes nothing."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from llmcli.generation.explain import Recorder, Step
from llmcli.generation.options import StrategyOptions
from llmcli.generation.params import SamplingParams
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.stages import stage_names
from tests.generation.strategy_cases import CASES, Case
from tests.tiny import constant_decoder, random_decoder, small_spec

LOGITS = [2.0, 1.0, 0.0, -1.0, -9.0]
PROMPT = [1, 2, 3]
FREE = StopRule(frozenset(), 4, 100)


def _explain(case: Case, params: SamplingParams, count: int = 5) -> list[Step]:
    recorder = Recorder(count)
    case.run(constant_decoder(LOGITS), PROMPT, stop=FREE, params=params, explain=recorder)
    assert len(recorder.steps) == 4
    return recorder.steps


def test_each_stage_says_who_is_left_and_who_was_cut() -> None:
    params = SamplingParams(seed=3, suppress=(1,), temperature=2.0, top_k=3, min_p=0.5)
    first = _explain(Case("sample"), params)[0]
    names = ["model", "suppress", "temperature", "top-k", "min-p"]
    assert [stage.name for stage in first.stages] == names
    model, suppress, temperature, top_k, min_p = first.stages
    assert [one.id for one in model.top] == [0, 1, 2, 3, 4]
    assert [one.logit for one in model.top] == pytest.approx(LOGITS, abs=1e-3)
    probs = torch.tensor(LOGITS).softmax(-1)
    assert [one.prob for one in model.top] == pytest.approx(probs.tolist(), abs=1e-4)
    assert (model.left, model.cut, model.num_cut) == (5, (), 0)
    assert suppress.num_cut == 1
    assert [one.id for one in suppress.cut] == [1]
    assert suppress.cut[0].prob == pytest.approx(model.top[1].prob)
    assert [one.id for one in suppress.top] == [0, 2, 3, 4]
    assert temperature.num_cut == 0
    assert [one.logit for one in temperature.top] == pytest.approx(
        [0.0, -1.0, -1.5, -5.5], abs=1e-3
    )
    assert [one.id for one in top_k.cut] == [4]
    # exp(-1) = .37 of the best is less than half of it
    assert [one.id for one in min_p.cut] == [2, 3]
    assert [one.prob for one in min_p.cut] == [one.prob for one in top_k.top[1:]]
    assert [stage.left for stage in first.stages] == [5, 4, 4, 3, 1]
    assert min_p.entropy == 0.0
    assert min_p.top[0].prob == 1.0


def test_entropy_is_in_nats() -> None:
    probs = torch.tensor(LOGITS).softmax(-1)
    stage = _explain(Case("greedy"), SamplingParams())[0].stages[0]
    assert stage.entropy == pytest.approx(-(probs * probs.log()).sum().item(), abs=1e-4)


def test_the_draw_leads_to_the_choice() -> None:
    cumulative = torch.tensor(LOGITS, dtype=torch.float64).softmax(-1).cumsum(-1)
    steps = _explain(Case("sample"), SamplingParams(seed=3))
    for step in steps:
        (uniform,) = step.draws
        assert step.chosen == int((cumulative <= uniform).sum())
    assert len({step.draws for step in steps}) == 4


def test_no_more_candidates_than_asked_for() -> None:
    stages = _explain(Case("sample"), SamplingParams(seed=3, top_k=1), count=2)[0].stages
    assert [len(stage.top) for stage in stages] == [2, 1]
    assert [one.id for one in stages[1].cut] == [1, 2]
    assert stages[1].num_cut == 4


def test_greedy_draws_nothing() -> None:
    assert all(step.draws == () for step in _explain(Case("greedy"), SamplingParams()))


def test_mirostat_is_a_stage() -> None:
    params = SamplingParams(seed=3, mirostat_tau=0.5)
    step = _explain(Case("sample"), params)[0]
    assert [stage.name for stage in step.stages] == ["model", "mirostat"]
    assert step.stages[1].num_cut > 0


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Case("greedy", {"guidance_scale": 2.0}), "guidance"),
        (Case("dola"), "dola"),
        (Case("contrastive", {"num_candidates": 2}), "contrast"),
    ],
    ids=str,
)
def test_a_strategys_own_stage_is_named(case: Case, name: str) -> None:
    step = _explain(case, SamplingParams())[0]
    assert [stage.name for stage in step.stages] == ["model", name]
    assert step.chosen == step.stages[1].top[0].id


def test_guesses_are_told() -> None:
    """A draft that is the decoder itself is always right; the first token had no guess."""
    steps = _explain(Case("speculative", {"num_draft_tokens": 3}), SamplingParams())
    assert [(step.chosen, step.guess) for step in steps] == [(0, None), (0, 0), (0, 0), (0, None)]


def test_the_choice_is_followed_wherever_it_stands() -> None:
    """Also where more candidates are likelier than are shown."""
    steps = _explain(Case("sample"), SamplingParams(seed=3, temperature=9.0), count=1)
    hot = torch.tensor(LOGITS).div(9).softmax(-1).tolist()
    for step in steps:
        model, temperature = (stage.chosen for stage in step.stages)
        assert model is not None
        assert temperature is not None
        assert (model.id, temperature.id) == (step.chosen, step.chosen)
        assert model.logit == pytest.approx(LOGITS[step.chosen], abs=1e-3)
        assert temperature.prob == pytest.approx(hot[step.chosen], abs=1e-4)
        assert step.rank == step.chosen + 1
    assert len({step.chosen for step in steps}) > 1


def test_only_contrastive_search_compares_scores() -> None:
    (step, *_) = _explain(Case("contrastive", {"num_candidates": 2}), SamplingParams(top_k=0))
    assert [stage.measure for stage in step.stages] == ["logits", "scores"]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_beams_steps_are_those_of_its_own_row(groups: int) -> None:
    decoder = random_decoder(small_spec(20), seed=3, dtype=torch.float64)
    recorder = Recorder(3)
    case = Case("beam", {"num_beams": 4, "num_beam_groups": groups})
    tokens = case.run(decoder, PROMPT, stop=FREE, explain=recorder)
    assert [step.chosen for step in recorder.steps] == [token.id for token in tokens]
    total = 0.0
    ids = list(PROMPT)
    for step, token in zip(recorder.steps, tokens, strict=True):
        with torch.inference_mode():
            probs = decoder(torch.tensor([ids]))[0, -1].softmax(-1)
        best = probs.topk(3)
        (model,) = step.stages
        assert [one.id for one in model.top] == best.indices.tolist()
        assert [one.prob for one in model.top] == pytest.approx(best.values.tolist())
        assert model.chosen is not None
        assert math.log(model.chosen.prob) == pytest.approx(token.logprob)
        assert step.rank == 1 + int((probs > probs[token.id]).sum())
        total += token.logprob
        assert step.beam is not None
        assert step.beam.total == pytest.approx(total)
        assert 1 <= step.beam.rank <= step.beam.kept <= 4 // groups
        ids.append(token.id)
    assert recorder.steps[-1].beam is not None
    assert recorder.steps[-1].beam.rank == 1


def test_a_winner_that_was_not_always_first_is_told_with_its_ranks() -> None:
    ranks = set()
    for seed in range(8):
        recorder = Recorder(1)
        decoder = random_decoder(small_spec(20), seed=seed)
        case = Case("beam", {"num_beams": 4})
        case.run(decoder, PROMPT, stop=FREE, explain=recorder)
        ranks |= {step.beam.rank for step in recorder.steps if step.beam}
    assert len(ranks) > 1


def test_diversity_and_the_chain_are_stages_of_a_beam() -> None:
    recorder = Recorder(3)
    case = Case("beam", {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5})
    decoder = random_decoder(small_spec(20), seed=3)
    params = SamplingParams(repetition_penalty=1.2)
    case.run(decoder, PROMPT, stop=FREE, params=params, explain=recorder)
    names = [stage.name for stage in recorder.steps[1].stages]
    assert names == ["model", "repetition-penalty", "diversity"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_changes_and_all_is_plain_data(case: Case) -> None:
    spec = small_spec(20)
    decoder = random_decoder(replace(spec, layers=spec.layers * 2), seed=1, dtype=torch.float64)
    params = SamplingParams(seed=5, top_k=8, repetition_penalty=1.2)

    def run(stop: StopRule, **options: Any) -> list[Any]:
        return case.run(decoder, PROMPT, stop=stop, params=params, **options)

    stop = StopRule(frozenset({run(replace(FREE, max_new_tokens=9))[5].id}), 9, 100)
    recorder = Recorder()
    explained = run(stop, explain=recorder)
    assert explained == run(stop)
    assert [step.chosen for step in recorder.steps] == [token.id for token in explained]
    text = json.dumps([asdict(step) for step in recorder.steps], allow_nan=False)
    assert json.loads(text)[0]["stages"][0]["name"] == "model"


@pytest.mark.parametrize("case", [one for one in CASES if one.name != "beam"], ids=str)
def test_the_stages_are_those_named_beforehand(case: Case) -> None:
    """What -v prints before a run is the order in which the run explains itself."""
    params = SamplingParams(
        seed=3, suppress=(4,), temperature=2.0, top_k=3, repetition_penalty=1.1, min_new_tokens=2
    )
    if case.name == "sample":
        params = replace(params, mirostat_tau=2.0)
    stop = StopRule(frozenset({3}), 4, 100)
    recorder, options = Recorder(2), StrategyOptions(**case.options)
    spec = small_spec(8)
    decoder = random_decoder(replace(spec, layers=spec.layers * 2), seed=3)
    case.run(decoder, PROMPT, stop=stop, params=params, explain=recorder)
    named = stage_names(case.name, params, options, stop_ids=stop.stop_ids)
    seen = [stage.name for stage in recorder.steps[0].stages[1:]]
    # Contrastive search compares after the chain, and a plain draw is no stage.
    assert [one for one in seen if one != "contrast"] == list(named)
