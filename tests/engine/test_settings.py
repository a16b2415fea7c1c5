"""Flag over file over built-in, without any checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from llmcli.engine.settings import Flags, check_flags, resolve_settings
from llmcli.errors import CheckpointError, UsageError


def used(flags: Flags | None = None, file: dict[str, Any] | None = None) -> dict[str, Any]:
    settings = resolve_settings(flags or Flags(), file or {}, fresh_seed=7)
    return {name: (setting.value, setting.source) for name, setting in settings.used.items()}


def test_nothing_given() -> None:
    assert used() == {
        "strategy": ("greedy", "built-in"),
        "max_new_tokens": (256, "built-in"),
        "repetition_penalty": (1.0, "built-in"),
    }


def test_a_fresh_seed_only_where_one_samples() -> None:
    assert used(Flags(temperature=1.0))["seed"] == (7, "built-in")
    assert used(Flags(temperature=1.0, seed=0))["seed"] == (0, "flag")
    assert "seed" not in used()
    assert "seed" not in used(Flags(temperature=0.0))


def test_zero_is_given_and_null_is_not() -> None:
    file = {"top_k": 50, "top_p": None, "max_new_tokens": 9, "do_sample": True}
    told = used(Flags(top_k=0, max_new_tokens=0), file)
    assert told["top_k"] == (0, "flag")
    assert told["max_new_tokens"] == (0, "flag")
    assert told["top_p"] == (1.0, "built-in")


@pytest.mark.parametrize("strategy", [None, "greedy", "sample"])
@pytest.mark.parametrize("do_sample", [None, False, True])
@pytest.mark.parametrize("temperature", [None, 0.0, 0.5])
def test_strategy_of_every_mixture(
    strategy: Any, do_sample: bool | None, temperature: float | None
) -> None:
    flags = Flags(strategy=strategy, temperature=temperature)
    if strategy == "greedy" and temperature == 0.5:
        with pytest.raises(UsageError, match=r"strategy greedy \(flag\) does not read --temp"):
            used(flags, {"do_sample": do_sample})
        return
    expected = strategy or ("sample" if temperature or do_sample else "greedy")
    value, source = used(flags, {"do_sample": do_sample})["strategy"]
    assert value == ("greedy" if temperature == 0 else expected)
    by_file = strategy is None and temperature is None and do_sample
    nothing = strategy is None and temperature is None and not do_sample
    assert source == ("generation_config.json" if by_file else "built-in" if nothing else "flag")


@pytest.mark.parametrize("key", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty"])
@pytest.mark.parametrize("value", ["1", True, [1], float("nan"), float("-inf"), 10**400, -2.5])
def test_values_of_the_file_that_make_no_sense(key: str, value: Any) -> None:
    with pytest.raises(CheckpointError) as caught:
        used(file={key: value})
    assert key.replace("_", "") in caught.value.message.replace("-", "").replace("_", "")
    assert caught.value.hint
    # A flag makes the file's value irrelevant.
    assert used(Flags(**{key: 1}), {key: value})[key] == (1, "flag")


def test_what_is_not_implemented_is_told_once_and_neutral_values_are_not() -> None:
    file = {"num_beams": 4, "no_repeat_ngram_size": 0, "typical_p": 1.0, "guidance_scale": None}
    (warning,) = resolve_settings(Flags(), file, fresh_seed=0).warnings
    assert "num_beams=4" in warning
    assert "ngram" not in warning
    assert resolve_settings(Flags(), {"num_beams": 1}, fresh_seed=0).warnings == ()


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p", "seed"])
def test_greedy_refuses_what_it_does_not_read(field: str) -> None:
    flags = Flags(strategy="greedy", **{field: 1})
    with pytest.raises(UsageError, match=field.replace("_", "-")):
        check_flags(flags)
    check_flags(Flags(strategy="sample", **{field: 1}))
