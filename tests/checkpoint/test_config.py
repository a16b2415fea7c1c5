"""The ledger: every key of a config is taken, expected, ignored by name, or warned about."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llmcli.checkpoint.config import ConfigReader
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.families import find_family, read_spec, supported
from tests.tiny import TINY


def test_unread_keys_are_named() -> None:
    reader = ConfigReader({"a": 1, "b": 2, "c\x1b": 3, "architectures": []})
    reader.integer("a")
    (warning,) = reader.finish()
    assert warning == "config.json has keys that llmcli does not know: b, c\\x1b"


def test_read_keys_are_not() -> None:
    reader = ConfigReader({"a": 1, "b": True, "c": 0.5, "d": "x", "e": {"f": 1}, "g": None})
    reader.integer("a")
    reader.flag("b")
    reader.number("c")
    reader.choice("d", {"x": 1})
    section = reader.section("e")
    assert section is not None
    section.integer("f")
    reader.absorb(section)
    reader.ignore(["g"])
    assert reader.finish() == []


def test_unread_keys_of_a_section_say_where() -> None:
    reader = ConfigReader({"e": {"f": 1, "g": 2}})
    section = reader.section("e")
    assert section is not None
    section.integer("f")
    reader.absorb(section)
    (warning,) = reader.finish()
    assert warning == "config.json: e has keys that llmcli does not know: g"


def test_null_is_absent_but_present_to_has() -> None:
    reader = ConfigReader({"a": None})
    assert reader.integer("a", 5) == 5
    assert reader.number("a", 0.5) == 0.5
    assert reader.flag("a", True) is True
    assert reader.choice("a", {"x": 1}, "x") == 1
    assert reader.section("a") is None
    assert reader.has("a")
    assert not reader.has("b")


def test_required() -> None:
    for values in ({}, {"a": None}):
        with pytest.raises(CheckpointError, match=r"config\.json .*\ba\b"):
            ConfigReader(values).integer("a")


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("integer", ["5", 5.5, True, [5], {}, math.nan, math.inf]),
        ("number", ["5", True, [5], math.nan, math.inf, -math.inf, 10**400]),
        ("flag", [0, 1, "true", [], 1.0]),
        ("section", [5, "x", [], True]),
    ],
)
def test_mistyped(method: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(CheckpointError) as caught:
            getattr(ConfigReader({"key\n": value}), method)("key\n")
        assert "key" in caught.value.message


def test_whole_floats_are_integers() -> None:
    value = ConfigReader({"a": 64.0}).integer("a")
    assert (value, type(value)) == (64, int)


@pytest.mark.parametrize("value", [1, 0, "False", None, [False]])
def test_violated_expectation_is_refused_by_name(value: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        ConfigReader({"parallel": value}).expect("parallel", False)
    assert "parallel" in caught.value.message
    assert repr(value) in caught.value.message
    assert "False" in caught.value.message


def test_met_or_absent_expectation() -> None:
    for values in ({}, {"a": False}, {"a": None}):
        reader = ConfigReader(values)
        reader.expect("a", False, None)
        assert reader.finish() == []


# as the families use it


def test_unread_key_of_a_real_config_warns_by_name() -> None:
    _, _, warnings = read_spec({**TINY, "attn_logit_softcapping": 50.0, "sliding_window": 4})
    assert len(warnings) == 1
    assert "attn_logit_softcapping, sliding_window" in warnings[0]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({**TINY, "rope_interleaved": True}, "rope_interleaved"),
        ({**TINY, "hidden_act": "mish"}, "hidden_act"),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "gpt2", "activation_function": "mish"}, "activation_function"),
    ],
)
def test_what_a_family_does_not_implement_is_refused_by_name(
    config: dict[str, Any], key: str
) -> None:
    with pytest.raises(UnsupportedError, match=key):
        read_spec(config)


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers"])
def test_required_sizes_have_no_default(key: str) -> None:
    config = {name: value for name, value in TINY.items() if name != key}
    with pytest.raises(CheckpointError, match=key):
        read_spec(config)


def test_null_bookkeeping_does_not_warn() -> None:
    quiet = {"quantization_config": None, "use_cache": True, "rope_scaling": None}
    assert read_spec({**TINY, **quiet})[2] == []


# model_type


def test_unsupported_type_lists_the_supported() -> None:
    with pytest.raises(UnsupportedError) as caught:
        find_family({"model_type": "mamba\x1b"})
    assert "mamba\\x1b" in caught.value.message
    assert all(kind in caught.value.message for kind in supported())
    assert {"llama", "gpt2"} <= set(supported())


def test_near_miss_is_suggested() -> None:
    with pytest.raises(UnsupportedError) as caught:
        find_family({"model_type": "lama"})
    assert "llama" in caught.value.hint


@pytest.mark.parametrize("kind", [None, 5, ["llama"], {}, ""])
def test_no_type(kind: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        find_family({"model_type": kind})
    assert "model_type" in caught.value.message


def test_type_is_taken_from_the_config_alone() -> None:
    with pytest.raises(CheckpointError, match="names no model_type"):
        find_family({"architectures": ["LlamaForCausalLM"], "_name_or_path": "llama"})


@pytest.mark.parametrize("value", [False, None])
def test_switches_that_are_off_need_no_word(value: bool | None) -> None:
    names = ("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder", "pruned_heads")
    assert ConfigReader(dict.fromkeys(names, value)).finish() == []


def test_switches_that_are_on_are_told_or_refused() -> None:
    (warning,) = ConfigReader({"add_cross_attention": True}).finish()
    assert "add_cross_attention" in warning
    with pytest.raises(UnsupportedError, match="is_encoder_decoder to True"):
        ConfigReader({"is_encoder_decoder": True}).finish()
