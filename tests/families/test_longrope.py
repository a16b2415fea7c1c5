"""LongRoPE's switch inside a reply, and the base of dynamic NTK: cache on equals cache off."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import pytest
import torch

from llmcli.cache import CacheKind, make_cache
from llmcli.engine.load import Loaded
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.families import read_spec
from llmcli.generation.stepper import Stepper
from llmcli.spec import DynamicScaling, LongRopeScaling, Rope, YarnScaling
from tests.families.rows import llama, phi3
from tests.oracle import Oracle, Row, assert_close, build
from tests.tiny import TINY

ORIGINAL = 16
cache_kinds = pytest.mark.parametrize("kind", get_args(CacheKind))


@pytest.fixture(scope="module")
def longrope(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    config = partial(
        phi3._config,
        scaling=phi3.longrope(8),
        original_max_position_embeddings=ORIGINAL,
        max_position_embeddings=64,
    )
    return build(Row(name="longrope-switch", config=config), tmp_path_factory.mktemp("longrope"))


@pytest.mark.parametrize("prompt", [14, 15, 16, 17])
@cache_kinds
def test_switch_inside_a_reply(longrope: Oracle, kind: CacheKind, prompt: int) -> None:
    """Each step is transformers' run without a cache at that length."""
    decoder, ids = longrope.loaded.decoder, longrope.ids
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    for start, stop in [(0, prompt), *((at, at + 1) for at in range(prompt, prompt + 6))]:
        ours = stepper.feed(ids[:, start:stop])[0]
        with torch.inference_mode():
            theirs = longrope.model(ids[:, :stop], use_cache=False).logits[0, -1]
        assert_close(ours, theirs)


def test_switch_is_told_apart(longrope: Oracle) -> None:
    """The test above can fail: the two lists give unlike logits at the same length."""
    decoder, ids = longrope.loaded.decoder, longrope.ids[:, :ORIGINAL]
    with torch.inference_mode():
        short, long = decoder(ids, regime=(0,)), decoder(ids, regime=(1,))
    assert (short - long).abs().max() > 0.1 * short.std()


@cache_kinds
def test_rewind_across_the_switch(longrope: Oracle, kind: CacheKind) -> None:
    decoder, ids = longrope.loaded.decoder, longrope.ids
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    stepper.feed(ids[:, :20])
    stepper.rewind(8)
    ours = stepper.feed(ids[:, 12:14])[0]
    with torch.inference_mode():
        assert_close(ours, longrope.model(ids[:, :14], use_cache=False).logits[0, -1])


# dynamic NTK


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    config = partial(llama._config, scaling=scaling, max_position_embeddings=16)
    return build(Row(name="dynamic", config=config), tmp_path_factory.mktemp("dynamic")).loaded


@cache_kinds
def test_dynamic_base_follows_the_planned_length(dynamic: Loaded, kind: CacheKind) -> None:
    """Cache on is cache off, at every step of a run that is planned beyond the original length."""
    decoder = dynamic.decoder
    ids = torch.arange(24)[None] * 7 % 320
    regime = decoder.spec.regime(24, 24)
    stepper = Stepper(decoder, make_cache(kind, decoder.spec), planned=24)
    for start, stop in [(0, 12), *((at, at + 1) for at in range(12, 24))]:
        with torch.inference_mode():
            expected = decoder(ids[:, :stop], regime=regime)[0, -1]
        assert_close(stepper.feed(ids[:, start:stop])[0], expected)


@cache_kinds
def test_dynamic_run_beyond_its_plan_is_computed_anew(dynamic: Loaded, kind: CacheKind) -> None:
    decoder = dynamic.decoder
    ids = torch.arange(20)[None] * 7 % 320
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    for start, stop in [(0, 15), *((at, at + 1) for at in range(15, 20))]:
        with torch.inference_mode():
            expected = decoder(ids[:, :stop])[0, -1]
        assert_close(stepper.feed(ids[:, start:stop])[0], expected)


def test_dynamic_leaves_nothing_for_the_next_run(dynamic: Loaded) -> None:
    decoder, ids = dynamic.decoder, torch.arange(24)[None] * 7 % 320
    with torch.inference_mode():
        before = decoder(ids[:, :5])
        stretched = decoder(ids[:, :5], regime=decoder.spec.regime(24, 24))
        after = decoder(ids[:, :5])
    assert torch.equal(before, after)
    assert (before - stretched).abs().max() > 0.05 * before.std()


# what the configs say


def _rope(**changes: Any) -> tuple[Rope, list[str]]:
    _, spec, warnings = read_spec({**TINY, **changes})
    rope = spec.layers[0].rope
    assert rope is not None
    return rope, warnings


def _phi3(scaling: dict[str, Any] | None, **changes: Any) -> tuple[Rope, list[str]]:
    config = {**TINY, "model_type": "phi3", "max_position_embeddings": 64}
    return _rope(**{**config, "rope_scaling": scaling, **changes})


_LISTS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


@pytest.mark.parametrize("kind", ["su", "longrope", "yarn"])
def test_names_of_longrope_in_phi3_files(kind: str) -> None:
    rope, warnings = _phi3({"type": kind, **_LISTS}, original_max_position_embeddings=16)
    assert rope.scaling == LongRopeScaling(
        short=(1.0,) * 8,
        long=(2.0,) * 8,
        original_max_positions=16,
        attention_factor=pytest.approx(1.5**0.5),  # sqrt(1 + ln 4 / ln 16)
    )
    assert warnings == []


def test_original_length_on_top_inside_and_nowhere() -> None:
    inside = {"type": "su", **_LISTS, "original_max_position_embeddings": 16}
    assert _phi3(inside) == _phi3({"type": "su", **_LISTS}, original_max_position_embeddings=16)
    rope, warnings = _phi3(inside, original_max_position_embeddings=32)
    assert isinstance(rope.scaling, LongRopeScaling)
    assert rope.scaling.original_max_positions == 32
    assert any("16" in line and "32" in line for line in warnings)
    rope, _ = _phi3({"type": "su", **_LISTS})
    assert isinstance(rope.scaling, LongRopeScaling)
    assert rope.scaling.original_max_positions == 4096  # as transformers has it for phi3


@pytest.mark.parametrize(
    "lists",
    [
        {"short_factor": [1.0] * 7, "long_factor": [2.0] * 8},
        {"short_factor": [1.0] * 8, "long_factor": [2.0] * 9},
        {"short_factor": [1.0] * 8},
        {"short_factor": "1", "long_factor": [2.0] * 8},
        {"short_factor": [0.0] * 8, "long_factor": [2.0] * 8},
    ],
)
def test_lists_that_do_not_fit_are_refused(lists: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="_factor"):
        _phi3({"type": "su", **lists})


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, 1.1386),
        ({"attention_factor": 1.0}, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 1.0}, 1.1386),
    ],
)
def test_yarn_attention_factors(settings: dict[str, Any], factor: float) -> None:
    rope, warnings = _rope(rope_scaling={"rope_type": "yarn", "factor": 4.0, **settings})
    assert isinstance(rope.scaling, YarnScaling)
    assert rope.scaling.attention_factor == pytest.approx(factor, abs=1e-4)
    assert warnings == []


def test_dynamic_stretches_from_max_position_embeddings() -> None:
    rope, _ = _rope(rope_scaling={"type": "dynamic", "factor": 2.0})
    assert rope.scaling == DynamicScaling(factor=2.0, original_max_positions=128)


def test_settings_for_kinds_of_layers_that_a_type_does_not_have_are_refused() -> None:
    nested = {"full_attention": {"rope_theta": 5.0}, "sliding_attention": {"rope_theta": 6.0}}
    with pytest.raises(UnsupportedError, match="full_attention and sliding_attention"):
        _rope(rope_parameters=nested)
