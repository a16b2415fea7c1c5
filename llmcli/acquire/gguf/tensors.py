"""Numbers out of a GGUF file: rows dequantised a piece at a time, what was changed put back.

Must not know names, files on the way out, or what a tensor means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmcli.acquire.gguf.reader import GgufFile, StoredTensor
from llmcli.checkpoint.escape import printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Order = npt.NDArray[np.intp]

# About 16 MB of float32 at a time: bounded memory, and still long vector operations.
_PIECE = 4 << 20


def halves_order(heads: int, rows: int) -> Order:
    """Where each row of a rotary projection lies in the file.

    The file interleaves the two halves of each head's rows (0, h, 1, h+1, ...); the
    checkpoint keeps them one after the other.
    """
    import numpy as np

    order: Order = np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)
    return order


def refuse_unreadable(file: GgufFile, tensor: StoredTensor) -> None:
    """Refuse by name a kind of quantisation that cannot be turned into numbers."""
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[tensor.kind]
    block = np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    try:
        gguf.dequantize(block, kind)
    except NotImplementedError:
        raise file.fault(
            f"tensor {printable(tensor.name)} is stored as {tensor.kind}, which cannot be read",
            "get the model in another quantisation, such as Q8_0 or Q4_K_M",
        ) from None


def read_rows(file: GgufFile, tensor: StoredTensor) -> Floats:
    """A small tensor whole."""
    import numpy as np

    return np.concatenate(list(pieces(file, tensor)))


def pieces(file: GgufFile, tensor: StoredTensor, order: Order | None = None) -> Iterator[Floats]:
    """The tensor's rows as float32, a piece at a time, in `order` where one is given.

    A vector is one row; an order then applies to its values.
    """
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[tensor.kind]
    stored = np.memmap(file.path, np.uint8, "r", tensor.start, (tensor.rows, tensor.row_bytes))
    if tensor.rows == 1 and len(tensor.shape) == 1:
        values = gguf.dequantize(np.array(stored), kind).astype(np.float32, copy=False)
        yield values if order is None else values[:, order]
        return
    step = max(1, _PIECE // tensor.shape[-1])
    for first in range(0, tensor.rows, step):
        rows = slice(first, first + step) if order is None else order[first : first + step]
        yield gguf.dequantize(np.array(stored[rows]), kind).astype(np.float32, copy=False)


def transposed(file: GgufFile, tensor: StoredTensor) -> Iterator[Floats]:
    """A matrix with rows and columns exchanged; held whole, as each row needs all the others."""
    import numpy as np

    yield np.ascontiguousarray(read_rows(file, tensor).T)


def less_one(file: GgufFile, tensor: StoredTensor) -> Iterator[Floats]:
    """The tensor's values less 1."""
    import numpy as np

    for piece in pieces(file, tensor):
        yield piece - np.float32(1.0)
