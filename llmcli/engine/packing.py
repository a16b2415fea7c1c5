"""Parameters on their way from a file into a decoder: packed, or put together of stored parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError
from llmcli.model.packed import Int4, Int8, Packed, pack
from llmcli.spec import INT4_GROUP, PackingKind
from llmcli.spec.parameters import Shape


def packed_parameters(
    parameters: Iterable[tuple[str, Tensor | Packed]],
    kinds: Mapping[str, PackingKind],
    *,
    device: torch.device,
) -> Iterator[tuple[str, Tensor | Packed]]:
    """Those that `kinds` names are packed and put on `device`; the others are passed on.

    Nothing of a matrix is held but what it was packed into. Raises as `packed` does.
    """
    for name, tensor in parameters:
        kind = kinds.get(name)
        if kind is None or isinstance(tensor, Packed):
            yield name, tensor
        else:
            yield name, packed(name, tensor, kind).to(device)


def packed(name: str, tensor: Tensor, kind: PackingKind, *, group: int = INT4_GROUP) -> Packed:
    """Raises CheckpointError for a number that no code stands for."""
    # Looked for on both sides: a code hides NaN, and a float16 minimum has no room for much. The
    # extremes tell, as NaN is one, and take no memory.
    ends = torch.stack(tensor.aminmax())
    made = pack(tensor, kind, group=group) if bool(ends.isfinite().all()) else None
    scales = [] if made is None else [part for key, part in made.parts.items() if key != "codes"]
    if made is None or not all(bool(part.isfinite().all()) for part in scales):
        raise CheckpointError(
            f"{printable(name)} cannot be quantised: it holds a number that is not finite, "
            "or for int4 above 65504",
            hint="the checkpoint is damaged, or needs int8",
        )
    return made


def put_together(
    parameters: Iterable[tuple[str, Tensor | tuple[Tensor, ...]]], shapes: Mapping[str, Shape]
) -> Iterator[tuple[str, Tensor | Packed]]:
    """Tensors as they are; parts of a parameter of `shapes` as the matrix that they hold."""
    for name, held in parameters:
        if isinstance(held, Tensor):
            yield name, held
        elif len(held) == 2:
            yield name, Int8(*held)
        else:
            codes, scale, minimum = held
            yield name, Int4(codes, scale, minimum, shapes[name][1])
