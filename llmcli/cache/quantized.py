"""The quantised store: old keys and values in 8 or 4 bits, the newest ones exact.

Each token and head is packed by itself, so any number of tokens can be taken back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.cache.base import LayerStore
from llmcli.cache.buffer import Buffer
from llmcli.cache.packed import Bits, pack, unpack
from llmcli.spec.caching import RECENT


class QuantizedStore(LayerStore):
    """At least the last `recent` tokens are exact; packing goes `recent` tokens at a time.

    A token that was packed stays packed when later ones are taken back.
    """

    # Its codes could not be checked when they come back.
    can_save = False

    def __init__(self, bits: Bits, *, recent: int = RECENT) -> None:
        self.bits: Bits = bits
        self.packed = 0
        self.codes, self.scales, self.exact = Buffer(), Buffer(), Buffer()
        self._recent = recent
        self._widths = (0, 0)

    @property
    def capacity(self) -> int:
        return self.packed + self.exact.capacity

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.exact.nbytes

    def first_position(self, length: int) -> int:  # noqa: ARG002
        return 0

    def update(self, length: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.packed = min(self.packed, length)
        self._widths = (keys.shape[-1], values.shape[-1])
        held = length - self.packed
        if held >= 2 * self._recent:
            self._pack(held - self._recent, held)
            held = self._recent
        self.exact.reserve(held, held + keys.shape[2], keys, values)
        self.exact.put(held, keys, values)
        exact = self.exact.get(0, held + keys.shape[2])
        return self._joined(*exact) if self.packed else exact

    def can_rewind(self, length: int, count: int) -> bool:
        return 0 <= count <= length

    def clear(self) -> None:
        self.packed = 0
        for buffer in (self.codes, self.scales, self.exact):
            buffer.clear()

    def reorder(self, rows: Tensor) -> None:
        for buffer in (self.codes, self.scales, self.exact):
            buffer.reorder(rows)

    def fork(self) -> QuantizedStore:
        copy = QuantizedStore(self.bits, recent=self._recent)
        copy.packed, copy._widths = self.packed, self._widths
        copy.codes, copy.scales = self.codes.fork(), self.scales.fork()
        copy.exact = self.exact.fork()
        return copy

    def _pack(self, count: int, held: int) -> None:
        """Move the oldest `count` of `held` exact tokens over to the packed ones."""
        keys, values = self.exact.get(0, count)
        key_codes, key_scales = pack(keys, self.bits)
        value_codes, value_scales = pack(values, self.bits)
        self._append(self.codes, key_codes, value_codes)
        # A buffer holds [B,K,S,n]: the groups' scales and minima lie side by side.
        self._append(self.scales, key_scales.flatten(-2), value_scales.flatten(-2))
        rest = [part.clone() for part in self.exact.get(count, held)]
        self.exact.clear()
        self.exact.reserve(0, held - count, *rest)
        self.exact.put(0, *rest)
        self.packed += count

    def _append(self, buffer: Buffer, keys: Tensor, values: Tensor) -> None:
        buffer.reserve(self.packed, self.packed + keys.shape[2], keys, values)
        buffer.put(self.packed, keys, values)

    def _joined(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The packed tokens, unpacked, before the exact ones."""
        codes, scales = self.codes.get(0, self.packed), self.scales.get(0, self.packed)
        both = []
        for code, scale, width, exact in zip(
            codes, scales, self._widths, (keys, values), strict=True
        ):
            pairs = scale.reshape(*scale.shape[:-1], -1, 2)
            both.append(torch.cat((unpack(code, pairs, self.bits, width), exact), 2))
        return both[0], both[1]
