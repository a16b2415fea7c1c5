"""Files of conversations: read, and written whole or not at all. Errors say what to do.

Must not know what stands in them.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from llmcli.errors import StorageError, UsageError

FOR_OWNER = 0o600


def read_file(path: Path) -> bytes:
    """Raises StorageError for what is not a file that can be read."""
    try:
        # A device or a pipe might never end
        if path.exists() and not path.is_file():
            raise StorageError(f"{path} is not a file", hint="give a conversation's file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} cannot be read: {reason(error)}", hint="check the file's name"
        ) from error


def write_whole(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a file for its owner alone, which is never seen half written.

    Raises UsageError where there is a file and not `replace`, StorageError where it cannot be
    written.
    """
    try:
        path = path.expanduser().resolve()
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file", hint="give a file's name")
        if path.exists() and not replace:
            raise UsageError(f"there is a file {path} already", hint="give another name")
        _write(path, data)
    except (OSError, RuntimeError, ValueError) as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {reason(error)}",
        hint="check the folder, its permissions and free space",
    )


def reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_all(file: int, data: bytes) -> None:
    """Every byte, and on the disk itself."""
    view = memoryview(data)
    with os.fdopen(file, "wb", buffering=0, closefd=False) as out:
        while view:
            view = view[out.write(view) :]
    os.fsync(file)


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}.partial")
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, FOR_OWNER)
    try:
        try:
            write_all(file, data)
        finally:
            os.close(file)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a new name outlive a power failure, where the platform can."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


_BINARY: int = getattr(os, "O_BINARY", 0)
