"""What a run really uses: flag over generation_config.json over built-in, key by key.

Must not know torch, files or terminals: it gets parsed values and returns values with sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn

from llmcli.engine.file_settings import file_strategy, read_file, unmet
from llmcli.engine.named_tokens import (
    Vocabulary,
    check_tokens,
    parse_biases,
    parse_suppress,
    resolve_ids,
    told,
    told_biases,
)
from llmcli.errors import UsageError
from llmcli.generation.options import DolaLayers, EarlyStopping, StrategyOptions
from llmcli.generation.params import SAMPLING_KEYS, SAMPLING_ONLY, SamplingParams
from llmcli.generation.ranges import check_value
from llmcli.generation.reads import STRATEGY_NAMES, StrategyName, reads

Source = Literal["flag", "generation_config.json", "built-in"]

BUILT_IN_MAX_NEW_TOKENS = 256

# The settings of single strategies that flags reach, with the values that hold without a flag.
_OPTIONS: Mapping[str, Any] = {
    "guidance_scale": 1.0,
    "num_beams": 4,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "length_penalty": 1.0,
    "early_stopping": "off",
    "num_return": 1,
    "num_draft_tokens": 5,
    "penalty_alpha": 0.6,
    "num_candidates": 4,
    "dola_layers": "low",
}
# Flags of which the engine makes something else before a strategy reads it.
_MADE: Mapping[str, str] = {"negative_prompt": "negative_ids", "draft_model": "draft"}
_TOKENS = ("logit_bias", "suppress")

# Flags that, given without --strategy, ask for sampling: those without which it changes nothing.
_ASK_FOR_SAMPLING = tuple(
    key for key in SAMPLING_ONLY if key not in ("seed", "xtc_threshold", "mirostat_eta")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the user gave; None where nothing was given (a 0 is given).

    `logit_bias` and `suppress` name tokens as named_tokens.py reads them. `draft_model` and
    `negative_prompt` are the user's words; what they stand for the engine is given besides.
    """

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
    logit_bias: tuple[str, ...] | None = None
    suppress: tuple[str, ...] | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None
    num_beams: int | None = None
    num_beam_groups: int | None = None
    diversity_penalty: float | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None
    num_return: int | None = None
    draft_model: str | None = None
    num_draft_tokens: int | None = None
    penalty_alpha: float | None = None
    num_candidates: int | None = None
    dola_layers: DolaLayers | None = None


_FLAGS = tuple(one.name for one in fields(Flags))


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value and where it came from."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Settings:
    """`used` holds every setting that this run reads, by name, in a fixed order.

    `sampling` tells a strategy that can draw or choose the likeliest which to do; `options` are
    the fields of StrategyOptions that flags reach. `stop` are the stop strings of the file.
    """

    strategy: StrategyName
    sampling: bool
    params: SamplingParams
    options: Mapping[str, Any]
    max_new_tokens: int
    stop: tuple[str, ...]
    used: Mapping[str, Setting]
    warnings: tuple[str, ...]


def check_flags(flags: Flags) -> None:
    """Raise UsageError for values out of range, before anything is loaded."""
    SamplingParams(**_given(flags, [key for key in SAMPLING_KEYS if key not in _TOKENS]))
    for key, value in _given(flags, _OPTIONS).items():
        if isinstance(value, int | float):
            check_value(StrategyOptions, key, value)
    if flags.num_beams is not None:
        # What is not given here the file may give, and then it is checked again.
        StrategyOptions(
            num_beams=flags.num_beams,
            num_beam_groups=flags.num_beam_groups or 1,
            num_return=flags.num_return or 1,
        )
    parse_biases(flags.logit_bias or ())
    parse_suppress(flags.suppress or ())
    if flags.max_new_tokens is not None and flags.max_new_tokens < 0:
        raise UsageError(
            f"max-new-tokens is {flags.max_new_tokens}; it must be at least 0",
            hint="0 generates nothing",
        )
    if flags.negative_prompt is not None and flags.guidance_scale == 1:
        _no_effect()
    named = _named_strategy(flags)
    if named is not None:
        _refuse_unread(flags, Setting(named, "flag"), sampling=_asks(flags))
    if named == "speculative" and flags.draft_model is None:
        raise UsageError(
            "strategy speculative needs --draft-model",
            hint="--strategy prompt-lookup needs none",
        )


def resolve_settings(
    flags: Flags, file: Mapping[str, Any], *, fresh_seed: int, vocabulary: Vocabulary
) -> Settings:
    """Merge the flags, a parsed generation_config.json and the built-in values.

    `fresh_seed` is used where sampling runs without a seed, so that a run can be repeated.
    Raises UsageError for flags that contradict each other or are out of range, CheckpointError
    for values in the file that are of the wrong kind or out of range.
    """
    check_flags(flags)
    given = [key for key in _FLAGS if getattr(flags, key) is not None]
    from_file = read_file(file, given, size=vocabulary.size)
    keys = (*SAMPLING_KEYS, *_OPTIONS, "max_new_tokens")
    merged = {key: _pick(key, flags, from_file) for key in keys}
    if flags.seed is None:
        merged["seed"] = Setting(fresh_seed, "built-in")
    strategy = _strategy(flags, file, merged)
    sampling = merged["temperature"].value != 0 and (
        strategy.value == "sample" or _asks(flags) or file.get("do_sample") is True
    )
    _refuse_unread(flags, strategy, sampling=sampling)
    if flags.negative_prompt is not None and merged["guidance_scale"].value == 1:
        _no_effect()
    params = SamplingParams(
        **{
            **{key: merged[key].value for key in SAMPLING_KEYS},
            **_token_values(merged, flags, vocabulary),
        }
    )
    read = reads(strategy.value, sampling=sampling)
    return Settings(
        strategy.value,
        sampling,
        params,
        {key: merged[key].value for key in _OPTIONS if key in read},
        merged["max_new_tokens"].value,
        from_file.get("stop", ()),
        {"strategy": strategy, **_shown(flags, merged, read, params, vocabulary)},
        unmet(file),
    )


def _given(flags: Flags, keys: Iterable[str]) -> dict[str, Any]:
    values = {key: getattr(flags, key) for key in keys if key in _FLAGS}
    return {key: value for key, value in values.items() if value is not None}


def _token_values(
    merged: Mapping[str, Setting], flags: Flags, vocabulary: Vocabulary
) -> dict[str, Any]:
    """What the user named by text or id, as ids."""
    found: dict[str, Any] = {}
    if flags.logit_bias is not None:
        parsed = parse_biases(flags.logit_bias)
        ids = resolve_ids("--logit-bias", (named for named, _ in parsed), vocabulary)
        found["logit_bias"] = tuple(zip(ids, (bias for _, bias in parsed), strict=True))
    if flags.suppress is not None:
        found["suppress"] = resolve_ids("--suppress", parse_suppress(flags.suppress), vocabulary)
    suppressed = found.get("suppress", merged["suppress"].value)
    check_tokens(found.get("logit_bias", ()), suppressed, vocabulary)
    return found


def _shown(
    flags: Flags,
    merged: Mapping[str, Setting],
    read: frozenset[str],
    params: SamplingParams,
    vocabulary: Vocabulary,
) -> dict[str, Setting]:
    """Every setting that the run reads and that is worth telling, by name."""
    shown = {"max_new_tokens": merged["max_new_tokens"]}
    shown |= {
        key: merged[key]
        for key in (*SAMPLING_KEYS, *_OPTIONS)
        if key in read and _worth_showing(key, merged)
    }
    for key, value in (
        ("logit_bias", told_biases(dict(params.logit_bias), vocabulary)),
        ("suppress", told(params.suppress, vocabulary)),
        ("begin_suppress", told(params.begin_suppress, vocabulary)),
    ):
        if key in shown:
            shown[key] = Setting(value, merged[key].source)
    return shown | {key: Setting(value, "flag") for key, value in _given(flags, _MADE).items()}


def _worth_showing(key: str, merged: Mapping[str, Setting]) -> bool:
    """The best known settings always, the others where somebody set them."""
    known = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    own = key in _OPTIONS and key not in ("guidance_scale", "num_return")
    return key in known or own or merged[key].source != "built-in"


def _asks(flags: Flags) -> bool:
    """Whether some flag makes no sense without sampling."""
    return flags.temperature != 0 and any(
        getattr(flags, key) is not None for key in _ASK_FOR_SAMPLING
    )


def _pick(key: str, flags: Flags, from_file: Mapping[str, Any]) -> Setting:
    given = getattr(flags, key) if key in _FLAGS else None
    if given is not None:
        return Setting(given, "flag")
    if key in from_file:
        return Setting(from_file[key], "generation_config.json")
    if key == "max_new_tokens":
        return Setting(BUILT_IN_MAX_NEW_TOKENS, "built-in")
    if key in _OPTIONS:
        return Setting(_OPTIONS[key], "built-in")
    return Setting(getattr(SamplingParams(), key), "built-in")


def _named_strategy(flags: Flags) -> StrategyName | None:
    """The strategy that the flags name; a draft model names one too."""
    if flags.strategy is None and flags.draft_model is not None:
        return "speculative"
    return flags.strategy


def _strategy(flags: Flags, file: Mapping[str, Any], merged: Mapping[str, Setting]) -> Setting:
    """The flag, else what a flag or the file asks for; temperature 0 is greedy."""
    named = _named_strategy(flags)
    if named not in (None, "greedy", "sample"):
        return Setting(named, "flag")
    if flags.temperature == 0:
        return Setting("greedy", "flag")
    if named is not None:
        chosen = Setting(named, "flag")
    elif _asks(flags):
        chosen = Setting("sample", "flag")
    elif (by_file := file_strategy(file)) is not None:
        chosen = Setting(by_file, "generation_config.json")
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
        key
        for key in _given(flags, (*SAMPLING_KEYS, *_OPTIONS, *_MADE))
        if _MADE.get(key, key) not in read and key not in forgiven
    ]
    if unread:
        names = ", ".join(f"--{key.replace('_', '-')}" for key in unread)
        raise UsageError(
            f"strategy {strategy.value} ({strategy.source}) does not read {names}",
            hint=f"leave {'it' if len(unread) == 1 else 'them'} out, or use {_who_reads(unread)}",
        )


def _who_reads(keys: Iterable[str]) -> str:
    fitting = [
        name
        for name in STRATEGY_NAMES
        if all(_MADE.get(key, key) in reads(name, sampling=True) for key in keys)
    ]
    return f"--strategy {fitting[0]}" if fitting else "another --strategy"


def unread(flags: Flags) -> tuple[str, ...]:
    """The settings given that the strategy of these flags, which must be named, does not read."""
    assert flags.strategy is not None
    read = reads(flags.strategy, sampling=_asks(flags)) | {"strategy", "max_new_tokens"}
    return tuple(key for key in _given(flags, _FLAGS) if _MADE.get(key, key) not in read)


def _no_effect() -> NoReturn:
    raise UsageError(
        "a negative prompt has no effect at guidance-scale 1",
        hint="--guidance-scale 1.5 is a usual value",
    )
