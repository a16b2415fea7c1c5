"""Ctrl-C: the first press interrupts, where no text can get lost; a later one ends at once.

Must not know what is interrupted, nor print.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

# What a shell reports for a program that SIGINT ended.
INTERRUPTED = 128 + signal.SIGINT
# Presses that follow the first one sooner than this are the same impatience, not a new wish.
_GRACE_SECONDS = 1.0


@dataclass(slots=True)
class _State:
    first: float | None = None
    held: int = 0
    pending: bool = False


_state = _State()


def install(before_exit: Callable[[], None]) -> None:
    """Handle Ctrl-C from here on; `before_exit` tidies up when a later press ends the process."""
    _state.first, _state.held, _state.pending = None, 0, False
    # A background job's shell has it ignored; that has to stay so.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if _state.first is None:
            _state.first = now
            if not _state.held:
                raise KeyboardInterrupt
            _state.pending = True
        elif now - _state.first > _GRACE_SECONDS:
            before_exit()
            os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, handle)


@contextmanager
def held() -> Iterator[None]:
    """Within, a first Ctrl-C waits; it is raised at the end. A second one still ends."""
    _state.held += 1
    try:
        yield
    finally:
        _state.held -= 1
    if _state.pending and not _state.held:
        _state.pending = False
        raise KeyboardInterrupt
