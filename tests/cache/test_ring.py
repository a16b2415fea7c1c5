"""The ring of windowed layers: exact lengths around the window, memory, rewinding, cut forwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from llmcli.cache import FullStore, KVCache, RingStore, default_kind, make_cache
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec
from tests.cache.poison import POISONERS
from tests.tiny import random_decoder, tiny_spec

WINDOW = 8
EXACT = 1e-9


def _spec(*windows: int | None) -> DecoderSpec:
    (layer, *_) = tiny_spec().layers
    return replace(tiny_spec(), layers=tuple(replace(layer, window=one) for one in windows))


@pytest.fixture(params=[(WINDOW, None), (None, WINDOW), (WINDOW, WINDOW)], ids=str)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return random_decoder(_spec(*request.param))


def _ids(count: int) -> Tensor:
    return torch.randint(320, (1, count), generator=torch.Generator().manual_seed(1))


def _ring(decoder: Decoder) -> KVCache:
    cache = make_cache("ring", decoder.spec)
    assert cache is not None
    return cache


@torch.inference_mode()
def _expected(decoder: Decoder, ids: Tensor) -> Tensor:
    logits: Tensor = decoder(ids)[:, -1]
    return logits


@pytest.mark.parametrize("prompt", [6, 7, 8, 9, 16, 17, 20])
def test_exact_lengths_and_two_wraps(decoder: Decoder, prompt: int) -> None:
    """Each step equals the run without a cache, with 1e4 in every slot that must not count."""
    ids = _ids(prompt + 2 * WINDOW + 3)
    cache = _ring(decoder)
    stepper = Stepper(decoder, cache)
    for start, stop in [(0, prompt), *((at, at + 1) for at in range(prompt, ids.shape[1]))]:
        logits = stepper.feed(ids[:, start:stop])
        assert (logits - _expected(decoder, ids[:, :stop])).abs().max() <= EXACT
        POISONERS["ring"](cache)


@pytest.mark.parametrize("pieces", [[3, 5, 1, 8, 2], [8, 8], [7, 9, 1, 1], [20, 3], [1, 1, 30]])
def test_pieces_of_any_length(decoder: Decoder, pieces: list[int]) -> None:
    ids = _ids(sum(pieces))
    cache = _ring(decoder)
    got = []
    with torch.inference_mode():
        for piece in ids.split(pieces, dim=1):
            got.append(decoder(piece, cache, last_only=False))
            POISONERS["ring"](cache)
        expected = decoder(ids, last_only=False)
    assert (torch.cat(got, 1) - expected).abs().max() <= EXACT


def test_a_window_one_off_is_told_apart() -> None:
    ids = _ids(20)
    logits = [_expected(random_decoder(_spec(window, window)), ids) for window in (7, 8, 9)]
    assert (logits[1] - logits[0]).abs().max() > 0.01
    assert (logits[1] - logits[2]).abs().max() > 0.01


def test_memory_ends_at_the_window() -> None:
    decoder = random_decoder(_spec(WINDOW, None, WINDOW))
    cache = _ring(decoder)
    stepper = Stepper(decoder, cache)
    stepper.feed(_ids(50))
    stepper.feed(_ids(1))
    first, full, last = cache.stores
    a_slot = 2 * 2 * 16 * 8  # keys and values, kv heads, head_dim, float64
    assert first.capacity == last.capacity == WINDOW
    assert first.nbytes == last.nbytes == WINDOW * a_slot
    assert full.nbytes == 256 * a_slot
    # No view of a longer tensor keeps its memory alive.
    for store in cache.stores:
        assert isinstance(store, RingStore | FullStore)
        assert store.buffer.keys is not None
        assert store.buffer.keys.untyped_storage().nbytes() == store.buffer.keys.nbytes


def test_a_short_text_does_not_take_a_whole_window() -> None:
    decoder = random_decoder(_spec(4096, 4096))
    cache = _ring(decoder)
    Stepper(decoder, cache).feed(_ids(10))
    assert cache.capacity == 256


def test_rewinding_rules() -> None:
    decoder = random_decoder(_spec(WINDOW, None))
    for length in (5, 8):
        cache = _ring(decoder)
        Stepper(decoder, cache).feed(_ids(length))
        assert all(cache.can_rewind(count) for count in range(length + 1))
    cache = _ring(decoder)
    Stepper(decoder, cache).feed(_ids(9))
    assert [count for count in range(10) if cache.can_rewind(count)] == [0, 9]
    with pytest.raises(ValueError, match="rewind 1 of 9"):
        cache.rewind(1)
    cache.rewind(9)
    assert (cache.length, cache.nbytes) == (0, 0)


@pytest.mark.parametrize("held", [0, 3, 7, 8, 12])
@pytest.mark.parametrize("cut", [1, 2, 9])
def test_a_forward_cut_short_does_no_harm(decoder: Decoder, held: int, cut: int) -> None:
    """Ctrl-C between two layers: the first layer has the new keys, the second has not."""
    ids = _ids(held + cut)
    cache = _ring(decoder)
    stepper = Stepper(decoder, cache)
    if held:
        stepper.feed(ids[:, :held])
    broken = decoder.layers[1].register_forward_pre_hook(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        stepper.feed(ids[:, held:])
    broken.remove()
    assert held == 0 or not cache.can_rewind(1)
    stepper.rewind(cut)
    other = _ids(40)[:, 30:33]
    whole = torch.cat((ids[:, :held], other), 1)
    assert (stepper.feed(other) - _expected(decoder, whole)).abs().max() <= EXACT


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_default_kind() -> None:
    assert default_kind(tiny_spec()) == "growing"
    assert default_kind(_spec(None, WINDOW)) == "ring"
