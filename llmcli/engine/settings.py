"""What a run really uses: flag over generation_config.json over built-in, key by key.

Must not know torch, files or terminals: it gets parsed values and returns values with sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError, UsageError
from llmcli.generation.params import SAMPLING_KEYS, SamplingParams

StrategyName = Literal["greedy", "sample"]
Source = Literal["flag", "generation_config.json", "built-in"]

BUILT_IN_MAX_NEW_TOKENS = 256

# Flags that, given without --strategy, ask for sampling.
_ASK_FOR_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
_FROM_FILE = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens")

_HUGE = 2**63

# Keys of generation_config.json that change the text but are not implemented, and their neutral
# values. `max_length` is left out: transformers writes its own default of it into many files.
_NOT_IMPLEMENTED: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0, 0.0),
    "dola_layers": (),
    "typical_p": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1, 1.0),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "sequence_bias": ({}, []),
    "guidance_scale": (1, 1.0),
    "stop_strings": ([],),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the user gave; None where nothing was given (a 0 is given)."""

    strategy: StrategyName | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value and where it came from."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Settings:
    """`used` holds every setting that this run reads, by name, in a fixed order."""

    strategy: StrategyName
    params: SamplingParams
    max_new_tokens: int
    used: Mapping[str, Setting]
    warnings: tuple[str, ...]


def check_flags(flags: Flags) -> None:
    """Raise UsageError for values out of range, before anything is loaded."""
    given = {key: getattr(flags, key) for key in SAMPLING_KEYS}
    SamplingParams(**{key: value for key, value in given.items() if value is not None})
    if flags.max_new_tokens is not None and flags.max_new_tokens < 0:
        raise UsageError(
            f"max-new-tokens is {flags.max_new_tokens}; it must be at least 0",
            hint="0 generates nothing",
        )
    if flags.strategy == "greedy":
        _refuse_unread(flags, Setting("greedy", "flag"))


def resolve_settings(flags: Flags, file: Mapping[str, Any], *, fresh_seed: int) -> Settings:
    """Merge the flags, a parsed generation_config.json and the built-in values.

    `fresh_seed` is used where sampling runs without a seed, so that a run can be repeated.
    Raises UsageError for flags that contradict each other or are out of range, CheckpointError
    for values in the file that are of the wrong kind or out of range.
    """
    check_flags(flags)
    from_file = _read_file(file, flags)
    merged = {key: _pick(key, flags, from_file) for key in _FROM_FILE}
    strategy = _strategy(flags, file, merged)
    _refuse_unread(flags, strategy)
    if flags.seed is not None:
        merged["seed"] = Setting(flags.seed, "flag")
    else:
        merged["seed"] = Setting(fresh_seed, "built-in")
    max_new_tokens = merged.pop("max_new_tokens")
    params = _params(merged)
    read = SAMPLING_KEYS if strategy.value == "sample" else ("repetition_penalty",)
    used = {
        "strategy": strategy,
        "max_new_tokens": max_new_tokens,
        **{key: merged[key] for key in SAMPLING_KEYS if key in read},
    }
    return Settings(strategy.value, params, max_new_tokens.value, used, _unmet(file))


def _read_file(file: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """The file's own values of the keys that no flag gives; null is as good as absent."""
    found: dict[str, Any] = {}
    if flags.strategy is None and not isinstance(file.get("do_sample"), bool | None):
        _bad_file("do_sample", file["do_sample"], "true or false")
    for key in _FROM_FILE:
        value = file.get(key)
        if value is None or getattr(flags, key) is not None:
            continue
        whole = key in ("top_k", "max_new_tokens")
        if isinstance(value, bool) or not isinstance(value, int | float):
            _bad_file(key, value, "a number")
        # Also keeps integers that no float can hold out of the float arithmetic below.
        if not -_HUGE < value < _HUGE:
            _bad_file(key, value, "a number of sensible size")
        if whole and value != int(value):
            _bad_file(key, value, "a whole number")
        if key == "max_new_tokens" and value < 0:
            _bad_file(key, value, "a number from 0 up")
        found[key] = int(value) if whole else float(value)
    # Some files write -1 for "off".
    if found.get("top_k", 0) < 0:
        found["top_k"] = 0
    try:
        SamplingParams(**{k: v for k, v in found.items() if k in SAMPLING_KEYS})
    except UsageError as error:
        raise CheckpointError(
            f"generation_config.json: {error.message}",
            hint="give the value as a flag, or correct the file",
        ) from error
    return found


def _bad_file(key: str, value: object, wanted: str) -> NoReturn:
    raise CheckpointError(
        f"generation_config.json sets {key} to {printable(repr(value))}, not to {wanted}",
        hint="give the value as a flag, or correct the file",
    )


def _pick(key: str, flags: Flags, from_file: Mapping[str, Any]) -> Setting:
    given = getattr(flags, key)
    if given is not None:
        return Setting(given, "flag")
    if key in from_file:
        return Setting(from_file[key], "generation_config.json")
    if key == "max_new_tokens":
        return Setting(BUILT_IN_MAX_NEW_TOKENS, "built-in")
    return Setting(getattr(SamplingParams(), key), "built-in")


def _strategy(flags: Flags, file: Mapping[str, Any], merged: Mapping[str, Setting]) -> Setting:
    """Temperature 0 is greedy whatever else is set; else the flag, then the file's do_sample."""
    if flags.temperature == 0:
        return Setting("greedy", "flag")
    asked = any(getattr(flags, key) is not None for key in _ASK_FOR_SAMPLING)
    if flags.strategy is not None:
        chosen = Setting(flags.strategy, "flag")
    elif asked:
        chosen = Setting("sample", "flag")
    elif file.get("do_sample") is True:
        chosen = Setting("sample", "generation_config.json")
    else:
        return Setting("greedy", "built-in")
    if chosen.value == "sample" and merged["temperature"].value == 0:
        return Setting("greedy", merged["temperature"].source)
    return chosen


def _refuse_unread(flags: Flags, strategy: Setting) -> None:
    if strategy.value != "greedy" or flags.temperature == 0:
        return
    unread = [
        f"--{key.replace('_', '-')}"
        for key in (*_ASK_FOR_SAMPLING, "seed")
        if getattr(flags, key) is not None
    ]
    if unread:
        raise UsageError(
            f"strategy greedy ({strategy.source}) does not read {', '.join(unread)}",
            hint=f"leave {'it' if len(unread) == 1 else 'them'} out, or use --strategy sample",
        )


def _params(merged: Mapping[str, Setting]) -> SamplingParams:
    return SamplingParams(**{key: merged[key].value for key in SAMPLING_KEYS})


def _unmet(file: Mapping[str, Any]) -> tuple[str, ...]:
    asked = [
        f"{key}={printable(repr(file[key]), 40)}"
        for key, neutral in _NOT_IMPLEMENTED.items()
        if file.get(key) is not None and file[key] not in neutral
    ]
    if not asked:
        return ()
    return (f"generation_config.json asks for what llmcli does not do: {', '.join(asked)}",)
