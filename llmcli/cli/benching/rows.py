"""A report as rows of one arm in one case: for CSV, JSON lines, Markdown and the table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmcli.bench.report import Report
    from llmcli.bench.summary import ArmSummary, CaseSummary


def flat_rows(report: Report) -> Iterator[dict[str, Any]]:
    """Numbers in SI units, None where there is none; the same keys in every row."""
    for one in report.strategies:
        for case in one.cases:
            for arm in case.arms:
                yield {**_case(report, one.strategy, case), **_arm(arm)}


def as_csv(report: Report) -> str:
    """With a header line; nothing at all is an empty text."""
    rows = list(flat_rows(report))
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _case(report: Report, strategy: str, case: CaseSummary) -> Mapping[str, Any]:
    machine = report.machine
    return {
        "model": report.model,
        "device": machine.device,
        "dtype": machine.dtype,
        "threads": machine.threads,
        "strategy": strategy,
        "prompt_tokens": case.prompt_tokens,
        "new_tokens": case.new_tokens,
        "batch_size": case.rows,
        "reference": case.reference,
    }


def _arm(arm: ArmSummary) -> Mapping[str, Any]:
    latency, speedup, proof = arm.latency, arm.speedup, arm.proof
    return {
        "arm": arm.arm,
        "cache": arm.kind,
        "runs": len(arm.totals),
        "total_s": arm.total.median,
        "total_q1_s": arm.total.low,
        "total_q3_s": arm.total.high,
        "first_token_s": arm.first_token.median,
        "prefill_tok_per_s": arm.prefill.median,
        "decode_tok_per_s": arm.decode.median if arm.decode else None,
        "latency_p50_s": latency.p50 if latency else None,
        "latency_p90_s": latency.p90 if latency else None,
        "latency_p99_s": latency.p99 if latency else None,
        "warmup_total_s": arm.warmup_total,
        "speedup": speedup.value if speedup else None,
        "speedup_low": speedup.low if speedup else None,
        "speedup_high": speedup.high if speedup else None,
        "cache_bytes": arm.cache_bytes,
        "cache_bytes_formula": arm.formula_bytes,
        "memory_before_bytes": arm.memory.before if arm.memory else None,
        "memory_most_bytes": arm.memory.most if arm.memory else None,
        "step_pieces": arm.step_pieces,
        "step_weight_bytes": arm.weight_bytes,
        "step_kv_bytes": arm.kv_bytes,
        "step_flops": arm.flops,
        "achieved_bytes_per_s": arm.bytes_per_second,
        "achieved_flops_per_s": arm.flops_per_second,
        "whole_steps": arm.whole_steps,
        "same_ids": arm.same_ids and (proof is None or proof.same_ids),
        "max_logit_difference": proof.max_logit if proof else None,
        "max_kl": proof.max_kl if proof else None,
    }
