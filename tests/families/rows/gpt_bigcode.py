"""GPT-BigCode: one key-value head, and the variant with as many as heads."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GPTBigCodeConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 96,
        "layer_norm_epsilon": 0.03,
    }
    return GPTBigCodeConfig(**settings | changes)


ROWS = [
    Row(name="gpt_bigcode-multi-query", config=_config, bfloat16=True),
    Row(name="gpt_bigcode-multi-head", config=partial(_config, multi_query=False, n_inner=96)),
    Row(name="gpt_bigcode-untied", config=partial(_config, tie_word_embeddings=False)),
    Row(name="gpt_bigcode-unscaled", config=partial(_config, scale_attn_weights=False)),
]
