"""StableLM: partial rotary, biases, a shared input, a norm for each head."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import StableLmConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "layer_norm_eps": 0.03,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 700.0,
            "partial_rotary_factor": 0.25,
        },
    }
    return StableLmConfig(**settings | changes)


ROWS = [
    Row(name="stablelm-plain", config=_config, bfloat16=True),
    Row(
        name="stablelm-parallel",
        config=partial(_config, use_parallel_residual=True, use_qkv_bias=True),
    ),
    Row(name="stablelm-qk-norm", config=partial(_config, qk_layernorm=True)),
]
