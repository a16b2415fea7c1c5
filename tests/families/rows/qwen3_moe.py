"""Qwen3-MoE: sparse and dense layers by step and by list, weights normalised or not."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Qwen3MoeConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 72,
        "moe_intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return Qwen3MoeConfig(**settings | changes)


ROWS = [
    Row(name="qwen3_moe-dense-list", config=partial(_config, mlp_only_layers=[1])),
    Row(
        name="qwen3_moe-sparse-step",
        config=partial(_config, decoder_sparse_step=2, norm_topk_prob=True),
    ),
    Row(
        name="qwen3_moe-window",
        config=partial(_config, use_sliding_window=True, sliding_window=6, norm_topk_prob=True),
    ),
    # In bfloat16 a tie between two experts may fall either way; here there is nothing to choose.
    Row(name="qwen3_moe-every-expert", config=partial(_config, num_experts=2), bfloat16=True),
]
