"""Files of conversations: read, and written whole or not at all. Errors say what to do.

Must not know what stands in them.
"""

from __future__ import annotations

from pathlib import Path

from llmcli import whole_file
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
        whole_file.write_whole(path, data, mode=FOR_OWNER)
    except (OSError, RuntimeError, ValueError) as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {reason(error)}",
        hint="check the folder, its permissions and free space",
    )


def reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
