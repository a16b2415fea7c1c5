"""Ctrl-C: the first press interrupts, where no text can get lost; a later one ends at once.

SIGTERM ends at once too, and in either case what the terminal was told is taken back first.

Must not know what is interrupted, nor print.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# What a shell reports for a program that SIGINT ended.
INTERRUPTED = 128 + signal.SIGINT
# Presses that follow the first one sooner than this are the same impatience, not a new wish.
_GRACE_SECONDS = 1.0


class _State:
    """One a process, as signal handlers are."""

    def __init__(self, before_exit: Callable[[], None]) -> None:
        self.before_exit = before_exit
        self.pressed: float | None = None
        self.acknowledged = False
        self.held = 0
        self.at_once = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        again = self.pressed is not None and now - self.pressed > _GRACE_SECONDS
        if again or self.at_once:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.before_exit()
            os._exit(INTERRUPTED)
        if self.pressed is None:
            self.pressed = now
            if not self.held:
                raise KeyboardInterrupt

    def terminate(self, number: int, _frame: FrameType | None) -> None:
        self.before_exit()
        os._exit(128 + number)


_state = _State(lambda: None)


def install(before_exit: Callable[[], None]) -> None:
    """Handle Ctrl-C and SIGTERM from here on; `before_exit` tidies up when one ends the process."""
    global _state
    _state = _State(before_exit)
    # Where the shell had it ignored, for a background job, that has to stay so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _state.handle)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _state.terminate)


@contextmanager
def held() -> Iterator[None]:
    """Within, a first press waits. At the end it is raised, even if something swallowed it."""
    _state.held += 1
    try:
        yield
    finally:
        _state.held -= 1
    if _state.pressed is not None and not _state.acknowledged and not _state.held:
        raise KeyboardInterrupt


def acknowledge() -> None:
    """The press has been seen, and is not to be raised again."""
    _state.acknowledged = True


def rearm() -> None:
    """What a press asked for is done: the next one is a first press again."""
    _state.pressed, _state.acknowledged = None, False


def pending() -> bool:
    """Whether a press came that nobody has answered: a library may have made an error of it."""
    return _state.pressed is not None and not _state.acknowledged


@contextmanager
def restored_when_ended(restore: Callable[[], None]) -> Iterator[None]:
    """Within, a sudden end of the process is preceded by `restore` too."""
    before = _state.before_exit

    def both() -> None:
        restore()
        before()

    _state.before_exit = both
    try:
        yield
    finally:
        _state.before_exit = before


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Within, a press ends the process: for imports, where C code may swallow exceptions."""
    _state.at_once = True
    try:
        yield
    finally:
        _state.at_once = False
