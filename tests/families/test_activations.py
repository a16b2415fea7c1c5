"""Each activation's name in a config means the function that it means in transformers."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from llmcli.families import activations, read_spec
from llmcli.model.mlp import ACTIVATIONS
from tests.tiny import TINY


@pytest.mark.parametrize("name", activations._ACTIVATIONS)
def test_gpt2(name: str) -> None:
    _, spec, _ = read_spec({"model_type": "gpt2", "activation_function": name})
    _assert_same(name, spec.activation)


def test_llama() -> None:
    _assert_same("silu", read_spec(TINY)[1].activation)


def _assert_same(theirs: str, ours: str) -> None:
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    assert torch.allclose(ACTIVATIONS[ours](x), ACT2FN[theirs](x), atol=1e-7)
