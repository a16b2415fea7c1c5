"""BLOOM: ALiBi, with a number of heads that is a power of two and one that is not."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import BloomConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 4,
        "layer_norm_epsilon": 0.03,
    }
    return BloomConfig(**settings | changes)


ROWS = [
    Row(name="bloom-plain", config=_config, bfloat16=True),
    Row(name="bloom-12-heads", config=partial(_config, hidden_size=96, n_head=12)),
    Row(name="bloom-untied", config=partial(_config, tie_word_embeddings=False)),
]
