"""OPT: positions read two rows on, ReLU, and 350m's late norms and narrow embeddings."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import OPTConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 96,
    }
    return OPTConfig(**settings | changes)


_350M: dict[str, Any] = {"do_layer_norm_before": False, "word_embed_proj_dim": 32}

ROWS = [
    Row(name="opt-plain", config=_config, bfloat16=True),
    Row(name="opt-350m", config=partial(_config, **_350M)),
    Row(name="opt-post", config=partial(_config, do_layer_norm_before=False)),
    Row(name="opt-350m-untied", config=partial(_config, **_350M, tie_word_embeddings=False)),
    Row(name="opt-no-final-norm", config=partial(_config, _remove_final_layer_norm=True)),
    Row(
        name="opt-no-biases",
        config=partial(_config, enable_bias=False, activation_function="gelu"),
    ),
]
