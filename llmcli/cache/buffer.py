"""A pair of key and value buffers [B,K,capacity,D] that grows in steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from llmcli.cache.base import Slot
from llmcli.cache.fixed import Fixed
from llmcli.spec import GROWTH_STEP


class Buffer:
    """Keys and values side by side; their widths may differ (latent attention)."""

    def __init__(self, step: int = GROWTH_STEP, limit: int | None = None) -> None:
        self._step, self._limit = step, limit
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def capacity(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        return sum(held.nbytes for held in (self.keys, self.values) if held is not None)

    def reserve(self, used: int, needed: int, keys: Tensor, values: Tensor) -> None:
        """Make room for `needed` tokens, keeping the first `used`; shapes as in `keys, values`."""
        if needed <= self.capacity:
            return
        capacity = -(-needed // self._step) * self._step
        if self._limit is not None:
            capacity = min(capacity, self._limit)
        self.keys = _grown(self.keys, keys, used, capacity)
        self.values = _grown(self.values, values, used, capacity)

    def put(self, start: int, keys: Tensor, values: Tensor) -> None:
        """Write [B,K,n,D] at slots start ... start + n."""
        assert self.keys is not None
        assert self.values is not None
        self.keys[:, :, start : start + keys.shape[2]] = keys
        self.values[:, :, start : start + values.shape[2]] = values

    def get(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Slots start ... stop as views."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, start:stop], self.values[:, :, start:stop]

    def slot(self, at: int, first: int, last: int, *, ordered: bool) -> Slot | None:
        """Room for tokens from `at` on; None where the buffer is not of float32 on the CPU."""
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        plain = keys.dtype == torch.float32 and keys.device.type == "cpu"
        if not plain or keys.shape != values.shape or not keys.is_contiguous():
            return None
        return Slot(keys, values, at, first, last, ordered)

    @property
    def memory(self) -> tuple[Tensor, ...]:
        """Keys and values, where there are any."""
        return () if self.keys is None or self.values is None else (self.keys, self.values)

    def fixed(self, used: int, reach: int, ring: int | None = None) -> Fixed | None:
        """The first `reach` slots, or as many as there are: room for one more than `used`."""
        if self.keys is None or self.values is None:
            return None
        if used >= self.capacity:
            self.reserve(used, reach, self.keys, self.values)
        return Fixed(*self.get(0, min(reach, self.capacity)), ring)

    def clear(self) -> None:
        self.keys = self.values = None

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys = self.keys.index_select(0, rows)
            self.values = self.values.index_select(0, rows)

    def contents(self, count: int) -> dict[str, Tensor]:
        """The first `count` slots as views; nothing where there are none."""
        if not count or self.keys is None:
            return {}
        keys, values = self.get(0, count)
        return {"keys": keys, "values": values}

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        """Take over what `contents` gave."""
        if contents:
            keys, values = contents["keys"], contents["values"]
            self.reserve(0, keys.shape[2], keys, values)
            self.put(0, keys, values)

    def fork(self) -> Buffer:
        copy = Buffer(self._step, self._limit)
        if self.keys is not None and self.values is not None:
            copy.keys, copy.values = self.keys.clone(), self.values.clone()
        return copy


def _grown(old: Tensor | None, new: Tensor, used: int, capacity: int) -> Tensor:
    rows, heads, _, width = new.shape
    buffer = torch.empty(rows, heads, capacity, width, dtype=new.dtype, device=new.device)
    if old is not None:
        buffer[:, :, :used] = old[:, :, :used]
    return buffer
