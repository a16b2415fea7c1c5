"""A file written whole or not at all. Must not know what is in it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from llmcli.checkpoint.escape import printable
from llmcli.cli import terminal
from llmcli.errors import LlmcliError, UsageError


def check_target(option: str, path: Path) -> None:
    """Raise UsageError for what can be told before anything is computed."""
    shown = printable(str(path))
    if path.is_dir():
        raise UsageError(f"{option} {shown} is a folder", hint="give a file's name in it")
    if not path.parent.is_dir():
        raise UsageError(
            f"{option} {shown}: there is no folder {printable(str(path.parent))}",
            hint="make the folder first",
        )


def write_whole(path: Path, text: str) -> None:
    """Write `text` beside `path`, then put it in its place; say so on stderr."""
    write_bytes_whole(path, text.encode())


def write_bytes_whole(path: Path, data: bytes) -> None:
    """The same for bytes."""
    shown = printable(str(path))
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # a device or a pipe, such as /dev/stdout
        return
    beside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)  # noqa: PTH105
    except OSError as error:
        raise LlmcliError(
            f"{shown} cannot be written: {error.strerror or error}",
            hint="check the folder's permissions and free space",
        ) from error
    finally:
        beside.unlink(missing_ok=True)
    terminal.note(f"wrote {shown}")
