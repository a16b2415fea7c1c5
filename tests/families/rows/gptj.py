"""GPT-J: rotary pairs side by side, one shared norm, a head with a bias."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GPTJConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 96,
        "rotary_dim": 8,
        "layer_norm_epsilon": 0.03,
    }
    return GPTJConfig(**settings | changes)


ROWS = [
    Row(name="gptj-plain", config=_config, bfloat16=True),
    Row(name="gptj-whole-heads", config=partial(_config, rotary_dim=16, n_inner=96)),
    Row(name="gptj-tied", config=partial(_config, tie_word_embeddings=True)),
]
