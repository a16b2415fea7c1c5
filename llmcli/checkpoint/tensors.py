"""Stored tensors as torch tensors: views of the mapped file, cut, turned and cast one by one.

Must not know the decoder or families: it follows a LoadPlan and yields (name, tensor).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.plan import Assignment, LoadPlan
from llmcli.errors import CheckpointError


class TensorFiles:
    """Opens each file once, mapped; reading a tensor allocates nothing."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: dict[Path, Any] = {}

    def __enter__(self) -> TensorFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.clear()
        self._stack.close()

    def read(self, stored: StoredTensor) -> Tensor:
        """A view of the mapped bytes in the stored dtype and shape."""
        try:
            if stored.file not in self._open:
                mapped = safe_open(stored.file, framework="pt", device="cpu")
                self._open[stored.file] = self._stack.enter_context(mapped)
            tensor: Tensor = self._open[stored.file].get_tensor(stored.name)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{printable(stored.file.name)} cannot be read: {printable(str(error))}",
                hint="the file changed while it was read, or is damaged; fetch it again",
            ) from error
        return tensor

    def parameters(
        self, plan: LoadPlan, *, dtype: torch.dtype, device: torch.device
    ) -> Iterator[tuple[str, Tensor]]:
        """Each parameter of the plan, on `device` in `dtype`, one at a time.

        A tensor that needs no change stays a view of the mapped file: no copy is made.
        """
        for item in plan.assignments:
            yield item.target, self.make(item).to(device, dtype)

    def make(self, item: Assignment) -> Tensor:
        """One parameter in its stored dtype, contiguous."""
        made = [arrange(self.read(source), item) for source in item.sources]
        tensor = made[0] if len(made) == 1 else torch.stack(made)
        assert tuple(tensor.shape) == item.shape, f"{item.target}: {tuple(tensor.shape)}"
        return tensor

    def repeats_equal(self, plan: LoadPlan) -> bool:
        """Whether every stored copy of a tied parameter is equal to it."""
        return all(torch.equal(self.read(copy), self.make(item)) for copy, item in plan.repeats)


def arrange(tensor: Tensor, item: Assignment) -> Tensor:
    """The part of a stored tensor that the assignment asks for, contiguous."""
    piece = item.piece
    if piece.index is not None:
        tensor = tensor[piece.index]
    if piece.transpose:
        tensor = tensor.T.contiguous()
    if cut := piece.cut:
        grouped = tensor.view(cut.groups, cut.width, *tensor.shape[1:])
        tensor = grouped[:, cut.start : cut.stop].flatten(0, 1)
    return tensor.contiguous()
