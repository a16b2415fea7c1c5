"""Attention: projections, rotation, the cache, and the weighted mean of values."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.model.attend import Attending, Visibility, attend_plainly, attention_weights
from llmcli.model.context import Context
from llmcli.model.linear import Linear
from llmcli.model.norm import make_qk_norm
from llmcli.model.rope import make_rotate
from llmcli.spec import DecoderSpec, LayerSpec


class Attention(Attending):
    """Multi-head, grouped-query or multi-query attention, as the head counts say.

    Sub-modules that a spec does not have are None, and a subclass adds what is rare.
    """

    def __init__(self, spec: DecoderSpec, layer: LayerSpec) -> None:
        super().__init__()
        width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = Linear(spec.hidden_size, width, bias=spec.attn_bias)
        self.k_proj = Linear(spec.hidden_size, kv_width, bias=spec.attn_bias)
        self.v_proj = Linear(spec.hidden_size, kv_width, bias=spec.attn_bias)
        self.o_proj = Linear(width, spec.hidden_size, bias=spec.attn_out_bias)
        self.q_norm = self.k_norm = None
        if spec.qk_norm is not None:
            self.q_norm = make_qk_norm(spec, spec.num_heads)
            self.k_norm = make_qk_norm(spec, spec.num_kv_heads)
        self.norm_flat = spec.qk_norm == "full"
        self.head_dim = spec.head_dim
        self.scale = spec.attn_scale
        self.rotate = make_rotate(layer.rope, spec.head_dim) if layer.rope else None

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        q, k, v = self.project(x)
        if self.rotate is not None:
            assert context.rotation is not None
            q, k = self.rotate(q, *context.rotation), self.rotate(k, *context.rotation)
        if context.cache is not None:
            k, v = context.cache.update(layer, k, v)  # [B,K,S,D]
        mixed = self.attend(q, k, v, context.visibility)  # [B,H,T,D]
        return self.output(x, mixed.transpose(1, 2).reshape(*x.shape[:2], -1))

    def turn(self, k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        assert self.rotate is not None
        return self.rotate(k, cos, sin)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [B,T,C] -> queries [B,H,T,D], keys and values [B,K,T,D], normed but not rotated."""
        heads = (*x.shape[:2], -1, self.head_dim)
        q, k = self.q_proj(x), self.k_proj(x)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        if self.q_norm is None or self.k_norm is None:
            return q.view(heads).transpose(1, 2), k.view(heads).transpose(1, 2), v
        if self.norm_flat:
            q, k = self.q_norm(q), self.k_norm(k)
            return q.view(heads).transpose(1, 2), k.view(heads).transpose(1, 2), v
        q, k = q.view(heads).transpose(1, 2), k.view(heads).transpose(1, 2)
        return self.q_norm(q), self.k_norm(k), v

    def output(self, x: Tensor, mixed: Tensor) -> Tensor:  # noqa: ARG002
        """The heads' results [B,T,H*D], in view of the block's input x, to [B,T,C]."""
        out: Tensor = self.o_proj(mixed)
        return out


class PlainAttention(Attention):
    """With a soft cap or learned sinks, which the fused kernel does not know."""

    def __init__(self, spec: DecoderSpec, layer: LayerSpec) -> None:
        super().__init__(spec, layer)
        self.softcap = spec.attn_softcap
        self.sinks: nn.Parameter | None = None
        if spec.sinks:
            self.sinks = nn.Parameter(torch.empty(spec.num_heads), requires_grad=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        return attend_plainly(
            q, k, v, visibility, self.scale, softcap=self.softcap, sinks=self.sinks
        )

    def weights(self, q: Tensor, k: Tensor, visibility: Visibility) -> Tensor:
        return attention_weights(
            q, k, visibility, self.scale, softcap=self.softcap, sinks=self.sinks
        )


class GatedAttention(Attention):
    """The heads' results times the sigmoid of a projection (arXiv 2505.06708)."""

    def __init__(self, spec: DecoderSpec, layer: LayerSpec) -> None:
        super().__init__(spec, layer)
        width = spec.num_heads * (spec.head_dim if spec.output_gate == "elementwise" else 1)
        self.gate_proj = Linear(spec.hidden_size, width, bias=spec.attn_bias)
        self.num_heads = spec.num_heads

    def output(self, x: Tensor, mixed: Tensor) -> Tensor:
        gate = self.gate_proj(x).sigmoid().view(*x.shape[:2], self.num_heads, -1)
        gated = mixed.view(*x.shape[:2], self.num_heads, self.head_dim) * gate
        out: Tensor = self.o_proj(gated.flatten(2))
        return out
