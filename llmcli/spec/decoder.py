"""DecoderSpec: every fact that decides which function a decoder-only transformer computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmcli.spec.parts import Experts, GatedDelta, Latent
from llmcli.spec.rope import DynamicScaling, Rope

NormKind = Literal["rms", "layer"]
MlpKind = Literal["gated", "plain"]
Activation = Literal["silu", "gelu", "gelu_tanh", "gelu_quick", "relu", "clamped_swiglu"]
Residual = Literal["pre", "post", "sandwich", "post_inside", "parallel", "parallel_shared"]
QkNorm = Literal["per_head", "each_head", "full"]
OutputGate = Literal["elementwise", "headwise"]
Mixer = Literal["attention", "gated_delta"]


class SpecError(ValueError):
    """The facts contradict each other (say, heads that do not divide)."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned table of absolute positions, added to the token embedding.

    Row `position + offset` is read; the table has `max_positions + offset` rows.
    """

    offset: int = 0


@dataclass(frozen=True, slots=True)
class Sinusoidal:
    """The fixed table of arXiv 1706.03762 in tensor2tensor's layout: sines, then cosines."""

    offset: int = 0


@dataclass(frozen=True, slots=True)
class Alibi:
    """A slope per head times the distance, added to the scores (arXiv 2108.12409).

    Falcon adds it before the scores are scaled (`scaled`) and rounds it to bfloat16 (`rounded`).
    """

    scaled: bool = False
    rounded: bool = False


# How absolute places enter; a rotary decoder has None here and a Rope in its layers.
Positions = Learned | Sinusoidal | Alibi | None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The only facts that may differ from layer to layer.

    A query sees `window` keys, itself included; None is all of them. `sparse` layers use the
    spec's experts. `mixer` names what takes attention's place.
    """

    rope: Rope | None = None
    window: int | None = None
    sparse: bool = False
    mixer: Mixer = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """A decoder-only transformer, in Hugging Face's words for sizes. Neutral by default.

    `attn_scale` multiplies the query-key products before the softmax.
    `attn_bias` is for the q, k and v projections, `attn_out_bias` for the output projection.
    `norm_offset` is added to a norm's weight (Gemma: 1); `norm_casts_first` tells whether the
    normed value returns to the working dtype before the weight multiplies it (Llama) or after.
    `embed_size` is the embedding's own width where a projection leads to `hidden_size`.
    Soft caps squash x to cap * tanh(x / cap).
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
    norm_offset: float = 0.0
    norm_bias: bool = True
    norm_casts_first: bool = True
    final_norm: bool = True
    residual: Residual = "pre"
    residual_scale: float = 1.0
    attn_bias: bool = False
    attn_out_bias: bool = False
    attn_softcap: float | None = None
    sinks: bool = False
    qk_norm: QkNorm | None = None
    output_gate: OutputGate | None = None
    latent: Latent | None = None
    linear: GatedDelta | None = None
    mlp_bias: bool = False
    experts: Experts | None = None
    embed_scale: float = 1.0
    embed_norm: bool = False
    embed_size: int | None = None
    head_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None

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
        for window in {layer.window for layer in self.layers if layer.window is not None}:
            if window < 1:
                raise SpecError(f"a window of {window} keys; it must be at least 1")
        if any(layer.sparse for layer in self.layers) and self.experts is None:
            raise SpecError("sparse layers without experts")
        if self.experts is not None:
            _check_experts(self.experts)
        if self.residual_scale != 1 and self.residual in ("post", "parallel", "parallel_shared"):
            raise SpecError(f"a residual scale does not go with {self.residual} blocks")
        if self.latent is not None:
            _check_latent(self.latent, self.num_heads, self.num_kv_heads, self.head_dim)
        if self.linear is not None:
            _check_linear(self.linear)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def embed_width(self) -> int:
        return self.embed_size or self.hidden_size

    @property
    def context(self) -> int:
        """Tokens that a text may have: dynamic scaling stretches the trained length."""
        scalings = [layer.rope.scaling for layer in self.layers if layer.rope]
        factors = [one.factor for one in scalings if isinstance(one, DynamicScaling)]
        return int(self.max_positions * max(factors, default=1.0))

    @property
    def windowed(self) -> bool:
        """Whether any layer sees only a window of keys."""
        return any(layer.window is not None for layer in self.layers)

    @property
    def shift_obstacle(self) -> str | None:
        """What forbids that cached tokens move to other positions; None where they can."""
        if isinstance(self.positions, Learned | Sinusoidal):
            return "positions are added to the embeddings, so cached keys and values hold them"
        if any(layer.mixer != "attention" for layer in self.layers):
            return "recurrent layers keep one state, from which no token can be taken"
        if any(layer.rope is not None and layer.rope.by_length for layer in self.layers):
            return "its rotary tables change with the length of the text"
        return None

    @property
    def can_pad(self) -> bool:
        """Whether rows of different lengths can share a batch behind empty slots.

        A recurrent state would run over these, and tables that depend on the length would be
        those of the longest row.
        """
        return not any(
            layer.mixer != "attention" or (layer.rope is not None and layer.rope.by_length)
            for layer in self.layers
        )

    def regime(self, length: int, planned: int) -> tuple[int, ...]:
        """Changes exactly when some rotary table does; see Rope.regime."""
        ropes = dict.fromkeys(layer.rope for layer in self.layers)
        return tuple(rope.regime(length, planned) for rope in ropes if rope)


def _check_experts(experts: Experts) -> None:
    if not 1 <= experts.top_k <= experts.count:
        raise SpecError(f"{experts.top_k} of {experts.count} experts a token")
    if experts.groups < 1 or experts.count % experts.groups:
        raise SpecError(f"{experts.count} experts do not make {experts.groups} equal groups")
    size = experts.count // experts.groups
    if not 1 <= experts.top_groups <= experts.groups or experts.top_groups * size < experts.top_k:
        raise SpecError(
            f"{experts.top_groups} of {experts.groups} groups of {size} experts, "
            f"of which {experts.top_k} are chosen"
        )
    if experts.groups > 1 and experts.group_score == "best_two" and size < 2:
        raise SpecError("groups of one expert have no two best")


def _check_linear(linear: GatedDelta) -> None:
    for name in ("num_key_heads", "num_value_heads", "key_dim", "value_dim", "conv_kernel"):
        if getattr(linear, name) < 1:
            raise SpecError(f"linear attention's {name} is {getattr(linear, name)}, below 1")
    if linear.num_value_heads % linear.num_key_heads:
        raise SpecError(
            f"{linear.num_value_heads} value heads are not a multiple of "
            f"{linear.num_key_heads} key heads"
        )


def _check_latent(latent: Latent, heads: int, kv_heads: int, head_dim: int) -> None:
    for name in ("kv_rank", "nope_dim", "rope_dim", "value_dim", "query_rank"):
        value = getattr(latent, name)
        if value is not None and value < 1:
            raise SpecError(f"latent attention's {name} is {value}, but must be at least 1")
    width = latent.nope_dim + latent.rope_dim
    if head_dim != width:
        raise SpecError(f"heads of {head_dim} numbers, but latent attention makes {width}")
    if kv_heads != heads:
        raise SpecError(f"{kv_heads} key-value heads, but latent attention has one a head: {heads}")
