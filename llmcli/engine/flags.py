"""What the user gave on the command line, and whether it makes sense by itself.

Must not know torch, files or terminals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from llmcli.engine.named_tokens import parse_biases, parse_suppress
from llmcli.errors import UsageError
from llmcli.generation.options import DolaLayers, EarlyStopping, StrategyOptions
from llmcli.generation.params import SAMPLING_KEYS, SAMPLING_ONLY, SamplingParams
from llmcli.generation.ranges import check_value
from llmcli.generation.reads import STRATEGY_NAMES, StrategyName, reads

# The settings of single strategies that flags reach, with the values that hold without a flag.
OPTIONS: Mapping[str, Any] = {
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
MADE: Mapping[str, str] = {"negative_prompt": "negative_ids", "draft_model": "draft"}
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


FLAG_NAMES = tuple(one.name for one in fields(Flags))


def check_flags(flags: Flags) -> None:
    """Raise UsageError for values out of range, before anything is loaded."""
    SamplingParams(**given_flags(flags, [key for key in SAMPLING_KEYS if key not in _TOKENS]))
    for key, value in given_flags(flags, OPTIONS).items():
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
    check_guided(flags, flags.guidance_scale)
    named = named_strategy(flags)
    if named is not None:
        refuse_unread(flags, named, "flag", sampling=asks_for_sampling(flags))
    if named == "speculative" and flags.draft_model is None:
        raise UsageError(
            "strategy speculative needs --draft-model",
            hint="--strategy prompt-lookup needs none",
        )


def unread(flags: Flags) -> tuple[str, ...]:
    """The settings given that the strategy of these flags, which must be named, does not read."""
    assert flags.strategy is not None
    read = reads(flags.strategy, sampling=asks_for_sampling(flags)) | {"strategy", "max_new_tokens"}
    return tuple(key for key in given_flags(flags, FLAG_NAMES) if MADE.get(key, key) not in read)


def given_flags(flags: Flags, keys: Iterable[str]) -> dict[str, Any]:
    """Those of these settings that were given."""
    values = {key: getattr(flags, key) for key in keys if key in FLAG_NAMES}
    return {key: value for key, value in values.items() if value is not None}


def asks_for_sampling(flags: Flags) -> bool:
    """Whether some flag makes no sense without sampling."""
    return flags.temperature != 0 and any(
        getattr(flags, key) is not None for key in _ASK_FOR_SAMPLING
    )


def named_strategy(flags: Flags) -> StrategyName | None:
    """The strategy that the flags name; a draft model names one too."""
    if flags.strategy is None and flags.draft_model is not None:
        return "speculative"
    return flags.strategy


def refuse_unread(flags: Flags, strategy: StrategyName, source: str, *, sampling: bool) -> None:
    """Raise UsageError for flags that this strategy, which `source` names, does not read."""
    read = reads(strategy, sampling=sampling)
    # Temperature 0 is greedy whatever else is set, so sampling flags beside it are no mistake.
    forgiven = SAMPLING_ONLY if flags.temperature == 0 else ()
    unread = [
        key
        for key in given_flags(flags, (*SAMPLING_KEYS, *OPTIONS, *MADE))
        if MADE.get(key, key) not in read and key not in forgiven
    ]
    if unread:
        names = ", ".join(f"--{key.replace('_', '-')}" for key in unread)
        raise UsageError(
            f"strategy {strategy} ({source}) does not read {names}",
            hint=f"leave {'it' if len(unread) == 1 else 'them'} out, or use {_who_reads(unread)}",
        )


def _who_reads(keys: Iterable[str]) -> str:
    fitting = [
        name
        for name in STRATEGY_NAMES
        if all(MADE.get(key, key) in reads(name, sampling=True) for key in keys)
    ]
    return f"--strategy {fitting[0]}" if fitting else "another --strategy"


def check_guided(flags: Flags, scale: float | None) -> None:
    """Raise UsageError for a negative prompt that a guidance scale of 1 would not read."""
    if flags.negative_prompt is not None and scale == 1:
        raise UsageError(
            "a negative prompt has no effect at guidance-scale 1",
            hint="--guidance-scale 1.5 is a usual value",
        )
