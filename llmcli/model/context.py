"""What one forward pass shares between all layers of one kind."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from llmcli.cache import KVCache
from llmcli.model.attend import Visibility


@dataclass(frozen=True, slots=True)
class Context:
    """`rotation` is cos and sin [T,dim] of the layer's rotary table, where it has one;
    [B,1,T,dim] where rows have positions of their own.
    """

    visibility: Visibility
    rotation: tuple[Tensor, Tensor] | None
    cache: KVCache | None
