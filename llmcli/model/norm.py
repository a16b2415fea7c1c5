"""Normalisation layers. Statistics are taken in float32 at least, whatever the working dtype."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.spec import DecoderSpec


class RMSNorm(nn.Module):
    """x / rms(x) * weight (arXiv 1910.07467); cast back before the weight, as Llama does."""

    def __init__(self, shape: int | tuple[int, ...], eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.normed(x).to(x.dtype) * self.weight

    def normed(self, x: Tensor) -> Tensor:
        """x / rms(x) in float32 at least."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)


class LateCastRMSNorm(RMSNorm):
    """The weight (plus an offset: Gemma's is 1) multiplies before the cast back."""

    def __init__(self, shape: int | tuple[int, ...], eps: float, offset: float = 0.0) -> None:
        super().__init__(shape, eps)
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        normed = self.normed(x)
        return (normed * (self.weight.to(normed.dtype) + self.offset)).to(x.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias (arXiv 1607.06450), with or without the bias."""

    def __init__(self, shape: int | tuple[int, ...], eps: float, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(shape), requires_grad=False) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class HeadwiseLayerNorm(LayerNorm):
    """A layer norm over D of x [B,H,T,D] with a weight [H,D] of its own for each head."""

    def forward(self, x: Tensor) -> Tensor:
        normed = nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
        return normed * self.weight[:, None, :]


def make_norm(spec: DecoderSpec, shape: int | tuple[int, ...] | None = None) -> nn.Module:
    """A norm of the kind that the spec names, over the hidden size or another width."""
    shape = spec.hidden_size if shape is None else shape
    if spec.norm == "layer":
        return LayerNorm(shape, spec.norm_eps, bias=spec.norm_bias)
    if spec.norm_casts_first and not spec.norm_offset:
        return RMSNorm(shape, spec.norm_eps)
    return LateCastRMSNorm(shape, spec.norm_eps, spec.norm_offset)


def make_qk_norm(spec: DecoderSpec, heads: int) -> nn.Module:
    """The norm of queries or keys: over each head, with one weight or one a head, or over all."""
    if spec.qk_norm == "full":
        return make_norm(spec, heads * spec.head_dim)
    if spec.qk_norm == "each_head":
        return HeadwiseLayerNorm((heads, spec.head_dim), spec.norm_eps, bias=False)
    return make_norm(spec, spec.head_dim)
