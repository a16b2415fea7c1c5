"""A folder that is there whole or not at all. Must not know what is written into it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmcli.checkpoint.escape import printable
from llmcli.errors import UsageError


def check_new(out: Path) -> None:
    """Raise UsageError where there is something already."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(f"{printable(str(out))} is there already", hint="give a new folder")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"{printable(str(out))} holds files already", hint="give a new or an empty folder"
        )


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out`, which takes its place at the end; after an exception none is left."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name[:80]}.", suffix=".partial", dir=out.parent))
    try:
        # A temporary folder is for its owner alone; this one is to be as any other.
        beside.chmod(0o777 & ~_umask())
        yield beside
        if out.is_dir():
            out.rmdir()
        beside.rename(out)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
