"""SmolLM3: layers without rotary positions, by interval and by list."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import SmolLM3Config

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "pad_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return SmolLM3Config(**settings | changes)


ROWS = [
    Row(name="smollm3-list", config=partial(_config, no_rope_layers=[0, 1, 1]), bfloat16=True),
    Row(
        name="smollm3-interval-untied",
        config=partial(_config, no_rope_layer_interval=2, tie_word_embeddings=False),
    ),
    Row(
        name="smollm3-windows",
        config=partial(
            _config, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=6
        ),
    ),
]
