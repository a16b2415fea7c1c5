"""Rotary tables and rotation (arXiv 2104.09864)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from llmcli.spec import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    YarnScaling,
)

# Tables grow by doubling from here, so that a long context costs few rebuilds.
_FIRST_ROWS = 512

# (x [B,H,T,D], cos, sin [T,dim] or [B,1,T,dim]) -> x turned
Rotate = Callable[[Tensor, Tensor, Tensor], Tensor]


def inverse_frequencies(rope: Rope, regime: int = 0) -> Tensor:
    """Radians per position of each pair, float32 [dim/2], context scaling included.

    `regime` is what Rope.regime returns for the length at hand.
    """
    scaling = rope.scaling
    if isinstance(scaling, DynamicScaling):
        return _inverse(_dynamic_theta(rope, scaling, regime), rope.dim)
    inverse = _inverse(rope.theta, rope.dim)
    match scaling:
        case LinearScaling(factor=factor):
            return inverse / factor
        case Llama3Scaling():
            return _llama3(inverse, scaling)
        case YarnScaling():
            return _yarn(inverse, rope, scaling)
        case LongRopeScaling(short=short, long=long):
            return 1.0 / (torch.tensor(long if regime else short) * (1.0 / inverse))
    return inverse


def attention_factor(rope: Rope) -> float:
    """What cos and sin are multiplied by, so that attention keeps its temperature."""
    if isinstance(rope.scaling, YarnScaling | LongRopeScaling):
        return rope.scaling.attention_factor
    return 1.0


def _inverse(theta: float, dim: int) -> Tensor:
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    return 1.0 / (theta**exponents)


def _dynamic_theta(rope: Rope, scaling: DynamicScaling, length: int) -> float:
    """The NTK-aware base for a run of `length` tokens; 0 stands for the original length."""
    reach = max(length, scaling.original_max_positions)
    stretch = scaling.factor * reach / scaling.original_max_positions - (scaling.factor - 1)
    return float(rope.theta * stretch ** (rope.dim / (rope.dim - 2)))


def _llama3(inverse: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Keep short wavelengths, divide long ones, and blend in between (Llama 3.1)."""
    turns = scaling.original_max_positions * inverse / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return keep * inverse + (1 - keep) * inverse / scaling.factor


def _yarn(inverse: Tensor, rope: Rope, scaling: YarnScaling) -> Tensor:
    """Keep pairs that turn more than `beta_fast` times, divide those below `beta_slow`."""

    def pair_at(turns: float) -> float:
        span = scaling.original_max_positions / (turns * 2 * math.pi)
        return rope.dim * math.log(span) / (2 * math.log(rope.theta))

    low, high = pair_at(scaling.beta_fast), pair_at(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    # As in the reference implementation, a ramp of no width is given a small one.
    width = high - low or 0.001
    ramp = ((torch.arange(rope.dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return inverse / scaling.factor * ramp + inverse * (1 - ramp)


class RotaryTable:
    """cos and sin for positions 0, 1, 2, ... of one Rope, grown as positions are asked for."""

    def __init__(self, rope: Rope) -> None:
        self.rope = rope
        self._regime = 0
        self._cos = self._sin = torch.empty(0, rope.dim)

    def at(
        self, positions: Tensor, stop: int, regime: int, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """cos and sin [T,dim] (or [...,T,dim]) for integer positions [T] below `stop`."""
        cos, sin = self.upto(stop, regime, positions.device)
        return cos[positions].to(dtype), sin[positions].to(dtype)

    def upto(self, stop: int, regime: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin float32 [rows,dim] for positions 0 ... `stop` at least."""
        stale = regime != self._regime or self._cos.device != device
        if stale or stop > self._cos.shape[0]:
            self._regime = regime
            self._build(max(_FIRST_ROWS, 1 << (stop - 1).bit_length()), device)
        return self._cos, self._sin

    def back(
        self, start: int, count: int, by: int, regime: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """cos and sin [count,dim] that move what was turned for start ... to positions `by` lower.

        Exact for these very tables: each row undoes the old turn, its factor and its rounding
        included, and does the new one.
        """
        old = torch.arange(start, start + count, device=device)
        wide = torch.float64 if device.type != "mps" else torch.float32
        cos, sin = self.at(old, start + count, regime, wide)
        new_cos, new_sin = self.at(old - by, start + count, regime, wide)
        norm = cos.square() + sin.square()
        return (cos * new_cos + sin * new_sin) / norm, (cos * new_sin - new_cos * sin) / norm

    def _build(self, rows: int, device: torch.device) -> None:
        inverse = inverse_frequencies(self.rope, self._regime)
        angles = torch.arange(rows, dtype=torch.float32)[:, None] * inverse
        cos, sin = angles.cos(), angles.sin()
        # The minus sign of the rotation is folded into the sine of each pair's first member.
        if self.rope.interleaved:
            both = cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
        else:
            both = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        factor = attention_factor(self.rope)
        self._cos, self._sin = ((table * factor).to(device) for table in both)


def make_rotate(rope: Rope, head_dim: int) -> Rotate:
    """The rotation for this pairing, over whole heads or over their first `rope.dim` entries."""
    turn = _rotate_pairs if rope.interleaved else _rotate_halves
    if rope.dim == head_dim:
        return turn

    def rotate_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned, rest = x[..., : rope.dim], x[..., rope.dim :]
        return torch.cat((turn(turned, cos, sin), rest), -1)

    return rotate_part


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (x[j], x[j + D/2])."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((second, first), -1) * sin


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (x[2j], x[2j + 1])."""
    swapped = torch.stack((x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos + swapped * sin
