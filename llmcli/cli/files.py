"""Files that a user asks for: checked before anything is computed, written whole or not at all.

Must not know what is in them.
"""

from __future__ import annotations

from pathlib import Path

from llmcli import whole_file
from llmcli.checkpoint.escape import printable
from llmcli.cli import terminal
from llmcli.errors import LlmcliError, UsageError

# How many of a file's first bytes are searched for the mark of its kind.
_HEAD = 4096


def check_target(option: str, path: Path, *, only: str | None = None, what: str = "") -> None:
    """Raise UsageError for what can be told before anything is computed.

    With `only`, a mark in the first bytes, no other kind of file is written over; `what` names
    the kind.
    """
    shown = printable(str(path))
    if path.is_dir():
        raise UsageError(f"{option} {shown} is a folder", hint="give a file's name in it")
    if not path.parent.is_dir():
        raise UsageError(
            f"{option} {shown}: there is no folder {printable(str(path.parent))}",
            hint="make the folder first, or give another file",
        )
    if only is not None and path.exists() and not _begins_with(path, only.encode()):
        raise UsageError(
            f"{option} {shown} is there, and it is no {what}",
            hint=f"give a new file; only a {what} is ever written over",
        )


def write_whole(path: Path, text: str) -> None:
    """`text` as `write_bytes_whole` writes it; said on stderr."""
    write_bytes_whole(path, text.encode())
    terminal.note(f"wrote {printable(str(path))}")


def write_bytes_whole(path: Path, data: bytes) -> None:
    """Raises LlmcliError where the disk does not take it."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe, such as /dev/stdout
        else:
            whole_file.write_whole(path, data)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> LlmcliError:
    """One line with the reason."""
    return LlmcliError(
        f"{printable(str(path))} cannot be written: {error.strerror or error}",
        hint="check the folder, its permissions and free space",
    )


def _begins_with(path: Path, mark: bytes) -> bool:
    """Whether the mark is near the beginning; an empty file may be written over too."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return not head or mark in head
