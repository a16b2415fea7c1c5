"""A module's matrix as the kernels know it: a row of numbers (kernels/dots.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.model.linear import Weighted
from llmcli.model.packed import Int4, Int8

# As in kernels/dots.py, which cannot be imported here without numba.
_DENSE = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_INT8, _INT8_GROUPS, _INT4 = 3, 4, 5


@dataclass(frozen=True, slots=True)
class Described:
    """`numbers` hold addresses; they are true for as long as `kept` lives."""

    numbers: tuple[int, ...]
    kept: tuple[Tensor, ...]

    @property
    def group(self) -> int:
        return self.numbers[4]


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
    return Described((kind, *at[:3], group, bias_at, *owner.shape), tuple(kept))


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
                return _INT8, packed.group, (codes, scale)
            if packed.shape[1] % packed.group:
                return None
            return _INT8_GROUPS, packed.group, (codes, scale)
        case Int4(codes, scale, minimum) as packed:
            return _INT4, packed.group, (codes, scale, minimum)
    return None
