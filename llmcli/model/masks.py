"""Who may see whom, from positions alone: a query sees the keys at or before its own place."""

from __future__ import annotations

from torch import Tensor


def causal_mask(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Boolean [T,S]: true where the key is not later than the query."""
    return query_positions[:, None] >= key_positions[None, :]
