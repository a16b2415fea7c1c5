"""How a weight matrix multiplies: the one place that decides it.

The matrix may be held in the working dtype, in a narrower one (16-bit files on a CPU that
computes in float32), or packed. Whatever it is not held in is made block by block, and is gone
after its block's product.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from llmcli.model.packed import Packed

# Numbers of a block in float32: 8 MiB, so that memory stays small and a block stays in cache.
_BLOCK = 2 << 20


class FewRows(Protocol):
    """A faster way for x of few rows; None where it has none."""

    def times(self, owner: Weighted, x: Tensor, bias: Tensor | None) -> Tensor | None: ...


class Weighted(nn.Module):
    """Owns one matrix [C_out, C_in]: `weight`, or `packed` where that is None."""

    def __init__(self, c_out: int, c_in: int) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = nn.Parameter(
            torch.empty(c_out, c_in), requires_grad=False
        )
        self.packed: Packed | None = None
        self.product: FewRows | None = None

    @property
    def device(self) -> torch.device:
        return self._held.device

    def hold(self, packed: Packed) -> None:
        """Take this in place of the plain tensor."""
        self.weight, self.packed = None, packed

    def matrix(self) -> Tensor:
        """The whole matrix as a plain tensor; newly made where it is packed."""
        if self.weight is not None:
            return self.weight
        assert self.packed is not None
        return self.packed.unpacked()

    def rows(self, ids: Tensor) -> Tensor:
        """Rows [..., C_in] of these ids."""
        if self.weight is not None:
            return nn.functional.embedding(ids, self.weight)
        assert self.packed is not None
        return self.packed.gather(ids)

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [...,C_in] W^T + b, in the dtype of x."""
        if self.product is not None and x.dtype == torch.float32:
            made = self.product.times(self, x, bias)
            if made is not None:
                return made
        if self.weight is not None and self.weight.dtype == x.dtype:
            return nn.functional.linear(x, self.weight, bias)
        return self._by_blocks(x, bias)

    @property
    def dtype(self) -> torch.dtype | None:
        """Of the plain tensor; None where it is packed."""
        return None if self.weight is None else self.weight.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """[C_out, C_in]."""
        return self._held.shape[0], self._held.shape[1]

    @property
    def owns(self) -> bool:
        """Whether it has a matrix; a tied head has none."""
        return self.weight is not None or self.packed is not None

    @property
    def nbytes(self) -> int:
        """Bytes that it is held in, scales of a packed one included."""
        return self._held.nbytes

    @property
    def _held(self) -> Tensor | Packed:
        held = self.weight if self.packed is None else self.packed
        assert held is not None
        return held

    def _by_blocks(self, x: Tensor, bias: Tensor | None) -> Tensor:
        held = self._held
        count, width = self.shape
        out = x.new_empty(*x.shape[:-1], count)
        step = max(1, _BLOCK // width)
        for start in range(0, count, step):
            stop = min(start + step, count)
            block = held.rows(start, stop) if isinstance(held, Packed) else held[start:stop]
            part = None if bias is None else bias[start:stop]
            out[..., start:stop] = nn.functional.linear(x, block.to(x.dtype), part)
        return out


class Linear(Weighted):
    """y = x W^T + b with W of [C_out, C_in]."""

    def __init__(self, c_in: int, c_out: int, *, bias: bool) -> None:
        super().__init__(c_out, c_in)
        self.bias = nn.Parameter(torch.empty(c_out), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return self.times(x, self.bias)


class WideLinear(Linear):
    """Multiplies in float32 at least, whatever the dtype of x."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(torch.promote_types(x.dtype, torch.float32)))
