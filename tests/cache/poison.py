"""POISON: 1e4 in every slot that must not count. Any logit that moves then is a mask bug.

Not NaN: under a right mask too, 0 x NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from llmcli.cache import GrowingCache, KVCache

POISON = 1e4


@torch.inference_mode()
def _growing(cache: KVCache) -> int:
    assert isinstance(cache, GrowingCache)
    slots = 0
    for held in (*cache._keys, *cache._values):
        if held is not None:
            held[:, :, cache.length :] = POISON
            slots += held.shape[2] - cache.length
    return slots


# One for every kind of cache; each returns how many slots it filled.
POISONERS: Mapping[str, Callable[[KVCache], int]] = {"growing": _growing}
