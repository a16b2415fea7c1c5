"""Parameters packed one after the other on their way from a file into a decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError
from llmcli.model.packed import Packed, pack
from llmcli.spec import PackingKind


def packed_parameters(
    parameters: Iterable[tuple[str, Tensor | Packed]],
    kinds: Mapping[str, PackingKind],
    *,
    device: torch.device,
) -> Iterator[tuple[str, Tensor | Packed]]:
    """Those that `kinds` names are packed and put on `device`; the others are passed on.

    Nothing of a matrix is held but what it was packed into. Raises CheckpointError for one with
    a number that is not finite, which no code stands for.
    """
    for name, tensor in parameters:
        kind = kinds.get(name)
        if kind is None or isinstance(tensor, Packed):
            yield name, tensor
            continue
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{printable(name)} cannot be quantised: it holds a value that is not finite",
                hint="the checkpoint is damaged; fetch it again",
            )
        yield name, pack(tensor, kind).to(device)
