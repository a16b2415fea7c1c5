"""bench-cache broken off: by Ctrl-C, or by a reader who leaves."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from llmcli.engine import benching
from tests.cli.benching.quick import BENCH, QUICK
from tests.cli.conftest import Invoke
from tests.cli.drive import Child


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
