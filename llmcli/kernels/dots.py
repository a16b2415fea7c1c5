"""Rows of a matrix times a vector, for each way in which a matrix may be held.

A matrix is a row of int64 numbers: kind, address, address of scales, address of minima, columns
a group, address of a float32 bias or 0, rows, columns. Sums are kept in float32.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels import words
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
_BYTES, _SHORTS = ir.VectorType(I8, LANES), ir.VectorType(I16, LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)
# Chunks of LANES whose sums are kept apart, so that one need not wait for the other.
_UNROLLED = 4
# Bytes: far enough ahead that memory answers in time.
_AHEAD = 4096
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
    width = LANES
    while width > 1:
        width //= 2
        low, high = (
            ir.Constant(ir.VectorType(I32, width), list(range(begin, begin + width)))
            for begin in (0, width)
        )
        vector = builder.fadd(
            builder.shuffle_vector(vector, vector, low),
            builder.shuffle_vector(vector, vector, high),
            flags=_FLAGS,
        )
    return builder.extract_element(vector, I32(0))


def _ahead(builder, address):
    """Ask for memory that will be read soon: rows are short, and the hardware stops at each end."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    there = builder.inttoptr(builder.add(address, I64(_AHEAD)), I8.as_pointer())
    builder.call(prefetch, [there, I32(0), I32(3), I32(1)])


def _dot(size, convert, *, ahead=True):
    """An intrinsic: `chunks` times LANES columns of one row, `size` bytes each, times x."""

    @intrinsic
    def dot(_typing, at, x, chunks):
        def generate(_context, builder, _signature, args):
            at, x, chunks = args
            zeros = ir.Constant(_FLOATS, [0.0] * LANES)
            sums = [cgutils.alloca_once(builder, _FLOATS) for _ in range(_UNROLLED)]
            for one in sums:
                builder.store(zeros, one)
            weights = builder.inttoptr(at, I8.as_pointer())
            x = builder.inttoptr(x, F32.as_pointer())

            def add(chunk, sum_):
                column = builder.mul(chunk, I64(LANES))
                value = convert(builder, weights, builder.mul(column, I64(size)))
                product = builder.fmul(value, _vector(builder, x, column, _FLOATS), flags=_FLAGS)
                builder.store(builder.fadd(builder.load(sum_), product, flags=_FLAGS), sum_)

            rounds = builder.udiv(chunks, I64(_UNROLLED))
            with cgutils.for_range(builder, rounds) as over:
                first = builder.mul(over.index, I64(_UNROLLED))
                if ahead:
                    _ahead(builder, builder.add(at, builder.mul(first, I64(LANES * size))))
                for one, sum_ in enumerate(sums):
                    add(builder.add(first, I64(one)), sum_)
            done = builder.mul(rounds, I64(_UNROLLED))
            with cgutils.for_range(builder, builder.sub(chunks, done)) as over:
                add(builder.add(done, over.index), sums[0])
            total = builder.load(sums[0])
            for sum_ in sums[1:]:
                total = builder.fadd(total, builder.load(sum_), flags=_FLAGS)
            return _total(builder, total)

        return types.float32(*(types.int64,) * 3), generate

    return dot


def _float32s(builder, weights, byte):
    return builder.load(
        builder.bitcast(builder.gep(weights, [byte]), _FLOATS.as_pointer()), align=4
    )


def _float16s(builder, weights, byte):
    bits = _vector(builder, weights, byte, _SHORTS)
    if words.HAS_HALVES:
        return builder.fpext(builder.bitcast(bits, _HALVES), _FLOATS)
    made = ir.Constant(_FLOATS, ir.Undefined)
    for lane in range(LANES):
        one = words.half_to_float(builder, builder.extract_element(bits, I32(lane)))
        made = builder.insert_element(made, one, I32(lane))
    return made


def _bfloat16s(builder, weights, byte):
    wide = builder.zext(_vector(builder, weights, byte, _SHORTS), _INTS)
    return builder.bitcast(builder.shl(wide, ir.Constant(_INTS, [16] * LANES)), _FLOATS)


def _int8s(builder, weights, byte):
    return builder.sitofp(builder.sext(_vector(builder, weights, byte, _BYTES), _INTS), _FLOATS)


# Rows of keys lie behind one another, which the hardware sees for itself.
dot_float32 = _dot(4, _float32s, ahead=False)
_dot_float16, _dot_bfloat16, _dot_int8 = _dot(2, _float16s), _dot(2, _bfloat16s), _dot(1, _int8s)


@intrinsic
def mix_four(_typing, out, rows, stride, weights, chunks):
    """out += weights[0] rows[0] + ... + weights[3] rows[3], each `chunks` times LANES floats.

    All are addresses; `stride` bytes lie between rows.
    """

    def generate(context, builder, _signature, args):
        out, rows, stride, weights, chunks = args
        out, weights = (builder.inttoptr(one, F32.as_pointer()) for one in (out, weights))
        four = [_spread(builder, builder.load(builder.gep(weights, [I64(i)]))) for i in range(4)]
        starts = [
            builder.inttoptr(builder.add(rows, builder.mul(stride, I64(i))), F32.as_pointer())
            for i in range(4)
        ]
        with cgutils.for_range(builder, chunks) as over:
            column = builder.mul(over.index, I64(LANES))
            sum_ = _vector(builder, out, column, _FLOATS)
            for weight, start in zip(four, starts, strict=True):
                product = builder.fmul(
                    weight, _vector(builder, start, column, _FLOATS), flags=_FLAGS
                )
                sum_ = builder.fadd(sum_, product, flags=_FLAGS)
            place = builder.bitcast(builder.gep(out, [column]), _FLOATS.as_pointer())
            builder.store(sum_, place, align=4)
        return context.get_dummy_value()

    return types.none(*(types.int64,) * 5), generate


def _dot_int4(chunks):
    """An intrinsic: sum over groups of scale * (codes . x) + minimum * (sum of x).

    `chunks` times LANES bytes make a group.
    """
    half = chunks * LANES

    @intrinsic
    def dot(_typing, codes_at, scales, minima, x, sums, groups):
        def generate(_context, builder, _signature, args):
            codes_at, scales, minima, x, sums, groups = args
            codes = builder.inttoptr(codes_at, I8.as_pointer())
            scales, minima = (builder.inttoptr(one, I16.as_pointer()) for one in (scales, minima))
            x, sums = (builder.inttoptr(one, F32.as_pointer()) for one in (x, sums))
            zeros = ir.Constant(_FLOATS, [0.0] * LANES)
            lanes = cgutils.alloca_once(builder, _FLOATS)
            offset = cgutils.alloca_once(builder, F32)
            builder.store(zeros, lanes)
            builder.store(ir.Constant(F32, 0.0), offset)
            with cgutils.for_range(builder, groups) as over:
                g = over.index
                byte, first = builder.mul(g, I64(half)), builder.mul(g, I64(2 * half))
                _ahead(builder, builder.add(codes_at, byte))
                scale = words.half_to_float(builder, builder.load(builder.gep(scales, [g])))
                minimum = words.half_to_float(builder, builder.load(builder.gep(minima, [g])))
                moved = builder.fmul(minimum, builder.load(builder.gep(sums, [g])), flags=_FLAGS)
                builder.store(builder.fadd(builder.load(offset), moved, flags=_FLAGS), offset)
                inner = None
                for chunk in range(chunks):
                    at = builder.add(byte, I64(chunk * LANES))
                    wide = builder.zext(_vector(builder, codes, at, _BYTES), _INTS)
                    low = builder.and_(wide, ir.Constant(_INTS, [15] * LANES))
                    high = builder.lshr(wide, ir.Constant(_INTS, [4] * LANES))
                    for code, start in ((low, chunk * LANES), (high, half + chunk * LANES)):
                        part = _vector(builder, x, builder.add(first, I64(start)), _FLOATS)
                        product = builder.fmul(builder.sitofp(code, _FLOATS), part, flags=_FLAGS)
                        inner = builder.fadd(inner, product, flags=_FLAGS) if inner else product
                scaled = builder.fmul(_spread(builder, scale), inner, flags=_FLAGS)
                builder.store(builder.fadd(builder.load(lanes), scaled, flags=_FLAGS), lanes)
            return builder.fadd(
                _total(builder, builder.load(lanes)), builder.load(offset), flags=_FLAGS
            )

        return types.float32(*(types.int64,) * 6), generate

    return dot


_dot_int4_32, _dot_int4_16 = _dot_int4(2), _dot_int4(1)


def _dot_int8_groups(chunks):
    """An intrinsic: sum over groups, `chunks` times LANES columns each, of scale * (codes . x)."""
    group = chunks * LANES

    @intrinsic
    def dot(_typing, codes_at, scales, x, groups):
        def generate(_context, builder, _signature, args):
            codes_at, scales, x, groups = args
            codes = builder.inttoptr(codes_at, I8.as_pointer())
            scales, x = (builder.inttoptr(one, F32.as_pointer()) for one in (scales, x))
            lanes = cgutils.alloca_once(builder, _FLOATS)
            builder.store(ir.Constant(_FLOATS, [0.0] * LANES), lanes)
            with cgutils.for_range(builder, groups) as over:
                first = builder.mul(over.index, I64(group))
                _ahead(builder, builder.add(codes_at, first))
                inner = None
                for chunk in range(chunks):
                    at = builder.add(first, I64(chunk * LANES))
                    value, part = _int8s(builder, codes, at), _vector(builder, x, at, _FLOATS)
                    product = builder.fmul(value, part, flags=_FLAGS)
                    inner = builder.fadd(inner, product, flags=_FLAGS) if inner else product
                scale = _spread(builder, builder.load(builder.gep(scales, [over.index])))
                scaled = builder.fmul(scale, inner, flags=_FLAGS)
                builder.store(builder.fadd(builder.load(lanes), scaled, flags=_FLAGS), lanes)
            return _total(builder, builder.load(lanes))

        return types.float32(*(types.int64,) * 4), generate

    return dot


_dot_int8_32, _dot_int8_8 = _dot_int8_groups(4), _dot_int8_groups(1)


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
    chunks = columns // LANES
    for row in range(start, stop):
        here = at + row * columns * 2
        total = _dot_float16(here, x.ctypes.data, chunks)
        weights = halves(here, columns)
        for i in range(chunks * LANES, columns):
            total += from_float16(weights[i]) * x[i]
        y[row] = total


@inlined
def _rows_bfloat16(at, x, y, start, stop, columns):
    chunks = columns // LANES
    for row in range(start, stop):
        here = at + row * columns * 2
        total = _dot_bfloat16(here, x.ctypes.data, chunks)
        weights = halves(here, columns)
        for i in range(chunks * LANES, columns):
            total += from_bfloat16(weights[i]) * x[i]
        y[row] = total


@inlined
def _rows_int8(at, scales, x, y, start, stop, columns):
    scale, chunks = floats(scales, stop), columns // LANES
    for row in range(start, stop):
        here = at + row * columns
        total = _dot_int8(here, x.ctypes.data, chunks)
        codes = signed_bytes(here, columns)
        for i in range(chunks * LANES, columns):
            total += np.float32(codes[i]) * x[i]
        y[row] = total * scale[row]


@inlined
def _rows_int8_groups(at, scales, group, x, y, start, stop, columns):
    groups, at_x = columns // group, x.ctypes.data
    for row in range(start, stop):
        here, its = at + row * columns, scales + row * groups * 4
        if group == 32:
            y[row] = _dot_int8_32(here, its, at_x, groups)
        elif group == 8:
            y[row] = _dot_int8_8(here, its, at_x, groups)
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
    bytes_a_row, at_x, at_sums = groups * (group // 2), x.ctypes.data, sums.ctypes.data
    for row in range(start, stop):
        here, its = at + row * bytes_a_row, row * groups * 2
        if group == 32:
            y[row] = _dot_int4_32(here, scales + its, minima + its, at_x, at_sums, groups)
        elif group == 16:
            y[row] = _dot_int4_16(here, scales + its, minima + its, at_x, at_sums, groups)
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
