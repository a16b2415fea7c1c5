"""The gated delta rule (arXiv 2412.06464) in attention's place: a state instead of keys.

A head's state S [key_dim, value_dim] decays, forgets what it held under the new key, and
learns the new value: S = a S + b k (v - k^T a S); the output is q^T S.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from llmcli.cache import KVCache, StateStore
from llmcli.model.context import Context
from llmcli.model.linear import Linear
from llmcli.model.norm import RMSNorm
from llmcli.spec import DecoderSpec, LayerSpec

# Keeps the length of queries and keys away from zero; the reference implementation's value.
_LENGTH_EPS = 1e-6


class GatedDeltaMixer(nn.Module):
    """Projections, a short causal convolution, the recurrence, a gated norm, a projection."""

    def __init__(self, spec: DecoderSpec, _layer: LayerSpec) -> None:
        super().__init__()
        facts = spec.linear
        assert facts is not None
        hidden, heads = spec.hidden_size, facts.num_value_heads
        self.facts = facts
        self.keys = facts.num_key_heads * facts.key_dim
        self.values = heads * facts.value_dim
        self.in_q_proj = Linear(hidden, self.keys, bias=False)
        self.in_k_proj = Linear(hidden, self.keys, bias=False)
        self.in_v_proj = Linear(hidden, self.values, bias=False)
        self.in_z_proj = Linear(hidden, self.values, bias=False)
        self.in_b_proj = Linear(hidden, heads, bias=False)
        self.in_a_proj = Linear(hidden, heads, bias=False)
        self.conv = _Filter(2 * self.keys + self.values, facts.conv_kernel)
        self.dt_bias = nn.Parameter(torch.empty(heads), requires_grad=False)
        self.a_log = nn.Parameter(torch.empty(heads), requires_grad=False)
        self.norm = RMSNorm(facts.value_dim, spec.norm_eps)
        self.out_proj = Linear(self.values, hidden, bias=False)

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        store: StateStore | None = None
        if context.cache is not None:
            assert isinstance(context.cache, KVCache)
            kept = context.cache.stores[layer]
            assert isinstance(kept, StateStore)
            store = kept
        mixed = torch.cat((self.in_q_proj(x), self.in_k_proj(x), self.in_v_proj(x)), -1)
        filtered = self._filtered(mixed, store)
        q, k, v = torch.split(filtered, [self.keys, self.keys, self.values], -1)
        wide = torch.promote_types(x.dtype, torch.float32)
        step = F.softplus(self.in_a_proj(x).to(wide) + self.dt_bias.to(wide))
        decay = (-self.a_log.to(wide).exp() * step).exp()  # [B,T,H]
        learn = self.in_b_proj(x).sigmoid().to(wide)
        out = self._recur(q.to(wide), k.to(wide), v.to(wide), decay, learn, store)
        gate = self.in_z_proj(x).view(out.shape)
        normed = self.norm(out.to(x.dtype)).to(wide) * F.silu(gate.to(wide))
        result: Tensor = self.out_proj(normed.to(x.dtype).flatten(2))
        return result

    def _filtered(self, mixed: Tensor, store: StateStore | None) -> Tensor:
        """The causal convolution over time; the last inputs of a chunk begin the next one."""
        kept = self.facts.conv_kernel - 1
        before = store.conv if store is not None else None
        if before is None:
            before = mixed.new_zeros(mixed.shape[0], kept, mixed.shape[2])
        longer = torch.cat((before, mixed), 1)
        if store is not None:
            store.conv = longer[:, longer.shape[1] - kept :]
        filtered = F.conv1d(longer.transpose(1, 2), self.conv.weight, groups=mixed.shape[2])
        return F.silu(filtered).transpose(1, 2)

    def _recur(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        learn: Tensor,
        store: StateStore | None,
    ) -> Tensor:
        """[B,T,H,value_dim], token by token."""
        facts, (rows, new, _) = self.facts, q.shape
        q, k = (self._unit(part.view(rows, new, -1, facts.key_dim)) for part in (q, k))
        q = q * facts.key_dim**-0.5
        v = v.view(rows, new, -1, facts.value_dim)
        state = store.state if store is not None else None
        if state is None:
            state = v.new_zeros(rows, v.shape[2], facts.key_dim, facts.value_dim)
        outputs = []
        for t in range(new):
            state = state * decay[:, t, :, None, None]
            held = (k[:, t, :, None, :] @ state).squeeze(-2)  # [B,H,value_dim]
            change = (v[:, t] - held) * learn[:, t, :, None]
            state = state + k[:, t, :, :, None] * change[:, :, None, :]
            outputs.append((q[:, t, :, None, :] @ state).squeeze(-2))
        if store is not None:
            store.state = state
        return torch.stack(outputs, 1)

    def _unit(self, x: Tensor) -> Tensor:
        """Unit length, each key head repeated for the value heads that share it."""
        unit = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _LENGTH_EPS)
        return unit.repeat_interleave(self.facts.num_value_heads // x.shape[2], 2)


class _Filter(nn.Module):
    """The taps [channels, 1, kernel] of a depthwise convolution."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel), requires_grad=False)
