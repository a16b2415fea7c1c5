"""Names and shapes of a decoder's parameters, derived from its spec alone.

The decoder in model/ is checked against this table; the load plan is proved with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from llmcli.spec.decoder import DecoderSpec, Learned

Shape = tuple[int, ...]


def parameter_shapes(spec: DecoderSpec) -> dict[str, Shape]:
    """Every parameter's name and shape, in the order of the computation.

    A linear map from C_in to C_out is [C_out, C_in]. A tied head has no entry of its own.
    """
    hidden, vocab = spec.hidden_size, spec.vocab_size
    shapes: dict[str, Shape] = {"embed_tokens.weight": (vocab, hidden)}
    if isinstance(spec.positions, Learned):
        shapes["embed_positions.weight"] = (spec.max_positions + spec.positions.offset, hidden)
    for index in range(spec.num_layers):
        shapes.update((f"layers.{index}.{name}", shape) for name, shape in _block(spec))
    shapes.update(_norm(spec, "norm"))
    if not spec.tie_embeddings:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def count_parameters(spec: DecoderSpec) -> int:
    """How many numbers the decoder holds; a tied head counts once."""
    return sum(prod(shape) for shape in parameter_shapes(spec).values())


def kv_bytes_per_token(spec: DecoderSpec, bytes_per_element: int) -> int:
    """Bytes that one more token adds to a full KV cache: 2 x layers x kv heads x head_dim."""
    return 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * bytes_per_element


def _block(spec: DecoderSpec) -> Iterator[tuple[str, Shape]]:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    yield from _norm(spec, "attn_norm")
    yield from _linear("attn.q_proj", (q_width, hidden), bias=spec.attn_bias)
    yield from _linear("attn.k_proj", (kv_width, hidden), bias=spec.attn_bias)
    yield from _linear("attn.v_proj", (kv_width, hidden), bias=spec.attn_bias)
    yield from _linear("attn.o_proj", (hidden, q_width), bias=spec.attn_out_bias)
    yield from _norm(spec, "mlp_norm")
    if spec.mlp == "gated":
        yield from _linear("mlp.gate_proj", (inner, hidden), bias=spec.mlp_bias)
    yield from _linear("mlp.up_proj", (inner, hidden), bias=spec.mlp_bias)
    yield from _linear("mlp.down_proj", (hidden, inner), bias=spec.mlp_bias)


def _norm(spec: DecoderSpec, name: str) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (spec.hidden_size,)
    if spec.norm == "layer":
        yield f"{name}.bias", (spec.hidden_size,)


def _linear(name: str, shape: Shape, *, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", shape
    if bias:
        yield f"{name}.bias", shape[:1]
