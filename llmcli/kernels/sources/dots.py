"""Rows of a matrix times one vector, for each way in which a matrix may be held.

A matrix is a row of integers (layout.py). Sums are kept in float32.
"""

import numpy as np

from llmcli.kernels.layout import (
    AT,
    BFLOAT16,
    BIAS,
    COLUMNS,
    FLOAT16,
    FLOAT32,
    GROUP,
    INT8,
    INT8_GROUPS,
    KIND,
    MINIMA,
    SCALES,
)
from llmcli.kernels.sources.vectors import (
    LANES,
    dot_bfloat16,
    dot_float16,
    dot_int4_16,
    dot_int4_32,
    dot_int8,
    dot_int8_8,
    dot_int8_16,
    dot_int8_32,
)
from llmcli.kernels.sources.words import (
    address_of,
    apart,
    floats,
    from_bfloat16,
    from_float16,
    halves,
    high_half,
    inlined,
    low_half,
    signed_bytes,
    unsigned_bytes,
)


@inlined
def _rows_float32(at, x, y, start, stop, columns):
    for row in range(start, stop):
        weights = floats(at + row * columns * 4, columns)
        total = np.float32(0)
        for i in range(columns):
            total += weights[i] * x[i]
        y[row] = total


def _rows_of_halves(dot, convert):
    @inlined
    def rows(at, x, y, start, stop, columns):
        chunks = columns // LANES
        for row in range(start, stop):
            here = at + row * columns * 2
            total = dot(here, address_of(x), chunks)
            weights = halves(here, columns)
            for i in range(chunks * LANES, columns):
                total += convert(weights[i]) * x[i]
            y[row] = total

    return rows


_rows_float16 = _rows_of_halves(dot_float16, from_float16)
_rows_bfloat16 = _rows_of_halves(dot_bfloat16, from_bfloat16)


@inlined
def _rows_int8(at, scales, x, y, start, stop, columns):
    scale, chunks = floats(scales, stop), columns // LANES
    for row in range(start, stop):
        here = at + row * columns
        total = dot_int8(here, address_of(x), chunks)
        codes = signed_bytes(here, columns)
        for i in range(chunks * LANES, columns):
            total += np.float32(codes[i]) * x[i]
        y[row] = total * scale[row]


@inlined
def _rows_int8_groups(at, scales, group, x, y, start, stop, columns):
    groups, at_x = columns // group, address_of(x)
    for row in range(start, stop):
        here, its = at + row * columns, scales + row * groups * 4
        if group == 32:
            y[row] = dot_int8_32(here, its, at_x, groups)
        elif group == 16:
            y[row] = dot_int8_16(here, its, at_x, groups)
        elif group == 8:
            y[row] = dot_int8_8(here, its, at_x, groups)
        else:
            y[row] = _row_int8_groups(here, its, group, x, groups)


@inlined
def _row_int8_groups(at, scales, group, x, groups):
    """One row with groups of another size."""
    codes, scale, total = signed_bytes(at, groups * group), floats(scales, groups), np.float32(0)
    for g in range(groups):
        part = np.float32(0)
        for i in range(g * group, (g + 1) * group):
            part += np.float32(codes[i]) * x[i]
        total += scale[g] * part
    return total


@inlined
def _row_int4(at, scales, minima, group, x, sums, groups):
    """One row with groups of another size, byte by byte."""
    half, total = group // 2, np.float32(0)
    codes, scale, minimum = (
        unsigned_bytes(at, groups * half),
        halves(scales, groups),
        halves(minima, groups),
    )
    for g in range(groups):
        part, first = np.float32(0), g * group
        for i in range(half):
            byte = codes[g * half + i]
            part += low_half(byte) * x[first + i] + high_half(byte) * x[first + half + i]
        total += from_float16(scale[g]) * part + from_float16(minimum[g]) * sums[g]
    return total


@inlined
def _rows_int4(at, scales, minima, group, x, sums, y, start, stop, columns):
    groups = (columns + group - 1) // group
    for g in range(groups):
        total = np.float32(0)
        for i in range(g * group, (g + 1) * group):
            total += x[i]
        sums[g] = total
    bytes_a_row, at_x, at_sums = groups * (group // 2), address_of(x), address_of(sums)
    for row in range(start, stop):
        here, its = at + row * bytes_a_row, row * groups * 2
        if group == 32:
            y[row] = dot_int4_32(here, scales + its, minima + its, at_x, at_sums, groups)
        elif group == 16:
            y[row] = dot_int4_16(here, scales + its, minima + its, at_x, at_sums, groups)
        else:
            y[row] = _row_int4(here, scales + its, minima + its, group, x, sums, groups)


@inlined
def rows_times(matrix, x, sums, y, start, stop):
    """y[start:stop] = those rows of the matrix times x, plus the bias.

    x has zeros behind its columns, up to a whole group; `sums` is room for one float a group.
    """
    apart()
    kind, at, columns = matrix[KIND], matrix[AT], matrix[COLUMNS]
    if stop <= start:
        return
    if kind == FLOAT32:
        _rows_float32(at, x, y, start, stop, columns)
    elif kind == FLOAT16:
        _rows_float16(at, x, y, start, stop, columns)
    elif kind == BFLOAT16:
        _rows_bfloat16(at, x, y, start, stop, columns)
    elif kind == INT8:
        _rows_int8(at, matrix[SCALES], x, y, start, stop, columns)
    elif kind == INT8_GROUPS:
        _rows_int8_groups(at, matrix[SCALES], matrix[GROUP], x, y, start, stop, columns)
    else:
        _rows_int4(
            at, matrix[SCALES], matrix[MINIMA], matrix[GROUP], x, sums, y, start, stop, columns
        )
    if matrix[BIAS]:
        bias = floats(matrix[BIAS], stop)
        for row in range(start, stop):
            y[row] += bias[row]
