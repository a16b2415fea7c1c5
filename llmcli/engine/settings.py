"""What a run really uses: flag over generation_config.json over built-in, key by key.

Must not know torch, files or terminals: it gets parsed values and returns values with sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmcli.engine.file_settings import file_strategy, read_file, unmet
from llmcli.engine.flags import (
    FLAG_NAMES,
    MADE,
    OPTIONS,
    Flags,
    asks_for_sampling,
    check_flags,
    check_guided,
    given_flags,
    named_strategy,
    refuse_unread,
)
from llmcli.engine.named_tokens import (
    Vocabulary,
    check_tokens,
    parse_biases,
    parse_suppress,
    resolve_ids,
    told,
    told_biases,
)
from llmcli.generation.params import SAMPLING_KEYS, SamplingParams
from llmcli.generation.reads import StrategyName, reads

Source = Literal["flag", "generation_config.json", "built-in"]
BUILT_IN_MAX_NEW_TOKENS = 256


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


def resolve_settings(
    flags: Flags, file: Mapping[str, Any], *, fresh_seed: int, vocabulary: Vocabulary
) -> Settings:
    """Merge the flags, a parsed generation_config.json and the built-in values.

    `fresh_seed` is used where sampling runs without a seed, so that a run can be repeated.
    Raises UsageError for flags that contradict each other or are out of range, CheckpointError
    for values in the file that are of the wrong kind or out of range.
    """
    check_flags(flags)
    given = [key for key in FLAG_NAMES if getattr(flags, key) is not None]
    from_file = read_file(file, given, size=vocabulary.size)
    keys = (*SAMPLING_KEYS, *OPTIONS, "max_new_tokens")
    merged = {key: _pick(key, flags, from_file) for key in keys}
    if flags.seed is None:
        merged["seed"] = Setting(fresh_seed, "built-in")
    strategy = _strategy(flags, file, merged)
    sampling = merged["temperature"].value != 0 and (
        strategy.value == "sample" or asks_for_sampling(flags) or file.get("do_sample") is True
    )
    refuse_unread(flags, strategy.value, strategy.source, sampling=sampling)
    check_guided(flags, merged["guidance_scale"].value)
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
        {key: merged[key].value for key in OPTIONS if key in read},
        merged["max_new_tokens"].value,
        from_file.get("stop", ()),
        {"strategy": strategy, **_shown(flags, merged, read, params, vocabulary)},
        unmet(file),
    )


def _pick(key: str, flags: Flags, from_file: Mapping[str, Any]) -> Setting:
    given = getattr(flags, key) if key in FLAG_NAMES else None
    if given is not None:
        return Setting(given, "flag")
    if key in from_file:
        return Setting(from_file[key], "generation_config.json")
    if key == "max_new_tokens":
        return Setting(BUILT_IN_MAX_NEW_TOKENS, "built-in")
    if key in OPTIONS:
        return Setting(OPTIONS[key], "built-in")
    return Setting(getattr(SamplingParams(), key), "built-in")


def _strategy(flags: Flags, file: Mapping[str, Any], merged: Mapping[str, Setting]) -> Setting:
    """The flag, else what a flag or the file asks for; temperature 0 is greedy."""
    named = named_strategy(flags)
    if named not in (None, "greedy", "sample"):
        return Setting(named, "flag")
    if flags.temperature == 0:
        return Setting("greedy", "flag")
    if named is not None:
        chosen = Setting(named, "flag")
    elif asks_for_sampling(flags):
        chosen = Setting("sample", "flag")
    elif (by_file := file_strategy(file)) is not None:
        chosen = Setting(by_file, "generation_config.json")
    else:
        return Setting("greedy", "built-in")
    if chosen.value == "sample" and merged["temperature"].value == 0:
        return Setting("greedy", merged["temperature"].source)
    return chosen


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
        for key in (*SAMPLING_KEYS, *OPTIONS)
        if key in read and _worth_showing(key, merged)
    }
    for key, value in (
        ("logit_bias", told_biases(dict(params.logit_bias), vocabulary)),
        ("suppress", told(params.suppress, vocabulary)),
        ("begin_suppress", told(params.begin_suppress, vocabulary)),
    ):
        if key in shown:
            shown[key] = Setting(value, merged[key].source)
    return shown | {key: Setting(value, "flag") for key, value in given_flags(flags, MADE).items()}


def _worth_showing(key: str, merged: Mapping[str, Setting]) -> bool:
    """The best known settings always, the others where somebody set them."""
    known = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    own = key in OPTIONS and key not in ("guidance_scale", "num_return")
    return key in known or own or merged[key].source != "built-in"
