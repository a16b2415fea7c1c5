"""Stored tensors as torch tensors: views of the mapped file, cut, turned and cast one by one.

Must not know the decoder or families: it follows a LoadPlan and yields (name, tensor).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.expand import Piece
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.plan import Assignment, LoadPlan
from llmcli.errors import CheckpointError

# Pages of a mapped file count as this process's memory once they are touched. So a mapping is
# dropped after so many bytes were copied out of it, and views too small to matter are copied.
_RELEASE_BYTES = 64 << 20
_SMALL_BYTES = 1 << 16


class TensorFiles:
    """Opens files mapped; reading a tensor allocates nothing."""

    def __init__(self) -> None:
        self._open: dict[Path, Any] = {}

    def __enter__(self) -> TensorFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def read(self, stored: StoredTensor) -> Tensor:
        """A view of the mapped bytes in the stored dtype and shape."""
        try:
            if stored.file not in self._open:
                self._open[stored.file] = safe_open(stored.file, framework="pt", device="cpu")
            tensor: Tensor = self._open[stored.file].get_tensor(stored.name)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{printable(stored.file.name)} cannot be read: {printable(str(error))}",
                hint="the file changed while it was read, or is damaged; fetch it again",
            ) from error
        return tensor

    def parameters(
        self,
        plan: LoadPlan,
        *,
        dtype: torch.dtype,
        device: torch.device,
        wide: frozenset[str] = frozenset(),
        kept: frozenset[str] = frozenset(),
        passing: frozenset[str] = frozenset(),
    ) -> Iterator[tuple[str, Tensor | tuple[Tensor, ...]]]:
        """Each parameter of the plan, on `device` in `dtype`, one at a time.

        Those named in `wide` are in float32 at least; those in `kept` stay in a stored dtype that
        is narrower. Those in `passing` come as they are stored, on the CPU, for a receiver that
        makes something else of them at once. Of a parameter that is stored packed come its parts.
        A large tensor that needs no change stays a view of the mapped file: no copy is made.
        """
        copied = 0
        for item in plan.assignments:
            if item.packed:
                yield item.target, tuple(self._part(source, device) for source in item.sources)
                continue
            made = self.make(item)
            least = torch.float32 if item.target in wide else dtype
            goal = torch.promote_types(dtype, least)
            if item.target in kept and made.dtype.itemsize < goal.itemsize:
                goal = made.dtype
            passed = item.target in passing
            tensor = made if passed else made.to(device, goal)
            if passed or not _shares_memory(tensor, self.read(item.source)):
                copied += item.source.nbytes
            elif item.source.nbytes < _SMALL_BYTES:
                tensor = tensor.clone()
            yield item.target, tensor
            del made, tensor
            if copied >= _RELEASE_BYTES:
                self._release()
                copied = 0

    def _part(self, stored: StoredTensor, device: torch.device) -> Tensor:
        part = self.read(stored).to(device)
        return part.clone() if stored.nbytes < _SMALL_BYTES else part

    def make(self, item: Assignment) -> Tensor:
        """One parameter in its stored dtype, contiguous; a view of the file where it can be."""
        assert not item.packed, item.target
        parts = [arrange(self.read(source), item.piece) for source in item.sources]
        tensor = parts[0] if len(parts) == 1 else torch.stack(parts)
        assert tuple(tensor.shape) == item.shape, f"{item.target}: {tuple(tensor.shape)}"
        return tensor

    def repeats_equal(self, plan: LoadPlan) -> bool:
        """Whether every stored copy of a tied parameter is equal to it."""
        equal = all(torch.equal(self.read(copy), self.make(item)) for copy, item in plan.repeats)
        self._release()
        return equal

    def _release(self) -> None:
        """Let go of all mappings; each is unmapped once no tensor is a view of it."""
        self._open.clear()


def arrange(tensor: Tensor, piece: Piece) -> Tensor:
    """The part of a stored tensor that the piece asks for, contiguous."""
    if piece.index is not None:
        tensor = tensor[piece.index]
    if piece.transpose:
        tensor = tensor.T.contiguous()
    if cut := piece.cut:
        grouped = tensor.view(cut.groups, cut.width, *tensor.shape[1:])
        tensor = grouped[:, cut.start : cut.stop].flatten(0, 1)
    return tensor.contiguous()


def _shares_memory(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and (
        one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    )
