"""One layer of the decoder, by the kind of its residual connection.

pre              x + attn(norm(x)), then x + mlp(norm(x))
sandwich         x + norm(attn(norm(x))), then the same with the mlp
post_inside      x + norm(attn(x)), then the same with the mlp
post             norm(x + attn(x)), then norm(x + mlp(x))
parallel         x + attn(norm(x)) + mlp(norm'(x)); parallel_shared has one norm for both

  x ──┬───────────────────────(+)──┬─────────────────(+)── out        (pre)
      └─ attn_norm ─ attention ─┘  └─ mlp_norm ─ mlp ─┘
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.model.attention import Attention, GatedAttention, PlainAttention
from llmcli.model.context import Context
from llmcli.model.experts import SparseMLP
from llmcli.model.gated_delta import GatedDeltaMixer
from llmcli.model.latent import LatentAttention
from llmcli.model.mlp import make_mlp
from llmcli.model.norm import make_norm
from llmcli.spec import DecoderSpec, LayerSpec
from llmcli.spec.parameters import BLOCK_NORMS


class Block(nn.Module):
    """pre, sandwich and post_inside: each part reads the stream and adds to it.

    A norm that the kind does not have passes its input through.
    """

    def __init__(self, spec: DecoderSpec, layer: LayerSpec) -> None:
        super().__init__()
        norms = BLOCK_NORMS[spec.residual]

        def norm(name: str) -> nn.Module:
            return make_norm(spec) if name in norms else nn.Identity()

        self.attn_norm = norm("attn_norm")
        self.attn = make_mixer(spec, layer)
        self.post_attn_norm = norm("post_attn_norm")
        self.mlp_norm = norm("mlp_norm")
        self.mlp = _make_mlp(spec, layer)
        self.post_mlp_norm = norm("post_mlp_norm")
        self.residual_scale = spec.residual_scale

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        mixed = self.post_attn_norm(self.attn(self.attn_norm(x), layer, context))
        x = torch.add(x, mixed, alpha=self.residual_scale)
        return torch.add(
            x, self.post_mlp_norm(self.mlp(self.mlp_norm(x))), alpha=self.residual_scale
        )


class PostNormBlock(Block):
    """The original Transformer's order: the norm comes after the addition."""

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        x = self.attn_norm(x + self.attn(x, layer, context))
        out: Tensor = self.mlp_norm(x + self.mlp(x))
        return out


class ParallelBlock(Block):
    """Attention and MLP read the same stream, each through its own norm."""

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        out: Tensor = x + self.attn(self.attn_norm(x), layer, context) + self.mlp(self.mlp_norm(x))
        return out


class SharedParallelBlock(Block):
    """Attention and MLP read the same stream through one norm."""

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        normed = self.attn_norm(x)
        out: Tensor = x + self.attn(normed, layer, context) + self.mlp(normed)
        return out


_BLOCKS: dict[str, type[Block]] = {
    "post": PostNormBlock,
    "parallel": ParallelBlock,
    "parallel_shared": SharedParallelBlock,
}


def make_block(spec: DecoderSpec, layer: LayerSpec) -> Block:
    """The block for one layer of the spec."""
    return _BLOCKS.get(spec.residual, Block)(spec, layer)


def make_mixer(spec: DecoderSpec, layer: LayerSpec) -> nn.Module:
    """Attention of the kind that the spec asks for, or what takes its place in this layer."""
    if layer.mixer == "gated_delta":
        return GatedDeltaMixer(spec, layer)
    if spec.latent is not None:
        return LatentAttention(spec, layer)
    if spec.attn_softcap is not None or spec.sinks:
        assert spec.output_gate is None
        return PlainAttention(spec, layer)
    return (Attention if spec.output_gate is None else GatedAttention)(spec, layer)


def _make_mlp(spec: DecoderSpec, layer: LayerSpec) -> nn.Module:
    if layer.sparse:
        assert spec.experts is not None
        return SparseMLP(spec, spec.experts)
    return make_mlp(spec, spec.intermediate_size, bias=spec.mlp_bias)
