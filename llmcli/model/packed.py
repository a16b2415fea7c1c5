"""Weight matrices held in fewer bits than a float, and how they become floats again.

Int8   one float32 scale for each run of `group` columns (a whole row, by default):
       w = scale * code, with a code from -127 to 127
Int4   a float16 scale and minimum for each run of `group` columns:
       w = scale * code + minimum, with a code from 0 to 15. Byte j of a group holds the code of
       column j in its low half and that of column j + group/2 in its high half.

A last group that is not full is filled with columns of no meaning. Must not know modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

INT4_GROUP = 32


class Packed(ABC):
    """A matrix [C_out, C_in]; `rows` unpacks a part of it."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """[C_out, C_in]."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, Tensor]:
        """The tensors that hold it, by the names they have in a file."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Tensor:
        """Float32 [stop - start, C_in]."""

    @abstractmethod
    def gather(self, ids: Tensor) -> Tensor:
        """Float32 [..., C_in]: the rows of these ids."""

    @property
    def device(self) -> torch.device:
        return next(iter(self.parts.values())).device

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def unpacked(self) -> Tensor:
        """All of it in float32, newly made."""
        return self.rows(0, self.shape[0])


@dataclass(frozen=True, slots=True, eq=False)
class Int8(Packed):
    """codes int8 [C_out, C_in], scale float32 [C_out, groups]."""

    codes: Tensor
    scale: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    @property
    def group(self) -> int:
        return -(-self.codes.shape[1] // self.scale.shape[1])

    @property
    def parts(self) -> Mapping[str, Tensor]:
        return {"codes": self.codes, "scale": self.scale}

    def rows(self, start: int, stop: int) -> Tensor:
        return self._floats(self.codes[start:stop], self.scale[start:stop])

    def gather(self, ids: Tensor) -> Tensor:
        return self._floats(self.codes[ids], self.scale[ids])

    def _floats(self, codes: Tensor, scale: Tensor) -> Tensor:
        wide = codes.to(torch.float32)
        if scale.shape[-1] == 1:
            return wide.mul_(scale)
        return wide.mul_(scale.repeat_interleave(self.group, -1)[..., : wide.shape[-1]])


@dataclass(frozen=True, slots=True, eq=False)
class Int4(Packed):
    """codes uint8 [C_out, groups, group/2], scale and minimum float16 [C_out, groups]."""

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.width

    @property
    def group(self) -> int:
        return 2 * self.codes.shape[2]

    @property
    def parts(self) -> Mapping[str, Tensor]:
        return {"codes": self.codes, "scale": self.scale, "minimum": self.minimum}

    def rows(self, start: int, stop: int) -> Tensor:
        at = slice(start, stop)
        return self._floats(self.codes[at], self.scale[at], self.minimum[at])

    def gather(self, ids: Tensor) -> Tensor:
        return self._floats(self.codes[ids], self.scale[ids], self.minimum[ids])

    def _floats(self, codes: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
        both = torch.cat((codes & 15, codes >> 4), -1).to(torch.float32)
        both.mul_(scale.to(torch.float32)[..., None]).add_(minimum.to(torch.float32)[..., None])
        return both.flatten(-2)[..., : self.width]


def pack_int8(weight: Tensor) -> Int8:
    """One scale a row: the largest magnitude becomes 127. A row of zeros has scale 0."""
    wide = weight.to(torch.float32)
    scale = wide.abs().amax(1, keepdim=True) / 127
    codes = (wide / torch.where(scale > 0, scale, 1)).round_().clamp_(-127, 127)
    return Int8(codes.to(torch.int8), scale)


def pack_int4(weight: Tensor, group: int = INT4_GROUP) -> Int4:
    """A scale and a minimum for every `group` columns, an even number."""
    assert group > 0, group
    assert group % 2 == 0, group
    count, width = weight.shape
    wide = weight.to(torch.float32)
    if over := -width % group:
        # Copies of the last column leave the range of their group as it is.
        wide = torch.cat((wide, wide[:, -1:].expand(count, over)), 1)
    grouped = wide.view(count, -1, group)
    # The codes are chosen for the scale and minimum as they are once rounded to float16.
    minimum = grouped.amin(-1).to(torch.float16)
    scale = ((grouped.amax(-1) - minimum.to(torch.float32)) / 15).to(torch.float16)
    step = scale.to(torch.float32)[..., None]
    codes = (grouped - minimum.to(torch.float32)[..., None]) / torch.where(step > 0, step, 1)
    codes = codes.round_().clamp_(0, 15).to(torch.uint8)
    low, high = codes[..., : group // 2], codes[..., group // 2 :]
    return Int4(low | (high << 4), scale, minimum, width)
