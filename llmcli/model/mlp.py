"""The two MLPs: down(act(up(x))), and the gated down(act(gate(x)) * up(x)) (arXiv 2002.05202)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from llmcli.model.linear import Linear
from llmcli.spec import Activation, DecoderSpec

ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class PlainMLP(nn.Module):
    """Two matrices: [B,T,C] -> [B,T,F] -> [B,T,C]."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.up_proj = Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
        self.down_proj = Linear(spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias)
        self.act = ACTIVATIONS[spec.activation]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.act(self.up_proj(x)))
        return out


class GatedMLP(PlainMLP):
    """Three matrices; the gate decides how much of each inner unit passes."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__(spec)
        self.gate_proj = Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return out


def make_mlp(spec: DecoderSpec) -> nn.Module:
    """The MLP of the kind that the spec names."""
    return GatedMLP(spec) if spec.mlp == "gated" else PlainMLP(spec)
