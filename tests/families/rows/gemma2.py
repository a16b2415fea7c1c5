"""Gemma 2: a hidden size without a whole root, caps that bite, windows in both orders."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Gemma2Config

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "head_dim": 16,
        "rms_norm_eps": 0.03,
        "sliding_window": 4,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 7.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return Gemma2Config(**settings | changes)


ROWS = [
    Row(name="gemma2-plain", config=_config, norm_around=0.0, bfloat16=True),
    Row(
        name="gemma2-full-first",
        config=partial(_config, layer_types=["full_attention", "sliding_attention"]),
        norm_around=0.0,
    ),
    Row(
        name="gemma2-no-caps",
        config=partial(_config, attn_logit_softcapping=None, final_logit_softcapping=None),
        norm_around=0.0,
    ),
    Row(
        name="gemma2-biases-untied",
        config=partial(_config, attention_bias=True, tie_word_embeddings=False),
        norm_around=0.0,
    ),
]
