"""Classifier-free guidance against transformers, with a cache and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.errors import GenerationError, UsageError
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.guided import guided
from llmcli.generation.strategies.sequential import Greedy, Sample
from llmcli.generation.token import Token
from llmcli.model import Decoder
from tests.generation.twins import llama_twins

PROMPT, NEGATIVE, NEW = [3, 9, 4], [5, 9], 12
kinds = pytest.mark.parametrize("kind", ["growing", "none"])


@pytest.fixture(scope="module")
def twins() -> tuple[Any, Decoder]:
    return llama_twins(torch.float64)


def _run(decoder: Decoder, strategy: Any, kind: Any = "growing") -> list[Token]:
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    return list(strategy.run(stepper, PROMPT, StopRule(frozenset(), NEW, 50)))


def _greedy(scale: float, negative: list[int], **params: Any) -> Greedy:
    options = StrategyOptions(guidance_scale=scale, negative_ids=tuple(negative))
    return Greedy(SamplingParams(**params), options)


@kinds
@pytest.mark.parametrize(
    ("scale", "negative"), [(1.5, NEGATIVE), (4.0, NEGATIVE), (2.0, []), (0.0, NEGATIVE)]
)
def test_as_transformers(
    twins: tuple[Any, Decoder], kind: str, scale: float, negative: list[int]
) -> None:
    model, decoder = twins
    negative_ids = torch.tensor([negative]) if negative else None
    made = model.generate(
        torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False, guidance_scale=scale,
        negative_prompt_ids=negative_ids, eos_token_id=None, repetition_penalty=1.2,
    )  # fmt: skip
    got = _run(decoder, _greedy(scale, negative, repetition_penalty=1.2), kind)
    assert [token.id for token in got] == made[0, len(PROMPT) :].tolist()


@kinds
def test_logits_as_the_processor_of_transformers(twins: tuple[Any, Decoder], kind: Any) -> None:
    from transformers import UnbatchedClassifierFreeGuidanceLogitsProcessor

    model, decoder = twins
    process = UnbatchedClassifierFreeGuidanceLogitsProcessor(
        3.0, model, unconditional_ids=torch.tensor([NEGATIVE])
    )
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    other = stepper.sibling()
    new = torch.tensor([PROMPT])
    for id_ in (8, 2, 30, 1):
        own, got = guided(stepper, new, other, negative_ids=NEGATIVE, scale=3.0)
        with torch.inference_mode():
            expected = process(stepper.ids, model(stepper.ids).logits[:, -1])
        assert (got - expected).abs().max() < 1e-4
        assert (own - got).abs().max() > 0.1
        new = torch.tensor([[id_]])


def test_reported_logprobs_are_the_decoders_own(twins: tuple[Any, Decoder]) -> None:
    decoder = twins[1]
    tokens = _run(decoder, _greedy(3.0, NEGATIVE))
    ids = PROMPT + [token.id for token in tokens]
    with torch.inference_mode():
        logprobs = decoder(torch.tensor([ids]), last_only=False)[0].log_softmax(-1)
    for place, token in enumerate(tokens, start=len(PROMPT)):
        assert token.logprob == pytest.approx(logprobs[place - 1, token.id].item(), abs=1e-9)


def test_sample_is_guided_too(twins: tuple[Any, Decoder]) -> None:
    options = StrategyOptions(guidance_scale=3.0, negative_ids=tuple(NEGATIVE))
    params = SamplingParams(top_k=1, seed=1)
    drawn = _run(twins[1], Sample(params, options))
    assert drawn == _run(twins[1], _greedy(3.0, NEGATIVE))
    assert drawn != _run(twins[1], Sample(params, StrategyOptions()))


def test_the_siblings_cache_is_its_own(twins: tuple[Any, Decoder]) -> None:
    decoder = twins[1]
    stepper = Stepper(decoder, make_cache("growing", decoder.spec))
    stepper.feed(torch.tensor([PROMPT]))
    other = stepper.sibling()
    assert other.ids.shape == (1, 0)
    other.feed(torch.tensor([NEGATIVE]))
    assert (stepper.cache.length, other.cache.length) == (3, 2)  # type: ignore[union-attr]
    again = Stepper(decoder, None)
    again.feed(torch.tensor([PROMPT]))
    one = torch.tensor([[6]])
    assert (stepper.feed(one) - again.feed(one)).abs().max() < 1e-9


def test_a_broken_negative_prompt_is_no_number_to_choose_by(twins: tuple[Any, Decoder]) -> None:
    decoder = llama_twins()[1]
    decoder.embed_tokens.weight[NEGATIVE[0]] = torch.nan
    with pytest.raises(GenerationError, match="new token 1 "):
        _run(decoder, _greedy(2.0, NEGATIVE))


def test_a_negative_prompt_needs_a_scale() -> None:
    with pytest.raises(UsageError, match="guidance-scale 1"):
        StrategyOptions(negative_ids=(1,))
    with pytest.raises(UsageError, match="guidance-scale"):
        StrategyOptions(guidance_scale=-1.0)
