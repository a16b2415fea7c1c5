"""The threads that run a kernel side by side, and the making of the kernels themselves."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

if TYPE_CHECKING:
    import numpy as np

# Where in the barrier it stands that somebody gave up; as in kernels/step.py.
ABANDONED = 8

# (me, team, *arguments) -> 0, or something else where it was broken off
Kernel = Callable[..., int]


def missing() -> str | None:
    """Why there are no kernels, or None where there are."""
    return None if find_spec("numba") else "numba is not installed"


class Team:
    """`size` threads, of which the caller's is one. Kernels are imported beside other work.

    `on_compile` is called, from another thread, if they have to be compiled first.
    """

    def __init__(self, size: int, *, on_compile: Callable[[], None] | None = None) -> None:
        self.size = size
        self._on_compile = on_compile
        self._failure: BaseException | None = None
        self._running: list[Future[int]] = []
        self.seconds = 0.0
        self._importing = threading.Thread(target=self._import, name="kernels", daemon=True)
        self._importing.start()

    @cached_property
    def kernels(self) -> Any:
        """The module of entry points, compiled. Waits; raises what compiling raised."""
        self._importing.join()
        if self._failure is not None:
            raise self._failure
        from llmcli.kernels import entry

        return entry

    @cached_property
    def barrier(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the threads of a step meet."""
        return self.kernels.new_barrier()  # type: ignore[no-any-return]

    def run(self, kernel: Kernel, *arguments: object) -> None:
        """Run the kernel in every thread, and wait for all of them."""
        wait(self._running)  # of a run that Ctrl-C broke off
        self._running.clear()
        self.barrier[:] = 0
        try:
            for me in range(1, self.size):
                self._running.append(self._pool.submit(kernel, me, self.size, *arguments))
            kernel(0, self.size, *arguments)
        except BaseException:
            self.barrier[ABANDONED] = 1
            raise
        for future in self._running:
            future.result()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(1, self.size - 1), thread_name_prefix="kernel")

    def _import(self) -> None:
        start = time.perf_counter()
        try:
            import numba

            home = cache_home()
            vars(numba.config)["CACHE_DIR"] = str(home)
            if self._on_compile is not None and not any(home.rglob("*.nbc")):
                self._on_compile()
            from llmcli.kernels import entry

            entry.compile_all()  # type: ignore[no-untyped-call]
        except BaseException as failure:
            self._failure = failure
        self.seconds = time.perf_counter() - start


def cache_home() -> Path:
    """Where machine code is kept for these sources; that of other versions goes."""
    root = platformdirs.user_cache_path("llmcli") / "kernels"
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    if root.is_dir():
        for other in root.iterdir():
            if other.name != digest:
                shutil.rmtree(other, ignore_errors=True)
    return root / digest
