"""D5: the first row of logits that is not finite ends the run, by name, before any token of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.errors import GenerationError
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import (
    STRATEGY_NAMES,
    StrategyName,
    StrategyOptions,
    make_strategy,
)
from llmcli.generation.token import Token
from llmcli.model import Decoder
from llmcli.model.diagnose import first_bad_part
from tests.tiny import random_decoder, random_parameters, tiny_spec

strategies = pytest.mark.parametrize("name", STRATEGY_NAMES)
caches = pytest.mark.parametrize("kind", ["growing", "none"])

# Sampling with every processor on, as each has to let a NaN through to the check.
ALL_ON = SamplingParams(
    temperature=0.7, top_k=40, top_p=0.9, min_p=0.01, repetition_penalty=1.1, seed=1
)


def _broken(break_it: Callable[[Decoder], object], dtype: torch.dtype = torch.float32) -> Decoder:
    decoder = random_decoder(dtype=dtype)
    break_it(decoder)
    return decoder


def _set(name: str, index: tuple[int, ...], value: float) -> Callable[[Decoder], object]:
    return lambda decoder: decoder.get_parameter(name).__setitem__(index, value)


def _run(decoder: Decoder, name: StrategyName, kind: str = "growing") -> list[Token]:
    stepper = Stepper(decoder, make_cache("none" if kind == "none" else "growing", decoder.spec))
    stop = StopRule(frozenset(), 8, 100)
    sound = random_decoder(dtype=torch.float32)
    options = StrategyOptions(draft=Stepper(sound, make_cache("growing", sound.spec)))
    return list(make_strategy(name, ALL_ON, options).run(stepper, [1, 2, 3], stop))


FAULTS = {
    "one NaN in the head": (_set("lm_head.weight", (5, 0), float("nan")), "lm_head"),
    "all NaN in the head": (_set("lm_head.weight", (), float("nan")), "lm_head"),
    "an infinity in the head": (_set("lm_head.weight", (5, 0), float("inf")), "lm_head"),
    "a negative infinity in the head": (_set("lm_head.weight", (5, 0), float("-inf")), "lm_head"),
    "an infinity in a norm": (
        _set("layers.1.mlp_norm.weight", (3,), float("inf")),
        "layers.1.mlp_norm",
    ),
    "a NaN in a projection": (
        _set("layers.0.attn.v_proj.weight", (0, 0), float("nan")),
        "layers.0.attn.v_proj",
    ),
    "a NaN in an embedding row": (
        _set("embed_tokens.weight", (2, 0), float("nan")),
        "embed_tokens",
    ),
    "an infinity in the last norm": (_set("norm.weight", (0,), float("inf")), "norm"),
}


@caches
@strategies
@pytest.mark.parametrize("fault", FAULTS)
def test_error_names_step_dtype_and_part(fault: str, name: StrategyName, kind: str) -> None:
    break_it, part = FAULTS[fault]
    with pytest.raises(GenerationError) as caught:
        _run(_broken(break_it), name, kind)
    message = caught.value.message
    assert "new token 1 " in message
    assert "float32" in message
    assert message.endswith(f"come from {part}")
    assert "--dtype" in caught.value.hint
    assert caught.value.exit_code != 0


@strategies
def test_float16_overflow(name: StrategyName) -> None:
    """A weight of 6e4 is finite in float16, its product is not."""
    break_it = _set("layers.0.mlp.up_proj.weight", (0,), 6e4)
    with pytest.raises(GenerationError) as caught:
        _run(_broken(break_it, torch.float16), name)
    assert "float16" in caught.value.message
    assert "layers.0.mlp.up_proj" in caught.value.message
    assert "bfloat16 or float32" in caught.value.hint
    assert len(_run(_broken(break_it, torch.bfloat16), name)) == 8


@caches
def test_a_later_step_is_named_and_the_tokens_before_it_are_given(kind: str) -> None:
    """The row of the third greedy id is broken: the fourth new token cannot be computed."""
    whole = [token.id for token in _run(random_decoder(dtype=torch.float32), "greedy", kind)]
    third = whole[2]
    assert third not in (1, 2, 3, *whole[:2])
    decoder = _broken(_set("embed_tokens.weight", (third,), float("nan")))
    stepper = Stepper(decoder, make_cache("none" if kind == "none" else "growing", decoder.spec))
    run = make_strategy("greedy", ALL_ON).run(stepper, [1, 2, 3], StopRule(frozenset(), 8, 100))
    assert [next(run).id for _ in range(3)] == whole[:3]
    with pytest.raises(GenerationError, match=r"new token 4 .*embed_tokens"):
        next(run)


def test_tied_head_is_named() -> None:
    spec = tiny_spec(tie_word_embeddings=True)
    parameters = random_parameters(spec)
    parameters["embed_tokens.weight"][300, 0] = float("nan")
    decoder = Decoder.filled(spec, parameters.items()).eval()
    assert first_bad_part(decoder, torch.tensor([[1, 2]])) == "lm_head"
    assert first_bad_part(decoder, torch.tensor([[1, 300]])) == "embed_tokens"


def test_nothing_bad_is_nothing() -> None:
    decoder = random_decoder(dtype=torch.float32)
    assert first_bad_part(decoder, torch.tensor([[1, 2]])) is None
    # The hooks are gone afterwards.
    assert not any(module._forward_hooks for module in decoder.modules())
