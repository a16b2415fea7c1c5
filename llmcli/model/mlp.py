"""The two MLPs: down(act(up(x))), and the gated down(act(gate(x)) * up(x)) (arXiv 2002.05202)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from llmcli.model.linear import Linear
from llmcli.spec import Activation, DecoderSpec

# gpt-oss: gate and up are clamped, and the sigmoid's slope is that of a quick GELU.
_CLAMP, _SLOPE = 7.0, 1.702


def _quick_gelu(x: Tensor) -> Tensor:
    """The approximation x * sigmoid(1.702 x) of arXiv 1606.08415."""
    return x * torch.sigmoid(_SLOPE * x)


ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_quick": _quick_gelu,
    "relu": F.relu,
}


class PlainMLP(nn.Module):
    """Two matrices: [B,T,C] -> [B,T,F] -> [B,T,C]."""

    def __init__(self, spec: DecoderSpec, inner: int, *, bias: bool) -> None:
        super().__init__()
        self.up_proj = Linear(spec.hidden_size, inner, bias=bias)
        self.down_proj = Linear(inner, spec.hidden_size, bias=bias)
        self.act = ACTIVATIONS.get(spec.activation, F.silu)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.inner(x))
        return out

    def inner(self, x: Tensor) -> Tensor:
        """The inner units [...,F], each of which scales its own column of down_proj."""
        return self.act(self.up_proj(x))


class GatedMLP(PlainMLP):
    """Three matrices; the gate decides how much of each inner unit passes."""

    def __init__(self, spec: DecoderSpec, inner: int, *, bias: bool) -> None:
        super().__init__(spec, inner, bias=bias)
        self.gate_proj = Linear(spec.hidden_size, inner, bias=bias)

    def inner(self, x: Tensor) -> Tensor:
        inner: Tensor = self.act(self.gate_proj(x)) * self.up_proj(x)
        return inner


class ClampedMLP(GatedMLP):
    """gpt-oss: (up + 1) * gate * sigmoid(1.702 gate), both clamped to 7."""

    def inner(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x).clamp(max=_CLAMP)
        up = self.up_proj(x).clamp(-_CLAMP, _CLAMP)
        inner: Tensor = (up + 1) * _quick_gelu(gate)
        return inner


def make_mlp(spec: DecoderSpec, inner: int, *, bias: bool) -> nn.Module:
    """The MLP of the kind that the spec names, `inner` units wide."""
    if spec.activation == "clamped_swiglu":
        return ClampedMLP(spec, inner, bias=bias)
    return (GatedMLP if spec.mlp == "gated" else PlainMLP)(spec, inner, bias=bias)
