"""llmcli bench-cache as it is typed: forms of output, strategies, prompts, proof, pictures."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from llmcli.bench.probes import Limits
from llmcli.bench.proof import Difference, Proof
from llmcli.bench.trial import ArmRuns
from llmcli.engine import benching
from tests.cli.benching.quick import BENCH, QUICK, report_of
from tests.cli.conftest import Invoke

GOLDEN = """\
model: stories260k, float32 on cpu
machine: *
steps: torch (the model is small)
software: *
command: *
runs: 3 of each arm in turns after 1 to warm up, seed 0
limits measured here: reads # _B/s, multiplies # _FLOP/s
peak memory of the process: *

greedy: 5 prompt tokens, 6 new
arm total s first token s prefill tok/s decode tok/s p# ms p# ms p# ms faster cache by formula
on # ±# # # # # # # #x [#, #] 327.7 kB 327.7 kB
off # ±# # # # # # # - 0 -

on: the last step reads 1.0 MB of weights and 12.8 kB of keys and values, and takes # kFLOP: \
# _B/s (#% of the limit), # _FLOP/s (#%)
off: the last step reads 1.0 MB of weights and 0 B of keys and values, and takes # MFLOP: \
# _B/s (#% of the limit), # _FLOP/s (#%)
memory taken by a run (*
on against off: largest difference of a logit #, of the distributions # nats, over 6 steps; \
the same best token at every step
warm-up, not counted: on # s, off # s
"""


def _masked(text: str) -> str:
    """Without what a clock decides."""
    text = re.sub(r"^(machine|software|command|peak memory of the process): .*$", r"\1: *", text,
                  flags=re.MULTILINE)  # fmt: skip
    text = re.sub(
        r"^memory taken by a run .*$", "memory taken by a run (*", text, flags=re.MULTILINE
    )
    text = re.sub(r"[kMG](B|FLOP)/s", r"_\1/s", text)
    kept = r"(?<![\d.])(?:\d+(?:\.\d+)? (?:kB of|MB of|B of|steps|prompt|new|of each|to warm))"
    pieces = re.split(f"({kept}|327.7 kB|float32|260k|seed 0)", text)
    masked = [
        part if at % 2 else re.sub(r"\d+(?:\.\d+)?(?:e-\d+)?", "#", part)
        for at, part in enumerate(pieces)
    ]
    return re.sub(r"[^\S\n]+", " ", "".join(masked)).replace(" \n", "\n")


def test_the_table_is_the_golden_one_but_for_the_times(invoke: Invoke) -> None:
    result = invoke(*QUICK)
    assert (result.code, result.err) == (0, "")
    found = _masked(result.out)
    first = found[: found.index("\n\ngreedy: 9")].replace(" - # -", " - 0 -")
    assert first + "\n" == GOLDEN
    assert "ms a token, by tokens before it:" in result.out
    assert "the cache" in result.out


def test_json_tells_everything(invoke: Invoke) -> None:
    report = report_of(invoke, "--arms", "on,off,static,quantized-8", "--batch-size", "1,2")
    assert report["whole"] is True
    assert {"cpu", "cores", "threads", "torch", "device", "dtype"} <= set(report["machine"])
    (strategy,) = report["strategies"]
    shapes = [(case["prompt_tokens"], case["rows"]) for case in strategy["cases"]]
    assert shapes == [(5, 1), (9, 1), (5, 2), (9, 2)]
    for case in strategy["cases"]:
        assert [arm["arm"] for arm in case["arms"]] == ["on", "off", "static", "quantized-8"]
        for arm in case["arms"]:
            assert len(arm["totals"]) == 3
            assert arm["cache_bytes"] == arm["formula_bytes"]
            if report["memory_scope"] is not None:
                assert 0 < arm["memory"]["before"] <= arm["memory"]["most"]
                assert arm["memory"]["most"] <= report["peak_memory_bytes"]
            assert (arm["proof"] is None) == (arm["arm"] == "off")
            if arm["proof"]:
                assert arm["proof"]["same_ids"]
                assert len(arm["proof"]["kl_by_step"]) == 6


def test_limits_are_the_best_of_the_trials_start_and_end(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([Limits(100.0, 7.0), Limits(90.0, 8.0)])
    monkeypatch.setattr(benching, "measure_limits", lambda *_: next(found))
    limits = report_of(invoke)["limits"]
    assert limits == {"bytes_per_second": 100.0, "flops_per_second": 8.0}


def test_csv_and_jsonl_hold_the_same_rows(invoke: Invoke) -> None:
    table = list(csv.DictReader(io.StringIO(invoke(*QUICK, "--output", "csv").out)))
    lines = [json.loads(x) for x in invoke(*QUICK, "--output", "jsonl").out.splitlines()]
    assert len(table) == len(lines) == 4
    assert [list(row) for row in table] == [list(row) for row in lines]
    for name in ("strategy", "arm", "prompt_tokens", "cache_bytes", "same_ids"):
        assert [row[name] for row in table] == [str(row[name]) for row in lines]


def test_markdown_is_a_table(invoke: Invoke) -> None:
    lines = invoke(*QUICK, "--output", "markdown").out.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in rows} == {12}
    assert len(rows) == 2 * 4


@pytest.mark.parametrize("strategy", ["greedy,sample", "beam", "prompt-lookup", "contrastive"])
def test_every_strategy(invoke: Invoke, strategy: str) -> None:
    report = report_of(invoke, "--strategy", strategy)
    assert [one["strategy"] for one in report["strategies"]] == strategy.split(",")
    arms = [a for one in report["strategies"] for case in one["cases"] for a in case["arms"]]
    assert all(arm["same_ids"] for arm in arms)


def test_a_seed_with_a_strategy_that_may_draw_and_does_not(invoke: Invoke) -> None:
    result = invoke(*QUICK, "--strategy", "sample,dola", "--seed", "3", "--output", "jsonl")
    assert (result.code, result.err) == (0, "")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert {row["strategy"] for row in rows} == {"sample", "dola"}


def test_one_run_has_no_spread_and_packed_keys_are_read_packed(invoke: Invoke) -> None:
    out = invoke(*QUICK, "--repeats", "1", "--arms", "on,quantized-8").out
    assert "±" not in out
    assert re.search(
        r"^quantized-8: .* of codes, scales and exact keys and values,", out, re.MULTILINE
    )
    assert re.search(r"^on: .* of keys and values, and takes", out, re.MULTILINE)


def test_it_says_where_kernels_are_a_part_of_the_difference(invoke: Invoke) -> None:
    args = (*QUICK, "--quantize", "int8", "--strict", "--arms", "on,quantized-8")
    found = invoke(*args, "--kernels", "on")
    assert found.code == 0
    assert "steps: compiled kernels" in found.out
    told = (
        "steps in one compiled kernel each: on 5 of 5, quantized-8 0 of 5; --kernels off compares"
    )
    assert found.out.count(told) == 2
    assert "in one compiled kernel" not in invoke(*args, "--kernels", "off").out


def test_a_prompt_of_its_own(invoke: Invoke) -> None:
    result = invoke(*BENCH, "Once upon a time", "--new-tokens", "5", "--repeats", "1",
                    "--output", "json")  # fmt: skip
    (case,) = json.loads(result.out)["strategies"][0]["cases"]
    assert case["prompt_tokens"] == 5


def test_a_template_of_its_own(invoke: Invoke, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}once {{ m.content }}{% endfor %}")
    lengths = []
    for given in ([], ["--template", str(template)]):
        result = invoke(*BENCH, "upon", *given, "--new-tokens", "2", "--repeats", "1",
                        "--output", "csv")  # fmt: skip
        assert result.code == 0, result.err
        lengths.append(int(next(csv.DictReader(io.StringIO(result.out)))["prompt_tokens"]))
    assert lengths[1] > lengths[0]


def test_the_usual_lengths_as_far_as_they_fit(invoke: Invoke) -> None:
    result = invoke(
        *BENCH, "--new-tokens", "2", "--repeats", "1", "--warmup", "0", "--output", "csv"
    )
    lengths = [row["prompt_tokens"] for row in csv.DictReader(io.StringIO(result.out))]
    assert lengths == ["32", "32", "128", "128"]


@pytest.mark.parametrize(("near", "strict", "code"), [(True, True, 0), (False, True, 1),
                                                      (False, False, 0)])  # fmt: skip
def test_strict(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, near: bool, strict: bool, code: int
) -> None:
    real = benching.summarise
    other = Difference(step=2, expected=7, got=9, gap=0.25, near_tie=near)

    def summarise(case: Any) -> Any:
        arm: ArmRuns = case.arms["on"]
        arm.proof = Proof(6, False, 0.5, 0.1, (0.5,) * 6, (0.1,) * 6, other, other)
        return real(case)

    monkeypatch.setattr(benching, "summarise", summarise)
    result = invoke(*QUICK, *(["--strict"] if strict else []))
    assert result.code == code
    said = "another best token at step 2 (9 for 7), where the best two lie 0.25 apart: "
    assert said + ("a near tie" if near else "NOT a near tie") in result.out


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_the_picture(invoke: Invoke, tmp_path: Path, name: str, begins: bytes) -> None:
    result = invoke(*QUICK, "--plot", str(tmp_path / name))
    assert result.code == 0
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.glob("*.*")] == [name]
