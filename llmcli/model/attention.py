"""Attention: projections, rotation, the cache, and the weighted mean of values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from llmcli.cache import KVCache
from llmcli.model.linear import Linear
from llmcli.model.rope import rotate
from llmcli.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Visibility:
    """Which keys count: a boolean mask [T,S]; or none, all keys or the causal half of them.

    `is_causal` is aligned to the top left in torch, so it is set only where T equals S.
    """

    mask: Tensor | None = None
    is_causal: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What one forward pass shares between the layers of one kind."""

    visibility: Visibility
    rotation: tuple[Tensor, Tensor] | None
    cache: KVCache | None


def attend(q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, scale: float) -> Tensor:
    """softmax(scale q k^T) v for q [B,H,T,D] and k, v [B,K,S,D]; K divides H.

    Query heads of a group share one key-value head; neither is ever repeated in memory.
    """
    return nn.functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=visibility.mask,
        is_causal=visibility.is_causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention, as the head counts say."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = Linear(spec.hidden_size, width, bias=spec.attn_bias)
        self.k_proj = Linear(spec.hidden_size, kv_width, bias=spec.attn_bias)
        self.v_proj = Linear(spec.hidden_size, kv_width, bias=spec.attn_bias)
        self.o_proj = Linear(width, spec.hidden_size, bias=spec.attn_out_bias)
        self.head_dim = spec.head_dim
        self.scale = spec.attn_scale

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        rows, new, _ = x.shape
        heads = (rows, new, -1, self.head_dim)
        q = self.q_proj(x).view(heads).transpose(1, 2)  # [B,H,T,D]
        k = self.k_proj(x).view(heads).transpose(1, 2)  # [B,K,T,D]
        v = self.v_proj(x).view(heads).transpose(1, 2)
        if context.rotation is not None:
            q, k = rotate(q, *context.rotation), rotate(k, *context.rotation)
        if context.cache is not None:
            k, v = context.cache.update(layer, k, v)  # [B,K,S,D]
        mixed = attend(q, k, v, context.visibility, self.scale)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, new, -1))
        return out
