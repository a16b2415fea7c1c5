"""Phi-3: fused matrices of all widths, a window, partial rotary, LongRoPE below and above.

The switch between LongRoPE's two lists is in test_longrope.py: a whole forward has only one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Phi3Config

from tests.oracle import Row


def _config(*, scaling: dict[str, Any] | None = None, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "original_max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "pad_token_id": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 700.0,
            "partial_rotary_factor": 1.0,
            **(scaling or {}),
        },
    }
    return Phi3Config(**settings | changes)


def longrope(pairs: int) -> dict[str, Any]:
    """Two lists of divisors that cannot be mistaken for one another."""
    return {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * pair for pair in range(pairs)],
        "long_factor": [2.0 + 1.5 * pair for pair in range(pairs)],
    }


def _longrope(*, original: int, **changes: Any) -> Any:
    return _config(scaling=longrope(8), original_max_position_embeddings=original, **changes)


ROWS = [
    Row(name="phi3-grouped", config=_config, bfloat16=True),
    Row(name="phi3-all-heads", config=partial(_config, num_key_value_heads=None)),
    Row(name="phi3-window", config=partial(_config, sliding_window=7)),
    Row(
        name="phi3-partial-rotary",
        config=partial(_config, scaling={"partial_rotary_factor": 0.5}),
    ),
    Row(name="phi3-tied", config=partial(_config, tie_word_embeddings=True)),
    Row(name="phi3-longrope-short", config=partial(_longrope, original=64)),
    Row(name="phi3-longrope-long", config=partial(_longrope, original=8)),
    Row(
        name="phi3-longrope-partial",
        config=partial(
            _config,
            scaling={**longrope(4), "partial_rotary_factor": 0.5, "attention_factor": 1.3},
            original_max_position_embeddings=8,
        ),
    ),
]
