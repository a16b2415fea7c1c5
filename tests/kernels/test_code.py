"""Machine code that is made once, kept, and loaded without what made it."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llmcli.kernels import code, written


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


@pytest.mark.parametrize("kept", [True, False])
def test_neither_loading_nor_compiling_needs_numba(kept: bool, tmp_path: Path) -> None:
    code.load()
    script = """
import sys
sys.modules["numba"] = None
from llmcli.kernels.code import load
told = []
load(on_compile=lambda: told.append(1))
print(len(told))
"""
    home = {} if kept else {"XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, check=True, env=os.environ | home, timeout=300, capture_output=True, text=True
    )
    assert done.stdout.split() == (["0"] if kept else ["1"])


def test_the_code_is_that_of_the_sources() -> None:
    fresh = written.digest_in(written.read()) == written.digest_of_sources()
    assert fresh, "the kernels have changed: python -m llmcli.kernels.written"


def test_the_code_is_no_single_machines() -> None:
    text = written.read()
    assert text.count("define ") > 10
    for own in (r"inttoptr \(i64 \d", r"target-(?:cpu|features)", r"^target ", "x86", "pickle"):
        assert re.search(own, text, re.MULTILINE) is None, own


@pytest.mark.parametrize("how", ["", "_BY_BITS"])
def test_sixteen_bits_with_and_without_the_instruction_for_them(how: str) -> None:
    import llvmlite.binding as llvm

    if not how and not code._has_halves():
        pytest.skip("this processor has none")
    each = """
define void @each(ptr %from, ptr %to, ptr %first) {
  %bits = load <8 x i16>, ptr %from, align 2
  %floats = call <8 x float> @llmcli_halves(<8 x i16> %bits)
  store <8 x float> %floats, ptr %to, align 4
  %bit = load i16, ptr %from, align 2
  %float = call float @llmcli_half(i16 %bit)
  store float %float, ptr %first, align 4
  ret void
}
"""
    text = getattr(code, f"_HALVES{how}") + getattr(code, f"_HALF{how}") + each
    machine = code._target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    convert = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3)(engine.get_function_address("each"))
    bits = np.arange(65536 + 8, dtype=np.uint32).astype(np.uint16)
    eight, firsts = np.empty((65536, 8), np.float32), np.empty(65536, np.float32)
    for start in range(65536):
        convert(*(one[start:].ctypes.data for one in (bits, eight, firsts)))
    expected = bits.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(firsts, expected[:65536])
    for lane in range(8):
        np.testing.assert_array_equal(eight[:, lane], expected[lane : lane + 65536])
