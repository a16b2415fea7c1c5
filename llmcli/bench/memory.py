"""The most memory that a run took, where the machine can tell it for a run alone."""

from __future__ import annotations

import ctypes
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

# Of a fresh mark above what is held: counters of pages lag behind by some.
_SLACK = 2**22


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes held just before a run, and the most during it."""

    before: int
    most: int


class Peak(ABC):
    """`begin` sets the mark back, `read` tells what has been held since.

    `scope` says whose bytes these are; `ever` is the highest mark before the last `begin`.
    """

    scope: ClassVar[str]

    def __init__(self) -> None:
        self.ever = 0
        self._before = 0

    def begin(self) -> None:
        """A run is about to start."""
        self.ever = max(self.ever, self._most())
        self._reset()
        self._before = self._now()

    def read(self) -> Memory:
        """Of the time since `begin`."""
        return Memory(self._before, max(self._before, self._most()))

    @abstractmethod
    def _now(self) -> int: ...

    @abstractmethod
    def _most(self) -> int: ...

    @abstractmethod
    def _reset(self) -> None: ...


class CudaPeak(Peak):
    """Tensors alone: what torch keeps in reserve is not counted."""

    scope = "tensors on the device"

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def _now(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def _most(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)

    def _reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


class ResidentPeak(Peak):
    """Linux's own mark; proc(5): writing 5 to clear_refs sets VmHWM back to what is held."""

    scope = "resident memory of the process"

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        super().__init__()
        self._process = process

    @property
    def works(self) -> bool:
        """Whether this system has the mark and lets it be set back."""
        try:
            self.ever = self._most()
            self._reset()
            return self._most() <= self._now() + _SLACK
        except (OSError, ValueError):
            return False

    def _now(self) -> int:
        return self._told("VmRSS")

    def _most(self) -> int:
        return self._told("VmHWM")

    def _reset(self) -> None:
        _give_back()
        (self._process / "clear_refs").write_text("5")

    def _told(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB$", (self._process / "status").read_text(), re.M)
        if found is None:
            raise ValueError(name)
        return int(found[1]) * 1024


def find_peak(device: torch.device) -> Peak | None:
    """What can be measured of this device; None where a run's own peak cannot be told."""
    if device.type == "cuda":
        return CudaPeak(device)
    resident = ResidentPeak()
    return resident if device.type == "cpu" and resident.works else None


def _give_back() -> None:
    """What an earlier run freed and the C library kept would count as held: glibc returns it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
