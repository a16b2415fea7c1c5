"""StarCoder2: a plain MLP with biases, tied or not, with a window."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Starcoder2Config

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
        "norm_epsilon": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return Starcoder2Config(**settings | changes)


ROWS = [
    Row(name="starcoder2-plain", config=_config, bfloat16=True),
    Row(name="starcoder2-window", config=partial(_config, sliding_window=6)),
    Row(
        name="starcoder2-no-biases",
        config=partial(_config, use_bias=False, tie_word_embeddings=False),
    ),
]
