"""The prompt from the argument, a file and standard input, decoded strictly.

Must not know checkpoints. Argument first, then what is piped in, joined by one newline.
"""

from __future__ import annotations

import stat
import sys
import threading
from pathlib import Path

from llmcli.cli import terminal
from llmcli.errors import UsageError

# A pipe that nobody closes would look like a hang; after this long we say what we wait for.
_NOTICE_SECONDS = 3.0


def read_prompt(argument: str | None, file: Path | None) -> str:
    """The whole prompt; a final newline of a file or of standard input is not part of it.

    Raises UsageError where nothing was given at all, or where the input is not UTF-8.
    """
    if argument is not None and argument != "-":
        _check_argument(argument)
    if argument == "-" and file is not None:
        raise UsageError("both `-` and --file were given", hint="give one of them")
    parts = [] if argument in (None, "-") else [str(argument)]
    if file is not None:
        parts.append(_read_file(file))
    piped = _read_stdin() if argument == "-" or _is_piped() else None
    if piped or (piped is not None and not parts):
        parts.append(piped)
    if not parts:
        raise UsageError(
            "no prompt was given",
            hint='llmcli generate "What is the capital of France?", --file FILE, or pipe one in',
        )
    return "\n".join(parts)


def _is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file (not a terminal, not /dev/null)."""
    try:
        mode = stat.S_IFMT(_stdin_stat())
    except (OSError, ValueError, AttributeError):
        return False
    return mode in (stat.S_IFIFO, stat.S_IFREG, stat.S_IFSOCK)


def _stdin_stat() -> int:
    import os

    return os.fstat(sys.stdin.fileno()).st_mode


def _read_stdin() -> str:
    timer = threading.Timer(_NOTICE_SECONDS, terminal.note, ["reading standard input ..."])
    timer.daemon = True
    timer.start()
    try:
        return _decoded(sys.stdin.buffer.read(), "standard input")
    finally:
        timer.cancel()


def _read_file(path: Path) -> str:
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(
            f"--file {path} cannot be read: {error.strerror or error}",
            hint="check the path and its permissions",
        ) from error


def _decoded(data: bytes, origin: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{origin} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            hint="convert it first, for example with `iconv -t UTF-8`",
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def _check_argument(argument: str) -> None:
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the prompt is not valid text at character {error.start}",
            hint="the argument's bytes are not UTF-8; put the prompt into a file",
        ) from error
