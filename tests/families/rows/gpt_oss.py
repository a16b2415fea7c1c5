"""gpt-oss: sinks, windows in every other layer, stacked experts, YaRN without rounding."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import GptOssConfig

from tests.oracle import Row

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 700.0,
    "factor": 4.0,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 256,
}


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 1024,
        "sliding_window": 7,
        "rms_norm_eps": 0.03,
        "rope_parameters": dict(_YARN),
    }
    return GptOssConfig(**settings | changes)


ROWS = [
    Row(name="gpt_oss-plain", config=_config),
    # With every expert chosen, rounding cannot choose another one.
    Row(
        name="gpt_oss-every-expert",
        config=partial(_config, num_experts_per_tok=4),
        bfloat16=True,
    ),
    Row(
        name="gpt_oss-other-layers",
        config=partial(
            _config,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            num_hidden_layers=3,
            attention_bias=False,
        ),
    ),
    Row(
        name="gpt_oss-linear-rope",
        config=partial(
            _config,
            rope_parameters={"rope_type": "linear", "rope_theta": 700.0, "factor": 2.0},
            tie_word_embeddings=True,
        ),
    ),
]
