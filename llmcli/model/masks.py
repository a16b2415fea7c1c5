"""Who may see whom, from positions alone: 0 <= query position - key position < window."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from llmcli.spec import Alibi


def causal_mask(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """Boolean [T,S]: true where the key is not later than the query, and within the window."""
    distance = query_positions[:, None] - key_positions[None, :]
    visible = distance >= 0
    return visible if window is None else visible & (distance < window)


def alibi_bias(
    alibi: Alibi, key_positions: Tensor, *, num_heads: int, scale: float, dtype: torch.dtype
) -> Tensor:
    """Additive [H,1,S] for key positions [S], or [B,H,1,S] for [B,S]: slope times position.

    A query's own position would add a constant, which changes no softmax.
    """
    slopes = _slopes(num_heads, key_positions.device)
    if alibi.rounded:
        slopes = slopes.bfloat16()
    bias = (slopes * key_positions[..., None, None, :]).to(dtype)
    return bias * scale if alibi.scaled else bias


@cache
def _slopes(num_heads: int, device: torch.device) -> Tensor:
    """[H,1,1] float32, sent to the device once."""
    return torch.tensor(alibi_slopes(num_heads), device=device)[:, None, None]


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads; between powers of two every other of the next's."""
    power = 2 ** math.floor(math.log2(num_heads))

    def geometric(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (index + 1) / count) for index in range(count)]

    return geometric(power) + geometric(2 * power)[::2][: num_heads - power]
