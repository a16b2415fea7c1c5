"""Qwen2: biases on q, k and v; windows by flag, by the first layer that slides, by layer types."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Qwen2Config

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
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return Qwen2Config(**settings | changes)


def _windowed(**changes: Any) -> Any:
    return _config(**{"use_sliding_window": True, "sliding_window": 5} | changes)


_SLIDING, _FULL = "sliding_attention", "full_attention"

ROWS = [
    Row(name="qwen2-plain", config=_config, bfloat16=True),
    Row(name="qwen2-tied", config=partial(_config, tie_word_embeddings=True)),
    Row(
        name="qwen2-window-unused",
        config=partial(_windowed, use_sliding_window=False, max_window_layers=1),
    ),
    Row(name="qwen2-all-slide", config=partial(_windowed, max_window_layers=0)),
    Row(name="qwen2-last-slides", config=partial(_windowed, max_window_layers=1)),
    Row(name="qwen2-none-slides", config=partial(_windowed, max_window_layers=2)),
    Row(
        name="qwen2-layer-types-win",
        config=partial(_windowed, max_window_layers=1, layer_types=[_SLIDING, _FULL]),
    ),
]
