"""Stored parts of packed matrices put together again. Must not know files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor

from llmcli.model.packed import Int4, Int8, Packed
from llmcli.spec.parameters import Shape


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
