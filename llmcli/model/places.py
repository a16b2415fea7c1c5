"""Where the new tokens of a forward stand: slots that rows share, and positions of each row.

A shorter row of a batch has `pads` slots in front that hold nothing of its text. Keys lie by
slot, and a window counts slots, since a shift changes no distance; all else counts positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.model.masks import causal_mask


@dataclass(frozen=True, slots=True)
class Places:
    """`slots` [T] of the new tokens, below `stop`; `pads` [B], or None where no row has any."""

    slots: Tensor
    stop: int
    pads: Tensor | None

    @classmethod
    def after(cls, held: int, ids: Tensor, pads: Tensor | None) -> Places:
        """The places of ids [B,T] that follow `held` slots."""
        stop = held + ids.shape[1]
        return cls(torch.arange(held, stop, device=ids.device), stop, pads)

    def positions(self, slots: Tensor) -> Tensor:
        """Positions of these slots: [T], or [B,T] from 0 where rows have their own."""
        if self.pads is None:
            return slots
        return (slots - self.pads[:, None]).clamp(min=0)

    def visible(self, keys: Tensor, window: int | None) -> Tensor:
        """Whether each new token sees the keys in slots [S]: boolean [T,S] or [B,1,T,S]."""
        seen = causal_mask(self.slots, keys, window)
        if self.pads is None:
            return seen
        # A query in a padding slot sees itself, since a softmax over nothing would be NaN.
        itself = self.slots[:, None] == keys
        return seen & ((keys >= self.pads[:, None, None, None]) | itself)
