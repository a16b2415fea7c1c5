"""Gemma 3: a rotary base for each kind of layer, patterns and lists of kinds."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Gemma3TextConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "head_dim": 16,
        "rms_norm_eps": 0.03,
        "sliding_window": 5,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    }
    return Gemma3TextConfig(**settings | changes)


ROWS = [
    Row(name="gemma3_text-plain", config=_config, norm_around=0.0, bfloat16=True),
    Row(
        name="gemma3_text-full-first",
        config=partial(
            _config, layer_types=["full_attention", "sliding_attention", "sliding_attention"]
        ),
        norm_around=0.0,
    ),
    Row(
        name="gemma3_text-linear-capped",
        config=partial(
            _config,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
            final_logit_softcapping=7.0,
        ),
        norm_around=0.0,
    ),
]
