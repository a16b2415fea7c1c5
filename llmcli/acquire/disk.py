"""Files on a disk that may be full: hashing, linking, room. Must not know where bytes come from."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from llmcli.checkpoint.escape import printable
from llmcli.errors import AcquireError

CHUNK = 1 << 20
_REFUSED = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOENT,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}
_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}


class DiskFullError(AcquireError):
    """There is no room for the checkpoint; no other source would help."""


def sha256_of(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file, read in small pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            if on_bytes:
                on_bytes(len(piece))
    return digest.hexdigest()


def require_room(folder: Path, needed: int) -> None:
    """Refuse before anything is fetched when `folder`'s disk cannot take `needed` bytes."""
    if needed > _free(folder):
        raise disk_full(folder, needed)


@contextmanager
def disk_faults(folder: Path, needed: int | None = None) -> Iterator[None]:
    """Turn a full disk, and a folder that cannot be written, into one clear error."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise disk_full(folder, needed) from error
        if error.errno in _REFUSED:
            name = printable(str(error.filename or folder))
            raise AcquireError(
                f"{name} cannot be written: {error.strerror}",
                hint="give another folder; LLMCLI_HOME says where pulled checkpoints go",
            ) from error
        raise


def is_full(error: BaseException | None) -> bool:
    """Whether `error`, or what caused it, is a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_full(folder: Path, needed: int | None) -> DiskFullError:
    # Half-made folders are hidden ones that come and go: name the folder that holds them.
    hidden = [part for part in (folder, *folder.parents) if part.name.endswith(".partial")]
    shown = hidden[-1].parent if hidden else folder
    wanted = "" if needed is None else f"{needed:,} bytes are needed, "
    return DiskFullError(
        f"the disk of {printable(str(shown))} is full: {wanted}{_free(folder):,} bytes are free",
        hint="free some space, or set LLMCLI_HOME to a folder on another disk",
    )


def share(source: Path, target: Path) -> None:
    """Put `source` at `target` without doubling its bytes where the disk allows it.

    A hard link outlives a cleaned cache; a symbolic link crosses disks; a copy always works.
    """
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:
        try:
            target.symlink_to(real)
        except OSError:
            shutil.copyfile(real, target)


def remove(path: Path) -> None:
    """Delete a file or a folder, whether or not it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
