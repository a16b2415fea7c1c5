"""Two ways to run the command line: in this process, or as a real process forked from a warm one.

In process is fast and shows each write; a child is for signals, descriptors and terminals.
"""

from __future__ import annotations

import fcntl
import io
import multiprocessing
import os
import pty
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from llmcli.cli.dispatch import run

# What a hung child gets before the test fails.
PATIENCE = 60.0


@dataclass(frozen=True)
class Result:
    """What one run left: exit code, streams, and each write to stdout by itself."""

    code: int
    out_bytes: bytes
    err_bytes: bytes
    writes: list[bytes] = field(default_factory=list)

    @property
    def out(self) -> str:
        return self.out_bytes.decode()

    @property
    def err(self) -> str:
        return self.err_bytes.decode()


class _Recorder(io.RawIOBase):
    """A raw stream that keeps every write; `refuse` makes it fail."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.writes.append(bytes(data))
        return len(data)


def run_here(
    args: Sequence[str],
    *,
    stdin: bytes | None = None,
    terminal: bool = False,
    errors_terminal: bool = False,
    encoding: str = "utf-8",
) -> Result:
    """Run in this process. `terminal` makes stdout a real terminal, whose bytes are unchanged."""
    with ExitStack() as stack:
        out = _Terminal(stack) if terminal else _Recorder()
        err = _Terminal(stack) if errors_terminal else _Recorder()
        stack.enter_context(mock.patch("sys.stdout", _text(out, encoding)))
        stack.enter_context(mock.patch("sys.stderr", _text(err, encoding)))
        stack.enter_context(mock.patch("sys.stdin", _stdin(stack, stdin)))
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        code = run(list(args))
        sys.stdout.flush()
        sys.stderr.flush()
        writes = out.close_and_read() if isinstance(out, _Terminal) else out.writes
        errors = err.close_and_read() if isinstance(err, _Terminal) else err.writes
    return Result(code, b"".join(writes), b"".join(errors), writes)


def _text(stream: Any, encoding: str) -> io.TextIOWrapper:
    raw = stream.raw if isinstance(stream, _Terminal) else stream
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors="strict")


def _stdin(stack: ExitStack, data: bytes | None) -> io.TextIOWrapper:
    if data is None:
        return stack.enter_context(Path(os.devnull).open(encoding="utf-8"))
    # A file, as with `<`: a pipe would have to be filled from a thread.
    number = os.memfd_create("stdin") if hasattr(os, "memfd_create") else os.dup(0)
    os.write(number, data)
    os.lseek(number, 0, os.SEEK_SET)
    return stack.enter_context(os.fdopen(number, encoding="utf-8"))


class _Terminal:
    """A pseudo-terminal that hands every byte on as it is, read by a thread."""

    def __init__(self, stack: ExitStack) -> None:
        self._master, slave = pty.openpty()
        stack.callback(os.close, self._master)
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self.raw = io.FileIO(slave, "w")
        self._read: list[bytes] = []
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def close_and_read(self) -> list[bytes]:
        self.raw.close()
        self._thread.join(PATIENCE)
        return self._read

    def _collect(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self._read.append(data)


class _Handed:
    """A descriptor that turns into one of the child's while it is pickled for it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self.fd),)


def _received(passed: Any) -> _Handed:
    return _Handed(passed.detach())


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.cli.warm"])


class Child:
    """The command line in a process of its own, with a session, and maybe a terminal, of its own.

    `stdin`, `stdout`, `stderr`: "terminal" (one for all), "pipe", "null", "full" or "closed".
    """

    def __init__(
        self,
        args: Sequence[str],
        *,
        stdin: str = "null",
        stdout: str = "terminal",
        stderr: str = "terminal",
        env: Mapping[str, str] | None = None,
        setup: Callable[[], None] | None = None,
        nonblocking: bool = False,
    ) -> None:
        self.master, self._slave = pty.openpty()
        self._before = termios.tcgetattr(self._slave)
        self.seen = b""
        self.out = b""
        self.err = b""
        self._ours: dict[int, str] = {self.master: "seen"}
        self._input: int | None = None
        theirs = []
        for number, kind in enumerate((stdin, stdout, stderr)):
            theirs.append(self._open(number, kind))
        if nonblocking and theirs[1] is not None:
            os.set_blocking(theirs[1], False)
        handed = [None if fd is None else _Handed(fd) for fd in theirs]
        self._process = _context.Process(
            target=_child,
            args=(list(args), handed, {**os.environ, **(env or {})}, str(Path.cwd()), setup),
        )
        self._theirs = [fd for fd in theirs if fd is not None]

    def __enter__(self) -> Child:
        self._process.start()
        for fd in self._theirs:
            os.close(fd)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        for fd in (*self._ours, self._slave, *([self._input] if self._input else [])):
            os.close(fd)

    @property
    def terminal_restored(self) -> bool:
        """Modes as before, and the cursor shown if it was ever hidden."""
        hidden, shown = self.seen.rfind(b"\x1b[?25l"), self.seen.rfind(b"\x1b[?25h")
        return termios.tcgetattr(self._slave) == self._before and hidden <= shown

    def type(self, data: bytes) -> None:
        """Press keys; Ctrl-C is b"\\x03"."""
        os.write(self.master, data)

    def send(self, data: bytes) -> None:
        """Write to its standard input, a pipe."""
        assert self._input is not None
        os.write(self._input, data)

    def end_input(self) -> None:
        assert self._input is not None
        os.close(self._input)
        self._input = None

    def stop_reading(self) -> None:
        """Close our end of its stdout."""
        for fd, name in list(self._ours.items()):
            if name == "out":
                del self._ours[fd]
                os.close(fd)

    def interrupt(self) -> None:
        self.signal(signal.SIGINT)

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As SIGKILL does: no handler runs, nothing is flushed."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def wait_until(self, done: Callable[[], bool]) -> None:
        self._read_until(done)

    def wait_for(self, text: bytes, *, in_: str = "seen") -> None:
        """Until it has written `text`; a failure when it ends without."""
        self._read_until(lambda: text in getattr(self, in_) or not self.alive)
        while text not in getattr(self, in_) and self._read_once(0.05):
            pass
        assert text in getattr(self, in_), f"ended; seen {self.seen!r} {self.out!r} {self.err!r}"

    def let_fill(self) -> None:
        """Read nothing until its stdout, a pipe, holds no more."""
        (ours,) = [fd for fd, name in self._ours.items() if name == "out"]
        end = time.monotonic() + PATIENCE
        while fcntl.fcntl(ours, fcntl.F_GETPIPE_SZ) - _waiting(ours) >= 4096:
            assert time.monotonic() < end, "never filled"
            time.sleep(0.02)
        time.sleep(0.1)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        self._read_until(lambda: self._process.exitcode is not None)
        while self._read_once(0.05):
            pass
        code = self._process.exitcode
        assert code is not None
        return code

    def _open(self, number: int, kind: str) -> int | None:
        if kind == "terminal":
            return os.dup(self._slave)
        if kind == "closed":
            return None
        if kind in ("null", "full"):
            return os.open(f"/dev/{kind}", os.O_RDWR)
        ours, theirs = os.pipe()
        if number == 0:
            self._input = theirs
            return ours
        self._ours[ours] = {1: "out", 2: "err"}[number]
        return theirs

    def _read_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, f"hung; seen {self.seen!r} {self.out!r} {self.err!r}"
            self._read_once(0.02)

    def _read_once(self, seconds: float) -> bool:
        ready, _, _ = select.select(list(self._ours), [], [], seconds)
        got = False
        for fd in ready:
            try:
                data = os.read(fd, 65536)
            except OSError:
                data = b""
            setattr(self, self._ours[fd], getattr(self, self._ours[fd]) + data)
            got = got or bool(data)
        return got


def _waiting(fd: int) -> int:
    """How many bytes a pipe holds."""
    (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    return int(count)


def _child(
    args: list[str],
    streams: list[_Handed | None],
    env: dict[str, str],
    folder: str,
    setup: Callable[[], None] | None,
) -> None:
    """Become the command line: what exec would have given it, without the wait for torch."""
    from llmcli.cli.app import main

    os.setsid()
    os.chdir(folder)
    # The server's own environment is that of the first test.
    os.environ.clear()
    os.environ.update(env)
    for number, stream in enumerate(streams):
        os.close(number)
        if stream is not None:
            os.dup2(stream.fd, number)
            os.close(stream.fd)
    for number, stream in enumerate(streams):
        if stream is not None and os.isatty(number):
            fcntl.ioctl(number, termios.TIOCSCTTY, 0)
            break
    kept = [stream is not None for stream in streams]
    sys.stdin = os.fdopen(0, closefd=False) if kept[0] else None  # type: ignore[assignment]
    sys.stdout = os.fdopen(1, "w", closefd=False) if kept[1] else None  # type: ignore[assignment]
    sys.stderr = os.fdopen(2, "w", closefd=False) if kept[2] else None  # type: ignore[assignment]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    torch.set_num_threads(1)
    if setup:
        setup()
    sys.argv = ["llmcli", *args]
    main()
