"""--receipt FILE: written whole or not at all, after the text. Must not know tensors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.acquire.resolve import Resolved
from llmcli.checkpoint.escape import printable
from llmcli.cli.progress import StepProgress
from llmcli.cli.running import Run
from llmcli.errors import LlmcliError, UsageError

if TYPE_CHECKING:
    from llmcli.engine.receipt import Model


def check_target(path: Path) -> None:
    """Raise UsageError, before anything is loaded, where no receipt can or should be written."""
    shown = printable(str(path))
    if not path.parent.is_dir():
        raise UsageError(
            f"--receipt {shown}: there is no folder {printable(str(path.parent))}",
            hint="make it first, or give another file",
        )
    if path.is_dir():
        raise UsageError(f"--receipt {shown} is a folder", hint="give a file's name")
    if path.exists() and not _is_receipt(path):
        raise UsageError(
            f"--receipt {shown} is there, and it is no receipt",
            hint="give a new file; only a receipt is ever written over",
        )


def write_receipt(run: Run, path: Path) -> None:
    """Hash the checkpoint and write. Raises LlmcliError where the disk does not take it."""
    from llmcli.engine.receipt import as_text, make_receipt

    receipt = make_receipt(
        run.engine,
        run.generation,
        run.options,
        model=identity(run.resolved),
        draft=identity(run.draft) if run.draft else None,
    )
    try:
        _write_whole(path, as_text(receipt).encode())
    except OSError as error:
        raise LlmcliError(
            f"--receipt {printable(str(path))} cannot be written: {error.strerror or error}",
            hint="free some space, or give another file",
        ) from error


def identity(resolved: Resolved) -> Model:
    """The name and the hashed files of a checkpoint, with progress."""
    from llmcli.engine.identity import identify
    from llmcli.engine.receipt import Model

    bar = StepProgress("hashing the checkpoint")
    try:
        return Model(name=resolved.name, files=identify(resolved.path, on_progress=bar))
    finally:
        bar.finish()


def _is_receipt(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return not head or b'"llmcli_receipt"' in head


def _write_whole(path: Path, data: bytes) -> None:
    """Beside it first, then in its place."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
