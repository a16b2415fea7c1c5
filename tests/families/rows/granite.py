"""Granite: multipliers far from 1."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GraniteConfig

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
        "rms_norm_eps": 0.03,
        "embedding_multiplier": 3.0,
        "logits_scaling": 0.7,
        "residual_multiplier": 0.6,
        "attention_multiplier": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return GraniteConfig(**settings | changes)


ROWS = [
    Row(name="granite-plain", config=_config, bfloat16=True),
    Row(
        name="granite-biases",
        config=partial(_config, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    ),
]
