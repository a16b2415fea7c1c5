"""Every kind of cache against no cache, in float64: splits, poison, rewind, rows, growth."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import get_args

import pytest
import torch
from torch import Tensor

from llmcli.cache import LOSSY, CacheKind, KVCache, make_cache
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec, LayerSpec, Learned
from tests.cache.poison import POISONERS
from tests.tiny import random_decoder, tiny_spec

EXACT = 1e-9
PROMPT, NEW = 20, 40
# Neither of the quantised ones packs anything in so short a text, so one stands for both.
KINDS = [kind for kind in get_args(CacheKind) if kind not in ("none", "quantized-8")]


def _learned(spec: DecoderSpec) -> DecoderSpec:
    """GPT-2's way of positions, norms and MLP with the sizes of TINY."""
    return replace(
        spec,
        layers=(LayerSpec(),) * spec.num_layers,
        positions=Learned(),
        norm="layer",
        mlp="plain",
        activation="gelu_tanh",
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def _windowed(*windows: int | None) -> DecoderSpec:
    """TINY with a layer for each window."""
    (layer, *_) = tiny_spec().layers
    return replace(tiny_spec(), layers=tuple(replace(layer, window=window) for window in windows))


SPECS = {
    "rotary": tiny_spec(),
    "learned": _learned(tiny_spec()),
    "window": _windowed(8, 8),
    "window first": _windowed(8, None),
    "window last": _windowed(None, 8, 5),
    "window of 1": _windowed(1, 2),
}

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=SPECS, scope="module")
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return random_decoder(SPECS[request.param])


def _ids(count: int, rows: int = 1, *, seed: int = 1) -> Tensor:
    return torch.randint(320, (rows, count), generator=torch.Generator().manual_seed(seed))


def _cache(kind: CacheKind, decoder: Decoder) -> KVCache:
    cache = make_cache(kind, decoder.spec)
    assert cache is not None
    return cache


def _all_logits(decoder: Decoder, ids: Tensor) -> Tensor:
    """Logits of every position in one pass without a cache."""
    return _computed(decoder, tuple(map(tuple, ids.tolist())))


# The same for all kinds, and nobody writes into them.
@lru_cache(maxsize=64)
@torch.inference_mode()
def _computed(decoder: Decoder, rows: tuple[tuple[int, ...], ...]) -> Tensor:
    logits: Tensor = decoder(torch.tensor(rows), last_only=False)
    assert logits.dtype == torch.float64
    assert logits.std() > 0.3
    return logits


def _assert_exact(got: Tensor, expected: Tensor) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max().item() <= EXACT


def test_every_kind_can_be_poisoned() -> None:
    assert set(POISONERS) == {*get_args(CacheKind)} - {"none"}


@kinds
def test_on_and_off_agree_at_every_step(decoder: Decoder, kind: CacheKind) -> None:
    ids = _ids(PROMPT + NEW)
    on, off = Stepper(decoder, _cache(kind, decoder)), Stepper(decoder, None)
    expected = _all_logits(decoder, ids)[0]
    for start, stop in [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, PROMPT + NEW))]:
        with_cache = on.feed(ids[:, start:stop])
        _assert_exact(with_cache[0], expected[stop - 1])
        if kind == "growing":  # off is one and the same for all kinds
            _assert_exact(off.feed(ids[:, start:stop]), with_cache)
    assert on.cache is not None
    assert on.cache.length == PROMPT + NEW


@kinds
def test_any_split_of_the_same_ids(decoder: Decoder, kind: CacheKind) -> None:
    ids = _ids(12)
    expected = _all_logits(decoder, ids)[0]
    for split in ([12], [5, 7], [5, 1, 6], [11, 1], [1] * 12):
        stepper = Stepper(decoder, _cache(kind, decoder))
        fed = 0
        for piece in ids.split(split, dim=1):
            fed += piece.shape[1]
            _assert_exact(stepper.feed(piece)[0], expected[fed - 1])


@kinds
def test_all_rows_of_a_later_piece(decoder: Decoder, kind: CacheKind) -> None:
    """Not only the last row: each query of a second piece sees exactly the keys before it."""
    ids = _ids(12)
    cache = _cache(kind, decoder)
    with torch.inference_mode():
        pieces = [decoder(piece, cache, last_only=False) for piece in ids.split([5, 6, 1], dim=1)]
    _assert_exact(torch.cat(pieces, 1), _all_logits(decoder, ids))


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@kinds
def test_prefill_chunks(decoder: Decoder, kind: CacheKind, chunk: int) -> None:
    ids = _ids(PROMPT)
    seen: list[tuple[int, int]] = []
    stepper = Stepper(
        decoder,
        _cache(kind, decoder),
        chunk=chunk,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    _assert_exact(stepper.feed(ids)[0], _all_logits(decoder, ids)[0, -1])
    assert seen == [(min(at, PROMPT), PROMPT) for at in range(chunk, PROMPT + chunk, chunk)]


@kinds
def test_poisoned_slots_count_for_nothing(decoder: Decoder, kind: CacheKind) -> None:
    ids = _ids(PROMPT + NEW)
    expected = _all_logits(decoder, ids)[0]
    cache = _cache(kind, decoder)
    stepper = Stepper(decoder, cache)
    fed = 0
    for piece in ids.split([7, 5, 1, 7, *[1] * NEW], dim=1):
        logits = stepper.feed(piece)
        fed += piece.shape[1]
        _assert_exact(logits[0], expected[fed - 1])
        assert POISONERS[kind](cache) > 0


@kinds
def test_poison_is_felt_where_it_counts(decoder: Decoder, kind: CacheKind) -> None:
    """The test above can fail: poison in one slot that counts moves the logits."""
    ids = _ids(12)
    cache = _cache(kind, decoder)
    stepper = Stepper(decoder, cache)
    stepper.feed(ids[:, :11])
    cache.length -= 1
    POISONERS[kind](cache)
    cache.length += 1
    moved = stepper.feed(ids[:, 11:])[0] - _all_logits(decoder, ids)[0, -1]
    assert moved.abs().max() > 0.01


@kinds
def test_rewind_then_refeed(decoder: Decoder, kind: CacheKind) -> None:
    for count in (0, 1, 5, 19, 20):
        _assert_refed(decoder, kind, count)


def _assert_refed(decoder: Decoder, kind: CacheKind, count: int) -> None:
    cache = _cache(kind, decoder)
    stepper = Stepper(decoder, cache)
    stepper.feed(_ids(PROMPT))
    stepper.rewind(count)
    kept = PROMPT - count
    assert stepper.ids.shape[1] == kept
    # A ring that has wrapped cannot take tokens back: all of them are computed anew.
    wrapped = kind != "growing" and decoder.spec.windowed and count > 0
    assert cache.length == (0 if wrapped else kept)
    POISONERS[kind](cache)
    other = _ids(9, seed=2)
    whole = torch.cat((_ids(PROMPT)[:, : PROMPT - count], other), 1)
    _assert_exact(stepper.feed(other)[0], _all_logits(decoder, whole)[0, -1])


@kinds
def test_rewind_beyond_the_start_is_refused(decoder: Decoder, kind: CacheKind) -> None:
    for cache in (_cache(kind, decoder), None):
        stepper = Stepper(decoder, cache)
        stepper.feed(_ids(3))
        for count in (4, -1):
            with pytest.raises(ValueError, match="rewind"):
                stepper.rewind(count)
            if cache is not None:
                assert not cache.can_rewind(count)
                with pytest.raises(ValueError, match="rewind"):
                    cache.rewind(count)
        assert stepper.ids.shape[1] == 3


@kinds
def test_fork_is_independent(decoder: Decoder, kind: CacheKind) -> None:
    ids, left, right = _ids(PROMPT), _ids(6, seed=2), _ids(6, seed=3)
    cache = _cache(kind, decoder)
    with torch.inference_mode():
        decoder(ids, cache)
        fork = cache.fork()
        assert (fork.length, fork.capacity, fork.nbytes) == (PROMPT, cache.capacity, cache.nbytes)
        # Turn by turn, so that one writing into the other's memory would show.
        for at in range(6):
            a = decoder(left[:, at : at + 1], cache)
            b = decoder(right[:, at : at + 1], fork)
    _assert_exact(a[0], _all_logits(decoder, torch.cat((ids, left), 1))[0, -1:])
    _assert_exact(b[0], _all_logits(decoder, torch.cat((ids, right), 1))[0, -1:])


@pytest.mark.parametrize("order", [[2, 0, 0], [1], [0, 1, 2], [2, 2, 1, 1]])
@kinds
def test_reordered_rows(decoder: Decoder, kind: CacheKind, order: list[int]) -> None:
    ids = _ids(PROMPT, rows=3)
    cache = _cache(kind, decoder)
    next_ids = _ids(3, rows=len(order), seed=2)
    with torch.inference_mode():
        decoder(ids, cache)
        cache.reorder(torch.tensor(order))
        got = decoder(next_ids, cache, last_only=False)
    whole = torch.cat((ids[order], next_ids), 1)
    _assert_exact(got, _all_logits(decoder, whole)[:, PROMPT:])


@kinds
def test_rows_of_a_batch_are_those_of_single_runs(decoder: Decoder, kind: CacheKind) -> None:
    ids = _ids(PROMPT, rows=3)
    stepper = Stepper(decoder, _cache(kind, decoder))
    stepper.feed(ids[:, :-1])
    rows = stepper.feed(ids[:, -1:])
    for row, single in zip(rows, ids, strict=True):
        _assert_exact(row, _all_logits(decoder, single[None])[0, -1])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LOSSY])
def test_growth_over_a_step_boundary(kind: CacheKind) -> None:
    """256 is the growing cache's step, 512 the first size of the rotary table."""
    decoder = random_decoder(tiny_spec(max_position_embeddings=1024, num_hidden_layers=1))
    ids = _ids(516)
    expected = _all_logits(decoder, ids)[0]
    cache = _cache(kind, decoder)
    stepper = Stepper(decoder, cache)
    fed = 0
    for piece in ids.split([250, *[1] * 12, 240, 7, *[1] * 7], dim=1):
        logits = stepper.feed(piece)
        fed += piece.shape[1]
        _assert_exact(logits[0], expected[fed - 1])
        POISONERS[kind](cache)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@kinds
def test_lower_precision_stays_near(kind: CacheKind, dtype: torch.dtype) -> None:
    """On and off multiply other shapes, so they round apart: 1e-4 of std, 5% in bfloat16."""
    decoder = random_decoder(dtype=dtype)
    ids = _ids(PROMPT + NEW)
    on, off = Stepper(decoder, _cache(kind, decoder)), Stepper(decoder, None)
    allowed = 1e-4 if dtype == torch.float32 else 5e-2
    for piece in ids.split([PROMPT, *[1] * NEW], dim=1):
        with_cache, without = on.feed(piece), off.feed(piece)
        assert with_cache.dtype == torch.float32
        assert (with_cache - without).abs().max() <= allowed * without.std()
