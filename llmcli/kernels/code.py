"""From Python to machine code that is kept on disk, and back: numba is needed only to make it.

numba writes the functions as LLVM's code without making them faster. They are optimised here once,
all together, for this very processor, and loaded by llvmlite alone in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import platformdirs

from llmcli.kernels import layout

_KEPT_VERSIONS = 4
_NAME = "llmcli_kernels"
_DIGEST = hashlib.sha256().digest_size

_loaded: list[Code] = []
_loading = Lock()

# (me, team, address of a job) -> 0, or something else where it was broken off
Kernel = Callable[[int, int, int], int]


def missing() -> str | None:
    """Why there are no kernels, or None where there can be."""
    return None if find_spec("numba") else "numba is not installed"


class Code:
    """Loaded machine code. The kernels let go of the interpreter while they run."""

    def __init__(self, machine_code: bytes) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
        self._engine.finalize_object()
        self._run = _PROTOTYPE(self._engine.get_function_address(_NAME))
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

    module = llvm.parse_assembly(_as_llvm())
    machine = _target_machine()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    for function in module.functions:
        known = function.name.startswith("llvm.") or llvm.address_of_symbol(function.name)
        if function.is_declaration and not known:
            raise OSError(f"no function {function.name} in this process")
    return machine.emit_object(module)  # type: ignore[no-any-return]


def _as_llvm() -> str:
    """The entry point and all that it calls, as text."""
    # Read when numba is imported: what is optimised below need not be optimised by it.
    os.environ.setdefault("NUMBA_OPT", "0")
    os.environ.setdefault("NUMBA_LOOP_VECTORIZE", "0")
    from numba import types

    from llmcli.kernels.entry import run

    arguments = (types.int64,) * 4
    run.compile(arguments)
    text = run.inspect_llvm(arguments)
    # No array here owns its memory, so there is nothing to count.
    text = re.sub(r"^.*call void @NRT_(?:inc|dec)ref\(.*$", "", text, flags=re.MULTILINE)
    (name,) = set(re.findall(r"^define i32 @([\w.$]*5entry3run[\w.$]*)\(", text, re.MULTILINE))
    return text.replace(name, _NAME)


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
    """Where the machine code of these sources for this processor is kept."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for fact in (
        version("numba"),
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
