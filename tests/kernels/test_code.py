"""Machine code that is made once, kept, and loaded without what made it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmcli.kernels import code


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nothing is loaded or kept yet, and compiling is counted rather than done."""
    code.load()
    real = code._read(code._file())
    assert real is not None
    count: list[int] = []

    def compile_kernels() -> bytes:
        count.append(1)
        return real

    monkeypatch.setattr(code.platformdirs, "user_cache_path", lambda _name: tmp_path)
    monkeypatch.setattr(code, "compile_kernels", compile_kernels)
    monkeypatch.setattr(code, "_loaded", [])
    return count


def test_compiling_is_told_and_done_once(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    for _ in range(2):
        code.load(on_compile=lambda: told.append(1))
        monkeypatch.setattr(code, "_loaded", [])
    assert made == told == [1]


def test_what_is_kept_is_whole_or_not_there(made: list[int]) -> None:
    code.load()
    folder = code._file().parent
    assert [one.name for one in folder.iterdir()] == [code._file().name]


def test_damaged_code_is_made_anew(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    code.load()
    whole = code._file().read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], bytes([whole[0] ^ 1]) + whole[1:]):
        code._file().write_bytes(damaged)
        monkeypatch.setattr(code, "_loaded", [])
        code.load()
        assert code._file().read_bytes() == whole
    assert len(made) == 4


def test_other_versions_go_but_for_a_few(made: list[int]) -> None:
    folder = code._file().parent
    for age in range(9):
        (folder / f"version {age}").mkdir(parents=True)
        os.utime(folder / f"version {age}", (age, age))
    code.load()
    left = {one.name for one in folder.iterdir()} - {code._file().name}
    assert left == {"version 6", "version 7", "version 8"}


def test_a_home_that_cannot_be_written_costs_only_time(
    made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(code.platformdirs, "user_cache_path", lambda _name: tmp_path / "file")
    code.load()
    assert made == [1]


def test_loading_what_is_kept_needs_no_numba() -> None:
    code.load()
    script = """
import sys
sys.modules["numba"] = None
from llmcli.kernels.code import load
load(on_compile=lambda: sys.exit("compiles"))
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ, timeout=60)
