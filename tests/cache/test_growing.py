"""The growing cache's memory: in steps with what was seen, never with the maximum context."""

from __future__ import annotations

import pytest
import torch

from llmcli.cache import FullStore, KVCache, make_cache
from llmcli.spec import kv_bytes_per_token
from tests.tiny import random_decoder, tiny_spec


def _growing(step: int = 256) -> KVCache:
    return KVCache([FullStore(step=step) for _ in range(2)])


def _add(cache: KVCache, new: int) -> None:
    for layer in range(2):
        keys = torch.zeros(1, 2, new, 4)
        held, _ = cache.update(layer, keys, keys)
        assert held.shape[2] == cache.length + new
    cache.advance(new)


def test_empty() -> None:
    cache = _growing()
    assert (cache.length, cache.capacity, cache.nbytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("adds", "capacity"),
    [([1], 256), ([256], 256), ([256, 1], 512), ([257], 512), ([250, 6], 256), ([600, 200], 1024)],
)
def test_capacity_grows_in_steps(adds: list[int], capacity: int) -> None:
    cache = _growing()
    for new in adds:
        _add(cache, new)
    assert cache.length == sum(adds)
    assert cache.capacity == capacity
    assert cache.nbytes == capacity * 2 * 2 * 2 * 4 * 4


def test_memory_follows_what_was_seen_not_the_maximum_context() -> None:
    decoder = random_decoder(tiny_spec(max_position_embeddings=131072), dtype=torch.float32)
    cache = make_cache("growing", decoder.spec)
    assert cache is not None
    with torch.inference_mode():
        decoder(torch.arange(10)[None], cache)
    assert cache.nbytes == 256 * kv_bytes_per_token(decoder.spec, 4)


def test_interrupted_forward_leaves_the_length() -> None:
    """A forward cut by Ctrl-C between two layers counts for nothing; the next one is right."""
    cache = _growing(step=4)
    _add(cache, 3)
    keys = torch.ones(1, 2, 5, 4)
    cache.update(0, keys, keys)
    assert cache.length == 3
    _add(cache, 2)
    assert cache.length == 5
    held, _ = cache.update(0, keys, keys)
    assert held.shape[2] == 10
    assert not held[:, :, :5].any()


def test_kinds() -> None:
    assert make_cache("none", tiny_spec()) is None
    cache = make_cache("growing", tiny_spec())
    assert cache is not None
    assert all(isinstance(store, FullStore) for store in cache.stores)
