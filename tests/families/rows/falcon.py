"""Falcon: one key-value head, grouped heads, and ALiBi with one head each."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import FalconConfig

from tests.oracle import Row


def _config(*, theta: float = 700.0, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "layer_norm_epsilon": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }
    return FalconConfig(**settings | changes)


_40B: dict[str, Any] = {"new_decoder_architecture": True, "num_kv_heads": 2}
_RW: dict[str, Any] = {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}

ROWS = [
    Row(name="falcon-7b", config=_config, bfloat16=True),
    Row(name="falcon-7b-sequential", config=partial(_config, parallel_attn=False)),
    Row(name="falcon-7b-biases", config=partial(_config, bias=True, ffn_hidden_size=96)),
    Row(name="falcon-40b", config=partial(_config, **_40B, tie_word_embeddings=False)),
    Row(name="falcon-11b", config=partial(_config, **_40B, num_ln_in_parallel_attn=1)),
    # The eager path of transformers 5.24 adds ALiBi twice, its default (sdpa) once.
    Row(name="falcon-rw-1b", config=partial(_config, **_RW), attention="sdpa"),
    Row(
        name="falcon-rw-12-heads",
        config=partial(_config, **_RW, hidden_size=96, num_attention_heads=12),
        attention="sdpa",
    ),
]
