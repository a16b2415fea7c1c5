"""The only file that prints. stdout carries the answer, stderr everything else.

Text goes out as it is, never through markup; on a terminal control codes are made visible.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TextIO

from llmcli.cli.control_codes import ControlCodes, visible, visible_line
from llmcli.errors import LlmcliError

# Less than any output buffer holds, so that a write either takes all of it or nothing.
_PIECE_BYTES = 4096


class OutputError(LlmcliError):
    """stdout cannot take the answer."""


class ReaderGoneError(Exception):
    """Whoever read stdout has closed it; there is nobody left to write for."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is open and shown to a person."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def shows_notices() -> bool:
    """stderr is shown to a person, who may want to know what is going on."""
    return is_terminal(sys.stderr)


class Answer:
    """stdout, for the answer alone: each piece is written and flushed at once.

    To a pipe or a file the text goes unchanged, in UTF-8 whatever the locale; on a terminal
    control codes are made visible unless `raw`. Raises OutputError where stdout is closed.
    """

    def __init__(self, *, raw: bool = False) -> None:
        if sys.stdout is None or sys.stdout.closed:
            raise OutputError(
                "standard output is closed, so the answer has nowhere to go",
                hint="redirect it to a file, or to /dev/null",
            )
        self.stream = sys.stdout
        terminal = is_terminal(self.stream)
        self._codes = ControlCodes() if terminal and not raw else None
        self._encoding = _encoding(sys.stdout) if terminal else "utf-8"
        self.styled = terminal and not _plain()
        self._dim = False

    def write(self, piece: str, *, dim: bool = False) -> None:
        """`dim` is for what matters less; it shows where stdout is a terminal with styles."""
        text = piece if self._codes is None else self._codes.feed(piece)
        self._send(self._turned(dim) + text)

    def write_rendered(self, text: str) -> None:
        """Text of our own making, whose escape sequences are meant."""
        self._send(self._turned(False) + text)

    def end(self) -> None:
        """One newline ends every answer, so that the text before it can be told exactly."""
        rest = self._codes.flush() if self._codes else ""
        self._send(rest + self._turned(False) + "\n")

    def _turned(self, dim: bool) -> str:
        if not self.styled or dim == self._dim:
            return ""
        self._dim = dim
        return "\x1b[2m" if dim else "\x1b[0m"

    def _send(self, text: str) -> None:
        try:
            data = text.encode(self._encoding, "replace")
            for start in range(0, len(data), _PIECE_BYTES):
                _write(sys.stdout.buffer, data[start : start + _PIECE_BYTES])
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            raise OutputError(
                f"standard output cannot be written: {error.strerror or error}",
                hint="free some space, or send the output elsewhere",
            ) from error


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value in one line on stdout."""
    answer = Answer(raw=True)
    answer.write(json_line(value))
    answer.end()


def print_line(line: str) -> None:
    """One line that was asked for, on stdout."""
    answer = Answer()
    answer.write(visible_line(line))
    answer.end()


def json_line(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """One JSON value in one line; what JSON lets through though it controls is escaped.

    That is DEL, C1, and the line and paragraph separators, at which some readers split lines.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(
        f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" or c in "\u2028\u2029" else c for c in text
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table on stdout: columns padded to their widest cell, nothing wrapped or cut."""
    from rich.cells import cell_len

    lines = [[visible_line(cell) for cell in line] for line in (header, *rows)]
    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(header))]
    answer = Answer()
    for number, line in enumerate(lines):
        cells = [c + " " * (w - cell_len(c)) for c, w in zip(line, widths, strict=True)]
        answer.write(("\n" if number else "") + "  ".join(cells).rstrip())
    answer.end()


def note(line: str = "", *, style: str = "") -> None:
    """One line on stderr: a notice, a warning, a statistic; in an ANSI style where that shows."""
    text = visible_line(line)
    _stderr((paint(text, style) if style else text) + "\n")


def ask(mark: str) -> None:
    """A prompt mark on stderr; what is typed follows it in the same line."""
    _stderr(visible_line(mark))


def show(text: str) -> None:
    """Several lines of our own on stderr, such as a help text."""
    _stderr(visible(text) + "\n")


def fail(error: LlmcliError, *, debug: bool) -> None:
    """The error's line, a blank line and the hint, on stderr; with `debug` the traceback first."""
    if debug:
        _stderr(visible("".join(traceback.format_exception(error))) + "\n")
    _stderr(f"{paint('error:', '1;31')} {visible_line(error.message)}\n")
    if error.hint:
        _stderr(f"\n{paint('hint:', '1;36')} {visible_line(error.hint)}\n")


def paint(text: str, style: str) -> str:
    """`text` in an ANSI style where stderr is a terminal that shows colours."""
    return f"\x1b[{style}m{text}\x1b[0m" if shows_colour() else text


def shows_colour() -> bool:
    """stderr is a terminal, and neither NO_COLOR nor a dumb terminal forbids colour."""
    return draws() and not os.environ.get("NO_COLOR")


def draws() -> bool:
    """stderr is a terminal that can move its cursor, so that a bar can be drawn over."""
    return is_terminal(sys.stderr) and not is_dumb()


def is_dumb() -> bool:
    """The terminal, wherever there is one, cannot move its cursor."""
    return os.environ.get("TERM") in ("dumb", "")


def _plain() -> bool:
    return is_dumb() or bool(os.environ.get("NO_COLOR"))


@contextlib.contextmanager
def kept_modes() -> Iterator[Callable[[], None]]:
    """Gives a way to put the terminal's modes back as they are now, and does so at the end."""
    try:
        import termios
    except ImportError:  # Windows
        yield lambda: None
        return
    try:
        number = sys.stdin.fileno()
        modes = termios.tcgetattr(number)
    except (OSError, ValueError, AttributeError, termios.error):
        yield lambda: None
        return

    def put_back() -> None:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(number, termios.TCSANOW, modes)

    try:
        yield put_back
    finally:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(number, termios.TCSANOW, modes)


def has_input() -> bool:
    """Whether standard input has something to read already, a whole line or an end of input."""
    try:
        return sys.stdin is not None and bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, ValueError):
        # Windows selects among sockets alone
        return False


def width(stream: TextIO | None) -> int | None:
    """Columns of a terminal, $COLUMNS first; None where the stream is no terminal."""
    if stream is None or not is_terminal(stream):
        return None
    with contextlib.suppress(ValueError):
        asked = int(os.environ.get("COLUMNS", "0"))
        if asked > 0:
            return asked
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def encodes(stream: TextIO | None, signs: str) -> bool:
    """Whether the stream can show these signs; a dumb terminal is taken to know ASCII alone."""
    if stream is None or (is_terminal(stream) and os.environ.get("TERM") in ("dumb", "")):
        return False
    try:
        signs.encode(_encoding(stream))
    except UnicodeEncodeError:
        return False
    return True


def restore() -> None:
    """Before a sudden end: give the terminal back its cursor, should a bar have hidden it."""
    if draws():
        # Not through sys.stderr, which the interrupted code may have been writing to.
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), b"\x1b[?25h\n")


def flush() -> None:
    """The end: whatever else was printed goes out, and nobody is told of a failure any more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue


def _write(stream: IO[bytes], data: bytes) -> None:
    """Write and flush all of `data`, also where a pipe was left non-blocking and is full."""
    while data:
        try:
            # A raw stream (python -u) takes a part, or None where it would block.
            count = stream.write(data)
            data = data[count or 0 :]
            stream.flush()
        except BlockingIOError:
            _flush(stream)
        else:
            if not count:
                _wait(stream)


def _flush(stream: IO[bytes]) -> None:
    while True:
        _wait(stream)
        try:
            stream.flush()
        except BlockingIOError:
            continue
        return


def _wait(stream: IO[bytes]) -> None:
    select.select([], [stream], [], 1.0)


def _stderr(text: str) -> None:
    try:
        if sys.stderr is not None:
            encoding = _encoding(sys.stderr)
            sys.stderr.write(text.encode(encoding, "replace").decode(encoding, "replace"))
            sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody can be told that nobody can be told.
        return


def _encoding(stream: TextIO) -> str:
    try:
        return codecs.lookup(stream.encoding or "utf-8").name
    except LookupError:
        return "utf-8"
