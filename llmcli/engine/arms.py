"""The arms of a comparison: names made into flags, and every given flag handed to who reads it.

Must not know torch, models or terminals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from llmcli.checkpoint.escape import printable
from llmcli.engine.flags import Flags, check_flags, unread
from llmcli.errors import UsageError
from llmcli.generation.reads import STRATEGY_NAMES

# A sampling preset: the one setting that it stands for, and its value unless another is given.
PRESETS: Mapping[str, tuple[str, float]] = {
    "temperature": ("temperature", 0.7),
    "top-k": ("top_k", 40),
    "top-p": ("top_p", 0.9),
    "min-p": ("min_p", 0.1),
    "typical-p": ("typical_p", 0.95),
    "top-n-sigma": ("top_n_sigma", 1.0),
    "epsilon-cutoff": ("epsilon_cutoff", 3e-4),
    "eta-cutoff": ("eta_cutoff", 3e-4),
    "xtc": ("xtc_probability", 0.5),
    "mirostat": ("mirostat_tau", 3.0),
}
# What `=VALUE` means for an arm that is a strategy.
_VALUES: Mapping[str, str] = {
    "beam": "num_beams",
    "contrastive": "penalty_alpha",
    "prompt-lookup": "num_draft_tokens",
    "speculative": "num_draft_tokens",
}
NAMES = (*STRATEGY_NAMES, *PRESETS)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding; `name` is what the user called it."""

    name: str
    flags: Flags


def plan_arms(text: str, flags: Flags, *, fresh_seed: int) -> tuple[Arm, ...]:
    """`NAME[=VALUE],...` and the flags given besides, as one set of flags an arm.

    A flag whose name is that of a preset among the arms belongs to that preset; any other is
    for every arm that reads it. All that draw get the same seed.
    Raises UsageError for names and values that make no sense, and for a flag no arm reads.
    """
    if flags.strategy is not None:
        raise UsageError(
            f"--compare and --strategy {flags.strategy} contradict each other",
            hint=f"leave --strategy out, and name {flags.strategy} in --compare",
        )
    given = {key: value for key, value in asdict(flags).items() if value is not None}
    wanted = [_split(part) for part in text.split(",")]
    names = [name for name, _ in wanted]
    if len(wanted) < 2 or len(set(wanted)) < len(wanted):
        raise UsageError(
            f"--compare is {printable(text)!r}; it must name two different arms at least",
            hint="for example: --compare greedy,top-p,beam",
        )
    owned = {PRESETS[name][0] for name in names if name in PRESETS}
    shared = {key: value for key, value in given.items() if key not in owned}
    arms = [_arm(name, value, given, shared, fresh_seed) for name, value in wanted]
    read = {key for arm in arms for key in given if getattr(arm.flags, key) is not None}
    if idle := [f"--{key.replace('_', '-')}" for key in given if key not in read]:
        raise UsageError(
            f"no arm of --compare {printable(text)} reads {', '.join(idle)}",
            hint=f"leave {'it' if len(idle) == 1 else 'them'} out, or name an arm that does",
        )
    return tuple(arms)


def _split(part: str) -> tuple[str, str | None]:
    name, equals, value = part.strip().partition("=")
    name = name.strip()
    if name not in NAMES:
        raise UsageError(
            f"--compare names {printable(repr(name), 40)}, which is no arm",
            hint=f"the arms are {', '.join(NAMES)}",
        )
    if not equals:
        return name, None
    if name not in PRESETS and name not in _VALUES:
        raise UsageError(f"--compare arm {name} takes no value", hint=f"write {name} without `=`")
    return name, value.strip()


def _arm(
    name: str,
    value: str | None,
    given: Mapping[str, Any],
    shared: Mapping[str, Any],
    fresh_seed: int,
) -> Arm:
    strategy = "sample" if name in PRESETS else name
    chosen: dict[str, Any] = {**shared, "strategy": strategy}
    if name in PRESETS:
        key, usual = PRESETS[name]
        chosen[key] = given.get(key, usual)
    if value is not None:
        key = PRESETS[name][0] if name in PRESETS else _VALUES[name]
        chosen[key] = _number(name, key, value)
        if key in given and given[key] != chosen[key]:
            raise UsageError(
                f"--compare {name}={printable(value)} and --{key.replace('_', '-')} {given[key]} "
                "contradict each other",
                hint="give one of them",
            )
    chosen.setdefault("seed", fresh_seed)
    for key in unread(Flags(**chosen)):
        del chosen[key]
    if strategy == "sample" and chosen.get("temperature") == 0:
        raise UsageError(
            f"--compare arm {name} draws tokens, but the temperature is 0",
            hint="leave the arm or the temperature out; the arm `greedy` takes the likeliest",
        )
    arm = Arm(name if value is None else f"{name}={value}", Flags(**chosen))
    check_flags(arm.flags)
    return arm


def _number(name: str, key: str, text: str) -> float:
    whole = get_type_hints(Flags)[key] == int | None
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise UsageError(
            f"--compare arm {name} is given {printable(repr(text), 40)}; "
            f"it must be a {'whole ' if whole else ''}number",
            hint=f"for example: {name}={PRESETS[name][1] if name in PRESETS else 4}",
        ) from None
