"""A layer's memory for steps whose place is told by a tensor, never by a number in Python.

So one and the same work on the same memory serves every place below `limit`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Fixed:
    """keys and values [B,K,S,D] are views of the store's own memory, position p in slot p.

    With a `ring` it lies in slot p % ring. Every slot holds finite numbers: those that a step
    does not see are weighed with 0, and 0 times NaN would be NaN.
    """

    keys: Tensor
    values: Tensor
    ring: int | None = None

    @property
    def size(self) -> int:
        """S, the number of slots."""
        return self.keys.shape[2]

    @property
    def limit(self) -> int | None:
        """Positions below it have a slot; None where all have."""
        return None if self.ring is not None and self.size >= self.ring else self.size

    def positions(self, at: Tensor) -> Tensor:
        """Positions [S] of the slots once `at` [1] is in; one that holds none yet gets a number
        below 0 or above `at`.
        """
        slots = torch.arange(self.size, device=at.device)
        return slots if self.ring is None else at - (at - slots) % self.ring

    def put(self, at: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write [B,K,1,D] at position `at` [1]."""
        slot = at if self.ring is None else at % self.ring
        self.keys.index_copy_(2, slot, keys)
        self.values.index_copy_(2, slot, values)
