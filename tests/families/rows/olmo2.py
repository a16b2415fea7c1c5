"""OLMo 2: norms at the end of each branch, and over all heads of q and k at once."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Olmo2Config

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
        "pad_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return Olmo2Config(**settings | changes)


ROWS = [
    Row(name="olmo2-grouped", config=_config, bfloat16=True),
    Row(
        name="olmo2-biases",
        config=partial(_config, attention_bias=True, num_key_value_heads=4),
    ),
]
