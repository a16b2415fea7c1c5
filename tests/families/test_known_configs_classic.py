"""Configs of older and wider models, without weights: facts, parameters, no key left unread."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llmcli.families import read_spec
from llmcli.spec import (
    Alibi,
    DecoderSpec,
    Experts,
    Latent,
    Learned,
    Rope,
    Sinusoidal,
    YarnScaling,
    count_parameters,
    kv_bytes_per_token,
)
from tests.families.known_configs_classic import KNOWN

names = pytest.mark.parametrize("name", KNOWN)


def _spec(name: str) -> DecoderSpec:
    return read_spec(KNOWN[name][0])[1]


def _experts(name: str) -> Experts:
    experts = _spec(name).experts
    assert experts is not None
    return experts


@names
def test_every_key_is_accounted_for(name: str) -> None:
    assert read_spec(KNOWN[name][0])[2] == []


@names
def test_number_of_parameters(name: str) -> None:
    config, count = KNOWN[name]
    assert count_parameters(read_spec(config)[1]) == count


# layers, heads, kv heads, head_dim, intermediate size, max positions
SHAPES: dict[str, tuple[int, int, int, int, int, int]] = {
    "GPT-Neo-125M": (12, 12, 12, 64, 3072, 2048),
    "GPT-J-6B": (28, 16, 16, 256, 16384, 2048),
    "Pythia-160M": (12, 12, 12, 64, 3072, 2048),
    "OPT-125M": (12, 12, 12, 64, 3072, 2048),
    "OPT-350M": (24, 16, 16, 64, 4096, 2048),
    "Falcon-7B": (32, 71, 1, 64, 18176, 2048),
    "Falcon-40B": (60, 128, 8, 64, 32768, 2048),
    "Falcon-RW-1B": (24, 32, 32, 64, 8192, 2048),
    "BLOOM-560M": (24, 16, 16, 64, 4096, 2048),
    "StarCoderBase-1B": (24, 16, 1, 128, 8192, 8192),
    "XGLM-564M": (24, 16, 16, 64, 4096, 2048),
    "GPT": (12, 12, 12, 64, 3072, 512),
    "DeepSeek-V2-Lite": (27, 16, 16, 192, 10944, 163840),
    "Moonlight-16B-A3B": (27, 16, 16, 192, 11264, 8192),
    "gpt-oss-20B": (24, 64, 8, 64, 2880, 131072),
    "Qwen3-Next-80B-A3B": (48, 16, 2, 256, 5120, 262144),
}


@names
def test_shape(name: str) -> None:
    spec = _spec(name)
    heads = (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim)
    assert (*heads, spec.intermediate_size, spec.max_positions) == SHAPES[name]


FACTS: dict[str, dict[str, Any]] = {
    "GPT-Neo-125M": {"attn_scale": 1.0, "attn_bias": False, "attn_out_bias": True},
    "GPT-J-6B": {"residual": "parallel_shared", "head_bias": True, "tie_embeddings": False},
    "Pythia-160M": {"residual": "parallel", "activation": "gelu", "tie_embeddings": False},
    "OPT-125M": {"positions": Learned(2), "residual": "pre", "final_norm": True},
    "OPT-350M": {"embed_size": 512, "residual": "post", "final_norm": False},
    "Falcon-7B": {"residual": "parallel_shared", "positions": None, "mlp_bias": False},
    "Falcon-40B": {"residual": "parallel", "tie_embeddings": True},
    "Falcon-RW-1B": {"residual": "pre", "positions": Alibi(scaled=True, rounded=True)},
    "BLOOM-560M": {"embed_norm": True, "positions": Alibi(), "activation": "gelu_tanh"},
    "StarCoderBase-1B": {"activation": "gelu_tanh", "positions": Learned()},
    "XGLM-564M": {"embed_scale": 32.0, "positions": Sinusoidal(2), "activation": "gelu"},
    "GPT": {"residual": "post", "final_norm": False, "activation": "gelu_tanh"},
    "gpt-oss-20B": {"sinks": True, "activation": "clamped_swiglu", "norm_casts_first": False},
    "Qwen3-Next-80B-A3B": {"output_gate": "elementwise", "norm_offset": 1.0},
    "DeepSeek-V2-Lite": {
        "latent": Latent(kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128, query_rank=None)
    },
}


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    spec = _spec(name)
    assert {field: getattr(spec, field) for field in FACTS[name]} == FACTS[name]


ROPES = {
    "GPT-J-6B": Rope(theta=1e4, dim=64, interleaved=True),
    "Pythia-160M": Rope(theta=1e4, dim=16),
    "Falcon-7B": Rope(theta=1e4, dim=64),
    "Moonlight-16B-A3B": Rope(theta=5e4, dim=64, interleaved=True),
    "gpt-oss-20B": Rope(
        theta=150000.0,
        dim=64,
        scaling=YarnScaling(
            factor=32.0,
            original_max_positions=4096,
            attention_factor=0.1 * math.log(32) + 1,
            truncate=False,
        ),
    ),
}


@pytest.mark.parametrize("name", ROPES)
def test_rotary_tables(name: str) -> None:
    assert {layer.rope for layer in _spec(name).layers} == {ROPES[name]}


def test_layers_that_differ() -> None:
    assert [layer.window for layer in _spec("GPT-Neo-125M").layers] == [None, 256] * 6
    assert [layer.window for layer in _spec("gpt-oss-20B").layers] == [128, None] * 12
    sparse = [layer.sparse for layer in _spec("DeepSeek-V2-Lite").layers]
    assert sparse == [False] + [True] * 26
    layers = _spec("Qwen3-Next-80B-A3B").layers
    full = [index for index, layer in enumerate(layers) if layer.mixer == "attention"]
    assert full == list(range(3, 48, 4))
    assert {layers[index].rope for index in full} == {Rope(theta=1e7, dim=64)}


def test_experts() -> None:
    lite, moonlight = _experts("DeepSeek-V2-Lite"), _experts("Moonlight-16B-A3B")
    oss, qwen = _experts("gpt-oss-20B"), _experts("Qwen3-Next-80B-A3B")
    assert (lite.count, lite.top_k, lite.router, lite.shared_size) == (64, 6, "softmax", 2816)
    assert (moonlight.router, moonlight.scale, moonlight.correction_bias) == (
        "sigmoid",
        2.446,
        True,
    )
    assert (oss.count, oss.top_k, oss.router_bias, oss.expert_bias) == (32, 4, True, True)
    assert (qwen.count, qwen.top_k, qwen.shared_size, qwen.shared_gate) == (512, 10, 512, True)


def test_the_temperature_of_yarn_is_in_the_scale_of_latent_attention() -> None:
    spec = _spec("DeepSeek-V2-Lite")
    temperature = 0.1 * 0.707 * math.log(40) + 1
    assert spec.attn_scale == pytest.approx(192**-0.5 * temperature**2)
    rope = spec.layers[0].rope
    assert rope is not None
    assert isinstance(rope.scaling, YarnScaling)
    assert rope.scaling.attention_factor == 1.0  # mscale and mscale_all_dim are equal


def test_keys_and_values_a_token() -> None:
    """2 x layers x kv heads x head_dim x 2 bytes; only attention layers cache."""
    assert kv_bytes_per_token(_spec("Falcon-7B"), 2) == 2 * 32 * 64 * 2
    assert kv_bytes_per_token(_spec("Qwen3-Next-80B-A3B"), 2) == 2 * 12 * 2 * 256 * 2
