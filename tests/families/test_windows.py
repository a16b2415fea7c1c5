"""Whose layers slide: absent keys, nulls, flags, layer types, patterns; contradictions refused."""

from __future__ import annotations

from typing import Any

import pytest

from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.families import read_spec
from llmcli.spec import DecoderSpec
from tests.tiny import TINY

SLIDING, FULL = "sliding_attention", "full_attention"


def _spec(model_type: str, layers: int = 2, **changes: Any) -> DecoderSpec:
    config = {**TINY, "model_type": model_type, "num_hidden_layers": layers, **changes}
    return read_spec(config)[1]


def _windows(model_type: str, layers: int = 2, **changes: Any) -> list[int | None]:
    return [layer.window for layer in _spec(model_type, layers, **changes).layers]


@pytest.mark.parametrize(
    ("model_type", "absent"),
    [("mistral", 4096), ("mixtral", None), ("phi3", None), ("starcoder2", None)],
)
def test_absent_is_the_types_default_and_null_is_none(model_type: str, absent: int | None) -> None:
    assert _windows(model_type) == [absent, absent]
    assert _windows(model_type, sliding_window=None) == [None, None]
    assert _windows(model_type, sliding_window=5) == [5, 5]


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"use_sliding_window": False, "max_window_layers": 1}, [None, None, None]),
        ({"max_window_layers": 1}, [None, None, None]),
        ({"use_sliding_window": True, "max_window_layers": 0}, [4, 4, 4]),
        ({"use_sliding_window": True, "max_window_layers": 1}, [None, 4, 4]),
        ({"use_sliding_window": True, "max_window_layers": 3}, [None, None, None]),
        ({"use_sliding_window": True}, [None, None, None]),
        (
            {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": None},
            [None, None, None],
        ),
        (
            {
                "use_sliding_window": True,
                "max_window_layers": 3,
                "layer_types": [SLIDING, FULL, FULL],
            },
            [4, None, None],
        ),
        ({"use_sliding_window": False, "layer_types": [FULL] * 3}, [None, None, None]),
    ],
)
def test_qwen(model_type: str, changes: dict[str, Any], windows: list[int | None]) -> None:
    assert _windows(model_type, 3, **{"sliding_window": 4, **changes}) == windows


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("qwen2", {"use_sliding_window": False, "layer_types": [SLIDING, FULL]}),
        ("gemma2", {"sliding_window": None}),
        ("gemma2", {"layer_types": [FULL]}),
        ("gemma2", {"layer_types": "full_attention"}),
        ("smollm3", {"no_rope_layers": [1]}),
        ("smollm3", {"no_rope_layers": [1, 2]}),
        ("mistral", {"sliding_window": 0}),
        ("mistral", {"sliding_window": "8"}),
        ("gemma3_text", {"sliding_window_pattern": 0}),
    ],
)
def test_contradictions_are_refused(model_type: str, changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError) as caught:
        _spec(model_type, **changes)
    assert any(
        word in caught.value.message
        for word in ("sliding_window", "layer_types", "no_rope_layers", "window of 0")
    )


def test_other_types_of_layers_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="chunked_attention"):
        _spec("gemma2", layer_types=["chunked_attention", FULL])


def test_gemma2_slides_first_and_every_other() -> None:
    assert _windows("gemma2", 4, sliding_window=4) == [4, None, 4, None]
    types = {"layer_types": [FULL, FULL, SLIDING, FULL]}
    assert _windows("gemma2", 4, sliding_window=4, **types) == [None, None, 4, None]


def test_gemma3_slides_but_for_one_of_six_and_has_two_bases() -> None:
    spec = _spec("gemma3_text", 7, sliding_window=4)
    assert [layer.window for layer in spec.layers] == [4, 4, 4, 4, 4, None, 4]
    thetas = [layer.rope and layer.rope.theta for layer in spec.layers]
    assert thetas == [1e4] * 5 + [1e4] + [1e4]  # TINY's own for the full ones
    spec = _spec("gemma3_text", 2, sliding_window_pattern=2, rope_theta=5e5, rope_local_base_freq=7)
    assert [layer.rope and layer.rope.theta for layer in spec.layers] == [7.0, 5e5]


def test_gemma3_scales_the_full_layers_alone() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    spec = _spec("gemma3_text", 2, sliding_window_pattern=2, rope_scaling=scaling)
    local, full = (layer.rope for layer in spec.layers)
    assert local is not None
    assert full is not None
    assert local.scaling is None
    assert full.scaling is not None


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text"])
def test_attention_both_ways_is_refused(model_type: str) -> None:
    with pytest.raises(UnsupportedError, match="use_bidirectional_attention"):
        _spec(model_type, use_bidirectional_attention=True)


def test_smollm3_turns_three_of_four() -> None:
    spec = _spec("smollm3", 5)
    assert [layer.rope is not None for layer in spec.layers] == [True, True, True, False, True]
    windows = _windows("smollm3", 4, use_sliding_window=True, sliding_window=6)
    assert windows == [None, None, None, 6]


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [
        *((name, True) for name in ("gemma2", "gemma3_text", "smollm3", "starcoder2", "cohere")),
        *((name, False) for name in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3")),
        *((name, False) for name in ("qwen3_moe", "granite", "olmo2", "stablelm", "phi")),
    ],
)
def test_head_is_tied_by_default_of_the_type(model_type: str, tied: bool) -> None:
    config = {key: value for key, value in TINY.items() if key != "tie_word_embeddings"}
    assert read_spec({**config, "model_type": model_type})[1].tie_embeddings is tied


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("gemma2", "query_pre_attn_scalar", 0),
        ("gemma3_text", "query_pre_attn_scalar", -4),
        ("granite", "logits_scaling", 0),
        ("smollm3", "no_rope_layer_interval", 0),
        ("qwen3_moe", "decoder_sparse_step", 0),
        ("qwen3_moe", "mlp_only_layers", [0.5]),
        ("mixtral", "num_experts_per_tok", 9),
        ("mixtral", "num_experts_per_tok", 0),
    ],
)
def test_impossible_numbers_are_refused(model_type: str, key: str, value: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        _spec(model_type, **{key: value})
    assert key in caught.value.message or "experts" in caught.value.message
