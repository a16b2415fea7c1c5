"""Normalisation layers. Statistics are taken in float32 at least, whatever the working dtype."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.spec import DecoderSpec


class RMSNorm(nn.Module):
    """x / rms(x) * weight (arXiv 1910.07467); cast back before the weight, as Llama does."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias (arXiv 1607.06450)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(width), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


def make_norm(spec: DecoderSpec) -> nn.Module:
    """A norm over the hidden size, of the kind that the spec names."""
    kind = RMSNorm if spec.norm == "rms" else LayerNorm
    return kind(spec.hidden_size, spec.norm_eps)
