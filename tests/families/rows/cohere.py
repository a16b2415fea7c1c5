"""Command R: interleaved pairs, a shared input, scaled logits, a norm for each head."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import CohereConfig

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
        "layer_norm_eps": 0.03,
        "logit_scale": 0.4,
        "pad_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return CohereConfig(**settings | changes)


ROWS = [
    Row(name="cohere-plain", config=_config, bfloat16=True),
    Row(
        name="cohere-qk-norm",
        config=partial(_config, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False),
    ),
]
