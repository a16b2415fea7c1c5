"""The candidates after a prompt, on vocabularies of five: what each stage and setting does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from llmcli.generation.explain import Recorder
from llmcli.generation.params import SamplingParams
from llmcli.generation.reads import STRATEGY_NAMES, reads
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy
from llmcli.insight import next_token as module
from llmcli.insight.next_token import NextToken, next_token
from llmcli.model import Decoder
from tests.insight.decoders import ids_for
from tests.tiny import constant_decoder, random_decoder

LOGITS = [2.0, 1.0, 0.0, -1.0, -9.0]
LOG2E = 1.4426950408889634


def _next(strategy: str = "greedy", count: int = 5, **params: object) -> NextToken:
    decoder = constant_decoder(LOGITS)
    return _follow(decoder, [1, 2], strategy, count, SamplingParams(**params))  # type: ignore[arg-type]


def _follow(
    decoder: Decoder, ids: list[int], strategy: str, count: int, params: SamplingParams
) -> NextToken:
    recorder = Recorder(module.TAKEN_DOWN)
    options = StrategyOptions(explain=recorder, sampling=strategy == "sample")
    made = make_strategy(strategy, params, options)  # type: ignore[arg-type]
    list(made.run(Stepper(decoder, None), ids, StopRule(frozenset(), 1, 1)))
    return next_token(decoder, ids, recorder.steps[0], strategy=strategy, count=count, name=str)


def _softmax(logits: Sequence[float]) -> object:
    return pytest.approx(torch.tensor(logits, dtype=torch.float64).softmax(-1).tolist(), abs=1e-4)


def test_the_models_own_distribution() -> None:
    found = _next()
    assert [one.id for one in found.candidates] == [0, 1, 2, 3, 4]
    assert [one.logit for one in found.candidates] == pytest.approx(LOGITS, abs=1e-3)
    assert [one.values[0] for one in found.candidates] == _softmax(LOGITS)
    assert [stage.name for stage in found.stages] == ["model"]
    probs = torch.tensor(LOGITS).softmax(-1)
    entropy = float(-(probs * probs.log()).sum()) * LOG2E
    assert found.stages[0].entropy_bits == pytest.approx(entropy, abs=1e-3)
    assert (found.chosen, found.chosen_token, found.draws) == (0, "0", ())


def test_stages_follow_one_another() -> None:
    found = _next("sample", temperature=2.0, top_k=3, seed=1)
    assert [stage.name for stage in found.stages] == ["model", "temperature", "top-k"]
    by_stage = list(zip(*(one.values for one in found.candidates), strict=True))
    assert by_stage[1] == _softmax([one / 2 for one in LOGITS])
    assert by_stage[2][:3] == _softmax([1.0, 0.5, 0.0])
    assert by_stage[2][3:] == (0, 0)
    assert [stage.left for stage in found.stages] == [5, 5, 3]
    assert len(found.draws) == 1


def test_single_settings_act_on_the_models_distribution() -> None:
    found = _next("sample", temperature=2.0, seed=1)
    by_name = {
        stage.name: [one.alone[at] for one in found.candidates]
        for at, stage in enumerate(found.alone)
    }
    assert by_name["temperature 0.5"] == _softmax([2 * one for one in LOGITS])
    assert by_name["temperature 1.5"] == _softmax([one / 1.5 for one in LOGITS])
    assert by_name["top-k 5"] == _softmax(LOGITS)
    # .644 + .237 = .88, so the third is needed to reach .9
    assert by_name["top-p 0.9"][:3] == _softmax(LOGITS[:3])
    assert by_name["top-p 0.9"][3:] == [0, 0]
    left = {stage.name: stage.left for stage in found.alone}
    # exp(-2) of the best is more than a tenth of it, exp(-3) is less.
    assert (left["top-p 0.9"], left["min-p 0.1"]) == (3, 3)


def test_no_more_candidates_than_asked_for() -> None:
    assert [one.id for one in _next(count=2).candidates] == [0, 1]


@pytest.mark.parametrize("strategy", [n for n in STRATEGY_NAMES if "explain" in reads(n)])
def test_every_strategy_that_chooses_a_token(strategy: str) -> None:
    if strategy == "speculative":
        return  # needs a second model, and chooses as prompt-lookup does
    decoder = random_decoder(dtype=torch.float32)
    ids = ids_for(decoder.spec)
    found = _follow(decoder, ids[0].tolist(), strategy, 4, SamplingParams())
    with torch.inference_mode():
        logits = decoder(ids)[0, -1]
    assert found.candidates[0].id == int(logits.argmax())
    assert found.candidates[0].logit == pytest.approx(float(logits.max()), abs=1e-4)
    assert found.strategy == strategy


def test_what_was_not_taken_down_is_not_called_impossible(monkeypatch) -> None:
    monkeypatch.setattr(module, "TAKEN_DOWN", 2)
    found = _next(logit_bias=((1, -5.0), (4, 5.5)), count=2)
    assert [one.values for one in found.candidates[1:]] == [(pytest.approx(0.237, abs=0.01), None)]
    assert found.candidates[0].values[1] is not None


def test_a_stage_of_scores_is_told_as_such() -> None:
    found = _next("contrastive")
    assert found.stages[-1].name == "contrast"
    assert found.stages[-1].entropy_bits is None
    assert found.stages[0].entropy_bits is not None
