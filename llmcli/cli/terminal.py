"""The only file that prints. stdout carries the answer, stderr everything else.

Text goes out as it is, never through markup; on a terminal control codes are made visible.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import IO, Any

from llmcli.cli.control_codes import ControlCodes, visible
from llmcli.errors import LlmcliError


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether the stream is open and shown to a person."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


class Answer:
    """stdout, for the answer alone: each piece is written and flushed at once.

    To a pipe or a file the text goes unchanged, in UTF-8 whatever the locale; on a terminal
    control codes are made visible unless `raw`.
    """

    def __init__(self, *, raw: bool = False) -> None:
        terminal = is_terminal(sys.stdout)
        self._codes = ControlCodes() if terminal and not raw else None
        self._encoding = _terminal_encoding() if terminal else "utf-8"

    def write(self, piece: str) -> None:
        self._send(piece if self._codes is None else self._codes.feed(piece))

    def end(self) -> None:
        """One newline ends every answer, so that the text before it can be told exactly."""
        self._send((self._codes.flush() if self._codes else "") + "\n")

    def _send(self, text: str) -> None:
        if text and sys.stdout is not None:
            sys.stdout.buffer.write(text.encode(self._encoding, "replace"))
            sys.stdout.buffer.flush()


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value on stdout; DEL and C1, which JSON would let through, are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    safe = "".join(f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" else c for c in text)
    answer = Answer(raw=True)
    answer.write(safe)
    answer.end()


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table on stdout: columns padded to their widest cell, nothing wrapped or cut."""
    from rich.cells import cell_len

    lines = [header, *rows] if is_terminal(sys.stdout) or rows else []
    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(header))]
    answer = Answer()
    for number, line in enumerate(lines):
        cells = [
            visible(cell) + " " * (width - cell_len(cell))
            for cell, width in zip(line, widths, strict=True)
        ]
        answer.write(("\n" if number else "") + "  ".join(cells).rstrip())
    answer.end()


def note(line: str = "") -> None:
    """One line on stderr: a notice, a warning, a statistic."""
    _stderr(visible(line) + "\n")


def fail(error: LlmcliError, *, debug: bool) -> None:
    """The error's line, a blank line and the hint, on stderr; with `debug` the traceback first."""
    if debug:
        _stderr(visible("".join(traceback.format_exception(error))) + "\n")
    _stderr(f"{paint('error:', '1;31')} {visible(error.message)}\n")
    if error.hint:
        _stderr(f"\n{paint('hint:', '1;36')} {visible(error.hint)}\n")


def crash(error: BaseException) -> None:
    """A bug of ours, with its whole traceback."""
    _stderr(visible("".join(traceback.format_exception(error))))


def paint(text: str, style: str) -> str:
    """`text` in an ANSI style where stderr is a terminal that shows colours."""
    return f"\x1b[{style}m{text}\x1b[0m" if shows_colour() else text


def shows_colour() -> bool:
    """stderr is a terminal, and neither NO_COLOR nor a dumb terminal forbids colour."""
    return (
        is_terminal(sys.stderr)
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in ("dumb", "")
    )


def silence_stdout() -> None:
    """After a broken pipe: let the interpreter flush what is left into nothing."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stderr(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(
            text.encode(sys.stderr.encoding or "utf-8", "replace").decode(
                sys.stderr.encoding or "utf-8", "replace"
            )
        )
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody can be told that nobody can be told.
        return


def _terminal_encoding() -> str:
    try:
        return codecs.lookup(sys.stdout.encoding or "utf-8").name
    except LookupError:
        return "utf-8"
