"""DecoderSpec: every fact that decides which function a decoder-only transformer computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmcli.spec.rope import Rope

NormKind = Literal["rms", "layer"]
MlpKind = Literal["gated", "plain"]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


class SpecError(ValueError):
    """The facts contradict each other (say, heads that do not divide)."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned table of absolute positions, added to the token embedding.

    Row `position + offset` is read; the table has `max_positions + offset` rows.
    """

    offset: int = 0


# What is added to the embeddings; a rotary decoder has None here and a Rope in its layers.
Positions = Learned | None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The only facts that may differ from layer to layer."""

    rope: Rope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """A decoder-only transformer, in Hugging Face's words for sizes.

    `attn_scale` multiplies the query-key products before the softmax.
    `attn_bias` is for the q, k and v projections, `attn_out_bias` for the output projection.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    layers: tuple[LayerSpec, ...]
    norm: NormKind
    norm_eps: float
    mlp: MlpKind
    activation: Activation
    attn_scale: float
    tie_embeddings: bool
    positions: Positions = None
    attn_bias: bool = False
    attn_out_bias: bool = False
    mlp_bias: bool = False

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_positions",
        ):
            value = getattr(self, name)
            if value < 1:
                raise SpecError(f"{name} is {value}, but must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise SpecError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}"
            )
        for rope in {layer.rope for layer in self.layers if layer.rope}:
            if rope.dim % 2 or not 0 < rope.dim <= self.head_dim:
                raise SpecError(
                    f"rotary dimension {rope.dim} is not an even number up to "
                    f"head_dim {self.head_dim}"
                )

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_heads // self.num_kv_heads
