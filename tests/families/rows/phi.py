"""Phi 1, 1.5 and 2: biases up to the head, half of each head turned."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import PhiConfig

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
            "partial_rotary_factor": 0.5,
        },
    }
    return PhiConfig(**settings | changes)


ROWS = [
    Row(name="phi-plain", config=_config, bfloat16=True),
    Row(
        name="phi-qk-norm",
        config=partial(_config, qk_layernorm=True, num_key_value_heads=4),
    ),
]
