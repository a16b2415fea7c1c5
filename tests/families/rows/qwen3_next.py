"""Qwen3-Next: gated attention and the gated delta rule, experts beside a gated shared one."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Qwen3NextConfig

from tests.oracle import Row


def _config(*, part: float = 0.5, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 64,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 32,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 700.0,
            "partial_rotary_factor": part,
        },
    }
    return Qwen3NextConfig(**settings | changes)


ROWS = [
    Row(name="qwen3_next-plain", config=_config, norm_around=0.0),
    # With every expert chosen, rounding cannot choose another one.
    Row(
        name="qwen3_next-every-expert",
        config=partial(_config, num_experts_per_tok=4),
        norm_around=0.0,
        bfloat16=True,
    ),
    Row(
        name="qwen3_next-dense-layer",
        config=partial(
            _config,
            num_hidden_layers=4,
            layer_types=None,
            mlp_only_layers=[1],
            norm_topk_prob=False,
            linear_conv_kernel_dim=3,
            attention_bias=True,
        ),
        norm_around=0.0,
    ),
    Row(
        name="qwen3_next-attention-only",
        config=partial(
            _config,
            layer_types=["full_attention", "full_attention"],
            decoder_sparse_step=2,
            tie_word_embeddings=True,
            part=1.0,
        ),
        norm_around=0.0,
    ),
]
