"""Two reports' JSON side by side. Nothing in a file that was read is trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from llmcli.bench.report import FORMAT
from llmcli.bench.statistics import Ratio, ratio
from llmcli.errors import UsageError

_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Origin:
    """What was measured, where and with what. `steps` is None in reports from before kernels."""

    model: str
    dtype: str
    device: str
    cpu: str
    cores: int
    threads: int
    steps: str | None
    torch: str
    version: str


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differences` name what A and B do not share beside their times, with both values.

    `only_first` and `only_second` are cases that one of them did not measure.
    """

    first: Origin
    second: Origin
    differences: tuple[str, ...]
    cases: tuple[Compared, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def compare(first: bytes, second: bytes, names: tuple[str, str]) -> Comparison:
    """Where both measured the same.

    Raises UsageError naming the file for one that is no report, or where nothing is common.
    """
    a, b = (_read(data, name) for data, name in zip((first, second), names, strict=True))
    common = [key for key in a.totals if key in b.totals]
    if not common:
        raise UsageError(
            f"{names[0]} and {names[1]} have no case in common",
            hint="measure the same --prompt-tokens, --new-tokens, --batch-size, --arms, --strategy",
        )
    return Comparison(
        a.origin,
        b.origin,
        tuple(_differences(a, b)),
        tuple(_compared(key, a.totals[key], b.totals[key]) for key in common),
        tuple(_named(key) for key in a.totals if key not in b.totals),
        tuple(_named(key) for key in b.totals if key not in a.totals),
    )


_Key = tuple[str, int, int, int, str]


@dataclass(frozen=True, slots=True)
class _Read:
    origin: Origin
    whole: bool
    settings: Mapping[str, str]
    totals: Mapping[_Key, list[float]]


def _compared(key: _Key, one: list[float], other: list[float]) -> Compared:
    found = ratio(other, one, paired=False)
    return Compared(*key, ratio(one, [1.0]).value, ratio(other, [1.0]).value, found)


def _named(key: _Key) -> str:
    strategy, prompt, new, rows, arm = key
    return f"{strategy} {prompt}+{new} x{rows} {arm}"


def _differences(a: _Read, b: _Read) -> Iterator[str]:
    for field in fields(Origin):
        one, other = getattr(a.origin, field.name), getattr(b.origin, field.name)
        if one != other:
            told = ("not told" if value is None else value for value in (one, other))
            yield f"{field.name}: {' against '.join(map(str, told))}"
    for strategy in a.settings.keys() & b.settings.keys():
        if a.settings[strategy] != b.settings[strategy]:
            yield f"settings of {strategy}: {a.settings[strategy]} against {b.settings[strategy]}"
    for name, report in (("A", a), ("B", b)):
        if not report.whole:
            yield f"{name} was broken off before its end"


def _read(data: bytes, name: str) -> _Read:
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
        return _Read(
            _origin(report),
            report["whole"] is True,
            {str(one["strategy"]): json.dumps(one["settings"]) for one in report["strategies"]},
            dict(_arms(report["strategies"])),
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise UsageError(f"{name} {problem}", hint="give the two files' paths") from error


def _origin(report: Mapping[str, Any]) -> Origin:
    machine = report["machine"]
    return Origin(
        model=str(report["model"]),
        dtype=str(machine["dtype"]),
        device=str(machine["device"]),
        cpu=str(machine["cpu"]),
        cores=int(machine["cores"]),
        threads=int(machine["threads"]),
        steps=None if machine.get("steps") is None else str(machine["steps"]),
        torch=str(machine["torch"]),
        version=str(report["version"]),
    )


def _arms(strategies: Sequence[Mapping[str, Any]]) -> Iterator[tuple[_Key, list[float]]]:
    for one in strategies:
        for case in one["cases"]:
            prompt, new, rows = (int(case[k]) for k in ("prompt_tokens", "new_tokens", "rows"))
            for arm in case["arms"]:
                totals = [float(value) for value in arm["totals"]]
                if not totals or not all(math.isfinite(x) and x > 0 for x in totals):
                    raise ValueError("times")
                yield (str(one["strategy"]), prompt, new, rows, str(arm["arm"])), totals
