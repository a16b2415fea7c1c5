"""A safetensors file written in one pass, a piece of a tensor at a time, and put in place whole.

Must not know GGUF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.header import encode_header
from llmcli.errors import CheckpointError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DType = Literal["float16", "bfloat16", "float32"]
# By the names that safetensors has for dtypes, with their bytes.
FORMAT: Final[Mapping[DType, tuple[str, int]]] = {
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A tensor to be written; `pieces` yields its values in order when it is its turn."""

    name: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[npt.NDArray[np.float32]]]


def write_safetensors(
    path: Path, tensors: Sequence[Outgoing], *, dtype: DType, advance: Callable[[int], None]
) -> None:
    """Write `tensors` as `dtype` to `path`; nothing is at `path` until everything is."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(_header(tensors, dtype))
            for tensor in tensors:
                _write(file, tensor, dtype, advance)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def encode(values: npt.NDArray[np.float32], dtype: DType) -> npt.NDArray[np.generic]:
    """float32 values in the little-endian form of `dtype`, rounded to nearest even; finite only."""
    import numpy as np

    if dtype == "float32":
        return values.astype("<f4", copy=False)
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return values.astype("<f2")
    bits: npt.NDArray[np.uint32] = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: npt.NDArray[np.uint32] = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return rounded.astype("<u2")


def encoded_bytes(tensors: Sequence[Outgoing], dtype: DType) -> int:
    """How many bytes the values of `tensors` take."""
    return sum(prod(tensor.shape) for tensor in tensors) * FORMAT[dtype][1]


def _header(tensors: Sequence[Outgoing], dtype: DType) -> bytes:
    code, width = FORMAT[dtype]
    entries: dict[str, object] = {}
    at = 0
    for tensor in tensors:
        end = at + prod(tensor.shape) * width
        entries[tensor.name] = {
            "dtype": code,
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    return encode_header(entries)


def _write(file: BinaryIO, tensor: Outgoing, dtype: DType, advance: Callable[[int], None]) -> None:
    for values in tensor.pieces():
        stored = encode_checked(tensor.name, values, dtype)
        file.write(stored.tobytes())
        advance(stored.nbytes)


def encode_checked(
    name: str, values: npt.NDArray[np.float32], dtype: DType
) -> npt.NDArray[np.generic]:
    """As `encode`. Raises CheckpointError for what is not finite, or not in float16."""
    import numpy as np

    if not np.isfinite(values).all():
        raise CheckpointError(
            f"tensor {printable(name)} holds a value that is not a finite number",
            hint="the source file is damaged; fetch it again",
        )
    stored = encode(np.ascontiguousarray(values), dtype)
    if dtype == "float16" and not np.isfinite(stored).all():
        raise CheckpointError(
            f"tensor {printable(name)} holds {np.abs(values).max():g}, float16 ends at 65504",
            hint="convert with --dtype bfloat16 or float32",
        )
    return stored
