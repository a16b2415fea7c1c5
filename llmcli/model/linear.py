"""How a weight matrix multiplies: the one place that decides it (dense now)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """y = x W^T + b with W of [C_out, C_in], held as one plain contiguous tensor."""

    def __init__(self, c_in: int, c_out: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c_out, c_in), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(c_out), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class WideLinear(Linear):
    """Multiplies in the dtype of its own weight, which is float32 at least."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))
