"""Llama. An epsilon and a theta far from any default show that the config's own are used."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import LlamaConfig

from tests.oracle import Row


def _config(*, theta: float = 700.0, scaling: dict[str, Any] | None = None, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128,
        "rms_norm_eps": 0.03,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta, **(scaling or {})},
    }
    return LlamaConfig(**settings | changes)


def _row(name: str, *, bfloat16: bool = False, validated: bool = True, **changes: Any) -> Row:
    return Row(
        name=f"llama-{name}",
        config=partial(_config, **changes),
        bfloat16=bfloat16,
        validated=validated,
    )


_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}

ROWS = [
    _row("plain"),
    _row("grouped", num_key_value_heads=2, bfloat16=True),
    _row("one-kv-head", num_key_value_heads=1),
    _row("biases", attention_bias=True, mlp_bias=True, num_key_value_heads=2),
    _row("tied", tie_word_embeddings=True),
    _row("wide-heads", head_dim=32, num_key_value_heads=2),
    _row(
        "hidden-not-heads",
        hidden_size=60,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=16,
        validated=False,
    ),
    _row("rope-linear", scaling={"rope_type": "linear", "factor": 2.5}),
    _row("rope-llama3", scaling=_LLAMA3, theta=500.0),
    # Its base is that of the run's whole length: stretched at 48 tokens, and not yet at the
    # 36 of generate, where transformers would go on with keys of a former base.
    _row(
        "rope-dynamic", scaling={"rope_type": "dynamic", "factor": 4.0}, max_position_embeddings=40
    ),
    _row("theta-500000", theta=500_000.0, num_key_value_heads=2),
]
