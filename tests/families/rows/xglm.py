"""XGLM: sinusoidal positions, with and without scaled embeddings."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import XGLMConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "d_model": 64,
        "ffn_dim": 96,
        "num_layers": 2,
        "attention_heads": 4,
        "max_position_embeddings": 96,
    }
    return XGLMConfig(**settings | changes)


ROWS = [
    Row(name="xglm-plain", config=_config, bfloat16=True),
    Row(name="xglm-unscaled", config=partial(_config, scale_embedding=False)),
    Row(name="xglm-untied", config=partial(_config, tie_word_embeddings=False)),
]
