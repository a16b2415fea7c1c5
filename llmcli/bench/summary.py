"""From timed runs to what is reported: rates, latencies, speed-ups, distance from the limits.

Plain frozen data that becomes JSON and back. Times are seconds, rates per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmcli.bench.curve import Curve, crossover, fit
from llmcli.bench.memory import Memory
from llmcli.bench.proof import Proof
from llmcli.bench.runs import Timing
from llmcli.bench.statistics import Ratio, Spread, percentile, ratio, spread
from llmcli.bench.trial import ArmRuns, CaseRuns
from llmcli.generation.stepper import PREFILL_CHUNK


@dataclass(frozen=True, slots=True)
class Latency:
    """Of a single token after the first."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm in one case. `speedup` is the slow reference's total time over this arm's.

    `prefill` counts prompt tokens, and `decode` new ones after the first, of all rows.
    `warmup_total` is None without a warm-up; `latency` and `decode` are None for one new token.
    `weight_bytes`, `kv_bytes`, `flops` are those of the last step, of which each of `step_pieces`
    reads the layers' weights; None, as are the rates that follow from them, for a strategy that
    does not go one token a forward. `memory` is None where
    a run's own cannot be told. `whole_steps` of the steps after the first token ran in one kernel
    or recorded by the device, and not module by module.
    """

    arm: str
    kind: str
    totals: tuple[float, ...]
    total: Spread
    first_token: Spread
    prefill: Spread
    decode: Spread | None
    latency: Latency | None
    warmup_total: float | None
    speedup: Ratio | None
    cache_bytes: int
    formula_bytes: int | None
    memory: Memory | None
    step_pieces: int | None
    weight_bytes: int | None
    kv_bytes: int | None
    flops: int | None
    bytes_per_second: float | None
    flops_per_second: float | None
    same_ids: bool
    whole_steps: int | None
    proof: Proof | None


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """`reference` is what the others are compared with, the cache-less arm if it is there."""

    prompt_tokens: int
    new_tokens: int
    rows: int
    reference: str
    arms: tuple[ArmSummary, ...]


@dataclass(frozen=True, slots=True)
class ArmCurve:
    """Seconds a token by position, as (position, median) points, and the curve through them."""

    arm: str
    rows: int
    points: tuple[tuple[int, float], ...]
    curve: Curve | None


@dataclass(frozen=True, slots=True)
class Crossover:
    """From how many tokens on a step of `arm` costs less than one of the reference.

    `position` lies between `first` and `last`, the measured ones, and is None where a step at
    `last` costs no less. `predicted` and `measured` are the reference's time
    over the arm's for all new tokens of the longest case, by the fitted curves and by the clock.
    """

    arm: str
    rows: int
    first: int
    last: int
    position: int | None
    predicted: float
    measured: float


def summarise(case: CaseRuns) -> CaseSummary:
    """Of what has been measured so far; arms without a finished run are left out."""
    reference = case.arms[case.reference]
    return CaseSummary(
        case.case.prompt_tokens,
        case.case.new_tokens,
        case.case.rows,
        case.reference,
        tuple(_arm(case, arm, reference) for arm in case.arms.values() if arm.runs),
    )


def curves(cases: Sequence[CaseRuns]) -> tuple[ArmCurve, ...]:
    """One for each arm and number of rows, over the tokens of all cases that go step by step."""
    found = []
    cases = [case for case in cases if case.stepwise]
    for rows in dict.fromkeys(case.case.rows for case in cases):
        alike = [case for case in cases if case.case.rows == rows]
        for name, arm in alike[0].arms.items():
            points = sorted(point for case in alike for point in _points(case, name))
            if arm.arm.kind == "none":
                curve = fit(points, degree=2, piece=PREFILL_CHUNK)
            else:
                curve = fit(points, degree=1)
            found.append(ArmCurve(name, rows, tuple(points), curve))
    return tuple(found)


def crossovers(cases: Sequence[CaseRuns], found: Sequence[ArmCurve]) -> tuple[Crossover, ...]:
    """Where each arm begins to pay against the cache-less one, if that was measured."""
    result = []
    for rows in dict.fromkeys(case.case.rows for case in cases if case.stepwise):
        alike = [case for case in cases if case.case.rows == rows]
        longest = max(alike, key=lambda case: case.case.planned)
        off = next((name for name, arm in longest.arms.items() if arm.arm.kind == "none"), None)
        by_name = {one.arm: one.curve for one in found if one.rows == rows}
        first = min(case.case.prompt_tokens for case in alike)
        last = longest.case.planned - 2
        for name, curve in by_name.items():
            other = by_name.get(off) if off else None
            if off is None or name == off or curve is None or other is None:
                continue
            measured = _decode_time(longest.arms[off]) / _decode_time(longest.arms[name])
            predicted = _predicted(longest, other) / _predicted(longest, curve)
            position = crossover(curve, other, first=first, last=last)
            result.append(Crossover(name, rows, first, last, position, predicted, measured))
    return tuple(result)


def _arm(case: CaseRuns, arm: ArmRuns, reference: ArmRuns) -> ArmSummary:
    rows, prompt = case.case.rows, case.case.prompt_tokens
    steps = [step for run in arm.runs for step in run.steps]
    known = case.stepwise and steps
    weights = sum(work.weight_bytes for work in arm.step_work)
    kept = sum(work.cache_read + work.cache_written for work in arm.step_work) * rows
    flops = sum(work.flops for work in arm.step_work) * rows
    last = percentile([run.steps[-1] for run in arm.runs], 50) if known else None
    compared = arm is not reference and reference.runs
    return ArmSummary(
        arm=arm.arm.name,
        kind=arm.arm.kind,
        totals=tuple(run.total for run in arm.runs),
        total=spread([run.total for run in arm.runs]),
        first_token=spread([run.first for run in arm.runs]),
        prefill=spread([rows * prompt / run.first for run in arm.runs]),
        decode=spread([_rate(run, rows) for run in arm.runs]) if steps else None,
        latency=Latency(*(percentile(steps, at) for at in (50, 90, 99))) if steps else None,
        warmup_total=percentile([run.total for run in arm.warmup], 50) if arm.warmup else None,
        speedup=_speedup(reference, arm) if compared else None,
        cache_bytes=arm.cache_bytes,
        formula_bytes=arm.formula_bytes,
        memory=arm.memory,
        step_pieces=arm.step_pieces if known else None,
        weight_bytes=weights if known else None,
        kv_bytes=kept if known else None,
        flops=flops if known else None,
        bytes_per_second=(weights + kept) / last if last else None,
        flops_per_second=flops / last if last else None,
        same_ids=arm.same_ids,
        whole_steps=arm.whole_steps if known else None,
        proof=arm.proof,
    )


def _speedup(reference: ArmRuns, arm: ArmRuns) -> Ratio:
    # A trial that was broken off may hold one run more of the one than of the other.
    pairs = min(len(reference.runs), len(arm.runs))
    slow = [run.total for run in reference.runs[:pairs]]
    return ratio(slow, [run.total for run in arm.runs[:pairs]])


def _rate(run: Timing, rows: int) -> float:
    return rows * len(run.steps) / sum(run.steps)


def _points(case: CaseRuns, name: str) -> list[tuple[int, float]]:
    """(tokens before it, median seconds) of every token after the first."""
    runs = case.arms[name].runs
    if not runs:
        return []
    by_step = zip(*(run.steps for run in runs), strict=True)
    first = case.case.prompt_tokens
    return [(first + at, percentile(times, 50)) for at, times in enumerate(by_step)]


def _decode_time(arm: ArmRuns) -> float:
    return percentile([sum(run.steps) for run in arm.runs], 50)


def _predicted(case: CaseRuns, curve: Curve) -> float:
    first = case.case.prompt_tokens
    return sum(curve.at(first + at) for at in range(case.case.new_tokens - 1))
