"""GPT-Neo: windowed and unwindowed layers, unscaled attention, one bias."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GPTNeoConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "num_layers": 3,
        "num_heads": 4,
        "max_position_embeddings": 96,
        "window_size": 7,
        "attention_types": [[["global", "local"], 1], [["local"], 1]],
        "layer_norm_epsilon": 0.03,
    }
    return GPTNeoConfig(**settings | changes)


ROWS = [
    Row(name="gpt_neo-plain", config=_config, bfloat16=True),
    Row(
        name="gpt_neo-all-local",
        config=partial(_config, attention_types=[[["local"], 3]], window_size=4),
    ),
    Row(
        name="gpt_neo-all-global",
        config=partial(
            _config,
            attention_types=[[["global"], 3]],
            intermediate_size=96,
            tie_word_embeddings=False,
        ),
    ),
]
