"""Cache sizes equal those of real caches, byte for byte; masks equal the decoder's own."""

from __future__ import annotations

import pytest
import torch

from llmcli.cache import CacheKind, StateStore, make_cache
from llmcli.insight.facts import Facts
from llmcli.insight.kv import PREFILL_CHUNK, cache_bytes, cache_sizes, kind_bytes
from llmcli.insight.presets import preset_facts
from llmcli.insight.visibility import masks_of, visible
from llmcli.model import Decoder
from llmcli.model.masks import causal_mask
from llmcli.spec import kv_bytes_per_token, parameter_shapes
from tests.insight.configs import EVERY_ROW, row_facts
from tests.oracle import Row

TOKENS = 40


def _blank(facts: Facts, dtype: torch.dtype) -> Decoder:
    shapes = parameter_shapes(facts.spec)
    filled = ((name, torch.zeros(shape, dtype=dtype)) for name, shape in shapes.items())
    return Decoder.filled(facts.spec, filled).eval()


@EVERY_ROW
def test_sizes_are_those_of_a_real_cache(row: Row) -> None:
    facts = row_facts(row)
    # The size of an element is a factor for every family alike.
    dtype = torch.bfloat16 if row.bfloat16 else torch.float32
    length = min(TOKENS, facts.spec.context)
    found = cache_sizes(facts, contexts=[length], element=dtype.itemsize)
    cache = make_cache("ring", facts.spec)
    assert cache is not None
    with torch.inference_mode():
        _blank(facts, dtype)(torch.zeros(1, length, dtype=torch.long), cache)
    assert found.allocated == (cache.nbytes,)
    assert found.bytes_per_token == kv_bytes_per_token(facts.spec, dtype.itemsize)
    stores = [one for one in cache.stores if not isinstance(one, StateStore)]
    held = {kind.capacity[0] for kind in found.layers if kind.kind != "state"}
    assert held == {store.capacity for store in stores}
    assert found.total == (cache_bytes(facts.spec, length, dtype.itemsize),)
    assert found.total <= found.allocated
    assert found.allocated == (kind_bytes(facts.spec, "ring", length, dtype.itemsize),)


def test_the_steps_are_those_of_cache_and_stepper() -> None:
    from llmcli.generation import stepper

    assert stepper.PREFILL_CHUNK == PREFILL_CHUNK


@EVERY_ROW
def test_designs_differ_as_they_should(row: Row) -> None:
    facts = row_facts(row)
    found = cache_sizes(facts, contexts=[facts.spec.context], element=2)
    this, *others = found.designs
    assert this.this
    assert this.bytes == found.total
    if facts.spec.latent is None:
        many = next(one for one in others if one.name.startswith("MHA"))
        single = next(one for one in others if one.name.startswith("MQA"))
        assert many.bytes_per_token == single.bytes_per_token * facts.spec.num_heads
        assert this.bytes_per_token == single.bytes_per_token * facts.spec.num_kv_heads
    else:
        assert others[-1].bytes < this.bytes


KINDS: tuple[CacheKind, ...] = ("growing", "ring", "static", "quantized-8", "quantized-4")


@EVERY_ROW
def test_each_kind_has_all_numbers_of_its_own(row: Row) -> None:
    for kind in KINDS:
        _assert_its_own(row_facts(row), kind)


def _assert_its_own(facts: Facts, kind: CacheKind) -> None:
    length = min(TOKENS, facts.spec.context)
    found = cache_sizes(facts, contexts=[length], element=2, kind=kind)
    whole = kind_bytes(facts.spec, kind, length, 2)
    assert found.total == found.allocated == found.designs[0].bytes == (whole,)
    assert sum(one.bytes[0] for one in found.layers) == whole
    assert found.bytes_per_token == found.designs[0].bytes_per_token
    packs = kind.startswith("quantized") and any(one.kind == "all keys" for one in found.layers)
    assert (found.bytes_per_token < found.exact_per_token) is packs
    assert found.exact_per_token == kv_bytes_per_token(facts.spec, 2)
    assert all(bool(one.capacity) is not kind.startswith("quantized") for one in found.layers)


def test_packed_tokens_are_counted_as_packed() -> None:
    """Of Llama 2 7B: 4 bits a number and a 16-bit scale and minimum for each 32 are 5 bits."""
    found = cache_sizes(preset_facts("llama-2-7b"), contexts=[4096], element=2, kind="quantized-4")
    assert found.exact_per_token == 2 * 32 * 4096 * 2
    assert found.bytes_per_token == 2 * 32 * 4096 * 5 // 8
    assert found.total[0] < 0.5 * 4096 * found.exact_per_token


@pytest.mark.parametrize("window", [None, 1, 3, 20])
@pytest.mark.parametrize("length", [1, 12])
def test_masks_are_the_decoders_own(length: int, window: int | None) -> None:
    places = torch.arange(length)
    assert torch.equal(torch.tensor(visible(length, window)), causal_mask(places, places, window))


@EVERY_ROW
def test_every_kind_of_layer_has_a_mask(row: Row) -> None:
    facts = row_facts(row)
    found = masks_of(facts, length=8)
    assert sum(mask.number for mask in found.masks) == facts.spec.num_layers
    for mask in found.masks:
        assert (mask.visible is None) is (mask.kind == "state")
        first = int(mask.layers.split("-")[0].split(",")[0])
        (only,) = masks_of(facts, length=8, layer=first).masks
        assert only == mask
