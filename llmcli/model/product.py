"""A matrix times one vector or several, in compiled kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from llmcli.kernels import layout
from llmcli.kernels.team import Team
from llmcli.model.job import Job
from llmcli.model.linear import Weighted
from llmcli.model.matrices import Described, describe

# With more rows than these torch's matrix product is as fast, on wider vectors than the kernels'.
MOST_ROWS = 1024 if torch.backends.cpu.get_cpu_capability() == "AVX2" else 64
# A thread that waits hears Ctrl-C, which one that computes does not. Of fewer multiplications than
# these (about 20 ms of one core) nobody would notice, and to let others do them costs a little.
LONG = 1e9


class Product:
    """Reads each weight once, in whatever it is held."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._known: dict[
            Weighted, tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Described] | None
        ]
        self._known = {}
        self._job = Job()
        self._job.give(layout.BARRIER, team.barrier)

    def times(self, owner: Weighted, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """x [...,C_in] times the matrix; None where the kernels cannot, or torch is faster."""
        rows, columns = owner.shape
        count = x.numel() // columns
        if count > MOST_ROWS:
            return None
        if owner not in self._known:
            found = describe(owner, bias)
            self._known[owner] = (np.array(found.numbers, np.int64), found) if found else None
        known = self._known[owner]
        if known is None:
            return None
        matrix, described = known
        kernels, job = self._team.kernels, self._job
        flat = x.reshape(count, columns)
        if columns % described.unit or not flat.is_contiguous():
            room = job.room(layout.X, count, columns + described.unit)
            room[:count, :columns] = flat
            room[:count, columns:] = 0
        else:
            job.lend(layout.X, flat)
        y = torch.empty(count, rows)
        job.lend(layout.Y, y)
        job.give(layout.MATRIX, matrix)
        job.room(layout.SCRATCH, self._team.size, described.room)
        job.say(layout.COUNT, count)
        aside = count * rows * columns > LONG
        self._team.run(kernels.product, job.address, aside=aside)
        return y.view(*x.shape[:-1], rows)
