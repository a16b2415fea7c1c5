"""What a kernel is told: a table of addresses (kernels/layout.py), and the memory behind them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from llmcli.kernels import layout

# Rows begin at multiples of a cache line, which torch's memory does.
_LINE = 16


class Job:
    """Fields by their numbers in kernels/layout.py; what they point at lives as long as it."""

    def __init__(self) -> None:
        self._numbers = np.zeros((layout.JOB, 2), np.int64)
        self._held: dict[int, object] = {}
        self._rooms: dict[int, Tensor] = {}

    @property
    def address(self) -> int:
        return self._numbers.ctypes.data

    def say(self, field: int, first: int, second: int = 0) -> None:
        """Two numbers that mean themselves, or an address that somebody else keeps alive."""
        self._numbers[field] = first, second

    def give(self, field: int, table: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        """A table of numbers."""
        assert table.flags.c_contiguous
        self._held[field] = table
        self.say(field, table.ctypes.data, table.shape[-1])

    def lend(self, field: int, rows: Tensor) -> None:
        """Float32 rows [n, width], read or written in place."""
        assert rows.is_contiguous()
        assert rows.dtype == torch.float32
        self._held[field] = rows
        self.say(field, rows.data_ptr(), rows.shape[-1])

    def room(self, field: int, rows: int, width: int) -> Tensor:
        """Zeros [rows, width or a little more], unless there is as much already."""
        width = -(-width // _LINE) * _LINE
        held = self._rooms.get(field)
        if held is None or held.shape[0] < rows or held.shape[1] != width:
            held = self._rooms[field] = torch.zeros(rows, width)
        self.lend(field, held)
        return held
