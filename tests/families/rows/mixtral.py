"""Mixtral: experts in every layer, under the hub's names of their matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import MixtralConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "num_local_experts": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    }
    return MixtralConfig(**settings | changes)


ROWS = [
    Row(name="mixtral-top-2", config=_config),
    Row(
        name="mixtral-top-3-window",
        config=partial(_config, num_experts_per_tok=3, num_local_experts=5, sliding_window=6),
    ),
    # In bfloat16 a tie between two experts may fall either way; here there is nothing to choose.
    Row(
        name="mixtral-every-expert",
        config=partial(_config, num_experts_per_tok=4),
        bfloat16=True,
    ),
]
