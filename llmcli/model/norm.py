"""Normalisation layers. Statistics are taken in float32 at least, whatever the working dtype."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from llmcli.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class AffineNorm:
    """What a norm is at one input x, with the statistics of x held fixed: an affine map.

    `apply` is linear; of any parts that sum to x, what it makes of them sums to norm(x) - bias.
    """

    gain: Tensor  # [C]
    bias: Tensor | None
    centred: bool

    def apply(self, parts: Tensor) -> Tensor:
        """Parts [...,C] of the input to parts of the output."""
        wide = parts.to(self.gain.dtype)
        if self.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        return wide * self.gain


def affine_at(norm: nn.Module, x: Tensor) -> AffineNorm | None:
    """The affine map that `norm` is at x [C], in float64 on the CPU; None where it is none."""
    if isinstance(norm, nn.Identity):
        return None
    assert isinstance(norm, RMSNorm | LayerNorm), type(norm)
    return norm.affine(x.to("cpu", torch.float64))


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

    def affine(self, x: Tensor) -> AffineNorm:
        """With the statistics of x [C], which is float64."""
        scale = torch.rsqrt(x.square().mean() + self.eps)
        return AffineNorm(scale * self._gain(), None, centred=False)

    def _gain(self) -> Tensor:
        return self.weight.to("cpu", torch.float64)


class LateCastRMSNorm(RMSNorm):
    """The weight (plus an offset: Gemma's is 1) multiplies before the cast back."""

    def __init__(self, shape: int | tuple[int, ...], eps: float, offset: float = 0.0) -> None:
        super().__init__(shape, eps)
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        normed = self.normed(x)
        return (normed * (self.weight.to(normed.dtype) + self.offset)).to(x.dtype)

    def _gain(self) -> Tensor:
        return self.weight.to("cpu", torch.float64) + self.offset


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias (arXiv 1607.06450), with or without the bias."""

    def __init__(self, shape: int | tuple[int, ...], eps: float, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(shape), requires_grad=False) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)

    def affine(self, x: Tensor) -> AffineNorm:
        """With the statistics of x [C], which is float64."""
        scale = torch.rsqrt(x.var(correction=0) + self.eps)
        bias = None if self.bias is None else self.bias.to("cpu", torch.float64)
        return AffineNorm(scale * self.weight.to("cpu", torch.float64), bias, centred=True)


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
