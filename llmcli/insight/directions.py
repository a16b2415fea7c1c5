"""Rows of a matrix as directions in space, which NaN and infinity do not have."""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.errors import CheckpointError
from llmcli.plurals import counted

# Rows looked at in one go; a matrix may be larger than what is free.
_ROWS = 16384


def check_directions(rows: Tensor, what: str) -> None:
    """Raise CheckpointError where a row [n, dim] of `what` holds NaN or infinity."""
    bad = sum(int((~part.isfinite().all(1)).sum()) for part in torch.split(rows, _ROWS))
    if bad:
        raise CheckpointError(
            f"the {what} holds NaN or infinity in {bad:,} of its {counted(len(rows), 'row')}",
            hint="llmcli inspect-layers --view check --values names the tensors that are damaged",
        )
