"""The ring store of a windowed layer: memory ends at the window, old keys are overwritten."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from llmcli.cache.base import LayerStore, Slot, Turn
from llmcli.cache.buffer import Buffer
from llmcli.cache.fixed import Fixed
from llmcli.spec import GROWTH_STEP


class RingStore(LayerStore):
    """The key of position p lies in slot p % window."""

    can_drop = True

    def __init__(self, window: int, *, step: int = GROWTH_STEP) -> None:
        self.buffer = Buffer(step, limit=window)
        self.window = window

    @property
    def capacity(self) -> int:
        return self.buffer.capacity

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes

    def first_position(self, length: int) -> int:
        return max(0, length - self.window)

    def key_positions(self, length: int, new: int, device: torch.device) -> Tensor:
        if new > 1:
            return super().key_positions(length, new, device)
        # One token gets the ring as it lies: each slot holds the latest position that falls there.
        slots = torch.arange(min(length + 1, self.window), device=device)
        return length - (length - slots) % self.window

    def update(self, length: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        new = keys.shape[2]
        if new == 1:
            self._reserve(length, min(length + 1, self.window), keys, values)
            self.buffer.put(length % self.window, keys, values)
            return self.buffer.get(0, min(length + 1, self.window))
        # All old keys are handed back before any is overwritten: early queries still see them.
        if length:
            old_keys, old_values = self._ordered(length)
            keys = torch.cat((old_keys, keys), 2)
            values = torch.cat((old_values, values), 2)
        self._keep(length + new, keys, values)
        return keys, values

    def slot(self, length: int, like: Tensor) -> Slot | None:
        if like.shape[2] > 1:
            return None
        last = min(length + 1, self.window)
        self._reserve(length, last, like, like)
        return self.buffer.slot(length % self.window, 0, last, ordered=length < self.window)

    @property
    def memory(self) -> tuple[Tensor, ...]:
        return self.buffer.memory

    def fixed(self, length: int, reach: int) -> Fixed | None:
        # A ring that has come round has room, and grows no more.
        used = min(length, self.window - 1)
        return self.buffer.fixed(used, min(reach, self.window), self.window)

    def can_rewind(self, length: int, count: int) -> bool:
        # Once the ring has wrapped, the keys that the earlier queries saw are gone.
        return count == 0 or (0 < count <= length <= self.window)

    def drop(self, length: int, first: int, count: int, turn: Turn) -> None:
        keys, values = self._ordered(length)
        start = max(0, length - self.window)
        if start == 0:
            gone = first + count
            keys = torch.cat((keys[:, :, :first], turn(keys[:, :, gone:], gone)), 2)
            values = torch.cat((values[:, :, :first], values[:, :, gone:]), 2)
        else:
            # The first ones are out of the window before and after, and so is what goes.
            assert length - count - self.window >= first
            keys, values = turn(keys, start), values.clone()
        self._keep(length - count, keys, values)

    def clear(self) -> None:
        self.buffer.clear()

    def reorder(self, rows: Tensor) -> None:
        self.buffer.reorder(rows)

    def fork(self) -> RingStore:
        copy = RingStore(self.window)
        copy.buffer = self.buffer.fork()
        return copy

    def contents(self, length: int) -> dict[str, Tensor]:
        return self.buffer.contents(min(length, self.window))

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        self.buffer.restore(contents)

    def _ordered(self, length: int) -> tuple[Tensor, Tensor]:
        """The keys and values held, by position."""
        keys, values = self.buffer.get(0, min(length, self.window))
        turn = length % self.window if length > self.window else 0
        return (keys.roll(-turn, 2), values.roll(-turn, 2)) if turn else (keys, values)

    def _keep(self, length: int, keys: Tensor, values: Tensor) -> None:
        """Store the last `window` of keys and values that end at position `length - 1`."""
        held = min(length, self.window)
        keys, values = keys[:, :, -held:], values[:, :, -held:]
        turn = length % self.window if length > self.window else 0
        if turn:
            keys, values = keys.roll(turn, 2), values.roll(turn, 2)
        self._reserve(0, held, keys, values)
        self.buffer.put(0, keys, values)

    def _reserve(self, used: int, needed: int, keys: Tensor, values: Tensor) -> None:
        self.buffer.reserve(min(used, self.window), needed, keys, values)
