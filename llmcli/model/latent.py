"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), heads' keys and values cached."""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.model.attend import Attending
from llmcli.model.context import Context
from llmcli.model.linear import Linear
from llmcli.model.norm import RMSNorm
from llmcli.model.rope import make_rotate
from llmcli.spec import DecoderSpec, LayerSpec


class LatentAttention(Attending):
    """Queries and keys are a plain and a rotated part; the rotated key is shared by all heads."""

    def __init__(self, spec: DecoderSpec, layer: LayerSpec) -> None:
        super().__init__()
        latent = spec.latent
        assert latent is not None
        assert layer.rope is not None
        heads, hidden, bias = spec.num_heads, spec.hidden_size, latent.bias
        self.num_heads, self.facts, self.scale = heads, latent, spec.attn_scale
        width = heads * (latent.nope_dim + latent.rope_dim)
        if latent.query_rank is None:
            self.q_proj: Linear | None = Linear(hidden, width, bias=False)
        else:
            self.q_proj = None
            self.q_a_proj = Linear(hidden, latent.query_rank, bias=bias)
            self.q_a_norm = RMSNorm(latent.query_rank, latent.norm_eps)
            self.q_b_proj = Linear(latent.query_rank, width, bias=False)
        self.kv_a_proj = Linear(hidden, latent.kv_rank + latent.rope_dim, bias=bias)
        self.kv_a_norm = RMSNorm(latent.kv_rank, latent.norm_eps)
        self.kv_b_proj = Linear(
            latent.kv_rank, heads * (latent.nope_dim + latent.value_dim), bias=False
        )
        self.o_proj = Linear(heads * latent.value_dim, hidden, bias=bias)
        self.rotate = make_rotate(layer.rope, latent.rope_dim)

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        assert context.rotation is not None
        q_plain, q_turning = torch.split(
            self._queries(x), [self.facts.nope_dim, self.facts.rope_dim], -1
        )
        shared, k_turning = torch.split(
            self.kv_a_proj(x), [self.facts.kv_rank, self.facts.rope_dim], -1
        )
        both = self._heads(self.kv_b_proj(self.kv_a_norm(shared)))
        k_plain, v = torch.split(both, [self.facts.nope_dim, self.facts.value_dim], -1)
        k_turned = self.rotate(k_turning[:, None], *context.rotation)  # [B,1,T,rope_dim]
        q = torch.cat((q_plain, self.rotate(q_turning, *context.rotation)), -1)
        k = torch.cat((k_plain, k_turned.expand(-1, self.num_heads, -1, -1)), -1)
        if context.cache is not None:
            k, v = context.cache.update(layer, k, v)
        mixed = self.attend(q, k, v, context.visibility)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def turn(self, k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        plain, turning = torch.split(k, [self.facts.nope_dim, self.facts.rope_dim], -1)
        return torch.cat((plain, self.rotate(turning, cos, sin)), -1)

    def _queries(self, x: Tensor) -> Tensor:
        if self.q_proj is not None:
            return self._heads(self.q_proj(x))
        return self._heads(self.q_b_proj(self.q_a_norm(self.q_a_proj(x))))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)
