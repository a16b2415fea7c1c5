"""Configs of real models, without weights: facts, number of parameters, and no key left unread."""

from __future__ import annotations

from typing import Any

import pytest

from llmcli.families import read_spec
from llmcli.spec import (
    DecoderSpec,
    LayerSpec,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    count_parameters,
    kv_bytes_per_token,
)
from tests.families.known_configs import KNOWN

names = pytest.mark.parametrize("name", KNOWN)


def _spec(name: str) -> DecoderSpec:
    return read_spec(KNOWN[name][0])[1]


def _rope(name: str, layer: int = 0) -> Rope:
    rope = _spec(name).layers[layer].rope
    assert rope is not None
    return rope


@names
def test_every_key_is_accounted_for(name: str) -> None:
    assert read_spec(KNOWN[name][0])[2] == []


@names
def test_number_of_parameters(name: str) -> None:
    config, count = KNOWN[name]
    assert count_parameters(read_spec(config)[1]) == count


# layers, heads, kv heads, head_dim, theta, rotary dim, windows of all layers
SHAPES: dict[str, tuple[int, int, int, int, float, int, set[int | None]]] = {
    "Phi-3-mini-4k": (32, 32, 32, 96, 1e4, 96, {2047}),
    "Phi-3-mini-128k": (32, 32, 32, 96, 1e4, 96, {262144}),
    "Phi-4-mini": (32, 24, 8, 128, 1e4, 96, {262144}),
    "Llama-2-7B": (32, 32, 32, 128, 1e4, 128, {None}),
    "Llama-3.1-8B": (32, 32, 8, 128, 5e5, 128, {None}),
    "Llama-3.2-1B": (16, 32, 8, 64, 5e5, 64, {None}),
    "Mistral-7B-v0.1": (32, 32, 8, 128, 1e4, 128, {4096}),
    "Mistral-7B-v0.3": (32, 32, 8, 128, 1e6, 128, {None}),
    "Mixtral-8x7B": (32, 32, 8, 128, 1e6, 128, {None}),
    "Qwen2.5-0.5B": (24, 14, 2, 64, 1e6, 64, {None}),
    "Qwen2.5-7B": (28, 28, 4, 128, 1e6, 128, {None}),
    "Qwen3-0.6B": (28, 16, 8, 128, 1e6, 128, {None}),
    "Qwen3-8B": (36, 32, 8, 128, 1e6, 128, {None}),
    "Qwen3-30B-A3B": (48, 32, 4, 128, 1e6, 128, {None}),
    "Gemma-2B": (18, 8, 1, 256, 1e4, 256, {None}),
    "Gemma-2-2B": (26, 8, 4, 256, 1e4, 256, {4096, None}),
    "Gemma-3-270M": (18, 4, 1, 256, 1e4, 256, {512, None}),
    "Gemma-3-1B": (26, 4, 1, 256, 1e4, 256, {512, None}),
    "StarCoder2-3B": (30, 24, 2, 128, 999999.4420358813, 128, {4096}),
    "SmolLM3-3B": (36, 16, 4, 128, 5e6, 128, {None}),
    "OLMo-2-7B": (32, 32, 32, 128, 5e5, 128, {None}),
    "StableLM-2-1.6B": (24, 32, 32, 64, 1e4, 16, {None}),
    "Phi-2": (32, 32, 32, 80, 1e4, 32, {None}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_of_attention(name: str) -> None:
    spec, rope = _spec(name), _rope(name)
    windows = {layer.window for layer in spec.layers}
    heads = (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim)
    assert (*heads, rope.theta, rope.dim, windows) == SHAPES[name]


FACTS: dict[str, dict[str, Any]] = {
    "Phi-3-mini-4k": {"tie_embeddings": False, "attn_bias": False, "attn_scale": 96**-0.5},
    "Phi-4-mini": {"tie_embeddings": True},
    "Llama-3.2-1B": {"tie_embeddings": True, "norm_eps": 1e-5},
    "Qwen2.5-0.5B": {"tie_embeddings": True, "attn_bias": True, "attn_out_bias": False},
    "Qwen3-8B": {"qk_norm": "per_head", "attn_bias": False, "output_gate": None},
    "Gemma-2B": {
        "tie_embeddings": True,
        "attn_scale": 1 / 16,
        "embed_scale": 2048**0.5,
        "residual": "pre",
        "norm_offset": 1.0,
        "activation": "gelu_tanh",
    },
    "Gemma-2-2B": {
        "tie_embeddings": True,
        "attn_scale": 1 / 16,
        "attn_softcap": 50.0,
        "logit_softcap": 30.0,
        "embed_scale": 48.0,
        "residual": "sandwich",
        "norm_offset": 1.0,
        "activation": "gelu_tanh",
    },
    "Gemma-3-1B": {"attn_softcap": None, "logit_softcap": None, "qk_norm": "per_head"},
    "StarCoder2-3B": {"mlp": "plain", "norm": "layer", "tie_embeddings": True, "mlp_bias": True},
    "OLMo-2-7B": {"residual": "post_inside", "qk_norm": "full"},
    "StableLM-2-1.6B": {"norm": "layer", "attn_bias": True, "residual": "pre"},
    "Phi-2": {"residual": "parallel_shared", "head_bias": True, "activation": "gelu_tanh"},
    "GPT-2": {"tie_embeddings": True, "max_positions": 1024, "norm_eps": 1e-5},
}


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    spec = _spec(name)
    assert {field: getattr(spec, field) for field in FACTS[name]} == FACTS[name]


def test_context_scalings() -> None:
    assert _rope("Llama-3.1-8B").scaling == Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=8192
    )
    scaling = _rope("Phi-3-mini-128k").scaling
    assert isinstance(scaling, LongRopeScaling)
    assert scaling.original_max_positions == 4096
    # sqrt(1 + ln(131072 / 4096) / ln 4096)
    assert scaling.attention_factor == pytest.approx(1.1902, abs=1e-4)
    assert all(_rope(name).scaling is None for name in ("Llama-2-7B", "Phi-3-mini-4k", "Qwen3-8B"))


def test_layers_that_differ() -> None:
    windows = [layer.window for layer in _spec("Gemma-2-2B").layers]
    assert windows == [4096, None] * 13
    for name in ("Gemma-3-270M", "Gemma-3-1B"):
        layers = _spec(name).layers
        full = [index for index, layer in enumerate(layers) if layer.window is None]
        assert full == list(range(5, len(layers), 6))
        assert {layer.rope.theta for layer in layers if layer.window and layer.rope} == {1e4}
        assert {layers[index].rope for index in full} == {Rope(theta=1e6, dim=256)}
    turned = [layer.rope is not None for layer in _spec("SmolLM3-3B").layers]
    assert turned == [True, True, True, False] * 9


def test_experts() -> None:
    mixtral, qwen = _spec("Mixtral-8x7B").experts, _spec("Qwen3-30B-A3B").experts
    assert mixtral is not None
    assert qwen is not None
    assert (mixtral.count, mixtral.top_k, mixtral.intermediate_size) == (8, 2, 14336)
    assert (qwen.count, qwen.top_k, qwen.intermediate_size) == (128, 8, 768)
    assert qwen.normalise
    assert all(layer.sparse for layer in _spec("Qwen3-30B-A3B").layers)


def test_keys_and_values_a_token() -> None:
    """2 x layers x kv heads x head_dim x 2 bytes."""
    assert kv_bytes_per_token(_spec("Phi-3-mini-4k"), 2) == 2 * 32 * 32 * 96 * 2
    assert kv_bytes_per_token(_spec("Llama-3.1-8B"), 2) == 131072


def test_gpt_2_has_learned_positions_and_no_rope() -> None:
    spec = _spec("GPT-2")
    assert spec.positions is not None
    assert set(spec.layers) == {LayerSpec()}
