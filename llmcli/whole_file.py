"""A file written beside its place first, so that nobody ever sees half of one.

Imports nothing of ours, so that every room may use it; must not know what is in the file.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BINARY: int = getattr(os, "O_BINARY", 0)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write a new file to; at the end it takes the place of `path`.

    Whatever is raised meanwhile, OSError included, leaves `path` as it was and nothing beside it.
    """
    # A long name may have no room for more.
    beside = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}.partial")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    with suppress(OSError):
        _sync_folder(path.parent)


def write_whole(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """All of `data` or nothing; the user's umask takes from `mode`. Raises OSError."""
    with replacing(path) as beside:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode)
        try:
            write_all(file, data)
        finally:
            os.close(file)


def write_all(file: int, data: bytes) -> None:
    """Every byte to an open file, and on to the disk itself."""
    view = memoryview(data)
    with os.fdopen(file, "wb", buffering=0, closefd=False) as out:
        while view:
            view = view[out.write(view) :]
    os.fsync(file)


def _sync_folder(folder: Path) -> None:
    """Make a new name outlive a power failure, where the platform can."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
