"""The threads that run a kernel side by side, and the making of the kernels themselves."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from llmcli.errors import LlmcliError

if TYPE_CHECKING:
    import numpy as np

# Where in the barrier it stands that somebody gave up; as in kernels/step.py.
ABANDONED = 8

_KEPT_VERSIONS = 4

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
        self._importing = threading.Thread(target=self._import, name="kernels", daemon=True)
        self._importing.start()

    @cached_property
    def kernels(self) -> Any:
        """The module of entry points, compiled. Waits; raises LlmcliError where that failed."""
        self._importing.join()
        if self._failure is not None:
            raise LlmcliError(
                f"the kernels cannot be used: {type(self._failure).__name__}: {self._failure}",
                hint="use --kernels off, or mend the installation of numba",
            ) from self._failure
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
        try:
            import numba

            home = cache_home()
            vars(numba.config)["CACHE_DIR"] = str(home)
            if not any(home.rglob("*.nbc")):
                _forget_old(home.parent)
                if self._on_compile is not None:
                    self._on_compile()
            from llmcli.kernels import entry

            entry.compile_all()  # type: ignore[no-untyped-call]
        except BaseException as failure:
            self._failure = failure


def cache_home() -> Path:
    """Where machine code is kept for these sources."""
    root = platformdirs.user_cache_path("llmcli") / "kernels"
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    return root / digest


def _forget_old(root: Path) -> None:
    """Several versions may be in use, in environments of their own; the latest few are kept."""
    if root.is_dir():
        found = sorted(root.iterdir(), key=lambda one: one.stat().st_mtime)
        for old in found[:-_KEPT_VERSIONS]:
            shutil.rmtree(old, ignore_errors=True)
