"""A cache as named tensors, and back. Must not know files.

What comes back is foreign: its names, shapes and dtypes must be those that a cache of this spec
would have after as many tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from llmcli.cache.base import KVCache, LayerStore


def to_tensors(cache: KVCache) -> dict[str, Tensor]:
    """Everything that the cache holds, on the CPU, as `layers.N.NAME`."""
    found = {}
    for index, store in enumerate(cache.stores):
        for name, tensor in store.contents(cache.length).items():
            found[f"layers.{index}.{name}"] = tensor.to("cpu").contiguous()
    return found


def from_tensors(
    cache: KVCache,
    tensors: Mapping[str, Tensor],
    *,
    length: int,
    regime: tuple[int, ...],
    like: KVCache,
    device: torch.device,
) -> None:
    """Fill an empty cache. `like` is one of the same kind that has seen at least one token.

    Raises ValueError naming the first tensor that does not fit; the cache is then of no use.
    """
    by_layer: list[dict[str, Tensor]] = [{} for _ in cache.stores]
    for full, tensor in tensors.items():
        parts = full.split(".")
        if len(parts) != 3 or parts[0] != "layers" or not parts[1].isdecimal():
            raise ValueError(f"tensor {full} is unknown")
        index = int(parts[1])
        if index >= len(by_layer):
            raise ValueError(f"tensor {full} is of layer {index}; there are {len(by_layer)}")
        by_layer[index][parts[2]] = tensor
    for index, (store, other) in enumerate(zip(cache.stores, like.stores, strict=True)):
        _check(index, by_layer[index], other.contents(like.length))
        store.restore({name: one.to(device) for name, one in by_layer[index].items()})
        if not _whole(store, by_layer[index], length):
            raise ValueError(f"layer {index} does not hold {length} tokens")
    cache.length, cache.regime = length, regime


def _check(index: int, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(wanted.keys() ^ given.keys()):
        problem = "is missing" if name in wanted else "is unknown"
        raise ValueError(f"tensor layers.{index}.{name} {problem}")
    for name, tensor in given.items():
        other = wanted[name]
        # Only the third axis of keys and values, that of the tokens, may differ.
        free = 2 if name in ("keys", "values") else None
        fits = (
            tensor.dtype == other.dtype
            and tensor.ndim == other.ndim
            and all(
                size == wide or axis == free
                for axis, (size, wide) in enumerate(zip(tensor.shape, other.shape, strict=True))
            )
        )
        if not fits:
            raise ValueError(
                f"tensor layers.{index}.{name} is {tensor.dtype} {list(tensor.shape)}, "
                f"not {other.dtype} {list(other.shape)}"
            )
        if not torch.isfinite(tensor).all():
            raise ValueError(f"tensor layers.{index}.{name} holds NaN or infinity")


def _whole(store: LayerStore, given: Mapping[str, Tensor], length: int) -> bool:
    """Whether the store then gives for `length` tokens just what it was given."""
    if "keys" in given and given["keys"].shape[2] != given["values"].shape[2]:
        return False
    again = store.contents(length)
    return all(again[name].shape == one.shape for name, one in given.items())
