"""GPT-NeoX: partial rotary, parallel and sequential blocks, q, k and v fused head by head."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GPTNeoXConfig

from tests.oracle import Row


def _config(*, part: float = 0.25, scaling: dict[str, Any] | None = None, **changes: Any) -> Any:
    rope = {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": part}
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "layer_norm_eps": 0.03,
        "rope_parameters": rope | (scaling or {}),
    }
    return GPTNeoXConfig(**settings | changes)


_LINEAR = {"rope_type": "linear", "factor": 2.5}

ROWS = [
    Row(name="gpt_neox-parallel", config=_config, bfloat16=True),
    Row(name="gpt_neox-sequential", config=partial(_config, use_parallel_residual=False, part=0.5)),
    Row(name="gpt_neox-no-attention-bias", config=partial(_config, attention_bias=False)),
    Row(name="gpt_neox-tied", config=partial(_config, tie_word_embeddings=True, part=1.0)),
    Row(name="gpt_neox-scaled", config=partial(_config, scaling=_LINEAR, hidden_act="gelu_fast")),
]
