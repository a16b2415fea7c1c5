"""The threads that run a kernel side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

    def run(self, kernel: Kernel, job: int, *, aside: bool = False) -> None:
        """Run the kernel in every thread, and wait for all of them.

        With `aside` the caller's thread waits only, and so hears Ctrl-C. Whatever is raised, no
        thread is at work any more: they go home at the next place where they look.
        """
        self.barrier[:] = 0
        shift = _Shift(lambda me: kernel(me, self.size, job))
        try:
            others = range(0 if aside else 1, self.size)
            running = [self._pool.submit(shift.work, me) for me in others]
            if not aside:
                kernel(0, self.size, job)
            for future in running:
                future.result()
        except BaseException:
            self.barrier[ABANDONED] = 1
            shift.end()
            raise

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.size, thread_name_prefix="kernel")

    def _load(self) -> None:
        try:
            self._code = load(on_compile=self._on_compile)
        except BaseException as failure:
            self._failure = failure


class _Shift:
    """One run of the pool's threads, which can be ended whatever state the pool is in."""

    def __init__(self, kernel: Callable[[int], int]) -> None:
        self._kernel = kernel
        self._change = threading.Condition()
        self._inside, self._over = 0, False

    def work(self, me: int) -> None:
        with self._change:
            if self._over:
                return
            self._inside += 1
        try:
            self._kernel(me)
        finally:
            with self._change:
                self._inside -= 1
                self._change.notify_all()

    def end(self) -> None:
        """Nobody begins any more, and all have gone, whoever presses Ctrl-C again meanwhile.

        What they write to may then go too.
        """
        while True:
            try:
                with self._change:
                    self._over = True
                    self._change.wait_for(lambda: self._inside == 0)
                return
            except KeyboardInterrupt:
                continue
