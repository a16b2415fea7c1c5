"""Tables of rows looked up by id or position, learned or computed."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from llmcli.model.linear import Weighted


class Embedding(Weighted):
    """A learned table of rows."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.rows(ids)


@cache
def rounded(value: float, dtype: torch.dtype) -> float:
    """The value as this dtype has it; a number, since one in a tensor would have to be sent."""
    return float(torch.tensor(value, dtype=dtype))


def sinusoids(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """[T,width] or [B,T,width]: sines then cosines of each position [T] or [B,T].

    Wavelengths go from 2 pi to 10000 * 2 pi.
    """
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=positions.device)
    frequencies = torch.exp(steps * -(math.log(10000.0) / (half - 1)))
    angles = positions[..., None].to(torch.float32) * frequencies
    return torch.cat((angles.sin(), angles.cos()), -1).to(dtype)
