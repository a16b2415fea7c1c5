"""bench-cache --compare: two kept reports side by side, old and broken ones too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.benching.quick import report_of
from tests.cli.conftest import Invoke


def test_two_reports_side_by_side(invoke: Invoke, tmp_path: Path) -> None:
    for name, times in (("a.json", 1.0), ("b.json", 3.0)):
        report = report_of(invoke)
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
    report = report_of(invoke, "--strategy", "greedy,sample")
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
    report = report_of(invoke)
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
def test_what_is_noreport_of(invoke: Invoke, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    result = invoke("bench-cache", "--compare", str(path), str(path))
    assert (result.code, result.out) == (2, "")
    assert said in result.err
