"""llmcli bench-cache as it is typed: forms of output, refusals, Ctrl-C, comparison, pictures."""

from __future__ import annotations

import csv
import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmcli.bench import probes
from llmcli.bench.probes import Limits
from llmcli.bench.proof import Difference, Proof
from llmcli.bench.trial import ArmRuns
from llmcli.engine import benching
from tests.cli.conftest import Invoke
from tests.cli.drive import Child


@pytest.fixture(autouse=True)
def _small_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's limits measured on little: what they are decides nothing here."""
    small = partial(probes.measure_limits, read_bytes=2**20)
    monkeypatch.setattr(probes, "_MATRIX", 64)
    monkeypatch.setattr(benching, "measure_limits", small)


BENCH = ("bench-cache", "-m", "stories260k")
QUICK = (*BENCH, "--prompt-tokens", "5,9", "--new-tokens", "6", "--repeats", "3")

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


def _report(invoke: Invoke, *args: str) -> Any:
    result = invoke(*QUICK, "--output", "json", *args)
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_json_tells_everything(invoke: Invoke) -> None:
    report = _report(invoke, "--arms", "on,off,static,quantized-8", "--batch-size", "1,2")
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
    limits = _report(invoke)["limits"]
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
    report = _report(invoke, "--strategy", strategy)
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


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["hi", "--prompt-tokens", "5"], 2, "a prompt and --prompt-tokens were both given"),
        (["--prompt-tokens", "0"], 2, "--prompt-tokens is '0'; it must be whole numbers from 1"),
        (["--prompt-tokens", "5,5"], 2, "--prompt-tokens is '5,5'"),
        (["--prompt-tokens", "5,x"], 2, "--prompt-tokens is '5,x'"),
        (["--arms", "on,paged"], 2, "--arms has 'paged'; an arm is one of on, off"),
        (["--arms", "on,on"], 2, "--arms is 'on,on'"),
        (["--repeats", "0"], 2, "--repeats is 0; it must lie between 1 and"),
        (["--new-tokens", "0"], 2, "--new-tokens is 0; it must lie between 1 and"),
        (["--strategy", "greedy,best"], 2, "--strategy is 'greedy,best'; it must be one or more"),
        (["--top-p", "0.9"], 2, "no strategy of greedy reads --top-p"),
        (["--strategy", "beam", "--batch-size", "2"], 2, "strategy beam is measured with --batch"),
        (["--no-kv-cache"], 2, "--kv-cache and --cache do not choose what is measured"),
        (["--raw"], 2, "random prompts do not read the options of a prompt's text"),
        (["--prompt-tokens", "500"], 1, "500 prompt tokens and 100 new ones make 600; the context"),
        (["--arms", "on,offloaded"], 2, "cache offloaded moves keys and values to host memory"),
        (["--compare", "a", "b"], 2, "--compare measures nothing and reads --output alone"),
        (["--plot", "x.png", "--new-tokens", "1"], 2, "--plot would stay empty"),
        (["--plot", "x.png", "--strategy", "beam"], 2, "--plot would stay empty"),
        (["--plot", "x.pdf"], 2, "--plot x.pdf ends in '.pdf'; it must be .png or .svg"),
        (["hi", "--new-tokens", "511"], 1, "3 prompt tokens and 511 new ones make 514; the con"),
        (
            ["word " * 600],
            1,
            "tokens; the context holds 512, and one is needed",
        ),
        (["hi", "--system", "Be brief"], 2, "--system needs a chat template"),
        (["hi", "--template", "none.jinja"], 2, "--template none.jinja is not a file"),
        (["hi", "--raw", "--template", "none.jinja"], 2, "--raw does not read --template"),
        (["--suppress", "no such token"], 2, "no such token"),
        (["--suppress", "#9999"], 2, "9999"),
        (["--device", "abacus"], 2, "device 'abacus' is not one of"),
        (["--strategy", "sample", "--guidance-scale", "2", "--batch-size", "2"], 2, "--batch-size"),
    ],
)
def test_refused_before_any_weight_is_read(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, said: str
) -> None:
    monkeypatch.setattr("llmcli.engine.engine.load_decoder", lambda *_, **__: 1 / 0)
    result = invoke(*BENCH, *args)
    assert (result.code, result.out) == (code, "")
    assert said in result.err


@pytest.mark.parametrize(
    "args",
    [["--arms", "on,paged"], ["--top-p", "0.9"], ["hi", "--template", "none"], ["--repeats", "0"]],
)
def test_what_needs_no_checkpoint_is_refused_before_one_is_looked_for(
    invoke: Invoke, args: list[str]
) -> None:
    result = invoke("bench-cache", "-m", "no/such-folder", *args)
    assert result.code == 2
    assert args[-2] in result.err


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


def _interrupted(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C just before the run of that number, counted from 0."""
    real, calls = benching.measure, iter(range(10**6))

    def measure(*args: Any, on_run: Any, **rest: Any) -> Any:
        def told(done: int, total: int, what: str) -> None:
            if next(calls) == at:
                raise KeyboardInterrupt
            on_run(done, total, what)

        return real(*args, on_run=told, **rest)

    monkeypatch.setattr(benching, "measure", measure)


def _runs_told(form: str, out: str) -> dict[str, int]:
    """Timed runs by arm, of the one case that a broken-off trial has."""
    if form == "json":
        report = json.loads(out)
        assert report["whole"] is False
        (case,) = report["strategies"][0]["cases"]
        return {arm["arm"]: len(arm["totals"]) for arm in case["arms"]}
    lines = out.splitlines()
    rows = csv.DictReader(lines) if form == "csv" else map(json.loads, lines)
    return {row["arm"]: int(row["runs"]) for row in rows}


@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_ctrl_c_prints_what_was_measured(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    _interrupted(monkeypatch, 7)
    result = invoke(*QUICK, "--output", form)
    assert (result.code, result.err) == (130, "")
    assert _runs_told(form, result.out) == {"on": 2, "off": 3}


@pytest.mark.parametrize(("form", "row"), [("table", r"^{} +\d"), ("markdown", r"^\| {} \| \d")])
def test_ctrl_c_shows_the_arms_that_were_measured(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, form: str, row: str
) -> None:
    _interrupted(monkeypatch, 3)
    result = invoke(*QUICK, "--output", form)
    assert (result.code, result.err) == (130, "")
    assert "broken off: what had been measured by then follows" in result.out
    # The second turn begins with `off`, and was cut before `on`.
    assert re.search(row.format("off"), result.out, re.MULTILINE)
    assert not re.search(row.format("on"), result.out, re.MULTILINE)


@pytest.mark.parametrize(("at", "drawn"), [(1, False), (7, True)])
def test_ctrl_c_leaves_a_picture_alone_that_it_has_nothing_for(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int, drawn: bool
) -> None:
    picture = tmp_path / "a.svg"
    picture.write_text("earlier")
    _interrupted(monkeypatch, at)
    result = invoke(*QUICK, "--plot", str(picture))
    assert result.code == 130
    assert (picture.read_text() != "earlier") is drawn
    assert ("wrote" if drawn else "nothing to draw yet, so") in result.err


def test_a_reader_who_leaves_ends_it_quietly() -> None:
    args = [*BENCH, "--prompt-tokens", "5", "--new-tokens", "3", "--repeats", "1"]
    with Child([*args, "--output", "json"], stdout="pipe", stderr="pipe") as child:
        child.stop_reading()
        assert (child.wait(), child.err) == (141, b"")


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


def test_two_reports_side_by_side(invoke: Invoke, tmp_path: Path) -> None:
    for name, times in (("a.json", 1.0), ("b.json", 3.0)):
        report = _report(invoke)
        for case in report["strategies"][0]["cases"]:
            for arm in case["arms"]:
                arm["totals"] = [times, times * 1.01, times * 0.99]
        (tmp_path / name).write_text(json.dumps(report))
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    result = invoke("bench-cache", "--compare", *paths)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line[:10] for line in lines[:3]] == [f"A: {tmp_path}"[:10], f"B: {tmp_path}"[:10], ""]
    assert sum("3.00x [2." in line for line in lines) == 4
    assert not [line for line in lines if line.startswith(("they differ", "only in"))]
    as_json = json.loads(invoke("bench-cache", "--compare", *paths, "--output", "json").out)
    assert as_json["cases"][0]["ratio"]["value"] == pytest.approx(3)
    assert as_json["differences"] == []


def test_what_two_reports_do_not_share_is_said(invoke: Invoke, tmp_path: Path) -> None:
    report = _report(invoke, "--strategy", "greedy,sample")
    (tmp_path / "a.json").write_text(json.dumps(report))
    report["model"], report["whole"] = "other\x1b[31m\nmodel", False
    report["machine"] |= {"threads": 77, "dtype": "bfloat16"}
    report["strategies"][1]["settings"] = {"temperature": 3}
    report["strategies"][1]["cases"].pop()
    (tmp_path / "b.json").write_text(json.dumps(report))
    result = invoke("bench-cache", "--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    lines = result.out.splitlines()
    differ = [line for line in lines if line.startswith("they differ: ")]
    assert [line.split()[2] for line in differ] == ["model:", "dtype:", "threads:", "settings", "B"]
    assert "stories260k against other\\x1b[31m\\nmodel" in differ[0]
    assert "only in A: sample 9+6 x1 on, sample 9+6 x1 off" in lines
    assert "\x1b" not in result.out


def test_a_report_from_before_steps_were_told(invoke: Invoke, tmp_path: Path) -> None:
    report = _report(invoke)
    (tmp_path / "new.json").write_text(json.dumps(report))
    del report["machine"]["steps"]
    (tmp_path / "old.json").write_text(json.dumps(report))
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    result = invoke("bench-cache", "--compare", old, new)
    assert (result.code, result.err) == (0, "")
    differ = [line for line in result.out.splitlines() if line.startswith("they differ: ")]
    assert differ == ["they differ: steps: not told against torch (the model is small)"]
    assert "they differ" not in invoke("bench-cache", "--compare", old, old).out


_EMPTY = (
    b'{"format": 1, "strategies": [], "whole": true, "model": "m", "version": "1", "machine": '
    b'{"dtype": "", "device": "", "cpu": "", "torch": "", "cores": 1, "threads": 1, "steps": ""}}'
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a report of"),
        (b"[]", "is not a report of"),
        (b'{"format": 99}', "is a report of format 99, not 1"),
        (b'{"format": 1, "strategies": [{"cases": [{}]}]}', "is not a report of"),
        (b'{"format": 1, "strategies": []}', "is not a report of"),
        (_EMPTY.replace(b'"cores": 1', b'"cores": Infinity'), "is not a report of"),
        (_EMPTY, "have no case in common"),
        (b"[" * 10**5, "is not a report of"),
    ],
)
def test_what_is_no_report(invoke: Invoke, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    result = invoke("bench-cache", "--compare", str(path), str(path))
    assert (result.code, result.out) == (2, "")
    assert said in result.err
