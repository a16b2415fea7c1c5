"""Mistral: a window in every layer, much shorter than the text; null for none; wide heads."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import MistralConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "sliding_window": 7,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return MistralConfig(**settings | changes)


ROWS = [
    Row(name="mistral-window", config=_config, bfloat16=True),
    Row(name="mistral-no-window", config=partial(_config, sliding_window=None)),
    Row(name="mistral-head-dim", config=partial(_config, head_dim=32, sliding_window=4)),
]
