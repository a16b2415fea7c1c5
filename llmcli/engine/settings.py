"""What a run really uses: flag over generation_config.json over built-in, key by key.

Must not know torch, files or terminals: it gets parsed values and returns values with sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError, UsageError
from llmcli.generation.params import SAMPLING_KEYS, SAMPLING_ONLY, SamplingParams
from llmcli.generation.reads import StrategyName, reads

Source = Literal["flag", "generation_config.json", "built-in"]
EarlyStopping = Literal["on", "off", "never"]

BUILT_IN_MAX_NEW_TOKENS = 256

# The settings of single strategies that flags reach, with the values that hold without a flag.
_OPTIONS: Mapping[str, Any] = {
    "num_beams": 4,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "length_penalty": 1.0,
    "early_stopping": "off",
    "num_draft_tokens": 5,
    "penalty_alpha": 0.6,
    "num_candidates": 4,
}
# Given as ids, which only a tokenizer can make of text.
_BY_ID = ("logit_bias", "suppress")
_KEYS = tuple(key for key in SAMPLING_KEYS if key not in _BY_ID)

# Flags that, given without --strategy, ask for sampling: those without which it changes nothing.
_ASK_FOR_SAMPLING = tuple(
    key for key in SAMPLING_ONLY if key not in ("seed", "xtc_threshold", "mirostat_eta")
)
# generation_config.json's names of the settings that it may hold.
_FROM_FILE: Mapping[str, str] = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "epsilon_cutoff": "epsilon_cutoff",
    "eta_cutoff": "eta_cutoff",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "min_new_tokens": "min_new_tokens",
    "max_new_tokens": "max_new_tokens",
}
_WHOLE = ("top_k", "no_repeat_ngram", "min_new_tokens", "max_new_tokens")

_HUGE = 2**63

# Keys of generation_config.json that change the text but are not implemented, and their neutral
# values. `max_length` is left out: transformers writes its own default of it into many files.
_NOT_IMPLEMENTED: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0, 0.0),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1, 1.0),
    "min_length": (0,),
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
    typical_p: float | None = None
    top_n_sigma: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    repetition_penalty: float | None = None
    repetition_last: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    no_repeat_ngram: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    min_new_tokens: int | None = None
    seed: int | None = None
    num_beams: int | None = None
    num_beam_groups: int | None = None
    diversity_penalty: float | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None
    num_draft_tokens: int | None = None
    penalty_alpha: float | None = None
    num_candidates: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value and where it came from."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Settings:
    """`used` holds every setting that this run reads, by name, in a fixed order.

    `sampling` tells a strategy that can draw or choose the likeliest which to do; `options` are
    the fields of StrategyOptions that flags reach.
    """

    strategy: StrategyName
    sampling: bool
    params: SamplingParams
    options: Mapping[str, Any]
    max_new_tokens: int
    used: Mapping[str, Setting]
    warnings: tuple[str, ...]


def check_flags(flags: Flags) -> None:
    """Raise UsageError for values out of range, before anything is loaded."""
    given = {key: getattr(flags, key) for key in _KEYS}
    SamplingParams(**{key: value for key, value in given.items() if value is not None})
    if flags.max_new_tokens is not None and flags.max_new_tokens < 0:
        raise UsageError(
            f"max-new-tokens is {flags.max_new_tokens}; it must be at least 0",
            hint="0 generates nothing",
        )
    if flags.strategy is not None:
        _refuse_unread(flags, Setting(flags.strategy, "flag"), sampling=_asks(flags))


def resolve_settings(flags: Flags, file: Mapping[str, Any], *, fresh_seed: int) -> Settings:
    """Merge the flags, a parsed generation_config.json and the built-in values.

    `fresh_seed` is used where sampling runs without a seed, so that a run can be repeated.
    Raises UsageError for flags that contradict each other or are out of range, CheckpointError
    for values in the file that are of the wrong kind or out of range.
    """
    check_flags(flags)
    from_file = _read_file(file, flags)
    merged = {key: _pick(key, flags, from_file) for key in (*_KEYS, *_OPTIONS, "max_new_tokens")}
    if flags.seed is None:
        merged["seed"] = Setting(fresh_seed, "built-in")
    strategy = _strategy(flags, file, merged)
    sampling = merged["temperature"].value != 0 and (
        strategy.value == "sample" or _asks(flags) or file.get("do_sample") is True
    )
    _refuse_unread(flags, strategy, sampling=sampling)
    read = reads(strategy.value, sampling=sampling)
    shown = [key for key in (*_KEYS, *_OPTIONS) if key in read and _worth_showing(key, merged)]
    used = {
        "strategy": strategy,
        "max_new_tokens": merged["max_new_tokens"],
        **{key: merged[key] for key in shown},
    }
    return Settings(
        strategy.value,
        sampling,
        SamplingParams(**{key: merged[key].value for key in _KEYS}),
        {key: merged[key].value for key in _OPTIONS if key in read},
        merged["max_new_tokens"].value,
        used,
        _unmet(file),
    )


def _worth_showing(key: str, merged: Mapping[str, Setting]) -> bool:
    """The best known settings always, the others where somebody set them."""
    known = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    return key in known or key in _OPTIONS or merged[key].source != "built-in"


def _asks(flags: Flags) -> bool:
    """Whether some flag makes no sense without sampling."""
    return flags.temperature != 0 and any(
        getattr(flags, key) is not None for key in _ASK_FOR_SAMPLING
    )


def _read_file(file: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """The file's own values of the keys that no flag gives; null is as good as absent."""
    found: dict[str, Any] = {}
    if flags.strategy is None and not isinstance(file.get("do_sample"), bool | None):
        _bad_file("do_sample", file["do_sample"], "true or false")
    for name, key in _FROM_FILE.items():
        value = file.get(name)
        if value is None or getattr(flags, key) is not None:
            continue
        whole = key in _WHOLE
        if isinstance(value, bool) or not isinstance(value, int | float):
            _bad_file(name, value, "a number")
        # Also keeps integers that no float can hold out of the float arithmetic below.
        if not -_HUGE < value < _HUGE:
            _bad_file(name, value, "a number of sensible size")
        if whole and value != int(value):
            _bad_file(name, value, "a whole number")
        if key == "max_new_tokens" and value < 0:
            _bad_file(name, value, "a number from 0 up")
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
    if key in _OPTIONS:
        return Setting(_OPTIONS[key], "built-in")
    return Setting(getattr(SamplingParams(), key), "built-in")


def _strategy(flags: Flags, file: Mapping[str, Any], merged: Mapping[str, Setting]) -> Setting:
    """The flag, else sampling where a flag or the file asks for it; temperature 0 is greedy."""
    if flags.strategy not in (None, "greedy", "sample"):
        return Setting(flags.strategy, "flag")
    if flags.temperature == 0:
        return Setting("greedy", "flag")
    if flags.strategy is not None:
        chosen = Setting(flags.strategy, "flag")
    elif _asks(flags):
        chosen = Setting("sample", "flag")
    elif file.get("do_sample") is True:
        chosen = Setting("sample", "generation_config.json")
    else:
        return Setting("greedy", "built-in")
    if chosen.value == "sample" and merged["temperature"].value == 0:
        return Setting("greedy", merged["temperature"].source)
    return chosen


def _refuse_unread(flags: Flags, strategy: Setting, *, sampling: bool) -> None:
    read = reads(strategy.value, sampling=sampling)
    # Temperature 0 is greedy whatever else is set, so sampling flags beside it are no mistake.
    forgiven = SAMPLING_ONLY if flags.temperature == 0 else ()
    unread = [
        f"--{key.replace('_', '-')}"
        for key in (*_KEYS, *_OPTIONS)
        if getattr(flags, key) is not None and key not in read and key not in forgiven
    ]
    if unread:
        drawn = all(getattr(flags, key) is None or key in read for key in _OPTIONS)
        other = (
            "--strategy sample" if strategy.value == "greedy" and drawn else "another --strategy"
        )
        raise UsageError(
            f"strategy {strategy.value} ({strategy.source}) does not read {', '.join(unread)}",
            hint=f"leave {'it' if len(unread) == 1 else 'them'} out, or use {other}",
        )


def _unmet(file: Mapping[str, Any]) -> tuple[str, ...]:
    asked = [
        f"{key}={printable(repr(file[key]), 40)}"
        for key, neutral in _NOT_IMPLEMENTED.items()
        if file.get(key) is not None and file[key] not in neutral
    ]
    if not asked:
        return ()
    return (f"generation_config.json asks for what llmcli does not do: {', '.join(asked)}",)


def unread(flags: Flags) -> tuple[str, ...]:
    """The settings given that the strategy of these flags, which must be named, does not read."""
    assert flags.strategy is not None
    read = reads(flags.strategy, sampling=_asks(flags)) | {"strategy", "max_new_tokens"}
    given = (one.name for one in fields(flags) if getattr(flags, one.name) is not None)
    return tuple(key for key in given if key not in read)
