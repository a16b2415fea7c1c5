"""The quantised cache: the error of packing, what stays exact, sizes, rows, taking back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.cache import KVCache, QuantizedStore, make_cache
from llmcli.cache.packed import Bits, pack, unpack
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.spec.caching import group_size
from tests.cache.poison import POISONERS
from tests.tiny import random_decoder, tiny_spec

RECENT = 4
bits_of = pytest.mark.parametrize("bits", [8, 4])


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return random_decoder()


def small_cache(bits: Bits, layers: int = 2) -> KVCache:
    """Packs as soon as eight tokens are there."""
    return KVCache([QuantizedStore(bits, recent=RECENT) for _ in range(layers)])


def ids(count: int, rows: int = 1, *, seed: int = 1) -> Tensor:
    return torch.randint(320, (rows, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [64, 32, 16, 80, 7, 1])
@bits_of
def test_no_value_is_off_by_more_than_half_a_step(
    bits: Bits, width: int, dtype: torch.dtype
) -> None:
    x = torch.randn(3, 2, 5, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    codes, scales = pack(x, bits)
    back = unpack(codes, scales, bits, width)
    assert (back.shape, back.dtype) == (x.shape, dtype)
    groups = x.double().unflatten(-1, (-1, group_size(width)))
    step = (groups.amax(-1) - groups.amin(-1)) / (2**bits - 1)
    error = (back.double() - x.double()).abs().unflatten(-1, (-1, group_size(width)))
    # A 16-bit scale is itself rounded, by one part in 256 over the whole range.
    rounding = 1e-5 if dtype.itemsize >= 4 else 0.01 * 2**bits
    assert (error.amax(-1) <= step * (0.5 + rounding) + 1e-9).all()


@bits_of
def test_equal_values_and_zeros_are_exact(bits: Bits) -> None:
    x = torch.tensor([[0.0] * 32, [3.7] * 32, [-1e4] * 32])
    assert torch.equal(unpack(*pack(x, bits), bits, 32), x)


@bits_of
def test_an_outlier_spoils_only_its_own_group(bits: Bits) -> None:
    x = torch.randn(1, 96, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 1e4
    back = unpack(*pack(x, bits), bits, 96)
    assert (back - x)[0, 32:].abs().max() < 0.5


@bits_of
def test_exact_as_long_as_nothing_is_packed(decoder: Decoder, bits: Bits) -> None:
    cache = make_cache("quantized-8" if bits == 8 else "quantized-4", decoder.spec)
    fed = Stepper(decoder, cache)
    off = Stepper(decoder, None)
    for piece in ids(60).split([50, *[1] * 10], dim=1):
        torch.testing.assert_close(fed.feed(piece), off.feed(piece), atol=1e-9, rtol=0)


@pytest.mark.parametrize(("bits", "allowed"), [(8, 0.02), (4, 0.4)])
def test_packed_keys_stay_near_and_are_felt(decoder: Decoder, bits: Bits, allowed: float) -> None:
    fed, off = Stepper(decoder, small_cache(bits)), Stepper(decoder, None)
    for piece in ids(60).split([20, *[1] * 40], dim=1):
        got, expected = fed.feed(piece), off.feed(piece)
        error = ((got - expected).abs().mean() / expected.std()).item()
        assert error < allowed
    assert error > 1e-6
    assert fed.cache is not None
    store = fed.cache.stores[0]
    assert isinstance(store, QuantizedStore)
    assert store.packed >= 60 - 2 * RECENT


@bits_of
def test_the_newest_tokens_are_exact(bits: Bits) -> None:
    store = QuantizedStore(bits, recent=RECENT)
    keys = torch.randn(1, 2, 30, 16, generator=torch.Generator().manual_seed(0))
    for at in range(30):
        got, values = store.update(at, keys[:, :, at : at + 1], -keys[:, :, at : at + 1])
        assert got.shape[2] == values.shape[2] == at + 1
        newest = slice(max(0, at + 1 - RECENT), at + 1)
        assert torch.equal(got[:, :, newest], keys[:, :, newest])
        assert torch.equal(values[:, :, newest], -keys[:, :, newest])
        assert (got - keys[:, :, : at + 1]).abs().max() < (0.02 if bits == 8 else 0.3)


@bits_of
def test_poisoned_slots_count_for_nothing(decoder: Decoder, bits: Bits) -> None:
    clean, dirty = (Stepper(decoder, small_cache(bits)) for _ in range(2))
    for piece in ids(40).split([7, 5, 1, 7, *[1] * 20], dim=1):
        assert torch.equal(clean.feed(piece), dirty.feed(piece))
        assert dirty.cache is not None
        assert POISONERS["quantized-8"](dirty.cache) > 0


@pytest.mark.parametrize("count", [1, 5, 12, 19])
@bits_of
def test_taken_back_and_fed_again(decoder: Decoder, bits: Bits, count: int) -> None:
    """Into the packed tokens too: what is packed stays so, the rest is as if never there."""
    cache = small_cache(bits)
    stepper = Stepper(decoder, cache)
    stepper.feed(ids(12))
    for at in range(8):
        stepper.feed(ids(20)[:, 12 + at : 13 + at])
    stepper.rewind(count)
    assert cache.length == 20 - count
    POISONERS["quantized-8"](cache)
    other = ids(9, seed=2)
    whole = torch.cat((ids(20)[:, : 20 - count], other), 1)
    with torch.inference_mode():
        expected = decoder(whole)[0, -1]
    error = (stepper.feed(other)[0] - expected).abs().mean() / expected.std()
    assert error < (0.02 if bits == 8 else 0.4)


@bits_of
def test_rows_and_forks(decoder: Decoder, bits: Bits) -> None:
    rows = ids(20, rows=3)
    cache = small_cache(bits)
    with torch.inference_mode():
        for piece in rows.split([10, 6, 4], dim=1):
            decoder(piece, cache)
        single = small_cache(bits)
        for piece in rows[2:].split([10, 6, 4], dim=1):
            decoder(piece, single)
        fork = cache.fork()
        cache.reorder(torch.tensor([2, 0]))
        last = torch.tensor([[5], [6]])
        expected = decoder(last[:1], single)
        got = decoder(last, cache)
        untouched = decoder(torch.tensor([[1], [2], [5]]), fork)
    torch.testing.assert_close(got[:1], expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(untouched[2:], expected, atol=1e-9, rtol=0)


@bits_of
def test_bytes(bits: Bits) -> None:
    """Codes, and a scale and a minimum for each 32 of them; buffers grow by 256 tokens."""
    store = QuantizedStore(bits, recent=RECENT)
    keys = torch.randn(1, 2, 40, 64)
    for at in range(40):
        store.update(at, keys[:, :, at : at + 1], keys[:, :, at : at + 1])
    assert store.codes.nbytes == 2 * 2 * 256 * 64 * bits // 8
    assert store.scales.nbytes == 2 * 2 * 256 * (64 // 32) * 2 * 4
    assert store.exact.nbytes == 2 * 2 * 256 * 64 * 4
    assert store.nbytes == store.codes.nbytes + store.scales.nbytes + store.exact.nbytes


def test_a_static_cache_takes_its_memory_once() -> None:
    decoder = random_decoder(tiny_spec(max_position_embeddings=1024, num_hidden_layers=1))
    cache = make_cache("static", decoder.spec, planned=600)
    assert cache is not None
    stepper = Stepper(decoder, cache)
    stepper.feed(ids(10))
    assert cache.capacity == 600
    first = cache.nbytes
    stepper.feed(ids(590))
    assert (cache.capacity, cache.nbytes) == (600, first)
    # Longer than planned is slower, never wrong.
    torch.testing.assert_close(
        stepper.feed(ids(1)), Stepper(decoder, None).feed(stepper.ids), atol=1e-9, rtol=0
    )
