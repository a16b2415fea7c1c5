"""F1: theta and scaling in both dialects of config.json, equal, contradicting and absent."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from llmcli.engine.load import Loaded, load_decoder
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.families import read_spec
from llmcli.spec import LinearScaling, Llama3Scaling, Rope
from tests.tiny import TINY, write_tiny

THETA = 500_000.0
OLD = {"rope_theta": THETA}
NEW = {"rope_theta": ..., "rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
BOTH = {"rope_theta": THETA, "rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
CONTRADICTING = {"rope_theta": 20.0, "rope_parameters": {"rope_theta": THETA}}
ABSENT = {"rope_theta": ...}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _read(**changes: Any) -> tuple[Rope, list[str]]:
    merged = {**TINY, **changes}
    config = {key: value for key, value in merged.items() if value is not ...}
    _, spec, warnings = read_spec(config)
    rope = spec.layers[0].rope
    assert rope is not None
    return rope, warnings


def _load(folder: Path, config: dict[str, Any]) -> Loaded:
    return load_decoder(write_tiny(folder, config=config), device="cpu", dtype="float32")


def _at_60(loaded: Loaded) -> Tensor:
    ids = torch.arange(61)[None] * 7 % 320
    with torch.inference_mode():
        logits: Tensor = loaded.decoder(ids)
    return logits


def test_same_weights_under_four_configs(tmp_path: Path) -> None:
    old, new, both, contradicting, absent = (
        _load(tmp_path / str(number), config)
        for number, config in enumerate([OLD, NEW, BOTH, CONTRADICTING, ABSENT])
    )
    for one, other in itertools.pairwise((old, new, both, contradicting)):
        assert torch.equal(_at_60(one), _at_60(other))
    assert old.warnings == new.warnings == both.warnings == ()
    assert any("20" in line and "500000 is used" in line for line in contradicting.warnings)
    # The comparison can tell: another theta is far off at position 60.
    assert (_at_60(old) - _at_60(absent)).abs().max() > 0.1 * _at_60(old).std()
    assert absent.spec.layers[0].rope == Rope(theta=10000.0, dim=16)


@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_scaling_reads_alike_in_both_dialects(key: str) -> None:
    settings = {key if name == "rope_type" else name: value for name, value in LLAMA3.items()}
    old = _read(rope_theta=THETA, rope_scaling=settings)
    new = _read(rope_theta=..., rope_parameters={**settings, "rope_theta": THETA})
    assert old == new
    rope, warnings = old
    assert warnings == []
    assert rope.theta == THETA
    assert rope.scaling == Llama3Scaling(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=64
    )


def test_both_spellings_of_the_kind_at_once() -> None:
    rope, warnings = _read(rope_scaling={"type": "linear", "rope_type": "linear", "factor": 2})
    assert (rope.scaling, warnings) == (LinearScaling(2.0), [])


@pytest.mark.parametrize("scaling", [None, {"rope_type": "default"}, {"type": "default"}])
def test_no_scaling(scaling: dict[str, Any] | None) -> None:
    rope, warnings = _read(rope_scaling=scaling)
    assert (rope.scaling, warnings) == (None, [])


def test_nested_wins_over_a_leftover_rope_scaling_and_says_so() -> None:
    nested = {"rope_type": "default", "rope_theta": THETA}
    rope, warnings = _read(rope_parameters=nested, rope_scaling={"type": "linear", "factor": 2.0})
    assert rope.scaling is None
    assert any("rope_parameters" in line and "rope_scaling" in line for line in warnings)


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", "su", "", None, 3])
def test_scaling_that_is_not_implemented_is_refused_by_name(kind: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        _read(rope_scaling={"rope_type": kind or "", "factor": 4.0})
    assert repr(kind or "") in caught.value.message


@pytest.mark.parametrize(
    ("scaling", "word"),
    [
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "linear", "factor": 0.5}, "0.5"),
        ({"rope_type": "linear", "factor": "2"}, "'2'"),
        ({"rope_type": "linear", "factor": float("nan")}, "nan"),
        ({"rope_type": "linear", "factor": True}, "True"),
        ({**LLAMA3, "low_freq_factor": None}, "low_freq_factor"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "high_freq_factor"),
        ({**LLAMA3, "original_max_position_embeddings": 0}, "original_max_position_embeddings"),
        ("linear", "linear"),
        ([], "[]"),
    ],
)
def test_incomplete_scaling_is_refused(scaling: object, word: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        _read(rope_scaling=scaling)
    assert word in caught.value.message


@pytest.mark.parametrize(
    "theta", [0, -1.0, float("inf"), "1e4", True, pytest.param(10**400, id="huge")]
)
def test_impossible_theta_is_refused(theta: object) -> None:
    with pytest.raises(CheckpointError, match="rope_theta"):
        _read(rope_theta=theta)


def test_unread_nested_key_is_named() -> None:
    _, warnings = _read(rope_scaling={"rope_type": "linear", "factor": 2.0, "mscale": 1.0})
    assert any("mscale" in line and "rope_scaling" in line for line in warnings)
