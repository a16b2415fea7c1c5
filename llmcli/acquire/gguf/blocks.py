"""Blocks of a GGUF file as codes and scales, without a number changed.

Kept are those kinds whose numbers are `scale * code` with a code of 8 bits, or
`scale * code + minimum` with one of 4 bits. Must not know names, files on the way out, or what a
tensor means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from llmcli.acquire.gguf.reader import GgufFile, StoredTensor
from llmcli.checkpoint.escape import printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from llmcli.acquire.gguf.tensors import Order

    Bytes = npt.NDArray[np.uint8]
    # Codes, scales and minima of blocks [n, bytes of one]; int8 codes have no minima.
    Parts = tuple[npt.NDArray[np.generic], ...]

_PIECE_BYTES = 4 << 20
_HINT = "convert it without --keep-quantized"


@dataclass(frozen=True, slots=True)
class Kept:
    """What one kind of block becomes: `group` columns share a scale."""

    bits: Literal[8, 4]
    group: int
    parts: Callable[[Bytes], Parts]


def blocks(
    file: GgufFile, tensor: StoredTensor, order: Order | None = None
) -> dict[str, npt.NDArray[np.generic]]:
    """The parts of a matrix [rows, columns] in llmcli's quantised form, its rows in `order`.

    codes are int8 [rows, columns], or uint8 [rows, groups, group/2] with the first half of a
    group in the low halves of its bytes; scale (and minimum, of 4 bits) are [rows, groups].
    Raises CheckpointError for a scale that is no finite number, or has no minimum in float16.
    """
    import gguf
    import numpy as np

    kept = KEPT[tensor.kind]
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.kind]][1]
    stored = np.memmap(file.path, np.uint8, "r", tensor.start, (tensor.rows, tensor.row_bytes))
    rows = tensor.rows if order is None else len(order)
    columns = tensor.shape[-1]
    codes, scales, *minima = _room(kept, rows, columns)
    step = max(1, _PIECE_BYTES // tensor.row_bytes)
    for first in range(0, rows, step):
        at = slice(first, min(first + step, rows))
        piece = np.array(stored[at] if order is None else stored[order[at]])
        with np.errstate(over="ignore"):
            found = kept.parts(piece.reshape(-1, size))
        for whole, part in zip((codes, scales, *minima), found, strict=True):
            whole[at] = part.reshape(whole[at].shape)
    _check(file, tensor, scales, *minima)
    return dict(zip(("codes", "scale", "minimum"), (codes, scales, *minima), strict=False))


def _room(kept: Kept, rows: int, columns: int) -> Parts:
    import numpy as np

    groups = columns // kept.group
    if kept.bits == 8:
        return np.empty((rows, columns), np.int8), np.empty((rows, groups), np.float32)
    return (
        np.empty((rows, groups, kept.group // 2), np.uint8),
        np.empty((rows, groups), np.float16),
        np.empty((rows, groups), np.float16),
    )


def _check(
    file: GgufFile,
    tensor: StoredTensor,
    scales: npt.NDArray[np.generic],
    *minima: npt.NDArray[np.generic],
) -> None:
    import numpy as np

    if not np.isfinite(scales).all():
        raise file.fault(
            f"tensor {printable(tensor.name)} holds a value that is not a finite number"
        )
    for minimum in minima:
        if not np.isfinite(minimum).all():
            raise file.fault(
                f"tensor {printable(tensor.name)} holds a block with a minimum beyond 65504, "
                "where float16 ends",
                _HINT,
            )


def _q8_0(found: Bytes) -> Parts:
    return found[:, 2:].view("i1"), _halves(found, 0).astype("f4")


def _q5_0(found: Bytes) -> Parts:
    import numpy as np

    fifth = np.unpackbits(found[:, 2:6], axis=1, bitorder="little")
    low = np.concatenate((found[:, 6:] & np.uint8(15), found[:, 6:] >> np.uint8(4)), 1)
    codes = (low | (fifth << np.uint8(4))).view(np.int8) - np.int8(16)
    return codes, _halves(found, 0).astype("f4")


def _q6_k(found: Bytes) -> Parts:
    """256 codes of 6 bits; a scale of 8 bits for each 16 of them, and one for these scales."""
    import numpy as np

    # Halves of 128 codes: 64 bytes of low bits, in two runs of 32, and 32 bytes of high bits.
    low, high = found[:, :128].reshape(-1, 2, 2, 32), found[:, 128:192].reshape(-1, 2, 1, 32)
    four = np.concatenate((low & np.uint8(15), low >> np.uint8(4)), 2)
    two = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & np.uint8(3)
    codes = (four | (two << np.uint8(4))).view(np.int8) - np.int8(32)
    scales = found[:, 192:208].view(np.int8).astype("f4")
    return codes, scales * _halves(found, 208).astype("f4")


def _q4_0(found: Bytes) -> Parts:
    # d * (code - 8). Eight is a power of two, so that -8 d is exact unless it is too large.
    scale = _halves(found, 0)
    return found[:, 2:], scale, scale * scale.dtype.type(-8)


def _q4_1(found: Bytes) -> Parts:
    return found[:, 4:], _halves(found, 0), _halves(found, 2)


def _halves(found: Bytes, at: int) -> npt.NDArray[np.float16]:
    """[n, 1]: the float16 number at that byte of each block."""
    import numpy as np

    numbers: npt.NDArray[np.float16] = np.ascontiguousarray(found[:, at : at + 2]).view("<f2")
    return numbers


KEPT: Final[Mapping[str, Kept]] = {
    "Q8_0": Kept(8, 32, _q8_0),
    "Q6_K": Kept(8, 16, _q6_k),
    "Q5_0": Kept(8, 32, _q5_0),
    "Q4_0": Kept(4, 32, _q4_0),
    "Q4_1": Kept(4, 32, _q4_1),
}
