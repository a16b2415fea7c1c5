"""Parameters on their way from a file into a decoder: packed, or put together of stored parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

import torch
from torch import Tensor

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError, LlmcliError
from llmcli.model.packed import Int4, Int8, Packed, pack
from llmcli.spec import INT4_GROUP, PackingKind
from llmcli.spec.parameters import Shape


def packed_parameters(
    parameters: Iterable[tuple[str, Tensor | Packed]],
    kinds: Mapping[str, PackingKind],
    *,
    device: torch.device,
    group: int = INT4_GROUP,
) -> Iterator[tuple[str, Tensor | Packed]]:
    """Those that `kinds` names are packed and put on `device`; the others are passed on.

    Nothing of a matrix is held but what it was packed into. Raises as `packed` does.
    """
    for name, tensor in parameters:
        kind = kinds.get(name)
        if kind is None or isinstance(tensor, Packed):
            yield name, tensor
        else:
            yield name, packed(name, tensor, kind, group=group).to(device)


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


def require_unpacking(device: torch.device) -> None:
    """Raise LlmcliError where `device` makes other numbers of codes than a CPU does."""
    if device.type == "cpu":
        return
    numbers = torch.linspace(-1, 1, 5 * 40).view(5, 40)
    for kind in get_args(PackingKind):
        held = pack(numbers, kind)
        if not _unpacks_alike(held, held.to(device)):
            raise LlmcliError(
                f"device {device} makes other numbers of {kind} codes than a CPU does",
                hint="use --device cpu, or a checkpoint that is not quantised",
            )


def _unpacks_alike(one: Packed, other: Packed) -> bool:
    ids = torch.tensor([[3, 0]])
    pairs = (
        (one.unpacked(), other.unpacked()),
        (one.gather(ids), other.gather(ids.to(other.device))),
    )
    return all(torch.allclose(a, b.cpu(), rtol=1e-6, atol=1e-7) for a, b in pairs)


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
