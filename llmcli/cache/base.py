"""KVCache: one store a layer and one count of tokens for all of them.

Shapes: B rows, K kv heads, T new tokens, S keys, D head_dim. Keys are stored after rotation, so
a cached key never needs its position again. The forward, not a layer, advances `length`, once
all layers hold the new tokens; no layer's own size ever stands for the number of tokens seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from llmcli.cache.fixed import Fixed

# (keys [B,K,n,D] that were turned for positions start, start + 1, ...; start) -> the same keys
# turned for positions that are lower by what is dropped; it must not write into its input
Turn = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the next token's key and value go, and which slots it then sees: first ... last.

    keys and values [B,K,capacity,D] are the store's own memory. Where they are `ordered`, slot
    p holds position p, and more tokens may follow the next one, each seeing one slot more.
    """

    keys: Tensor
    values: Tensor
    at: int
    first: int
    last: int
    ordered: bool


class LayerStore(ABC):
    """What one layer keeps. `length` is always the cache's count before the new tokens.

    `survives_cut`: whether an `update` that nothing follows leaves the first `length` as they are.
    `can_drop`: whether tokens in the middle can go. `can_save`: whether it can be written down.
    """

    survives_cut: ClassVar[bool] = False
    can_drop: ClassVar[bool] = False
    can_save: ClassVar[bool] = True

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Tokens that the memory held now has room for."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory held now, spare capacity included."""

    @abstractmethod
    def first_position(self, length: int) -> int:
        """Position of the first key that `update` would return next; the rest follow it."""

    def key_positions(self, length: int, new: int, device: torch.device) -> Tensor:
        """Positions [S] of the keys that `update` will return for `new` tokens."""
        return torch.arange(self.first_position(length), length + new, device=device)

    @abstractmethod
    def update(self, length: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add [B,K,T,D] and return the keys and values [B,K,S,D] that the new tokens may see.

        One new token sees all that is returned, in whatever order; several get them in order
        of position, beginning at `first_position`.
        """

    def slot(self, length: int, like: Tensor) -> Slot | None:  # noqa: ARG002
        """Room for more tokens as `like` [B,K,T,D]; None where `update` is the only way in."""
        return None

    @property
    def memory(self) -> tuple[Tensor, ...]:
        """The tensors that `fixed` gives views of; others once they had to grow."""
        return ()

    def fixed(self, length: int, reach: int) -> Fixed | None:  # noqa: ARG002
        """Its memory for the places from `length` on, below `reach` at most; None where
        `update` is the only way in, or nothing is held yet.
        """
        return None

    def wipe(self, length: int) -> None:
        """Write zeros where no token of the `length` lies, in the memory that `fixed` shows."""
        for held in self.memory:
            held[:, :, length:].zero_()

    @abstractmethod
    def can_rewind(self, length: int, count: int) -> bool:
        """Whether the last `count` of `length` tokens can be taken back without loss."""

    def drop(self, length: int, first: int, count: int, turn: Turn) -> None:  # noqa: ARG002
        """Forget `count` tokens after the `first` ones; those behind them move down."""
        raise AssertionError("this store drops nothing from its middle")

    @abstractmethod
    def clear(self) -> None:
        """Forget everything, memory included."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Make row n a copy of the former row `rows[n]`; the number of rows may change."""

    @abstractmethod
    def fork(self) -> LayerStore:
        """An independent copy with the same content."""

    def contents(self, length: int) -> dict[str, Tensor]:  # noqa: ARG002
        """What `restore` needs to hold the same `length` tokens again: views, no spare memory."""
        raise AssertionError("this store is not saved")

    def restore(self, contents: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """Hold what `contents` says, in an empty store of the same kind."""
        raise AssertionError("this store is not saved")


class KVCache:
    """Keys and values (or states) of the `length` tokens seen so far, for every layer.

    `regime` names the rotary tables that the keys were turned with (DecoderSpec.regime).
    `torn` is true from the start of a forward to its end. One that was cut short (Ctrl-C) has
    overwritten what a ring or a state held, so all but growing stores must then be cleared.
    `dropped` counts tokens that are gone from the middle; `length` does not count them, and the
    rest stand at positions as if these had never been. `moving` is true while they go.
    `capture` is what a decoder keeps to run steps on `fixed` memory, and is gone with that memory;
    `wiped` is true while no slot but those of tokens has been written since `wipe`.
    `planned` is the length that the run may reach, its last token included, which is never fed;
    0 where nobody knows. Memory that is taken ahead for such steps ends there.
    """

    def __init__(self, stores: Sequence[LayerStore]) -> None:
        self.stores = list(stores)
        self.length = 0
        self.dropped = 0
        self.regime: tuple[int, ...] = ()
        self.torn = False
        self.moving = False
        self.capture: object | None = None
        self.wiped = False
        self.planned = 0

    @property
    def seen(self) -> int:
        """Tokens that came in, those that were dropped since included."""
        return self.length + self.dropped

    @property
    def capacity(self) -> int:
        """Tokens that fit before the memory of some layer must grow or old ones must go."""
        return min((store.capacity for store in self.stores), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held now, spare capacity included."""
        return sum(store.nbytes for store in self.stores)

    def key_positions(self, layer: int, new: int, like: Tensor) -> Tensor:
        """Positions [S] of the keys that `update` will return, on the device of `like`."""
        return self.stores[layer].key_positions(self.length, new, like.device)

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add [B,K,T,D] at positions `length ...`; see LayerStore.update for the result."""
        return self.stores[layer].update(self.length, keys, values)

    def slots(self, like: Tensor) -> list[Slot] | None:
        """Each layer's room for more tokens [B,K,T,D], or None where some layer has no such."""
        found = []
        for store in self.stores:
            slot = store.slot(self.length, like)
            if slot is None:
                return None
            found.append(slot)
        return found

    @property
    def memory(self) -> list[Tensor]:
        """What `fixed` gives views of, to be compared with `is`."""
        return [held for store in self.stores for held in store.memory]

    def fixed(self, reach: int) -> list[Fixed] | None:
        """Each layer's memory for steps at the next places, or None where some layer has no such.

        `wipe` has to be called before the first step, and wherever `wiped` is false.
        """
        self.wiped = False
        found = []
        for store in self.stores:
            fixed = store.fixed(self.length, reach)
            if fixed is None:
                return None
            found.append(fixed)
        return found

    def wipe(self) -> None:
        """Write zeros into every slot that holds no token."""
        for store in self.stores:
            store.wipe(self.length)
        self.wiped = True

    @property
    def trusted(self) -> bool:
        """Whether all stores hold what `length` says, though a forward may have been cut short."""
        if self.moving:
            return False
        return not self.torn or all(store.survives_cut for store in self.stores)

    def begin(self, regime: tuple[int, ...]) -> None:
        """A forward starts; its keys are turned by the tables of this regime."""
        self.torn, self.regime, self.wiped = True, regime, False

    def advance(self, new: int) -> None:
        """Count `new` tokens as seen; called by the forward after the last layer."""
        self.length += new
        self.torn = False

    @property
    def can_drop(self) -> bool:
        """Whether every layer can forget tokens in its middle."""
        return all(store.can_drop for store in self.stores)

    def drop(self, first: int, count: int, turns: Sequence[Turn]) -> None:
        """Forget `count` tokens after the `first` ones, in every layer with its own turn."""
        assert 0 < count <= self.length - first
        self.moving, self.wiped = True, False
        for store, turn in zip(self.stores, turns, strict=True):
            store.drop(self.length, first, count, turn)
        self.length -= count
        self.dropped += count
        self.moving = False

    def can_rewind(self, count: int) -> bool:
        """Whether every layer can take back the last `count` tokens without loss."""
        if not 0 <= count <= self.length or (self.dropped and 0 < count < self.length):
            return False
        return count == self.length or (
            self.trusted and all(store.can_rewind(self.length, count) for store in self.stores)
        )

    def rewind(self, count: int) -> None:
        """Take back the last `count` tokens.

        Raises ValueError where `can_rewind(count)` is false.
        """
        if not self.can_rewind(count):
            raise ValueError(f"cannot rewind {count} of {self.length} tokens")
        if count and count == self.length:
            self.clear()
        else:
            self.length -= count
            self.wiped = self.wiped and not count

    def clear(self) -> None:
        """Forget every token, and give the memory back."""
        for store in self.stores:
            store.clear()
        self.length, self.dropped, self.torn, self.moving = 0, 0, False, False
        self.capture = None

    def reorder(self, rows: Tensor) -> None:
        """Make row n a copy of the former row `rows[n]`; the number of rows may change."""
        for store in self.stores:
            store.reorder(rows)
        self.capture = None

    def fork(self) -> KVCache:
        """An independent copy with the same content."""
        copy = KVCache([store.fork() for store in self.stores])
        copy.length, copy.regime, copy.torn = self.length, self.regime, self.torn
        copy.dropped, copy.moving, copy.planned = self.dropped, self.moving, self.planned
        return copy
