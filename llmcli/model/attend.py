"""softmax(scale q k^T) v: through torch's fused kernel, or in plain steps where it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Visibility:
    """Which keys count: a mask [T,S], [H,T,S] or [B,H,T,S], boolean or additive; or none.

    Without a mask all keys count, or with `is_causal` the causal half of them; torch aligns
    that to the top left, so it is set only where T equals S.
    """

    mask: Tensor | None = None
    is_causal: bool = False


# (q [B,H,T,D], k and v [B,K,S,D], visibility, scale) -> [B,H,T,D]; K divides H
Attend = Callable[[Tensor, Tensor, Tensor, Visibility, float], Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, scale: float) -> Tensor:
    """The fused kernel. Heads of a group share a key-value head, never repeated in memory."""
    mask, group = visibility.mask, q.shape[1] // k.shape[1]
    if (
        group > 1
        and q.shape[2] == 1
        and mask is not None
        and (mask.dim() == 2 or mask.shape[-3] == 1)
    ):
        # On CUDA no kernel takes both a mask and groups; here a group's heads are its queries.
        grouped = q.view(q.shape[0], k.shape[1], group, q.shape[3])
        return nn.functional.scaled_dot_product_attention(
            grouped, k, v, attn_mask=mask, scale=scale
        ).reshape(*q.shape[:3], v.shape[3])
    return nn.functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=visibility.mask,
        is_causal=visibility.is_causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )


def attend_plainly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visibility: Visibility,
    scale: float,
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """In steps, with a soft cap on the scores, or learned sinks [H] that take weight away."""
    weights = attention_weights(q, k, visibility, scale, softcap=softcap, sinks=sinks)
    rows, heads, new, keys = weights.shape
    grouped = weights.view(rows, k.shape[1], -1, keys) @ v  # [B,K,H/K*T,D]
    return grouped.view(rows, heads, new, v.shape[-1])


def attention_weights(
    q: Tensor,
    k: Tensor,
    visibility: Visibility,
    scale: float,
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """[B,H,T,S]; a row sums to 1, or to less where a sink takes a part."""
    rows, heads, new, width = q.shape
    grouped = q.reshape(rows, k.shape[1], -1, width) @ k.transpose(-1, -2)
    scores = grouped.view(rows, heads, new, k.shape[2]) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if (mask := _as_mask(visibility, new, scores)) is not None:
        wide = wide.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else wide + mask
    if sinks is None:
        return wide.softmax(-1).to(q.dtype)
    column = sinks.to(wide.dtype).view(1, heads, 1, 1).expand(rows, heads, new, 1)
    return torch.cat((wide, column), -1).softmax(-1)[..., :-1].to(q.dtype)


class Attending(nn.Module, ABC):
    """The softmax that all kinds of attention share, in the one place where it can be watched.

    `attend` is looked up on the instance at each call, so that a watcher may stand in for it.
    """

    scale: float

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        """q [B,H,T,D], k and v [B,K,S,D] -> [B,H,T,D of v]."""
        return attend(q, k, v, visibility, self.scale)

    @abstractmethod
    def turn(self, k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Cached keys [B,K,n,D] turned further, as those of this kind of attention are."""

    def weights(self, q: Tensor, k: Tensor, visibility: Visibility) -> Tensor:
        """[B,H,T,S]: what `attend` weighs the values with, computed in plain steps."""
        return attention_weights(q, k, visibility, self.scale)


def _as_mask(visibility: Visibility, new: int, scores: Tensor) -> Tensor | None:
    if visibility.is_causal:
        return torch.ones(new, new, dtype=torch.bool, device=scores.device).tril()
    return visibility.mask
