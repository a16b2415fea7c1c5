"""--receipt FILE: written whole or not at all, after the text. Must not know tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.acquire.resolve import Resolved
from llmcli.cli.files import write_bytes_whole
from llmcli.cli.hashing import hashed
from llmcli.cli.running import Run

if TYPE_CHECKING:
    from llmcli.engine.receipt import Model


def write_receipt(run: Run, path: Path) -> None:
    """Hash the checkpoint and write. Raises LlmcliError where the disk does not take it."""
    from llmcli.engine.receipt import make_receipt
    from llmcli.engine.receipt_file import as_text

    receipt = make_receipt(
        run.engine,
        run.generation,
        run.options,
        model=identity(run.resolved),
        draft=identity(run.draft) if run.draft else None,
    )
    write_bytes_whole(path, as_text(receipt).encode())


def identity(resolved: Resolved) -> Model:
    """The name and the hashed files of a checkpoint."""
    from llmcli.engine.receipt import Model

    return Model(name=resolved.name, files=hashed(resolved))
