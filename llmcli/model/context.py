"""What one forward pass shares between all layers of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from llmcli.model.attend import Visibility


class Held(Protocol):
    """What keeps keys and values: a KVCache, or a step's view of its memory."""

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add [B,K,T,D]; the keys and values [B,K,S,D] that the new tokens may see."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """`rotation` is cos and sin [T,dim] of the layer's rotary table, where it has one;
    [B,1,T,dim] where rows have positions of their own.
    """

    visibility: Visibility
    rotation: tuple[Tensor, Tensor] | None
    cache: Held | None
