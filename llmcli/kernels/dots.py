"""Rows of a matrix times a vector, for each way in which a matrix may be held.

A matrix is a row of int64 numbers: kind, address, address of scales, address of minima, columns
a group, address of a float32 bias or 0, rows, columns. Sums are kept in float32.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels.words import (
    F32,
    I8,
    I16,
    I32,
    I64,
    apart,
    floats,
    from_bfloat16,
    from_float16,
    half_to_float,
    halves,
    high_half,
    inlined,
    low_half,
    numbered,
    signed_bytes,
    unsigned_bytes,
)

KIND, AT, SCALES, MINIMA, GROUP, BIAS, ROWS, COLUMNS = numbered(8)
FIELDS = np.int64(8)
FLOAT32, FLOAT16, BFLOAT16, INT8, INT8_GROUPS, INT4 = numbered(6)

# Codes of a group that are unpacked together; groups of four bits hold a multiple of twice it.
LANES = 8
_FLOATS, _INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
_BYTES = ir.VectorType(I8, LANES)
_FLAGS = ("reassoc", "contract", "nsz")


def _vector(builder, pointer, index, kind):
    at = builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())
    load = builder.load(at)
    load.align = 1
    return load


def _spread(builder, value):
    one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * LANES))


def _total(builder, vector):
    sum_ = builder.extract_element(vector, I32(0))
    for lane in range(1, LANES):
        sum_ = builder.fadd(sum_, builder.extract_element(vector, I32(lane)), flags=_FLAGS)
    return sum_


@intrinsic
def _dot_int4(_typing, codes, scales, minima, x, sums, groups, group):
    """sum over groups of scale * (codes . x) + minimum * (sum of x)."""

    def generate(_context, builder, _signature, args):
        codes, scales, minima, x, sums, groups, group = args
        codes = builder.inttoptr(codes, I8.as_pointer())
        scales, minima = (builder.inttoptr(one, I16.as_pointer()) for one in (scales, minima))
        x, sums = (builder.inttoptr(one, F32.as_pointer()) for one in (x, sums))
        zeros = ir.Constant(_FLOATS, [0.0] * LANES)
        lanes = cgutils.alloca_once_value(builder, zeros)
        inner = cgutils.alloca_once_value(builder, zeros)
        offset = cgutils.alloca_once_value(builder, ir.Constant(F32, 0.0))
        builder.store(zeros, lanes)
        builder.store(ir.Constant(F32, 0.0), offset)
        half = builder.lshr(group, I64(1))
        with cgutils.for_range(builder, groups) as over:
            g = over.index
            scale = half_to_float(builder, builder.load(builder.gep(scales, [g])))
            minimum = half_to_float(builder, builder.load(builder.gep(minima, [g])))
            moved = builder.fmul(minimum, builder.load(builder.gep(sums, [g])), flags=_FLAGS)
            builder.store(builder.fadd(builder.load(offset), moved, flags=_FLAGS), offset)
            builder.store(zeros, inner)
            byte, first = builder.mul(g, half), builder.mul(g, group)
            with cgutils.for_range(builder, builder.lshr(half, I64(3))) as chunk:
                at = builder.mul(chunk.index, I64(LANES))
                packed = _vector(builder, codes, builder.add(byte, at), _BYTES)
                wide = builder.zext(packed, _INTS)
                low = builder.and_(wide, ir.Constant(_INTS, [15] * LANES))
                high = builder.lshr(wide, ir.Constant(_INTS, [4] * LANES))
                begin = builder.add(first, at)
                part = builder.load(inner)
                for code, start in ((low, begin), (high, builder.add(begin, half))):
                    value = builder.sitofp(code, _FLOATS)
                    product = builder.fmul(value, _vector(builder, x, start, _FLOATS), flags=_FLAGS)
                    part = builder.fadd(part, product, flags=_FLAGS)
                builder.store(part, inner)
            scaled = builder.fmul(_spread(builder, scale), builder.load(inner), flags=_FLAGS)
            builder.store(builder.fadd(builder.load(lanes), scaled, flags=_FLAGS), lanes)
        return builder.fadd(
            _total(builder, builder.load(lanes)), builder.load(offset), flags=_FLAGS
        )

    six = (types.int64,) * 6
    return types.float32(*six, types.int64), generate


@intrinsic
def _dot_int8_groups(_typing, codes, scales, x, groups, group):
    """sum over groups of a multiple of 8 columns of scale * (codes . x)."""

    def generate(_context, builder, _signature, args):
        codes, scales, x, groups, group = args
        codes = builder.inttoptr(codes, I8.as_pointer())
        scales, x = (builder.inttoptr(one, F32.as_pointer()) for one in (scales, x))
        zeros = ir.Constant(_FLOATS, [0.0] * LANES)
        lanes = cgutils.alloca_once_value(builder, zeros)
        inner = cgutils.alloca_once_value(builder, zeros)
        builder.store(zeros, lanes)
        with cgutils.for_range(builder, groups) as over:
            scale = builder.load(builder.gep(scales, [over.index]))
            builder.store(zeros, inner)
            first = builder.mul(over.index, group)
            with cgutils.for_range(builder, builder.lshr(group, I64(3))) as chunk:
                at = builder.add(first, builder.mul(chunk.index, I64(LANES)))
                code = builder.sext(_vector(builder, codes, at, _BYTES), _INTS)
                product = builder.fmul(
                    builder.sitofp(code, _FLOATS), _vector(builder, x, at, _FLOATS), flags=_FLAGS
                )
                builder.store(builder.fadd(builder.load(inner), product, flags=_FLAGS), inner)
            scaled = builder.fmul(_spread(builder, scale), builder.load(inner), flags=_FLAGS)
            builder.store(builder.fadd(builder.load(lanes), scaled, flags=_FLAGS), lanes)
        return _total(builder, builder.load(lanes))

    return types.float32(*(types.int64,) * 5), generate


@inlined
def _rows_float32(at, x, y, start, stop, columns):
    for row in range(start, stop):
        weights = floats(at + row * columns * 4, columns)
        total = np.float32(0)
        for i in range(columns):
            total += weights[i] * x[i]
        y[row] = total


@inlined
def _rows_float16(at, x, y, start, stop, columns):
    for row in range(start, stop):
        weights = halves(at + row * columns * 2, columns)
        total = np.float32(0)
        for i in range(columns):
            total += from_float16(weights[i]) * x[i]
        y[row] = total


@inlined
def _rows_bfloat16(at, x, y, start, stop, columns):
    for row in range(start, stop):
        weights = halves(at + row * columns * 2, columns)
        total = np.float32(0)
        for i in range(columns):
            total += from_bfloat16(weights[i]) * x[i]
        y[row] = total


@inlined
def _rows_int8(at, scales, x, y, start, stop, columns):
    scale = floats(scales, stop)
    for row in range(start, stop):
        codes = signed_bytes(at + row * columns, columns)
        total = np.float32(0)
        for i in range(columns):
            total += np.float32(codes[i]) * x[i]
        y[row] = total * scale[row]


@inlined
def _rows_int8_groups(at, scales, group, x, y, start, stop, columns):
    groups = columns // group
    for row in range(start, stop):
        y[row] = _dot_int8_groups(
            at + row * columns, scales + row * groups * 4, x.ctypes.data, groups, group
        )


@inlined
def _rows_int4(at, scales, minima, group, x, sums, y, start, stop, columns):
    groups = (columns + group - 1) // group
    for g in range(groups):
        total = np.float32(0)
        for i in range(g * group, (g + 1) * group):
            total += x[i]
        sums[g] = total
    bytes_a_row = groups * (group // 2)
    for row in range(start, stop):
        y[row] = _dot_int4(
            at + row * bytes_a_row,
            scales + row * groups * 2,
            minima + row * groups * 2,
            x.ctypes.data,
            sums.ctypes.data,
            groups,
            group,
        )


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


@inlined
def _unpack(matrix, row, y):
    """One row of the matrix as floats, up to a whole group."""
    kind, at, columns, group = matrix[KIND], matrix[AT], matrix[COLUMNS], matrix[GROUP]
    if kind == FLOAT32:
        weights = floats(at + row * columns * 4, columns)
        for i in range(columns):
            y[i] = weights[i]
    elif kind == FLOAT16:
        bits = halves(at + row * columns * 2, columns)
        for i in range(columns):
            y[i] = from_float16(bits[i])
    elif kind == BFLOAT16:
        bits = halves(at + row * columns * 2, columns)
        for i in range(columns):
            y[i] = from_bfloat16(bits[i])
    elif kind == INT4:
        half, groups = group // 2, (columns + group - 1) // group
        packed = unsigned_bytes(at + row * groups * half, groups * half)
        scale = halves(matrix[SCALES] + row * groups * 2, groups)
        minimum = halves(matrix[MINIMA] + row * groups * 2, groups)
        for g in range(groups):
            step, least, first = from_float16(scale[g]), from_float16(minimum[g]), g * group
            for i in range(half):
                y[first + i] = step * low_half(packed[g * half + i]) + least
                y[first + half + i] = step * high_half(packed[g * half + i]) + least
    else:
        codes, groups = signed_bytes(at + row * columns, columns), columns // group
        scale = floats(matrix[SCALES] + row * groups * 4, groups)
        for g in range(groups):
            for i in range(g * group, (g + 1) * group):
                y[i] = scale[g] * np.float32(codes[i])


@inlined
def rows_times_each(matrix, x, scratch, y, start, stop):
    """The same for every row of x [n, columns], into y [n, rows]; a weight is read once."""
    apart()
    columns, count = matrix[COLUMNS], x.shape[0]
    bias = floats(matrix[BIAS], stop)
    for row in range(start, stop):
        _unpack(matrix, row, scratch)
        offset = bias[row] if matrix[BIAS] else np.float32(0)
        one = 0
        while one + 4 <= count:
            a, b, c, d = x[one], x[one + 1], x[one + 2], x[one + 3]
            p, q, r, s = offset, offset, offset, offset
            for i in range(columns):
                weight = scratch[i]
                p += weight * a[i]
                q += weight * b[i]
                r += weight * c[i]
                s += weight * d[i]
            y[one, row], y[one + 1, row], y[one + 2, row], y[one + 3, row] = p, q, r, s
            one += 4
        while one < count:
            total, last = offset, x[one]
            for i in range(columns):
                total += scratch[i] * last[i]
            y[one, row] = total
            one += 1
