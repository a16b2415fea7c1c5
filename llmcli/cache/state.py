"""The store of a recurrent layer: a state of fixed size in place of keys and values."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from llmcli.cache.base import LayerStore


class StateStore(LayerStore):
    """`conv` holds the last inputs of a short convolution, `state` the recurrent matrices."""

    def __init__(self) -> None:
        self.conv: Tensor | None = None
        self.state: Tensor | None = None

    @property
    def capacity(self) -> int:
        return 2**62  # its size does not depend on the tokens seen

    @property
    def nbytes(self) -> int:
        return sum(held.nbytes for held in (self.conv, self.state) if held is not None)

    def first_position(self, length: int) -> int:
        return length

    def update(
        self,
        length: int,  # noqa: ARG002
        keys: Tensor,  # noqa: ARG002
        values: Tensor,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        raise AssertionError("a recurrent layer caches no keys")

    def can_rewind(self, length: int, count: int) -> bool:  # noqa: ARG002
        return count == 0

    def clear(self) -> None:
        self.conv = self.state = None

    def reorder(self, rows: Tensor) -> None:
        self.conv = None if self.conv is None else self.conv.index_select(0, rows)
        self.state = None if self.state is None else self.state.index_select(0, rows)

    def fork(self) -> StateStore:
        copy = StateStore()
        copy.conv = None if self.conv is None else self.conv.clone()
        copy.state = None if self.state is None else self.state.clone()
        return copy

    def contents(self, length: int) -> dict[str, Tensor]:  # noqa: ARG002
        held = {"conv": self.conv, "state": self.state}
        return {name: one for name, one in held.items() if one is not None}

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        self.conv, self.state = contents.get("conv"), contents.get("state")
