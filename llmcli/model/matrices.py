"""A module's matrix as the kernels know it: a row of numbers (kernels/layout.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.kernels import layout
from llmcli.kernels.rooms import run_of, scratch_of, unit_of
from llmcli.model.linear import Weighted
from llmcli.model.packed import Int4, Int8

_DENSE = {
    torch.float32: layout.FLOAT32,
    torch.float16: layout.FLOAT16,
    torch.bfloat16: layout.BFLOAT16,
}


@dataclass(frozen=True, slots=True)
class Described:
    """`numbers` hold addresses; they are true for as long as `kept` lives.

    `unit` columns are read together: x needs zeros behind its own up to a whole unit.
    """

    numbers: tuple[int, ...]
    kept: tuple[Tensor, ...]
    unit: int

    @property
    def room(self) -> int:
        """Floats that a thread needs for itself to multiply with it."""
        return scratch_of(self.numbers[int(layout.COLUMNS)], self.unit)


def describe(owner: Weighted, bias: Tensor | None) -> Described | None:
    """None for a matrix that the kernels cannot read."""
    held = _held(owner)
    if held is None:
        return None
    kind, group, parts = held
    kept = list(parts)
    if bias is not None:
        kept.append(vector(bias))
    if not all(one.is_contiguous() and one.device.type == "cpu" for one in kept):
        return None
    at = [one.data_ptr() for one in parts] + [0, 0]
    bias_at = kept[-1].data_ptr() if bias is not None else 0
    # Groups of a whole row have no say in how many columns are unpacked at a time.
    unit = unit_of(None if kind == layout.INT8 else group)
    run = run_of(owner.shape[1], unit)
    numbers = (int(kind), *at[:3], group, bias_at, *owner.shape, run)
    return Described(numbers, tuple(kept), unit)


def vector(tensor: Tensor) -> Tensor:
    """Float32 and contiguous; the tensor itself where it is that."""
    return tensor.detach().to(torch.float32).contiguous()


def _held(owner: Weighted) -> tuple[int, int, Iterable[Tensor]] | None:
    match owner.packed:
        case None:
            weight = owner.weight
            if weight is None or weight.dtype not in _DENSE:
                return None
            return _DENSE[weight.dtype], 0, (weight,)
        case Int8(codes, scale) as packed:
            if scale.shape[1] == 1:
                return layout.INT8, packed.group, (codes, scale)
            if packed.shape[1] % packed.group:
                return None
            return layout.INT8_GROUPS, packed.group, (codes, scale)
        case Int4(codes, scale, minimum) as packed:
            return layout.INT4, packed.group, (codes, scale, minimum)
    return None
