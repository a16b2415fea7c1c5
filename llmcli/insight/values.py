"""Stored numbers read once, in pieces: which are not finite, and whether copies are equal.

Memory is bounded by a piece, whatever the size of a tensor. Must not know families or torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np

from llmcli.checkpoint.header import StoredTensor
from llmcli.insight.watching import OnProgress

PIECE_BYTES: Final = 8 << 20
# As whole numbers of the same width; a number is not finite where all bits of its exponent are 1.
_EXPONENT: Final = {
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
    "F32": ("<u4", 0x7F800000),
    "F64": ("<u8", 0x7FF0000000000000),
}


@dataclass(frozen=True, slots=True)
class Values:
    """Of one tensor; `read` is False for a dtype without exponents, `cut` for missing bytes."""

    name: str
    read: bool
    cut: bool
    not_finite: int
    zero: bool


def scan(tensors: Iterable[StoredTensor], on_progress: OnProgress | None = None) -> list[Values]:
    """Every tensor read once, in the order of the files. Raises OSError."""
    ordered = sorted(tensors, key=lambda one: (str(one.file), one.start))
    total, done = sum(one.nbytes for one in ordered), 0
    found = []
    for tensor in ordered:
        kind = _EXPONENT.get(tensor.dtype)
        not_finite, seen, zero = 0, 0, True
        with tensor.file.open("rb") as file:
            for piece in _pieces(file, tensor):
                seen += len(piece)
                if kind is not None and len(piece) % int(kind[0][2]) == 0:
                    words = np.frombuffer(piece, kind[0])
                    exponent = words.dtype.type(kind[1])
                    not_finite += int(np.count_nonzero((words & exponent) == exponent))
                    sign = words.dtype.type(1 << (8 * words.itemsize - 1))
                    zero = zero and not np.any(words & ~sign)
                if on_progress is not None:
                    on_progress(done + seen, total)
        done += tensor.nbytes
        cut = seen < tensor.nbytes
        empty = zero and tensor.nbytes > 0 and not cut and kind is not None
        found.append(Values(tensor.name, kind is not None, cut, not_finite, empty))
    return found


def equal_bytes(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two tensors of the same dtype and shape hold the same bytes."""
    with one.file.open("rb") as left, other.file.open("rb") as right:
        pairs = zip(_pieces(left, one), _pieces(right, other), strict=True)
        return all(a == b for a, b in pairs)


def _pieces(file: BinaryIO, tensor: StoredTensor) -> Iterator[bytes]:
    file.seek(tensor.start)
    left = tensor.nbytes
    while left:
        piece = file.read(min(left, PIECE_BYTES))
        if not piece:
            return
        left -= len(piece)
        yield piece
