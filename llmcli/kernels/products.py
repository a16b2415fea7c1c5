"""Rows of a matrix times several vectors: each weight is read once, and made a float once."""

import numpy as np

from llmcli.kernels.layout import AT_ONCE, BIAS, COLUMNS, PANEL, RUN
from llmcli.kernels.panel import lay
from llmcli.kernels.tiles import times_panel
from llmcli.kernels.vectors import LANES
from llmcli.kernels.words import address_of, apart, floats, inlined


@inlined
def rows_times_each(matrix, count, x, x_width, room, y, y_width, start, stop):
    """y[:, start:stop] = those rows of the matrix times each row of x, plus the bias.

    x [count, x_width] and y [count, y_width] are addresses. x has zeros behind its columns, up to
    a whole group and a whole chunk; `room` is for a panel of RUN columns, and one and AT_ONCE
    rows as wide as a panel.
    """
    apart()
    columns, run = matrix[COLUMNS], matrix[RUN]
    panel, edge = address_of(room), room[PANEL * run :]
    at_edge = address_of(edge)
    # The first of them is what sums begin with: the bias, or nothing.
    base, sums = edge[:PANEL], at_edge + PANEL * 4
    for begin in range(start, stop, PANEL):
        rows = min(PANEL, stop - begin)
        for row in range(PANEL):
            base[row] = 0
        if matrix[BIAS]:
            bias = floats(matrix[BIAS] + begin * 4, rows)
            for row in range(rows):
                base[row] = bias[row]
        for first in range(0, columns, run):
            width = min(run, columns - first)
            chunks = (width + LANES - 1) // LANES
            for row in range(0, rows, LANES):
                lay(matrix, begin + row, min(LANES, rows - row), first, width, panel + row * 4)
            here, out = x + first * 4, y + begin * 4
            before, before_stride = out, y_width * 4
            if first == 0:
                before, before_stride = at_edge, 0
            if rows == PANEL:
                times_panel(
                    panel,
                    here,
                    x_width * 4,
                    count,
                    before,
                    before_stride,
                    out,
                    y_width * 4,
                    chunks,
                )
                continue
            for one in range(0, count, AT_ONCE):
                some = min(AT_ONCE, count - one)
                # What lies beyond the rows is others', so it is not written.
                times_panel(
                    panel,
                    here + one * x_width * 4,
                    x_width * 4,
                    some,
                    at_edge,
                    0,
                    sums,
                    PANEL * 4,
                    chunks,
                )
                for i in range(some):
                    own = floats(sums + i * PANEL * 4, rows)
                    target = floats(out + (one + i) * y_width * 4, rows)
                    for row in range(rows):
                        target[row] = own[row] + (target[row] if first else np.float32(0))
            for row in range(rows):
                base[row] = 0
