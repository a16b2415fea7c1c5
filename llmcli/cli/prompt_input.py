"""The prompt from the argument, a file and standard input, decoded strictly.

Must not know checkpoints. Argument first, then --file, then what is piped in, joined by newlines.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

from llmcli.cli import terminal
from llmcli.errors import UsageError

# A pipe that nobody closes would look like a hang; after this long we say what we wait for.
_NOTICE_SECONDS = 3.0
_STDIN = "-"


def read_prompt(argument: str | None, file: Path | None) -> str:
    """The whole prompt; one final newline of a file or of standard input is not part of it.

    Raises UsageError where nothing was given at all, or where the input is not UTF-8.
    """
    dashes = [argument == _STDIN, str(file) == _STDIN]
    if all(dashes):
        raise UsageError("standard input was asked for twice", hint="give `-` once")
    parts = []
    if argument is not None and not dashes[0]:
        parts.append(argument)
    if file is not None and not dashes[1]:
        parts.append(read_text(file, f"--file {file}"))
    piped = without_end(_read_stdin()) if any(dashes) or is_piped() else None
    # What is empty adds nothing, not even a newline, to a prompt that was given.
    if piped or (piped is not None and not parts):
        parts.append(piped)
    if not parts:
        raise UsageError(
            "no prompt was given",
            hint='llmcli generate "What is the capital of France?", --file FILE, or pipe one in',
        )
    return "\n".join(parts)


def read_whole(path: Path, origin: str) -> str:
    """All of a UTF-8 file, or of standard input where that is `-`; else as `read_text`."""
    return _read_stdin() if str(path) == _STDIN else _read_file(path, origin)


def utf8_argument(what: str, text: str) -> str:
    """An argument as UTF-8, also where the locale is not; refused where its bytes are not UTF-8.

    Python hands bytes on that the locale cannot decode as halves of surrogate pairs.
    """
    try:
        return os.fsencode(text).decode("utf-8") if not text.isascii() else text
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UsageError(
            f"{what} is not UTF-8: byte 0x{byte:02x} at offset {error.start}",
            hint="put the text into a UTF-8 file and give --file",
        ) from None


def is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file (not a terminal, not /dev/null)."""
    try:
        mode = stat.S_IFMT(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False
    return mode in (stat.S_IFIFO, stat.S_IFREG, stat.S_IFSOCK)


def _read_stdin() -> str:
    if sys.stdin is None:
        raise UsageError("standard input is closed", hint="give the prompt as an argument")
    typed = terminal.is_terminal(sys.stdin)
    notice = "type the prompt, then Ctrl-D" if typed else "reading standard input ..."
    timer = threading.Timer(0 if typed else _NOTICE_SECONDS, terminal.note, [notice])
    timer.daemon = True
    timer.start()
    try:
        return decoded(sys.stdin.buffer.read(), "standard input")
    except OSError as error:
        raise UsageError(
            f"standard input cannot be read: {error.strerror or error}",
            hint="give the prompt as an argument, or pipe it in",
        ) from error
    finally:
        timer.cancel()


def read_text(path: Path, origin: str) -> str:
    """A UTF-8 file without its final newline; `origin` is what messages call it.

    Raises UsageError where it cannot be read or is not UTF-8.
    """
    return without_end(_read_file(path, origin))


def _read_file(path: Path, origin: str) -> str:
    try:
        return decoded(path.read_bytes(), origin)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(
            f"{origin} cannot be read: {reason or error}",
            hint="check the path and its permissions",
        ) from error


def decoded(data: bytes, origin: str) -> str:
    """UTF-8 without its byte order mark; `origin` names it in errors."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        coding = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "ITS_ENCODING"
        raise UsageError(
            f"{origin} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            hint=f"convert it first, for example with `iconv -f {coding} -t UTF-8`",
        ) from None


def without_end(text: str) -> str:
    """Without one final newline."""
    return text.removesuffix("\n").removesuffix("\r")
