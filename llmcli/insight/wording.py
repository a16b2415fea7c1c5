"""A spec's kinds in words: attention, windows, positions. Must not know torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from llmcli.plurals import counted
from llmcli.spec import (
    Alibi,
    DecoderSpec,
    DynamicScaling,
    LayerSpec,
    Learned,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    Sinusoidal,
    YarnScaling,
)


def attention_kind(spec: DecoderSpec) -> str:
    """How queries share keys and values, with the short name that papers use."""
    heads, shared = counted(spec.num_heads, "head"), spec.num_kv_heads
    if spec.latent is not None:
        kind = f"latent (MLA), {heads} of one latent of {spec.latent.kv_rank}"
    elif spec.num_heads == shared:
        kind = f"multi-head (MHA), {heads} of {spec.head_dim}"
    elif shared == 1:
        kind = f"multi-query (MQA), {heads} of {spec.head_dim} share one of keys and values"
    else:
        kind = f"grouped-query (GQA), {heads} of {spec.head_dim}, {shared} of keys and values"
    delta = sum(layer.mixer == "gated_delta" for layer in spec.layers)
    if delta:
        kind += f"; gated delta rule in {delta} of {spec.num_layers} layers"
    return kind


def window_pattern(spec: DecoderSpec) -> str:
    """Which layers see all keys and which a window, such as `5 of 6 layers slide over 512`."""
    looking = [layer for layer in spec.layers if layer.mixer == "attention"]
    windows = Counter(layer.window for layer in looking if layer.window is not None)
    every = "every layer" if len(looking) == spec.num_layers else "every attention layer"
    if not windows:
        return f"{every} sees all earlier tokens" if looking else "no layer looks back"
    parts = [
        f"{every if count == len(looking) else _of(looking, window)} "
        f"{'slides' if count == len(looking) else 'slide'} over {window:,}"
        for window, count in windows.items()
    ]
    return "; ".join(parts) + ("" if sum(windows.values()) == len(looking) else ", others see all")


def _of(looking: list[LayerSpec], window: int) -> str:
    """`5 of 6 layers` where the layers repeat with that period, else counts of all."""
    hits = [layer.window == window for layer in looking]
    total = len(hits)
    for period in range(2, total // 2 + 1):
        if all(hits[at] == hits[at % period] for at in range(total)):
            return f"{sum(hits[:period])} of {period} layers"
    return f"{sum(hits)} of {total} layers"


def positions(spec: DecoderSpec) -> list[str]:
    """How places enter: one phrase for each kind."""
    found = []
    match spec.positions:
        case Learned():
            found.append(f"learned table of {spec.max_positions:,}")
        case Sinusoidal():
            found.append("sinusoidal (fixed sines and cosines)")
        case Alibi():
            found.append("ALiBi (a slope a head times the distance)")
    looking = [layer for layer in spec.layers if layer.mixer == "attention"]
    ropes = Counter(layer.rope for layer in looking if layer.rope is not None)
    for rope, count in ropes.items():
        where = "" if count == len(looking) else f" in {count} of {len(looking)} layers"
        found.append(f"{rope_words(spec, rope)}{where}")
    bare = sum(layer.rope is None for layer in looking)
    if ropes and bare:
        found.append(f"none in {bare} of {len(looking)} layers")
    return found or ["none"]


def rope_words(spec: DecoderSpec, rope: Rope) -> str:
    """A rotary table in words."""
    turned = spec.latent.rope_dim if spec.latent is not None else spec.head_dim
    words = [f"rotary, theta {rope.theta:,.10g}"]
    if spec.latent is not None or rope.dim < turned:
        words.append(f"on {rope.dim} of {spec.head_dim} numbers a head")
    if rope.interleaved:
        words.append("interleaved pairs")
    words += _scaling(rope)
    return ", ".join(words)


def _scaling(rope: Rope) -> Iterator[str]:
    match rope.scaling:
        case LinearScaling(factor=factor):
            yield f"linear scaling by {factor:g}"
        case DynamicScaling(factor=factor, original_max_positions=limit):
            yield f"dynamic scaling by up to {factor:g} past {limit:,}"
        case Llama3Scaling(factor=factor, original_max_positions=limit):
            yield f"Llama 3 scaling by {factor:g} from {limit:,}"
        case YarnScaling(factor=factor, original_max_positions=limit):
            yield f"YaRN scaling by {factor:g} from {limit:,}"
        case LongRopeScaling(original_max_positions=limit):
            yield f"LongRoPE, its long divisors past {limit:,}"


def mlp_kind(spec: DecoderSpec) -> str:
    """The form of the MLP, its width and its activation."""
    activation = spec.activation.replace("_", " ")
    named = {"silu": " (SwiGLU)", "gelu": " (GeGLU)", "gelu_tanh": " (GeGLU)", "relu": " (ReGLU)"}
    if spec.mlp == "gated":
        form = f"gated{named.get(spec.activation, '')}, {activation}"
    else:
        form = f"plain, {activation}"
    sparse = sum(layer.sparse for layer in spec.layers)
    if sparse == spec.num_layers:
        return form
    return f"{form}, {spec.intermediate_size:,} wide"


def experts(spec: DecoderSpec) -> str | None:
    """How many experts there are and how many a token uses."""
    if spec.experts is None:
        return None
    one, sparse = spec.experts, sum(layer.sparse for layer in spec.layers)
    words = f"{one.top_k} of {one.count} a token, {one.intermediate_size:,} wide"
    if one.shared_size is not None:
        words += f", and one of {one.shared_size:,} that every token uses"
    return words + f", in {sparse} of {spec.num_layers} layers"


def norm_kind(spec: DecoderSpec) -> str:
    """The norm, and where it stands in a block."""
    kind = {"rms": "RMSNorm", "layer": "LayerNorm"}[spec.norm]
    places = {
        "pre": "before attention and MLP",
        "post": "after each residual addition",
        "sandwich": "before and after attention and MLP",
        "post_inside": "after attention and MLP, before the addition",
        "parallel": "before attention and MLP, which run side by side",
        "parallel_shared": "before attention and MLP, which share it and run side by side",
    }
    return f"{kind} {places[spec.residual]}"


def extras(spec: DecoderSpec) -> list[str]:
    """Rarer facts that hold for this decoder."""
    held = {
        "bias in q, k, v": spec.attn_bias,
        "norms of queries and keys": spec.qk_norm is not None,
        "gated attention output": spec.output_gate is not None,
        "attention sinks": spec.sinks,
        f"scores capped at {spec.attn_softcap}": spec.attn_softcap is not None,
        f"logits capped at {spec.logit_softcap}": spec.logit_softcap is not None,
        "norm after the embedding": spec.embed_norm,
        f"embedding times {spec.embed_scale:.6g}": spec.embed_scale != 1,
        f"residual parts times {spec.residual_scale:g}": spec.residual_scale != 1,
        f"logits times {spec.logit_scale:g}": spec.logit_scale != 1,
        f"embedding {spec.embed_size} wide, projected": spec.embed_size is not None,
        "head bias": spec.head_bias,
    }
    return [name for name, true in held.items() if true]
