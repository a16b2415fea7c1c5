"""The hashes of a checkpoint's files, with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.cli.progress import StepProgress

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.engine.identity import FileIdentity


def hashed(resolved: Resolved) -> dict[str, FileIdentity]:
    """By name in the folder; every byte of every file is read."""
    from llmcli.engine.identity import identify

    bar = StepProgress("hashing the checkpoint")
    try:
        return identify(resolved.path, on_progress=bar)
    finally:
        bar.finish()
