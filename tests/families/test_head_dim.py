"""Head counts and head_dim: given, derived, null, absent, and impossible ones refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.plan import make_plan
from llmcli.errors import CheckpointError
from llmcli.families import read_spec
from llmcli.spec import DecoderSpec, parameter_shapes
from tests.tiny import TINY


def _spec(**changes: object) -> DecoderSpec:
    return read_spec({**TINY, **changes})[1]


@pytest.mark.parametrize(
    ("changes", "head_dim"),
    [
        ({"head_dim": None}, 16),
        ({}, 16),
        ({"head_dim": 32}, 32),
        ({"hidden_size": 60, "num_attention_heads": 8, "head_dim": 16}, 16),
    ],
)
def test_config_value_wins_else_the_quotient(changes: dict[str, object], head_dim: int) -> None:
    spec = _spec(**changes)
    assert spec.head_dim == head_dim
    assert spec.attn_scale == head_dim**-0.5
    assert all(layer.rope and layer.rope.dim == head_dim for layer in spec.layers)


@pytest.mark.parametrize(("given", "read"), [(1, 1), (2, 2), (4, 4), (None, 4)])
def test_kv_heads(given: int | None, read: int) -> None:
    assert _spec(num_key_value_heads=given).num_kv_heads == read


def test_absent_kv_heads_are_all_heads() -> None:
    config = {key: value for key, value in TINY.items() if key != "num_key_value_heads"}
    assert read_spec(config)[1].num_kv_heads == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 3}, ["num_heads 4", "num_kv_heads 3"]),
        ({"num_key_value_heads": 8}, ["num_heads 4", "num_kv_heads 8"]),
        ({"num_key_value_heads": 0}, ["num_kv_heads", "0"]),
        ({"hidden_size": 60, "num_attention_heads": 8, "head_dim": None}, ["60", "8 heads"]),
        ({"num_attention_heads": 0}, ["num_heads", "0"]),
        ({"num_attention_heads": 0, "head_dim": None}, ["0 heads"]),
        ({"num_attention_heads": -4}, ["-4"]),
        ({"head_dim": 0}, ["head_dim", "0"]),
        ({"head_dim": -16}, ["head_dim", "-16"]),
        ({"head_dim": 15}, ["15", "even"]),
        ({"hidden_size": 0}, ["hidden_size", "0"]),
        ({"hidden_size": 0, "head_dim": None}, ["hidden size 0"]),
        ({"hidden_size": -64}, ["-64"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
        ({"num_hidden_layers": -1}, ["num_hidden_layers", "-1"]),
        ({"num_hidden_layers": 10**12}, ["num_hidden_layers", str(10**12)]),
        ({"vocab_size": 0}, ["vocab_size", "0"]),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, object], words: list[str]) -> None:
    with pytest.raises(CheckpointError) as caught:
        _spec(**changes)
    assert all(word in caught.value.message for word in words), caught.value.message


def test_gpt2_with_a_head_dim_of_its_own_is_refused_by_the_plan() -> None:
    """GPT-2's own code never reads head_dim: weights for another one are not a GPT-2."""
    config = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 1, "head_dim": 32}
    family, spec, _ = read_spec(config)
    stored = {
        "wte.weight": StoredTensor("wte.weight", "F32", (50257, 64), Path("x"), 0, 0),
        "h.0.attn.c_attn.weight": StoredTensor(
            "h.0.attn.c_attn.weight", "F32", (64, 192), Path("x"), 0, 0
        ),
    }
    with pytest.raises(CheckpointError, match=r"c_attn.weight is \[64, 192\], .* \[64, 384\]"):
        make_plan(
            parameter_shapes(spec),
            stored,
            family.rules(spec),
            num_layers=1,
            prefixes=family.prefixes,
        )
