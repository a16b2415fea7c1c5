"""POISON: 1e4 in every slot that must not count. Any logit that moves then is a mask bug.

Not NaN: under a right mask too, 0 x NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from llmcli.cache import FullStore, KVCache, RingStore

POISON = 1e4


@torch.inference_mode()
def _spare_slots(cache: KVCache) -> int:
    slots = 0
    for store in cache.stores:
        if isinstance(store, FullStore | RingStore):
            for held in (store.buffer.keys, store.buffer.values):
                if held is not None:
                    dead = _dead_slots(store, cache.length, held.shape[2])
                    held[:, :, dead] = POISON
                    slots += len(dead)
    return slots


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
}
