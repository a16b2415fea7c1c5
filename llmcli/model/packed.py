"""Weight matrices held in fewer bits than a float, and how they become floats again.

Int8   one float32 scale for each run of `group` columns (or a whole row):
       w = scale * code, with a code from -127 to 127
Int4   a float16 scale and minimum for each run of `group` columns:
       w = scale * code + minimum, with a code from 0 to 15. Byte j of a group holds the code of
       column j in its low half and that of column j + group/2 in its high half.

A last group that is not full is filled with columns of no meaning. Must not know modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.model.closest import ranged, symmetric
from llmcli.spec import INT4_GROUP, PackingKind, int8_group

# Numbers packed at a time: 1 MiB in float32. With fewer, calling torch costs more than its work.
_BLOCK = 1 << 18


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

    @abstractmethod
    def to(self, device: torch.device) -> Packed:
        """The same on another device."""

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

    def to(self, device: torch.device) -> Int8:
        return Int8(self.codes.to(device), self.scale.to(device))

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

    def to(self, device: torch.device) -> Int4:
        parts = (self.codes.to(device), self.scale.to(device), self.minimum.to(device))
        return Int4(*parts, self.width)

    def _floats(self, codes: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
        both = torch.cat((codes & 15, codes >> 4), -1).to(torch.float32)
        both.mul_(scale.to(torch.float32)[..., None]).add_(minimum.to(torch.float32)[..., None])
        return both.flatten(-2)[..., : self.width]


def pack(weight: Tensor, kind: PackingKind, *, group: int = INT4_GROUP) -> Packed:
    """The matrix [C_out, C_in] packed; `group` is that of int4.

    It is done on the CPU, a few rows at a time, so that a device changes nothing.
    """
    wide = weight.to("cpu")
    if kind == "int8":
        return pack_int8(wide, int8_group(weight.shape[1]))
    return pack_int4(wide, group)


def pack_int8(weight: Tensor, group: int | None = None) -> Int8:
    """A scale for every `group` columns, which divides the width; left out, one for a row."""
    count, width = weight.shape
    group = group or width
    assert width % group == 0, (width, group)
    codes = torch.empty(count, width, dtype=torch.int8)
    scale = torch.empty(count, width // group)
    for at, rows in _blocks(weight):
        nearest, step = symmetric(rows.view(len(rows), -1, group))
        codes[at], scale[at] = nearest.flatten(1), step[..., 0]
    return Int8(codes, scale)


def pack_int4(weight: Tensor, group: int = INT4_GROUP) -> Int4:
    """A scale and a minimum for every `group` columns, an even number."""
    assert group > 0, group
    assert group % 2 == 0, group
    count, width = weight.shape
    over = -width % group
    groups = (width + over) // group
    codes = torch.empty(count, groups, group // 2, dtype=torch.uint8)
    scale, minimum = torch.empty(2, count, groups, dtype=torch.float16)
    for at, rows in _blocks(weight):
        if over:
            # Copies of the last column leave the range of their group as it is.
            rows = torch.cat((rows, rows[:, -1:].expand(-1, over)), 1)
        nearest, step, least = ranged(rows.view(len(rows), groups, group))
        # Of the codes of two halves of a group one byte: below 256 a float32 is exact.
        low, high = nearest[..., : group // 2], nearest[..., group // 2 :]
        codes[at] = high.mul_(16).add_(low)
        scale[at], minimum[at] = step[..., 0], least[..., 0]
    return Int4(codes, scale, minimum, width)


def _blocks(weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some rows at a time, in float32."""
    count, width = weight.shape
    step = max(1, _BLOCK // width)
    for start in range(0, count, step):
        at = slice(start, start + step)
        yield at, weight[at].to(torch.float32)
