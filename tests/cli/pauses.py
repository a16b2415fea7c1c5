"""Places where a child stops and says so, to be interrupted just there; or tells of itself.

Functions of a module, since they travel to the child by name.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.abc import MetaPathFinder
from typing import Any, NoReturn

# Slices of a wait longer than any test's: only an interrupt ends it. In one long sleep a signal
# that comes just before the system call would wait for its end.
_SLICE, _SLICES = 0.05, 12_000


def _wait() -> None:
    for _ in range(_SLICES):
        time.sleep(_SLICE)


def _pause() -> NoReturn:
    os.write(2, b"PAUSED")
    _wait()
    sys.exit("nobody interrupted")


def under_a_bar() -> None:
    """While the weights are loaded, with a bar that has hidden the cursor."""
    from llmcli.cli import progress

    real = progress.StepProgress.__call__

    def called(self: progress.StepProgress, *args: Any) -> None:
        real(self, *args)
        if self._bar is not None:
            _pause()

    progress._PATIENCE_SECONDS = -1
    progress.StepProgress.__call__ = called  # type: ignore[method-assign]


def in_prefill() -> None:
    """Within the first pass through the decoder."""
    from llmcli.model import Decoder

    def forward(*_: Any, **__: Any) -> NoReturn:
        _pause()

    Decoder.forward = forward  # type: ignore[method-assign]


def while_loading() -> None:
    """Within the reading of the weights."""
    from llmcli.checkpoint.tensors import TensorFiles

    def parameters(*_: Any, **__: Any) -> NoReturn:
        _pause()

    TensorFiles.parameters = parameters  # type: ignore[method-assign]


def before_the_third_token() -> None:
    """After two new tokens, before the pass that gives the third."""
    _before_token(3)


def before_the_fourth_token() -> None:
    _before_token(4)


def _before_token(number: int) -> None:
    from llmcli.generation.stepper import Stepper

    real, passes = Stepper.feed, [0]

    def feed(self: Stepper, new: Any) -> Any:
        passes[0] += 1
        if passes[0] == number:
            _pause()
        return real(self, new)

    Stepper.feed = feed  # type: ignore[method-assign]


def swallowing() -> None:
    """A first press is swallowed, as C code that imports may do; the text goes on."""
    from llmcli.generation.stepper import Stepper

    real = Stepper.feed

    def feed(self: Stepper, new: Any) -> Any:
        try:
            if self.ids.shape[1]:
                os.write(2, b"PAUSED")
                _wait()
        except KeyboardInterrupt:
            pass
        return real(self, new)

    Stepper.feed = feed  # type: ignore[method-assign]


def deaf() -> None:
    """Busy, and deaf to exceptions: only the second press can end it."""
    from llmcli.generation.stepper import Stepper

    def feed(*_: Any) -> NoReturn:
        told = b"PAUSED"
        while True:
            try:
                os.write(2, told)
                _wait()
            except KeyboardInterrupt:
                told = b"SWALLOWED"

    Stepper.feed = feed  # type: ignore[method-assign]


def tell_next_descriptor() -> None:
    """Which number a file gets that is opened while a checkpoint is."""
    from llmcli.checkpoint.directory import ModelDir

    real = ModelDir.open

    def opened(path: Any) -> ModelDir:
        number = os.open(os.devnull, os.O_RDONLY)
        os.write(1, f"next descriptor: {number}".encode())
        return real(path)

    ModelDir.open = opened  # type: ignore[method-assign, assignment]


def swallowed_while_importing() -> None:
    """As torch is imported, by something that swallows exceptions and goes on for long."""
    name = "llmcli.engine.engine"
    sys.modules.pop(name, None)

    class Finder(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            told = b"PAUSED"
            while fullname == name:
                try:
                    os.write(2, told)
                    _wait()
                except KeyboardInterrupt:
                    told = b"SWALLOWED"

    sys.meta_path.insert(0, Finder())
