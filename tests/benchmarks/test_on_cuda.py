"""The script for a GPU, in small on the CPU: it runs, reports, and fails where steps are wrong."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from llmcli.model.captured import Capture

SCRIPT = Path(__file__).with_name("on_cuda.py")


def _run(report: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    argv = [str(SCRIPT), "--device", "cpu", "--dry-run", "--json", str(report)]
    monkeypatch.setattr(sys, "argv", argv)
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    finally:
        found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_a_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = _run(tmp_path / "report.json", monkeypatch)
    assert all(one["ok"] for one in report["checks"])
    assert {one["steps"] for one in report["timings"]} == {"ordinary", "recorded"}
    assert all(one["percent_of_copy"] > 0 for one in report["timings"])


def test_wrong_steps_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Capture._step

    def wrong(self: Capture) -> Tensor:
        return right(self).roll(1, -1)

    monkeypatch.setattr(Capture, "_step", wrong)
    with pytest.raises(SystemExit) as ended:
        _run(tmp_path / "report.json", monkeypatch)
    assert ended.value.code == 1
    failed = {
        one["name"]
        for one in json.loads((tmp_path / "report.json").read_text())["checks"]
        if not one["ok"]
    }
    assert "windows, float32, recorded" in failed
    assert "steps of the large decoder" in failed
    assert not any("ordinary" in name for name in failed)
