"""Names and shapes of a decoder's parameters, derived from its spec alone.

The decoder in model/ is checked against this table; the load plan is proved with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from llmcli.spec.decoder import DecoderSpec, LayerSpec, Learned
from llmcli.spec.parts import Experts, GatedDelta, Latent

Shape = tuple[int, ...]
Named = Iterator[tuple[str, Shape]]

# Which norms a block has, by the kind of its residual connection.
BLOCK_NORMS = {
    "pre": ("attn_norm", "mlp_norm"),
    "post": ("attn_norm", "mlp_norm"),
    "sandwich": ("attn_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"),
    "post_inside": ("post_attn_norm", "post_mlp_norm"),
    "parallel": ("attn_norm", "mlp_norm"),
    "parallel_shared": ("attn_norm",),
}


def parameter_shapes(spec: DecoderSpec) -> dict[str, Shape]:
    """Every parameter's name and shape, in the order of the computation.

    A linear map from C_in to C_out is [C_out, C_in]. A tied head has no entry of its own.
    """
    hidden, vocab, width = spec.hidden_size, spec.vocab_size, spec.embed_width
    shapes: dict[str, Shape] = {"embed_tokens.weight": (vocab, width)}
    if spec.embed_size is not None:
        shapes["embed_proj.weight"] = (hidden, width)
    if spec.embed_norm:
        shapes.update(_norm(spec, "embed_norm"))
    if isinstance(spec.positions, Learned):
        shapes["embed_positions.weight"] = (spec.max_positions + spec.positions.offset, hidden)
    for index, layer in enumerate(spec.layers):
        shapes.update((f"layers.{index}.{name}", shape) for name, shape in _block(spec, layer))
    if spec.final_norm:
        shapes.update(_norm(spec, "norm"))
    if spec.embed_size is not None:
        shapes["head_proj.weight"] = (width, hidden)
    if not spec.tie_embeddings:
        shapes["lm_head.weight"] = (vocab, width)
    if spec.head_bias:
        shapes["lm_head.bias"] = (vocab,)
    return shapes


def count_parameters(spec: DecoderSpec) -> int:
    """How many numbers the decoder holds; a tied head counts once."""
    return sum(prod(shape) for shape in parameter_shapes(spec).values())


def wide_parameters(spec: DecoderSpec) -> frozenset[str]:
    """Those that stay in float32 whatever the working dtype."""
    if spec.experts is None or not spec.experts.wide_router:
        return frozenset()
    ends = (".mlp.router.weight", ".mlp.router.bias", ".mlp.correction_bias")
    return frozenset(name for name in parameter_shapes(spec) if name.endswith(ends))


def matrices(spec: DecoderSpec) -> frozenset[str]:
    """The weights that multiply, or are looked up, row by row; norms and the like are not here."""
    return frozenset(
        name
        for name, shape in parameter_shapes(spec).items()
        if len(shape) == 2 and name.endswith(".weight") and not name.endswith("_norm.weight")
    ) - wide_parameters(spec)


def _block(spec: DecoderSpec, layer: LayerSpec) -> Named:
    norms = BLOCK_NORMS[spec.residual]
    for name in norms:
        if name.endswith("attn_norm"):
            yield from _norm(spec, name)
    if layer.mixer == "gated_delta":
        assert spec.linear is not None
        yield from _gated_delta(spec, spec.linear)
    elif spec.latent is not None:
        yield from _latent(spec, spec.latent)
    else:
        yield from _attention(spec)
    for name in norms:
        if name.endswith("mlp_norm"):
            yield from _norm(spec, name)
    if layer.sparse:
        assert spec.experts is not None
        yield from _experts(spec, spec.experts)
    else:
        yield from _mlp(spec, "mlp", spec.intermediate_size, bias=spec.mlp_bias)


def _attention(spec: DecoderSpec) -> Named:
    hidden, dim = spec.hidden_size, spec.head_dim
    q_width, kv_width = spec.num_heads * dim, spec.num_kv_heads * dim
    yield from _linear("attn.q_proj", (q_width, hidden), bias=spec.attn_bias)
    yield from _linear("attn.k_proj", (kv_width, hidden), bias=spec.attn_bias)
    yield from _linear("attn.v_proj", (kv_width, hidden), bias=spec.attn_bias)
    if spec.output_gate is not None:
        gates = q_width if spec.output_gate == "elementwise" else spec.num_heads
        yield from _linear("attn.gate_proj", (gates, hidden), bias=spec.attn_bias)
    if spec.qk_norm is not None:
        for name, heads in (("attn.q_norm", spec.num_heads), ("attn.k_norm", spec.num_kv_heads)):
            shapes = {"per_head": (dim,), "each_head": (heads, dim), "full": (heads * dim,)}
            yield f"{name}.weight", shapes[spec.qk_norm]
            if spec.norm == "layer" and spec.norm_bias and spec.qk_norm != "each_head":
                yield f"{name}.bias", shapes[spec.qk_norm]
    if spec.sinks:
        yield "attn.sinks", (spec.num_heads,)
    yield from _linear("attn.o_proj", (hidden, q_width), bias=spec.attn_out_bias)


def _latent(spec: DecoderSpec, latent: Latent) -> Named:
    hidden, heads = spec.hidden_size, spec.num_heads
    q_width = heads * (latent.nope_dim + latent.rope_dim)
    if latent.query_rank is None:
        yield "attn.q_proj.weight", (q_width, hidden)
    else:
        yield from _linear("attn.q_a_proj", (latent.query_rank, hidden), bias=latent.bias)
        yield "attn.q_a_norm.weight", (latent.query_rank,)
        yield "attn.q_b_proj.weight", (q_width, latent.query_rank)
    kv_a = (latent.kv_rank + latent.rope_dim, hidden)
    yield from _linear("attn.kv_a_proj", kv_a, bias=latent.bias)
    yield "attn.kv_a_norm.weight", (latent.kv_rank,)
    yield "attn.kv_b_proj.weight", (heads * (latent.nope_dim + latent.value_dim), latent.kv_rank)
    yield from _linear("attn.o_proj", (hidden, heads * latent.value_dim), bias=latent.bias)


def _gated_delta(spec: DecoderSpec, linear: GatedDelta) -> Named:
    hidden, heads = spec.hidden_size, linear.num_value_heads
    keys, values = linear.num_key_heads * linear.key_dim, heads * linear.value_dim
    for name, rows in (
        ("in_q_proj", keys),
        ("in_k_proj", keys),
        ("in_v_proj", values),
        ("in_z_proj", values),
        ("in_b_proj", heads),
        ("in_a_proj", heads),
    ):
        yield f"attn.{name}.weight", (rows, hidden)
    yield "attn.conv.weight", (2 * keys + values, 1, linear.conv_kernel)
    yield "attn.dt_bias", (heads,)
    yield "attn.a_log", (heads,)
    yield "attn.norm.weight", (linear.value_dim,)
    yield "attn.out_proj.weight", (hidden, values)


def _experts(spec: DecoderSpec, experts: Experts) -> Named:
    hidden = spec.hidden_size
    yield from _linear("mlp.router", (experts.count, hidden), bias=experts.router_bias)
    if experts.correction_bias:
        yield "mlp.correction_bias", (experts.count,)
    for index in range(experts.count):
        name, inner = f"mlp.experts.{index}", experts.intermediate_size
        yield from _mlp(spec, name, inner, bias=experts.expert_bias)
    if experts.shared_size is not None:
        yield from _mlp(spec, "mlp.shared", experts.shared_size, bias=spec.mlp_bias)
    if experts.shared_gate:
        yield "mlp.shared_gate.weight", (1, hidden)


def _mlp(spec: DecoderSpec, name: str, inner: int, *, bias: bool) -> Named:
    if spec.mlp == "gated":
        yield from _linear(f"{name}.gate_proj", (inner, spec.hidden_size), bias=bias)
    yield from _linear(f"{name}.up_proj", (inner, spec.hidden_size), bias=bias)
    yield from _linear(f"{name}.down_proj", (spec.hidden_size, inner), bias=bias)


def _norm(spec: DecoderSpec, name: str) -> Named:
    yield f"{name}.weight", (spec.hidden_size,)
    if spec.norm == "layer" and spec.norm_bias:
        yield f"{name}.bias", (spec.hidden_size,)


def _linear(name: str, shape: Shape, *, bias: bool) -> Named:
    yield f"{name}.weight", shape
    if bias:
        yield f"{name}.bias", shape[:1]
