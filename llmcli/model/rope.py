"""Rotary tables and rotation (arXiv 2104.09864), halves of a head paired as Llama pairs them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from llmcli.spec import LinearScaling, Llama3Scaling, Rope

# Tables grow by doubling from here, so that a long context costs few rebuilds.
_FIRST_ROWS = 512


def inverse_frequencies(rope: Rope) -> Tensor:
    """Radians per position of each pair, float32 [dim/2], context scaling included."""
    exponents = torch.arange(0, rope.dim, 2, dtype=torch.float32) / rope.dim
    inverse = 1.0 / (rope.theta**exponents)
    if isinstance(rope.scaling, LinearScaling):
        return inverse / rope.scaling.factor
    if isinstance(rope.scaling, Llama3Scaling):
        return _llama3(inverse, rope.scaling)
    return inverse


def _llama3(inverse: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Keep short wavelengths, divide long ones, and blend in between (Llama 3.1)."""
    turns = scaling.original_max_positions * inverse / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return keep * inverse + (1 - keep) * inverse / scaling.factor


class RotaryTable:
    """cos and sin for positions 0, 1, 2, ... of one Rope, grown as positions are asked for."""

    def __init__(self, rope: Rope) -> None:
        self.rope = rope
        self._cos = self._sin = torch.empty(0, rope.dim)

    def at(self, positions: Tensor, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Rows [T,dim] of cos and signed sin for integer positions below `stop`."""
        if stop > self._cos.shape[0] or self._cos.device != positions.device:
            self._build(max(_FIRST_ROWS, 1 << (stop - 1).bit_length()), positions.device)
        return self._cos[positions].to(dtype), self._sin[positions].to(dtype)

    def _build(self, rows: int, device: torch.device) -> None:
        inverse = inverse_frequencies(self.rope)
        angles = torch.arange(rows, dtype=torch.float32)[:, None] * inverse
        # The minus sign of the rotation is folded into the sine of the first half.
        self._cos = torch.cat((angles, angles), -1).cos().to(device)
        self._sin = torch.cat((-angles.sin(), angles.sin()), -1).to(device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x[j], x[j + D/2]) of x [B,H,T,D] by the angles of cos, sin [T,D]."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((second, first), -1) * sin
