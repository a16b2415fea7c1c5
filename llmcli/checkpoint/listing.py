"""What can still be listed of a checkpoint whose weight files are cut, damaged or missing.

Must not know families or torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.header import StoredTensor, read_header
from llmcli.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Listing:
    """Every tensor that some readable header names, and all that is wrong with the files."""

    tensors: dict[str, StoredTensor]
    faults: tuple[CheckpointError, ...]


def list_tensors(directory: ModelDir) -> Listing:
    """Raises nothing for the weight files: a fault of theirs is part of the result."""
    try:
        return Listing(directory.tensors(), ())
    except CheckpointError as error:
        first = error
    try:
        files = directory.weight_files()
    except CheckpointError as error:
        return Listing({}, (error,))
    found: dict[str, StoredTensor] = {}
    faults: list[CheckpointError] = []
    for file in files:
        if not file.exists():
            if len(files) > 1:
                faults.append(_missing(file.name))
            continue
        for whole in (True, False):
            try:
                found.update(read_header(file, whole=whole).tensors)
                break
            except CheckpointError as error:
                if whole:
                    faults.append(error)
    return Listing(found, tuple(faults) or (first,))


def _missing(name: str) -> CheckpointError:
    return CheckpointError(
        f"{printable(name)} is missing", hint="the download is not complete; fetch it again"
    )
