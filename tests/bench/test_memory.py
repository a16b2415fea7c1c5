"""The most memory of a run alone: on Linux, on a faked CUDA device, and where none is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from llmcli.bench.memory import CudaPeak, Memory, ResidentPeak, find_peak

SIZE = 2**26


def _held_for_a_moment() -> None:
    assert torch.ones(SIZE, dtype=torch.uint8).sum() == SIZE


@pytest.mark.skipif(sys.platform != "linux", reason="the mark is Linux's")
def test_the_mark_is_set_back() -> None:
    peak = find_peak(torch.device("cpu"))
    if peak is None:
        pytest.skip("this kernel has no clear_refs")
    peak.begin()
    _held_for_a_moment()
    large = peak.read()
    peak.begin()
    small = peak.read()
    assert large.most - large.before > 0.9 * SIZE
    assert small.most - small.before < 0.5 * SIZE
    assert peak.ever >= large.most


def test_where_there_is_no_mark_there_is_no_figure(tmp_path: Path) -> None:
    assert not ResidentPeak(tmp_path).works
    (tmp_path / "status").write_text("VmPeak:\t 9 kB\n")
    assert not ResidentPeak(tmp_path).works
    # A mark that stays where it was, though it may be written to.
    (tmp_path / "status").write_text("VmHWM:\t  900000 kB\nVmRSS:\t  200000 kB\n")
    assert not ResidentPeak(tmp_path).works
    (tmp_path / "status").write_text("VmHWM:\t  200100 kB\nVmRSS:\t  200000 kB\n")
    assert ResidentPeak(tmp_path).works
    assert (tmp_path / "clear_refs").read_text() == "5"


def test_a_cuda_device_counts_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {"now": 100, "most": 900}
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: marks["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: marks["most"])
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda _device: marks.update(most=marks["now"])
    )
    peak = find_peak(torch.device("cuda"))
    assert isinstance(peak, CudaPeak)
    peak.begin()
    marks["most"] = 350
    assert peak.read() == Memory(100, 350)
    assert peak.ever == 900


def test_other_devices_tell_nothing() -> None:
    assert find_peak(torch.device("mps")) is None
