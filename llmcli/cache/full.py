"""The growing store: every key is kept, and memory follows the tokens seen, in steps."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from llmcli.cache.base import LayerStore, Slot, Turn
from llmcli.cache.buffer import Buffer
from llmcli.cache.fixed import Fixed
from llmcli.spec import GROWTH_STEP


class FullStore(LayerStore):
    """Keeps all; with a `window`, hands back only the keys that a new token may see."""

    survives_cut = True
    can_drop = True

    def __init__(self, *, window: int | None = None, step: int = GROWTH_STEP) -> None:
        self.buffer = Buffer(step)
        self._window = window

    @property
    def capacity(self) -> int:
        return self.buffer.capacity

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes

    def first_position(self, length: int) -> int:
        return 0 if self._window is None else max(0, length + 1 - self._window)

    def update(self, length: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = length + keys.shape[2]
        self.buffer.reserve(length, end, keys, values)
        self.buffer.put(length, keys, values)
        return self.buffer.get(self.first_position(length), end)

    def slot(self, length: int, like: Tensor) -> Slot | None:
        self.buffer.reserve(length, length + like.shape[2], like, like)
        return self.buffer.slot(length, self.first_position(length), length + 1, ordered=True)

    @property
    def memory(self) -> tuple[Tensor, ...]:
        return self.buffer.memory

    def fixed(self, length: int, reach: int) -> Fixed | None:
        return self.buffer.fixed(length, reach)

    def can_rewind(self, length: int, count: int) -> bool:
        return 0 <= count <= length

    def drop(self, length: int, first: int, count: int, turn: Turn) -> None:
        keys, values = self.buffer.get(first + count, length)
        self.buffer.put(first, turn(keys, first + count), values.clone())

    def clear(self) -> None:
        self.buffer.clear()

    def reorder(self, rows: Tensor) -> None:
        self.buffer.reorder(rows)

    def fork(self) -> FullStore:
        copy = self._empty()
        copy.buffer = self.buffer.fork()
        return copy

    def contents(self, length: int) -> dict[str, Tensor]:
        return self.buffer.contents(length)

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        self.buffer.restore(contents)

    def _empty(self) -> FullStore:
        return FullStore(window=self._window)
