"""The growing cache: memory follows the tokens seen, in steps, never the maximum context."""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.cache.base import KVCache

# A step small enough to waste little, large enough that copying stays rare (as in mlx-lm).
GROWTH_STEP = 256


class GrowingCache(KVCache):
    """One [B,K,capacity,D] buffer for keys and one for values a layer."""

    def __init__(self, num_layers: int, *, step: int = GROWTH_STEP) -> None:
        super().__init__()
        self._step = step
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers

    @property
    def capacity(self) -> int:
        first = self._keys[0] if self._keys else None
        return 0 if first is None else first.shape[2]

    @property
    def nbytes(self) -> int:
        return sum(held.nbytes for held in (*self._keys, *self._values) if held is not None)

    def key_positions(self, layer: int, new: int, like: Tensor) -> Tensor:  # noqa: ARG002
        return torch.arange(self.length + new, device=like.device)

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        stored_keys = self._add(self._keys, layer, keys)
        stored_values = self._add(self._values, layer, values)
        return stored_keys, stored_values

    def can_rewind(self, count: int) -> bool:
        return 0 <= count <= self.length

    def reorder(self, rows: Tensor) -> None:
        for held in (self._keys, self._values):
            held[:] = [None if one is None else one.index_select(0, rows) for one in held]

    def fork(self) -> GrowingCache:
        copy = GrowingCache(len(self._keys), step=self._step)
        copy.length = self.length
        copy._keys = [None if one is None else one.clone() for one in self._keys]
        copy._values = [None if one is None else one.clone() for one in self._values]
        return copy

    def _add(self, held: list[Tensor | None], layer: int, new: Tensor) -> Tensor:
        end = self.length + new.shape[2]
        buffer = held[layer]
        if buffer is None or end > buffer.shape[2]:
            buffer = held[layer] = self._grown(buffer, new, end)
        buffer[:, :, self.length : end] = new
        return buffer[:, :, :end]

    def _grown(self, old: Tensor | None, new: Tensor, end: int) -> Tensor:
        rows, heads, _, width = new.shape
        capacity = -(-end // self._step) * self._step
        buffer = new.new_empty(rows, heads, capacity, width)
        if old is not None:
            buffer[:, :, : self.length] = old[:, :, : self.length]
        return buffer
