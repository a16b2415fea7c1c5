"""Hugging Face's names of activations, in our words. Must not know any single family."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.spec import Activation

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_quick",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_activation(config: ConfigReader, key: str, default: str) -> Activation:
    """The activation that `key` names; any that we do not know is refused by name."""
    return config.choice(key, _ACTIVATIONS, default)
