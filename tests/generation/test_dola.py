"""DoLa against a plain re-implementation over whole forwards, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.errors import UsageError
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.dola import DoLa, contrast, premature_layers
from llmcli.generation.token import Token
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec
from tests.tiny import random_decoder, small_spec

VOCAB, NEW = 30, 12
PROMPT = [1, 2, 3, 4]


def _deep(layers: int) -> DecoderSpec:
    spec = small_spec(VOCAB)
    return replace(spec, layers=spec.layers * layers)


@pytest.fixture(scope="module", params=[5, 7])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return random_decoder(_deep(4), seed=request.param)


def _run(
    decoder: Decoder, kind: Any = "growing", params: SamplingParams | None = None, **options: Any
) -> list[Token]:
    strategy = DoLa(params or SamplingParams(), StrategyOptions(**options))
    stepper = Stepper(decoder, make_cache(kind, decoder.spec), chunk=3)
    return list(strategy.run(stepper, PROMPT, StopRule(frozenset(), NEW, 100)))


@torch.inference_mode()
def _plain(decoder: Decoder, layers: list[int]) -> tuple[list[int], set[int]]:
    """Greedy ids, and the layers that were contrasted on the way."""
    ids, used = list(PROMPT), set()
    streams: list[torch.Tensor] = []
    handles = [
        block.register_forward_hook(lambda *given: streams.append(given[2]))
        for block in decoder.layers
    ]
    for _ in range(NEW):
        streams[:] = [decoder.embed_tokens(torch.tensor([ids]))]
        p = decoder(torch.tensor([ids]))[0, -1].softmax(-1)
        best, furthest = -1.0, p
        for layer in layers:
            q = decoder.unembed(streams[layer])[0, -1].softmax(-1)
            m = (p + q) / 2
            distance = ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()).item() / 2
            if distance > best:
                best, furthest, chosen = distance, q, layer
        used.add(chosen)
        plausible = p >= 0.1 * p.max()
        ids.append(int(torch.where(plausible, p / furthest, 0.0).argmax()))
    for handle in handles:
        handle.remove()
    return ids[len(PROMPT) :], used


@pytest.mark.parametrize("kind", ["growing", "none"])
@pytest.mark.parametrize(("asked", "layers"), [("low", [0]), ("high", [2]), ((1, 2, 3), [1, 2, 3])])
def test_as_the_plain_loop(decoder: Decoder, kind: str, asked: Any, layers: list[int]) -> None:
    expected, used = _plain(decoder, layers)
    assert [token.id for token in _run(decoder, kind, dola_layers=asked)] == expected
    assert len(layers) == 1 or len(used) > 1
    assert not any(block._forward_pre_hooks for block in decoder.layers)


def test_changes_what_is_said(decoder: Decoder) -> None:
    tokens = _run(decoder, dola_layers=(1, 2, 3), top_logprobs=1)
    assert any(token.id != token.top[0][0] for token in tokens)


def test_draws_only_where_it_is_asked_to(decoder: Decoder) -> None:
    def ids(seed: int, **options: Any) -> list[int]:
        return [
            token.id for token in _run(decoder, "growing", SamplingParams(seed=seed), **options)
        ]

    assert ids(1) == ids(2)
    assert any(ids(1, sampling=True) != ids(seed, sampling=True) for seed in (2, 3, 4))


def test_the_contrast_on_five_tokens() -> None:
    """Of two early layers the second is further away; id 3 is too unlikely at last to count."""
    last = torch.tensor([[0.5, 0.3, 0.15, 0.01, 0.04]]).log()
    near = torch.tensor([[0.45, 0.35, 0.15, 0.01, 0.04]]).log()
    far = torch.tensor([[0.7, 0.1, 0.1, 0.0001, 0.0999]]).log()
    got = contrast(last + 3, torch.stack((near, far)) - 2)
    expected = [(0.5 / 0.7), 3.0, 1.5]
    assert got[0, :3].exp().tolist() == pytest.approx(expected, rel=1e-5)
    assert got[0, 3:].tolist() == [-torch.inf, -torch.inf]


@pytest.mark.parametrize(
    ("asked", "count", "tied", "expected"),
    [
        ("low", 32, False, range(0, 16, 2)),
        ("low", 32, True, range(2, 16, 2)),
        ("high", 32, True, range(16, 32, 2)),
        ("low", 60, False, range(0, 20, 2)),
        ("high", 60, False, range(40, 60, 2)),
        ("low", 3, True, [2]),
        ("low", 2, True, [1]),
        ("low", 1, True, [0]),
        ("low", 1, False, [0]),
        ("high", 1, False, [0]),
        ((3, 1, 3), 4, False, [1, 3]),
    ],
)
def test_candidates(asked: Any, count: int, tied: bool, expected: Any) -> None:
    spec = replace(_deep(count), tie_embeddings=tied)
    assert premature_layers(asked, spec) == tuple(expected)


@pytest.mark.parametrize(("asked", "count"), [((4,), 4), ((-1,), 4), ((), 4), ("low", 0)])
def test_layers_that_are_not_there(asked: Any, count: int) -> None:
    with pytest.raises(UsageError, match=r"(?i)dola"):
        premature_layers(asked, _deep(count))
