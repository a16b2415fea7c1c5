"""The report of a whole trial: machine, command, limits, cases, curves. It becomes JSON and back.

A report that was read back holds what `compare` needs and nothing is trusted in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llmcli.bench.probes import Limits
from llmcli.bench.statistics import Ratio, ratio
from llmcli.bench.summary import ArmCurve, CaseSummary, Crossover
from llmcli.errors import UsageError

# Raised whenever the form of the JSON changes in a way that `compare` would misread.
FORMAT = 1
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran."""

    cpu: str
    cores: int
    threads: int
    memory_bytes: int | None
    device: str
    dtype: str
    torch: str
    python: str
    platform: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """What one strategy measured."""

    strategy: str
    settings: Mapping[str, Any]
    cases: tuple[CaseSummary, ...]
    curves: tuple[ArmCurve, ...]
    crossovers: tuple[Crossover, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`whole` is false where the trial was broken off.

    `peak_memory_bytes` is that of the process, or of the CUDA device; `memory_scope` says whose
    bytes the arms' `memory` is, and is None where no arm has any.
    """

    version: str
    model: str
    command: str
    seed: int
    repeats: int
    warmup: int
    machine: Machine
    limits: Limits | None
    strategies: tuple[Strategy, ...]
    peak_memory_bytes: int | None
    memory_scope: str | None
    whole: bool

    def as_json(self) -> dict[str, Any]:
        """Plain values; NaN and infinities become null."""
        plain: dict[str, Any] = _finite({"format": FORMAT, **asdict(self)})
        return plain


@dataclass(frozen=True, slots=True)
class Compared:
    """One arm of one case in two reports: total seconds of both, and B's over A's."""

    strategy: str
    prompt_tokens: int
    new_tokens: int
    rows: int
    arm: str
    first: float
    second: float
    ratio: Ratio


def compare(first: bytes, second: bytes, names: tuple[str, str]) -> tuple[Compared, ...]:
    """Two reports' JSON side by side, where both measured the same.

    Raises UsageError naming the file for one that is no report, or where nothing is common.
    """
    ours, theirs = (_totals(data, name) for data, name in zip((first, second), names, strict=True))
    found = []
    for key in ours:
        if key in theirs:
            one, other = ours[key], theirs[key]
            found.append(
                Compared(
                    *key,
                    ratio(one, [1.0]).value,
                    ratio(other, [1.0]).value,
                    ratio(other, one, paired=False),
                )
            )
    if not found:
        raise UsageError(
            f"{names[0]} and {names[1]} have no case in common",
            hint="measure the same --prompt-tokens, --new-tokens, --batch-size, --arms, --strategy",
        )
    return tuple(found)


_Key = tuple[str, int, int, int, str]


def _totals(data: bytes, name: str) -> dict[_Key, list[float]]:
    problem = "is not a report of `llmcli bench-cache --output json`"
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{name} {problem}: it has {len(data)} bytes", hint="check the path")
    try:
        report = json.loads(data)
        if report["format"] != FORMAT:
            raise UsageError(
                f"{name} is a report of format {report['format']!r}, not {FORMAT}",
                hint="measure again with this version",
            )
        return dict(_arms(report["strategies"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{name} {problem}", hint="give the two files' paths") from error


def _arms(strategies: Sequence[Mapping[str, Any]]) -> list[tuple[_Key, list[float]]]:
    found = []
    for one in strategies:
        for case in one["cases"]:
            shape = [int(case[key]) for key in ("prompt_tokens", "new_tokens", "rows")]
            for arm in case["arms"]:
                totals = [float(value) for value in arm["totals"]]
                if not totals or not all(math.isfinite(x) and x > 0 for x in totals):
                    raise ValueError("times")
                key = (str(one["strategy"]), shape[0], shape[1], shape[2], str(arm["arm"]))
                found.append((key, totals))
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
