"""GPT-2: learned positions, LayerNorm, biases everywhere, fused and transposed projections."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GPT2Config

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 96,
        "layer_norm_epsilon": 0.03,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return GPT2Config(**settings | changes)


ROWS = [
    Row(name="gpt2-plain", config=_config, bfloat16=True),
    Row(name="gpt2-inner", config=partial(_config, n_inner=112)),
    Row(name="gpt2-unscaled", config=partial(_config, scale_attn_weights=False)),
    Row(name="gpt2-untied", config=partial(_config, tie_word_embeddings=False)),
    Row(name="gpt2-relu", config=partial(_config, activation_function="relu")),
]
