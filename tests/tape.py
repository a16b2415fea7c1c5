"""Tape: what a CUDA graph does, on the CPU. Operations are recorded once, with the very tensors and
numbers they had, and played again; whatever Python did between them is not done again.

So a step that let a place, a length or a host value into its recording says so: its replays at
other places are wrong. An operation that a recording on CUDA does not allow is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

# Those that send data to the device, or ask it for some: both wait for it.
FORBIDDEN = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
    "aten::_unique2",
}


class Tape(TorchDispatchMode):
    """Records the operations of a `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Callable[..., Any], Any, Any, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs: Mapping[str, Any] | None = None):
        name = func._schema.name
        assert name not in FORBIDDEN, f"{name} cannot be captured"
        out = func(*args, **(kwargs or {}))
        self.operations.append((func, args, dict(kwargs or {}), out))
        return out

    def play(self, result: Tensor) -> Tensor:
        """Every operation again; what stands in the place of `result`."""
        known: dict[int, Any] = {}

        def now(x: Any) -> Any:
            return known.get(id(x), x) if isinstance(x, Tensor) else x

        for func, args, kwargs, out in self.operations:
            again = func(*tree_map(now, args), **tree_map(now, kwargs))
            for old, new in zip(tree_flatten(out)[0], tree_flatten(again)[0], strict=True):
                known[id(old)] = new
        return now(result)


class Recorder:
    """Tells how often work was recorded and played."""

    def __init__(self) -> None:
        self.recorded = self.played = 0

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1
        with Tape() as tape:
            out = work()
        assert tape.operations

        def play() -> Tensor:
            self.played += 1
            return tape.play(out)

        return play
