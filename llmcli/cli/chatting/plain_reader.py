"""Messages from a pipe, a file, or a terminal that cannot move its cursor: one a line.

Must not know conversations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from llmcli.cli import interrupts, terminal
from llmcli.cli.chatting.blocks import completed
from llmcli.cli.chatting.typed import PressedError, Typed
from llmcli.errors import UsageError


class PlainReader:
    """Reads bytes, as the locale of a pipe says nothing about its text. Prompt marks, for a
    terminal, go to stderr."""

    def __init__(self) -> None:
        self.interactive = terminal.is_terminal(sys.stdin)
        self._number = 0

    def read(self, *, meter: Callable[[], str], draft: str = "") -> Typed:  # noqa: ARG002
        """Raises EOFError at the end, PressedError at Ctrl-C, UsageError for a line not UTF-8.

        The meter is not shown, as the line after each turn has it.
        """
        if draft:
            terminal.show(draft)
        try:
            return completed(self._line("> "), lambda: self._line(". "))
        except KeyboardInterrupt:
            interrupts.rearm()
            raise PressedError(empty=True) from None

    def _line(self, mark: str) -> str:
        if self.interactive:
            terminal.ask(mark)
        if sys.stdin is None or not (data := sys.stdin.buffer.readline()):
            raise EOFError
        self._number += 1
        try:
            text = data.decode("utf-8-sig" if self._number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"line {self._number} of the input is not UTF-8: byte "
                f"0x{data[error.start]:02x} at offset {error.start}",
                hint="convert it first, for example with `iconv -f ITS_ENCODING -t UTF-8`",
            ) from None
        return text.removesuffix("\n").removesuffix("\r")
