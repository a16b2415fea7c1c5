"""Gemma: a hidden size without a whole root, heads wider than their share, few key-value heads."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GemmaConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128,
        "head_dim": 16,
        "rms_norm_eps": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return GemmaConfig(**settings | changes)


ROWS = [
    Row(name="gemma-plain", config=_config, norm_around=0.0, bfloat16=True),
    Row(name="gemma-one-kv-head", config=partial(_config, num_key_value_heads=1), norm_around=0.0),
    Row(
        name="gemma-biases-untied",
        config=partial(
            _config, attention_bias=True, tie_word_embeddings=False, num_key_value_heads=2
        ),
        norm_around=0.0,
    ),
]
