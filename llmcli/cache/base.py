"""The protocol of every KV cache. Shapes: B rows, K kv heads, T new tokens, S keys, D head_dim.

Keys are stored after rotation, so a cached key never needs its position again. The forward,
not a layer, advances `length`, once all layers hold the new tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class KVCache(ABC):
    """Keys and values of the `length` tokens seen so far, for every layer."""

    def __init__(self) -> None:
        self.length = 0

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Tokens that fit before memory must grow."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory held now, spare capacity included."""

    @abstractmethod
    def key_positions(self, layer: int, new: int, like: Tensor) -> Tensor:
        """Positions [S] of the keys that `update` will return for `new` tokens.

        The result lies on the device of `like`.
        """

    @abstractmethod
    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add [B,K,T,D] at positions `length ...` and return all keys and values [B,K,S,D]."""

    def advance(self, new: int) -> None:
        """Count `new` tokens as seen; called by the forward after the last layer."""
        self.length += new

    @abstractmethod
    def can_rewind(self, count: int) -> bool:
        """Whether the last `count` tokens can be taken back without loss."""

    def rewind(self, count: int) -> None:
        """Take back the last `count` tokens.

        Raises ValueError where `can_rewind(count)` is false.
        """
        if not self.can_rewind(count):
            raise ValueError(f"cannot rewind {count} of {self.length} tokens")
        self.length -= count

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Make row n a copy of the former row `rows[n]`; the number of rows may change."""

    @abstractmethod
    def fork(self) -> KVCache:
        """An independent copy with the same content."""
