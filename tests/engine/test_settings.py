"""Flag over file over built-in, without any checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from llmcli.engine.flags import Flags, check_flags
from llmcli.engine.settings import Settings, resolve_settings
from llmcli.errors import CheckpointError, UsageError


class Letters:
    """26 ids, one for each letter."""

    size = 26

    def find(self, text: str) -> int:
        if len(text) != 1 or not text.islower():
            raise UsageError(f"the text {text!r} is no single token")
        return ord(text) - ord("a")

    def name(self, id_: int) -> str:
        return chr(ord("a") + id_)


def resolve(flags: Flags | None = None, file: dict[str, Any] | None = None) -> Settings:
    return resolve_settings(flags or Flags(), file or {}, fresh_seed=7, vocabulary=Letters())


def used(flags: Flags | None = None, file: dict[str, Any] | None = None) -> dict[str, Any]:
    shown = resolve(flags, file).used
    return {name: (setting.value, setting.source) for name, setting in shown.items()}


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
    file = {"forced_eos_token_id": 4, "no_repeat_ngram_size": 0, "forced_bos_token_id": None}
    (warning,) = resolve(file=file).warnings
    assert "forced_eos_token_id=4" in warning
    assert "ngram" not in warning
    assert "bos" not in warning
    assert resolve(file={"encoder_repetition_penalty": 1}).warnings == ()
    for unmet in ({"num_beams": 3, "do_sample": True}, {"penalty_alpha": 0.5}):
        assert len(resolve(file=unmet).warnings) == 1


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p", "seed"])
def test_greedy_refuses_what_it_does_not_read(field: str) -> None:
    flags = Flags(strategy="greedy", **{field: 1})
    with pytest.raises(UsageError, match=field.replace("_", "-")):
        check_flags(flags)
    check_flags(Flags(strategy="sample", **{field: 1}))


@pytest.mark.parametrize(
    ("file", "strategy", "options"),
    [
        ({"num_beams": 3}, "beam", {"num_beams": 3}),
        ({"num_beams": 1}, "greedy", {}),
        (
            {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
            "beam",
            {"num_beam_groups": 2, "diversity_penalty": 0.5},
        ),
        (
            {"num_beams": 2, "length_penalty": 0, "early_stopping": True},
            "beam",
            {"length_penalty": 0.0, "early_stopping": "on"},
        ),
        ({"num_beams": 2, "early_stopping": "never"}, "beam", {"early_stopping": "never"}),
        ({"num_beams": 2, "early_stopping": False}, "beam", {"early_stopping": "off"}),
        ({"num_beams": 2, "do_sample": True}, "sample", {}),
        (
            {"penalty_alpha": 0.4, "top_k": 6},
            "contrastive",
            {"penalty_alpha": 0.4, "num_candidates": 6},
        ),
        ({"penalty_alpha": 0.4, "top_k": 6, "do_sample": True}, "sample", {}),
        ({"penalty_alpha": 0.0, "top_k": 6}, "greedy", {}),
        ({"dola_layers": "high"}, "dola", {"dola_layers": "high"}),
        ({"dola_layers": [0, 2]}, "dola", {"dola_layers": (0, 2)}),
        ({"guidance_scale": 1.5}, "greedy", {"guidance_scale": 1.5}),
    ],
    ids=str,
)
def test_strategies_of_the_file(
    file: dict[str, Any], strategy: str, options: dict[str, Any]
) -> None:
    settings = resolve(file=file)
    assert settings.strategy == strategy
    assert options.items() <= settings.options.items()
    source = "built-in" if strategy == "greedy" else "generation_config.json"
    assert settings.used["strategy"].source == source
    for key in options:
        assert settings.used[key].source == "generation_config.json"
    # A flag has the last word, on the strategy and on each value.
    assert resolve(Flags(strategy="sample"), file).strategy == "sample"
    assert resolve(Flags(temperature=0.0), file).strategy in ("greedy", strategy)


def test_a_flag_over_one_key_of_the_file_leaves_the_others() -> None:
    file = {"num_beams": 2, "length_penalty": 2.0, "num_beam_groups": 2}
    used_ = resolve(Flags(num_beams=6), file).used
    assert (used_["num_beams"].value, used_["num_beams"].source) == (6, "flag")
    assert used_["num_beam_groups"].source == used_["length_penalty"].source
    assert used_["length_penalty"].source == "generation_config.json"


def test_shaping_by_the_file() -> None:
    file = {
        "sequence_bias": [[[3], 1.5], [[4, 5], -2]],
        "bad_words_ids": [[7, 8]],
        "begin_suppress_tokens": [9],
        "min_length": 12,
        "stop_strings": "END",
    }
    settings = resolve(file=file)
    assert settings.params.sequence_bias == (((3,), 1.5), ((4, 5), -2.0))
    assert settings.params.bad_words == ((7, 8),)
    assert settings.params.begin_suppress == (9,)
    assert settings.params.min_length == 12
    assert settings.stop == ("END",)
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "file",
    [
        {"num_beams": 1.5},
        {"num_beams": -1},
        {"early_stopping": "maybe"},
        {"dola_layers": "middle"},
        {"dola_layers": []},
        {"penalty_alpha": 2, "top_k": 4},
        {"guidance_scale": -1},
        {"sequence_bias": [[[3]]]},
        {"sequence_bias": {"3": 1}},
        {"bad_words_ids": [3]},
        {"bad_words_ids": [[99]]},
        {"suppress_tokens": 3},
        {"begin_suppress_tokens": [-1]},
        {"min_length": -1},
        {"stop_strings": [""]},
    ],
    ids=str,
)
def test_wrong_values_of_the_newer_keys(file: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve(file=file)
    assert "generation_config.json" in caught.value.message
    assert caught.value.hint


def test_a_draft_model_means_speculative_decoding() -> None:
    assert used(Flags(draft_model="x"))["strategy"] == ("speculative", "flag")
    assert used(Flags(draft_model="x"))["draft_model"] == ("x", "flag")
    assert resolve(Flags(draft_model="x", top_p=0.5)).sampling
    with pytest.raises(UsageError, match="needs --draft-model"):
        check_flags(Flags(strategy="speculative"))
    with pytest.raises(UsageError, match=r"greedy \(flag\) does not read --draft-model"):
        check_flags(Flags(strategy="greedy", draft_model="x"))


def test_a_negative_prompt_needs_a_scale() -> None:
    flags = Flags(negative_prompt="n")
    with pytest.raises(UsageError, match="no effect at guidance-scale 1"):
        resolve(flags)
    told = used(flags, {"guidance_scale": 2})
    assert told["negative_prompt"] == ("n", "flag")
    assert told["guidance_scale"] == (2.0, "generation_config.json")
