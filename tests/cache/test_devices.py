"""Every kind of cache with a decoder that is not on the CPU: its numbers, and where they lie.

What an accelerator alone can show (its kernels, its speed, its own errors) is not shown here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
import torch
from torch import Tensor

from llmcli.bench.arms import make_arms
from llmcli.bench.runs import Forced
from llmcli.bench.trial import Case, Plan, measure
from llmcli.cache import CacheKind, FullStore, KVCache, QuantizedStore, RingStore, make_cache
from llmcli.cache.saved import from_tensors, to_tensors
from llmcli.generation.limit import Limit
from llmcli.generation.params import SamplingParams
from llmcli.generation.reads import STRATEGY_NAMES, StrategyName
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import make_strategy
from llmcli.model import Decoder
from tests.cache.other_device import OTHER, moved, other_device
from tests.tiny import random_decoder, tiny_spec

EXACT = 1e-9
KINDS = [kind for kind in get_args(CacheKind) if kind != "none"]
SPEC = tiny_spec(max_position_embeddings=2048, num_hidden_layers=1)
WINDOWED = tiny_spec(
    model_type="mistral", sliding_window=8, max_position_embeddings=2048, num_hidden_layers=1
)
HERE = random_decoder(SPEC)

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def there() -> Iterator[Decoder]:
    """HERE once more, on the other device."""
    with other_device():
        yield moved(random_decoder(SPEC))


def _ids(count: int, rows: int = 1) -> Tensor:
    return torch.randint(320, (rows, count), generator=torch.Generator().manual_seed(1))


def _places(cache: KVCache | None) -> set[str]:
    """The devices of all that a cache keeps."""
    found = set()
    for store in cache.stores if cache is not None else ():
        if isinstance(store, QuantizedStore):
            buffers = [store.codes, store.scales, store.exact]
        else:
            assert isinstance(store, FullStore | RingStore)
            buffers = [store.buffer]
        found |= {buffer.keys.device.type for buffer in buffers if buffer.keys is not None}
        found |= {buffer.values.device.type for buffer in buffers if buffer.values is not None}
    return found


def _expected(kind: CacheKind) -> set[str]:
    return {"cpu"} if kind == "offloaded" else {OTHER.type}


def _run(decoder: Decoder, kind: CacheKind) -> tuple[list[Tensor], KVCache | None]:
    """Two pieces of prefill, steps, a rewind where one may be, other rows, and a fork."""
    device = decoder.device
    stepper = Stepper(decoder, make_cache(kind, decoder.spec, planned=700), chunk=512)
    out = [stepper.feed(_ids(600).to(device))]
    out += [stepper.feed(_ids(1).to(device)) for _ in range(3)]
    stepper.rewind(2)
    stepper.reorder(torch.tensor([0, 0], device=device))
    out.append(stepper.feed(torch.tensor([[5], [9]], device=device)))
    stepper.reorder(torch.tensor([1], device=device))
    assert stepper.cache is not None
    forked = stepper.cache.fork()
    out.append(stepper.feed(_ids(1).to(device)))
    stepper.cache = forked
    stepper.ids = stepper.ids[:, :-1]
    out.append(stepper.feed(_ids(1).to(device)))
    return out, stepper.cache


@kinds
def test_numbers_are_those_of_the_cpu(there: Decoder, kind: CacheKind) -> None:
    found, cache = _run(there, kind)
    assert _places(cache) == _expected(kind)
    right, _ = _run(HERE, kind)
    for one, other in zip(found, right, strict=True):
        assert one.device == OTHER
        assert (one.to("cpu") - other).abs().max() <= EXACT


@pytest.mark.parametrize("kind", ["growing", "ring", "static", "offloaded"])
def test_tokens_that_are_dropped(there: Decoder, kind: CacheKind) -> None:
    out = []
    for decoder in (there, HERE):
        limit = Limit(24)
        stepper = Stepper(decoder, make_cache(kind, SPEC, planned=24), limit=limit)
        stepper.feed(_ids(20).to(decoder.device))
        steps = [stepper.feed(_ids(1).to(decoder.device)) for _ in range(12)]
        assert stepper.cache is not None
        assert stepper.cache.dropped
        out.append(torch.cat(steps).to("cpu"))
        if decoder is there:
            assert _places(stepper.cache) == _expected(kind)
    assert (out[0] - out[1]).abs().max() <= EXACT


@pytest.mark.parametrize("kind", ["growing", "ring", "static", "offloaded"])
def test_a_cache_that_was_kept_lies_where_it_lay(there: Decoder, kind: CacheKind) -> None:
    ids = _ids(30).to(OTHER)
    stepper = Stepper(there, make_cache(kind, SPEC, planned=40))
    stepper.feed(ids)
    assert stepper.cache is not None
    kept = to_tensors(stepper.cache)
    assert {one.device.type for one in kept.values()} == {"cpu"}
    again = make_cache(kind, SPEC, planned=40)
    assert again is not None
    from_tensors(again, kept, length=30, regime=stepper.cache.regime, like=stepper.cache,
                 device=OTHER)  # fmt: skip
    assert _places(again) == _expected(kind)
    more = torch.cat((ids, _ids(1).to(OTHER)), 1)
    other = Stepper(there, again)
    logits = other.feed(more)
    assert other.prefilled == 1
    assert (logits - stepper.feed(more[:, -1:])).abs().to("cpu").max() <= EXACT
    assert _places(again) == _expected(kind)


def test_windowed_layers_stay_on_the_device() -> None:
    with other_device():
        stepper = Stepper(moved(random_decoder(WINDOWED)), make_cache("offloaded", WINDOWED))
        stepper.feed(_ids(20).to(OTHER))
        assert _places(stepper.cache) == {OTHER.type}


@pytest.mark.parametrize("kind", ["none", "offloaded"])
@pytest.mark.parametrize("name", [name for name in STRATEGY_NAMES if name != "speculative"])
def test_every_strategy(there: Decoder, name: StrategyName, kind: CacheKind) -> None:
    ids = []
    for decoder in (there, HERE):
        stepper = Stepper(decoder, make_cache(kind, SPEC, planned=20))
        rule = StopRule(frozenset(), max_new_tokens=6, room=20)
        tokens = make_strategy(name, SamplingParams(seed=3)).run(stepper, _ids(9)[0].tolist(), rule)
        ids.append([token.id for token in tokens])
    assert len(ids[0]) == 6
    assert ids[0] == ids[1]


def test_the_arms_of_a_trial(there: Decoder) -> None:
    names = ("on", "off", "static", "quantized-8", "offloaded")
    plan = Plan(arms=make_arms(names, "growing"), cases=[Case(9, 4, 2)], repeats=1, warmup=1)
    method = Forced(lambda _: lambda _ids, logits: logits.argmax(-1))
    (case,) = measure(there, lambda case: _ids(9).to(OTHER).repeat(case.rows, 1), plan, method)
    for name, arm in case.arms.items():
        assert len(arm.runs) == 1
        if name != "off":
            assert arm.proof is not None
            assert arm.proof.holds
            assert arm.cache_bytes == arm.formula_bytes


@pytest.mark.parametrize("first", [OTHER, torch.device("cpu")])
def test_tensors_of_two_devices_do_not_mix(first: torch.device) -> None:
    """So that the tests above can fail."""
    with other_device():
        one, other = torch.ones(3, device=first), torch.ones(3)
        if first == OTHER:
            with pytest.raises(RuntimeError, match="two devices"):
                one + other
        else:
            assert (one + other).device.type == "cpu"
