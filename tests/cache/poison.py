"""POISON: 1e4 in every slot that must not count. Any logit that moves then is a mask bug.

Not NaN: under a right mask too, 0 x NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from llmcli.cache import FullStore, KVCache, LayerStore, QuantizedStore, RingStore
from llmcli.cache.buffer import Buffer

POISON = 1e4


@torch.inference_mode()
def _spare_slots(cache: KVCache) -> int:
    return sum(
        _fill(held, dead)
        for store in cache.stores
        for buffer, dead in _dead(store, cache.length)
        for held in (buffer.keys, buffer.values)
        if held is not None
    )


def _fill(held: torch.Tensor, dead: list[int]) -> int:
    # Packed codes are bytes: their scales carry the poison.
    held[:, :, dead] = 255 if held.dtype == torch.uint8 else POISON
    return len(dead)


def _dead(store: LayerStore, length: int) -> Iterator[tuple[Buffer, list[int]]]:
    """Every buffer of a store, with its slots that no later token may see."""
    if isinstance(store, FullStore | RingStore):
        yield store.buffer, _dead_slots(store, length, store.buffer.capacity)
    elif isinstance(store, QuantizedStore):
        packed = min(store.packed, length)
        for buffer, used in (
            (store.codes, packed),
            (store.scales, packed),
            (store.exact, length - packed),
        ):
            yield buffer, list(range(used, buffer.capacity))


def _dead_slots(store: FullStore | RingStore, length: int, capacity: int) -> list[int]:
    """Slots that no later token may see: beyond the tokens, or behind their window."""
    if isinstance(store, FullStore):
        return [*range(store.first_position(length)), *range(length, capacity)]
    window = store.window
    seen = {position % window for position in range(max(0, length + 1 - window), length)}
    return [slot for slot in range(capacity) if slot not in seen]


# One for every kind of cache; each returns how many slots it filled.
POISONERS: Mapping[str, Callable[[KVCache], int]] = {
    "growing": _spare_slots,
    "ring": _spare_slots,
    "static": _spare_slots,
    "quantized-8": _spare_slots,
    "quantized-4": _spare_slots,
    "offloaded": _spare_slots,
}
