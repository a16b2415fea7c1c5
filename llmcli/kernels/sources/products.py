"""Rows of a matrix times several vectors: each weight is read once, and made a float once."""

import numpy as np

from llmcli.kernels.layout import AT_ONCE, BIAS, COLUMNS, PANEL, RUN
from llmcli.kernels.sources.meeting import abandoned
from llmcli.kernels.sources.panel import lay
from llmcli.kernels.sources.tiles import times_panel
from llmcli.kernels.sources.vectors import LANES
from llmcli.kernels.sources.words import address_of, apart, floats, inlined

# From row to row, where all begin with one.
_SAME = np.int64(0)


@inlined
def _base(matrix, begin, rows, base):
    """What the sums of a panel's rows begin with: the bias, or nothing."""
    for row in range(PANEL):
        base[row] = 0
    if matrix[BIAS]:
        bias = floats(matrix[BIAS] + begin * 4, rows)
        for row in range(rows):
            base[row] = bias[row]


@inlined
def _times_edge(panel, x, x_stride, count, first, base, y, y_stride, rows, chunks):
    """Too few rows for a panel: what lies beyond theirs in y is others', so it is not written."""
    sums = base + PANEL * 4
    for one in range(0, count, AT_ONCE):
        some = min(AT_ONCE, count - one)
        source, target = x + one * x_stride, y + one * y_stride
        times_panel(panel, source, x_stride, some, base, _SAME, sums, PANEL * 4, chunks)
        for i in range(some):
            own, out = floats(sums + i * PANEL * 4, rows), floats(target + i * y_stride, rows)
            for row in range(rows):
                out[row] = own[row] if first == 0 else out[row] + own[row]


@inlined
def rows_times_each(matrix, count, x, x_width, room, y, y_width, start, stop, barrier):
    """y[:, start:stop] = those rows of the matrix times each row of x, plus the bias.

    x [count, x_width] and y [count, y_width] are addresses. x has zeros behind its columns, up to
    a whole group and a whole chunk; `room` is for a panel of RUN columns, and one and AT_ONCE
    rows as wide as a panel. Ends early where somebody gave up, which the barrier tells.
    """
    apart()
    columns, run, x_stride, y_stride = matrix[COLUMNS], matrix[RUN], x_width * 4, y_width * 4
    base, panel = room[PANEL * run : PANEL * (run + 1)], address_of(room)
    at_base = address_of(base)
    for begin in range(start, stop, PANEL):
        if abandoned(barrier):
            return
        rows, out = min(PANEL, stop - begin), y + begin * 4
        _base(matrix, begin, rows, base)
        first = 0
        while first < columns:
            width, here = min(run, columns - first), x + first * 4
            chunks = (width + LANES - 1) // LANES
            for row in range(0, rows, LANES):
                lay(matrix, begin + row, min(LANES, rows - row), first, width, panel + row * 4)
            if rows < PANEL:
                _times_edge(
                    panel, here, x_stride, count, first, at_base, out, y_stride, rows, chunks
                )
                for row in range(rows):
                    base[row] = 0
            elif first == 0:
                times_panel(panel, here, x_stride, count, at_base, _SAME, out, y_stride, chunks)
            else:
                times_panel(panel, here, x_stride, count, out, y_stride, out, y_stride, chunks)
            first += run
