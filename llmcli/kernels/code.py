"""The kernels' code (written.py) made machine code for this very processor, kept, and loaded.

The first takes a few seconds, once; what is kept is loaded in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import platformdirs

from llmcli.kernels import layout, written

_KEPT_VERSIONS = 4
_BORROWED = ("erff", "tanhf", "sched_yield")
_DIGEST = hashlib.sha256().digest_size

_loaded: list[Code] = []
_loading = Lock()

# (me, team, address of a job) -> 0, or something else where it was broken off
Kernel = Callable[[int, int, int], int]


def missing() -> str | None:
    """Why there are no kernels, or None where there can be."""
    return None if find_spec("llvmlite") else "llvmlite is not installed"


class Code:
    """Loaded machine code. The kernels let go of the interpreter while they run."""

    def __init__(self, machine_code: bytes) -> None:
        import llvmlite.binding as llvm

        _lend_functions()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
        self._engine.finalize_object()
        self._run = _PROTOTYPE(self._engine.get_function_address(written.NAME))
        self.product = self._kernel(layout.PRODUCT)
        self.step = self._kernel(layout.STEP)
        self.several = self._kernel(layout.SEVERAL)

    def _kernel(self, which: Any) -> Kernel:
        run, number = self._run, int(which)

        def kernel(me: int, team: int, job: int) -> int:
            result, error = ctypes.c_int64(), ctypes.c_void_p()
            status = run(ctypes.byref(result), ctypes.byref(error), number, me, team, job)
            assert status == 0, status
            return result.value

        return kernel


# numba's own convention: a status; where the result and an error go; the arguments.
_PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *(ctypes.c_int64,) * 4
)


def load(*, on_compile: Callable[[], None] | None = None) -> Code:
    """The kernels as kept on disk, or compiled and kept; `on_compile` is called before that.

    They are loaded once, and stay until the process ends.
    """
    with _loading:
        if not _loaded:
            _loaded.append(_load(on_compile))
        return _loaded[0]


def _load(on_compile: Callable[[], None] | None) -> Code:
    kept = _file()
    if (found := _read(kept)) is not None:
        return Code(found)
    if on_compile is not None:
        on_compile()
    machine_code = compile_kernels()
    _keep(kept, machine_code)
    return Code(machine_code)


def compile_kernels() -> bytes:
    """An object file for this processor."""
    import llvmlite.binding as llvm

    machine = _target_machine()
    module = llvm.parse_assembly(_completed(written.read()))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    _lend_functions()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    for function in module.functions:
        known = function.name.startswith("llvm.") or llvm.address_of_symbol(function.name)
        if function.is_declaration and not known:
            raise OSError(f"no function {function.name} in this process")
    return machine.emit_object(module)  # type: ignore[no-any-return]


def _completed(text: str) -> str:
    """With what the code leaves open: how this processor and this system do these things."""
    has_halves = _has_halves()
    for name, how in (
        ("llmcli_half", _HALF if has_halves else _HALF_BY_BITS),
        ("llmcli_halves", _HALVES if has_halves else _HALVES_BY_BITS),
        ("llmcli_high", _HIGH),
        ("llmcli_give_way", _GO_ON if os.name == "nt" else _GIVE_WAY),
    ):
        text, count = re.subn(rf"^declare .*@{name}\(.*$", how, text, flags=re.MULTILINE)
        assert count == 1, (name, count)
    return text


def _lend_functions() -> None:
    """What the kernels call of the system's libraries."""
    import llvmlite.binding as llvm

    library = ctypes.CDLL("ucrtbase" if os.name == "nt" else None)
    for name in _BORROWED:
        if function := getattr(library, name, None):
            llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


def _has_halves() -> bool:
    """Whether an instruction makes floats of 16-bit floats; else LLVM calls for a library's."""
    import llvmlite.binding as llvm

    arm = platform.machine().lower() in ("aarch64", "arm64")
    return arm or bool(llvm.get_host_cpu_features().get("f16c"))


# Known too early to be a shift of bytes it becomes one, for which x86 has no instruction.
_HIGH = """
define internal <8 x i32> @llmcli_high(<8 x i32> %bytes) alwaysinline {
  %high = lshr <8 x i32> %bytes, splat (i32 4)
  ret <8 x i32> %high
}
"""
_HALF = """
define internal float @llmcli_half(i16 %bits) alwaysinline {
  %half = bitcast i16 %bits to half
  %float = fpext half %half to float
  ret float %float
}
"""
_HALF_BY_BITS = """
define internal float @llmcli_half(i16 %bits) alwaysinline {
  %one = insertelement <8 x i16> zeroinitializer, i16 %bits, i32 0
  %floats = call <8 x float> @llmcli_halves(<8 x i16> %one)
  %float = extractelement <8 x float> %floats, i32 0
  ret float %float
}
"""
_HALVES = """
define internal <8 x float> @llmcli_halves(<8 x i16> %bits) alwaysinline {
  %halves = bitcast <8 x i16> %bits to <8 x half>
  %floats = fpext <8 x half> %halves to <8 x float>
  ret <8 x float> %floats
}
"""
# The exponents' biases differ by 112; what was infinite or NaN has to stay so.
_HALVES_BY_BITS = """
define internal <8 x float> @llmcli_halves(<8 x i16> %bits) alwaysinline {
  %wide = zext <8 x i16> %bits to <8 x i32>
  %top = and <8 x i32> %wide, splat (i32 32768)
  %sign = shl <8 x i32> %top, splat (i32 16)
  %low = and <8 x i32> %wide, splat (i32 32767)
  %rest = shl <8 x i32> %low, splat (i32 13)
  %small = bitcast <8 x i32> %rest to <8 x float>
  %scaled = fmul <8 x float> %small, splat (float 0x46F0000000000000)
  %finite = bitcast <8 x float> %scaled to <8 x i32>
  %kept = or <8 x i32> %rest, splat (i32 2139095040)
  %odd = icmp uge <8 x i32> %rest, splat (i32 260046848)
  %chosen = select <8 x i1> %odd, <8 x i32> %kept, <8 x i32> %finite
  %whole = or <8 x i32> %sign, %chosen
  %floats = bitcast <8 x i32> %whole to <8 x float>
  ret <8 x float> %floats
}
"""
_GIVE_WAY = """
declare i32 @sched_yield()
define internal i32 @llmcli_give_way() alwaysinline {
  %result = call i32 @sched_yield()
  ret i32 %result
}
"""
_GO_ON = """
define internal i32 @llmcli_give_way() alwaysinline {
  ret i32 0
}
"""


def _target_machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


def _file() -> Path:
    """Where the machine code of these kernels for this processor is kept."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for source in (written.FILE, Path(__file__)):
        digest.update(source.read_bytes())
    for fact in (
        version("llvmlite"),
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ):
        digest.update(fact.encode() + b"\0")
    root = platformdirs.user_cache_path("llmcli") / "kernels"
    return root / f"{digest.hexdigest()[:16]}.o"


def _read(path: Path) -> bytes | None:
    """What `_keep` wrote there; None where nothing is, or not what was written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, machine_code = data[:_DIGEST], data[_DIGEST:]
    # The loader ends the process over code that is cut short.
    return machine_code if hashlib.sha256(machine_code).digest() == digest else None


def _keep(path: Path, machine_code: bytes) -> None:
    """Written whole or not at all; of other versions the latest few stay."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(hashlib.sha256(machine_code).digest() + machine_code)
        part.replace(path)
        found = sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime)
        for old in found[:-_KEPT_VERSIONS]:
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink(missing_ok=True)
    except OSError:
        # A read-only home costs the time to compile again, and nothing else.
        return
