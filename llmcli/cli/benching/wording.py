"""A report in words and tables, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli.columns import table
from llmcli.cli.sizes import in_bytes, in_flops

if TYPE_CHECKING:
    from llmcli.bench.compare import Comparison
    from llmcli.bench.memory import Memory
    from llmcli.bench.report import Report, Strategy
    from llmcli.bench.statistics import Ratio, Spread
    from llmcli.bench.summary import ArmSummary, CaseSummary, Crossover

_HEADER = (
    "arm", "total s", "first token s", "prefill tok/s", "decode tok/s",
    "p50 ms", "p90 ms", "p99 ms", "faster", "cache", "by formula",
)  # fmt: skip


def machine_lines(report: Report) -> Iterator[str]:
    """What it ran on, and how fast that is by the probes."""
    machine = report.machine
    memory = f", {in_bytes(machine.memory_bytes)} memory" if machine.memory_bytes else ""
    yield f"model: {report.model}, {machine.dtype} on {machine.device}"
    yield f"machine: {machine.cpu}, {machine.cores} cores{memory}, {_threads(machine.threads)}"
    yield f"steps: {machine.steps}"
    yield f"software: llmcli {report.version}, torch {machine.torch}, Python {machine.python}"
    yield f"command: {report.command}"
    runs = f"{report.repeats} of each arm in turns after {report.warmup} to warm up"
    yield f"runs: {runs}, seed {report.seed}"
    if report.limits is not None:
        yield (
            f"limits measured here: reads {report.limits.bytes_per_second / 1e9:.1f} GB/s, "
            f"multiplies {report.limits.flops_per_second / 1e9:.0f} GFLOP/s"
        )
    if report.peak_memory_bytes is not None:
        whose = "device" if report.machine.device.startswith("cuda") else "process"
        yield f"peak memory of the {whose}: {in_bytes(report.peak_memory_bytes)}"
    if not report.whole:
        any_run = any(strategy.cases for strategy in report.strategies)
        told = "what had been measured by then follows" if any_run else "nothing was measured yet"
        yield f"broken off: {told}"


def case_title(strategy: Strategy, case: CaseSummary) -> str:
    rows = f", {case.rows} rows" if case.rows > 1 else ""
    tokens = "token" if case.prompt_tokens == 1 else "tokens"
    return f"{strategy.strategy}: {case.prompt_tokens} prompt {tokens}, {case.new_tokens} new{rows}"


def case_table(case: CaseSummary, width: int | None) -> list[str]:
    """One line an arm: medians, with the quartiles' distance for the total."""
    return table(_HEADER, [_cells(arm) for arm in case.arms], width)


def case_markdown(case: CaseSummary) -> list[str]:
    lines = ["| " + " | ".join(_HEADER) + " |", "|---" + "|---:" * (len(_HEADER) - 1) + "|"]
    return lines + ["| " + " | ".join(_cells(arm)) + " |" for arm in case.arms]


def case_lines(case: CaseSummary, report: Report) -> Iterator[str]:
    """The proof, what a step reads and computes, and the warm-up."""
    for arm in case.arms:
        if arm.weight_bytes is not None and arm.kv_bytes is not None and arm.flops is not None:
            yield (
                f"{arm.arm}: the last step reads {in_bytes(arm.weight_bytes)} of weights"
                f"{_in_pieces(arm.step_pieces)} and {in_bytes(arm.kv_bytes)} of {_kept(arm)}, "
                f"and takes {in_flops(arm.flops)}{_achieved(arm, report)}"
            )
    if told := _unlike_steps(case, report.machine.device):
        yield told
    if taken := [_taken(arm.arm, arm.memory) for arm in case.arms if arm.memory]:
        yield f"memory taken by a run ({report.memory_scope}): {', '.join(taken)}"
    for arm in case.arms:
        if line := _proof(arm, case.reference):
            yield line
    warm = [f"{arm.arm} {arm.warmup_total:.3f} s" for arm in case.arms if arm.warmup_total]
    if warm:
        yield f"warm-up, not counted: {', '.join(warm)}"


def crossover_lines(strategy: Strategy) -> Iterator[str]:
    for one in strategy.curves:
        if one.curve is not None:
            curve = one.curve
            square = f" + {curve.quadratic * 1e3:.3g} n^2" if curve.quadratic else ""
            jump = ""
            if curve.piece is not None and curve.per_piece:
                jump = f", and {curve.per_piece * 1e3:.3g} ms for every {curve.piece} of them"
            yield (
                f"{one.arm}{_rows(one.rows)}: a token after n others takes "
                f"{curve.constant * 1e3:.3g} + {curve.linear * 1e3:.3g} n{square} ms{jump} "
                f"(explains {max(0.0, curve.explained):.0%})"
            )
    for cross in strategy.crossovers:
        yield _crossover(cross)


def compared_lines(found: Comparison, names: tuple[str, str], width: int | None) -> Iterator[str]:
    """Two reports: total seconds of each, and what the second takes of the first's time."""
    for letter, name, origin in zip("AB", names, (found.first, found.second), strict=True):
        yield printable(
            f"{letter}: {name}: {origin.model}, {origin.dtype} on {origin.device}, {origin.cpu}, "
            f"{_threads(origin.threads)}, torch {origin.torch}, llmcli {origin.version}"
        )
    yield from (f"they differ: {printable(one)}" for one in found.differences)
    rows = [
        (
            printable(f"{one.strategy} {one.prompt_tokens}+{one.new_tokens} x{one.rows} {one.arm}"),
            f"{one.first:.3f}",
            f"{one.second:.3f}",
            _ratio(one.ratio),
        )
        for one in found.cases
    ]
    yield ""
    yield from table(("prompt+new xrows arm", "A: total s", "B: total s", "B / A"), rows, width)
    yield ""
    for letter, only in zip("AB", (found.only_first, found.only_second), strict=True):
        if only:
            yield f"only in {letter}: {printable(', '.join(only), 1000)}"
    yield "B / A below 1: B is the faster; in brackets a 95 % interval of three runs or more"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _cells(arm: ArmSummary) -> tuple[str, ...]:
    latency = arm.latency
    times = (latency.p50, latency.p90, latency.p99) if latency else ()
    return (
        arm.arm,
        f"{arm.total.median:.3f}" + f" ±{_half(arm.total):.3f}" * (len(arm.totals) > 1),
        f"{arm.first_token.median:.3f}",
        f"{arm.prefill.median:.0f}",
        f"{arm.decode.median:.1f}" if arm.decode else "-",
        *(f"{time * 1e3:.1f}" for time in times),
        *("-" for _ in range(3 - len(times))),
        _ratio(arm.speedup) if arm.speedup else "-",
        in_bytes(arm.cache_bytes) if arm.cache_bytes else "0",
        in_bytes(arm.formula_bytes) if arm.formula_bytes else "-",
    )


def _half(spread: Spread) -> float:
    return (spread.high - spread.low) / 2


def _ratio(one: Ratio) -> str:
    if one.low is None or one.high is None:
        return f"{one.value:.2f}x"
    return f"{one.value:.2f}x [{one.low:.2f}, {one.high:.2f}]"


def _unlike_steps(case: CaseSummary, device: str) -> str:
    """Where some arms alone have kernels, the cache is not all that they differ in."""
    counts = {arm.arm: arm.whole_steps for arm in case.arms if arm.whole_steps is not None}
    if len(set(counts.values())) < 2:
        return ""
    how = "recorded" if device.startswith("cuda") else "in one compiled kernel each"
    every = case.new_tokens - 1
    told = ", ".join(f"{name} {count} of {every}" for name, count in counts.items())
    return f"steps {how}: {told}; --kernels off compares the caches alone"


def _in_pieces(count: int | None) -> str:
    if count is None or count < 2:
        return ""
    return f" (the text goes through each layer in {count} pieces, and each reads it)"


def _kept(arm: ArmSummary) -> str:
    packed = arm.kind in ("quantized-8", "quantized-4")
    return "codes, scales and exact keys and values" if packed else "keys and values"


def _taken(name: str, memory: Memory) -> str:
    return f"{name} {in_bytes(memory.most - memory.before)} above {in_bytes(memory.before)}"


def _achieved(arm: ArmSummary, report: Report) -> str:
    if report.limits is None or arm.bytes_per_second is None or arm.flops_per_second is None:
        return ""
    of_bytes = arm.bytes_per_second / report.limits.bytes_per_second
    of_flops = arm.flops_per_second / report.limits.flops_per_second
    return (
        f": {in_bytes(arm.bytes_per_second)}/s ({of_bytes:.1%} of the limit), "
        f"{in_flops(arm.flops_per_second)}/s ({of_flops:.1%})"
    )


def _proof(arm: ArmSummary, reference: str) -> str:
    proof = arm.proof
    if proof is None:
        return "" if arm.same_ids else f"{arm.arm}: other ids than the first run's"
    told = (
        f"{arm.arm} against {reference}: largest difference of a logit {proof.max_logit:.2g}, "
        f"of the distributions {proof.max_kl:.2g} nats, over {proof.steps} steps; "
    )
    if not arm.same_ids:
        return told + "the strategy chose other ids"
    first = proof.first_difference
    if first is None:
        return told + "the same best token at every step"
    near = "a near tie" if first.near_tie else "NOT a near tie"
    return told + (
        f"another best token at step {first.step} ({first.got} for {first.expected}), "
        f"where the best two lie {first.gap:.2g} apart: {near}"
    )


def _crossover(one: Crossover) -> str:
    if one.position is None:
        pays = f"does not pay at {one.last:,} tokens, the most measured, by these curves"
    elif one.position <= one.first:
        pays = f"pays at every length measured, {one.first:,} to {one.last:,} tokens"
    else:
        pays = f"pays from {one.position:,} tokens on"
    return (
        f"{one.arm}{_rows(one.rows)}: the cache {pays}; in the longest case it decodes "
        f"{one.measured:.2f}x as fast, predicted {one.predicted:.2f}x"
    )


def _rows(rows: int) -> str:
    return f" ({rows} rows)" if rows > 1 else ""
