"""The first GPT: norms after the additions."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import OpenAIGPTConfig

from tests.oracle import Row


def _config(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 96,
        "layer_norm_epsilon": 0.03,
    }
    return OpenAIGPTConfig(**settings | changes)


ROWS = [
    Row(name="openai-gpt-plain", config=_config, bfloat16=True),
    Row(name="openai-gpt-relu", config=partial(_config, afn="relu")),
    Row(name="openai-gpt-untied", config=partial(_config, tie_word_embeddings=False)),
]
