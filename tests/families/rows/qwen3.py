"""Qwen3: norms of queries and keys; a head_dim of its own. The gated kind is in test_gated.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Qwen3Config

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return Qwen3Config(**settings | changes)


ROWS = [
    Row(name="qwen3-plain", config=_config, bfloat16=True),
    Row(
        name="qwen3-wide-heads-tied", config=partial(_config, head_dim=32, tie_word_embeddings=True)
    ),
    Row(name="qwen3-biases", config=partial(_config, attention_bias=True)),
    Row(
        name="qwen3-last-slides",
        config=partial(_config, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    ),
    Row(
        name="qwen3-yarn",
        config=partial(
            _config,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 20.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 2.0,
            },
        ),
    ),
]
