"""The threads that run a kernel side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property

import numpy as np

from llmcli.errors import LlmcliError
from llmcli.kernels.code import Code, Kernel, load
from llmcli.kernels.layout import ABANDONED, BARRIER_SIZE


class Team:
    """`size` threads, of which the caller's is one. Kernels are loaded beside other work.

    `on_compile` is called, from another thread, if they have to be compiled first.
    """

    def __init__(self, size: int, *, on_compile: Callable[[], None] | None = None) -> None:
        self.size = size
        self.barrier = np.zeros(BARRIER_SIZE, np.int64)
        self._on_compile = on_compile
        self._code: Code | None = None
        self._failure: BaseException | None = None
        self._running: list[Future[int]] = []
        self._loading = threading.Thread(target=self._load, name="kernels", daemon=True)
        self._loading.start()

    @property
    def kernels(self) -> Code:
        """The kernels, once they are there. Raises LlmcliError where they cannot be had."""
        if self._code is None:
            self._loading.join()
            if self._failure is not None:
                raise LlmcliError(
                    f"the kernels cannot be used: {type(self._failure).__name__}: {self._failure}",
                    hint="use --kernels off, or mend the installation of llvmlite",
                ) from self._failure
        assert self._code is not None
        return self._code

    def run(self, kernel: Kernel, job: int) -> None:
        """Run the kernel in every thread, and wait for all of them."""
        wait(self._running)  # of a run that Ctrl-C broke off
        self._running.clear()
        self.barrier[:] = 0
        try:
            for me in range(1, self.size):
                self._running.append(self._pool.submit(kernel, me, self.size, job))
            kernel(0, self.size, job)
        except BaseException:
            self.barrier[ABANDONED] = 1
            raise
        for future in self._running:
            future.result()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(1, self.size - 1), thread_name_prefix="kernel")

    def _load(self) -> None:
        try:
            self._code = load(on_compile=self._on_compile)
        except BaseException as failure:
            self._failure = failure
