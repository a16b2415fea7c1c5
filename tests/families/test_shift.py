"""Keys that a shift moves, for every way of turning them: as if they had never been elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.cache import FullStore, make_cache
from llmcli.generation.limit import SINKS
from llmcli.model import Decoder
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Row

EXACT = 1e-9
NAMES = {
    "cohere-plain",
    "deepseek_v2-plain",
    "deepseek_v3-plain",
    "falcon-7b",
    "falcon-rw-1b",
    "gemma2-plain",
    "gpt_neox-parallel",
    "gptj-plain",
    "smollm3-list",
    "stablelm-plain",
}


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in NAMES], ids=lambda row: row.name
)
def test_the_first_layer_equals_a_fresh_prefill(oracle: MakeOracle, row: Row) -> None:
    """Its keys depend on a token and its position alone."""
    theirs = oracle(row)
    decoder = Decoder.filled(
        theirs.loaded.spec,
        ((name, one.double()) for name, one in theirs.loaded.decoder.named_parameters()),
    ).eval()
    assert decoder.spec.shift_obstacle is None
    ids, count = theirs.ids[:, :30], 9
    kept = torch.cat((ids[:, :SINKS], ids[:, SINKS + count :]), 1)
    with torch.inference_mode():
        moved = _first_layer(decoder, ids, drop=count)
        fresh = _first_layer(decoder, kept, drop=0)
    for ours, expected in zip(moved, fresh, strict=True):
        assert ours.shape[2] == 30 - count
        assert (ours - expected).abs().max() <= EXACT * expected.abs().max()


def _first_layer(decoder: Decoder, ids: Tensor, *, drop: int) -> tuple[Tensor, Tensor]:
    cache = make_cache("growing", decoder.spec)
    assert cache is not None
    decoder(ids, cache)
    if drop:
        decoder.drop(cache, SINKS, drop)
    store = cache.stores[0]
    assert isinstance(store, FullStore)
    return store.buffer.get(0, cache.length)


def test_every_name_is_a_row() -> None:
    assert {row.name for row in ROWS} >= NAMES


OBSTACLES = {
    "gpt2-plain": "positions are added",
    "opt-plain": "positions are added",
    "xglm-plain": "positions are added",
    "qwen3_next-plain": "recurrent layers",
    "phi3-longrope-long": "rotary tables change",
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_cannot_shift_says_why(oracle: MakeOracle, name: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    assert OBSTACLES[name] in (oracle(row).loaded.spec.shift_obstacle or "")
