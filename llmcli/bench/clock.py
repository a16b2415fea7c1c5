"""When a piece of work began and ended, on a device that runs ahead of its caller."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Clock(Protocol):
    """`read` waits for all work given out so far, then tells the seconds."""

    def read(self) -> float: ...


class DeviceClock:
    """The wall clock, read once the device is idle; a CPU has nothing to wait for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def read(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()
