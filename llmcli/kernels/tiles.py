"""Rows of a matrix times several vectors: each weight is read once, and made a float once.

Some rows are unpacked into a panel that stays in a core's cache, and multiplied tile by tile. A
tile is TALL rows of the matrix times a few of x, whose sums all stay in registers.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels.layout import (
    AT,
    BFLOAT16,
    BIAS,
    COLUMNS,
    FLOAT16,
    FLOAT32,
    GROUP,
    INT4,
    INT8,
    KIND,
    MINIMA,
    PANEL,
    RUN,
    SCALES,
)
from llmcli.kernels.vectors import (
    FLAGS,
    FLOATS,
    LANES,
    ahead_of,
    bfloat16s,
    dot_float32,
    float16s,
    float32s,
    int8s,
    mix_1_by_1,
    mix_1_by_4,
    mix_3_by_1,
    mix_3_by_4,
    nibbles,
    spread,
    vector_at,
)
from llmcli.kernels.words import (
    F32,
    I8,
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
    signed_bytes,
    unsigned_bytes,
)

TALL = 4
# So many rows of x at a time, which stay in a core's cache beside the panel.
_ACROSS = 48
_HALF = ir.VectorType(F32, 4)


def _sums_of_four(builder, vectors):
    """Four vectors to one of their four sums."""

    def pick(a, b, places):
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 4), places))

    def folded(a, b, low, high):
        return builder.fadd(pick(a, b, low), pick(a, b, high), flags=FLAGS)

    four = [folded(one, one, [0, 1, 2, 3], [4, 5, 6, 7]) for one in vectors]
    even, odd = [0, 2, 4, 6], [1, 3, 5, 7]
    return folded(folded(*four[:2], even, odd), folded(*four[2:], even, odd), even, odd)


def _tile(wide):
    """An intrinsic: y[j, i] += weights[i] . x[j] for i < TALL, j < wide.

    Addresses; strides are bytes from row to row; each row has `chunks` times LANES floats.
    """

    @intrinsic
    def tile(_typing, weights, weight_stride, x, x_stride, y, y_stride, chunks):
        def generate(context, builder, _signature, args):
            weights, weight_stride, x, x_stride, y, y_stride, chunks = args

            def rows(first, stride, count):
                starts = [builder.add(first, builder.mul(stride, I64(i))) for i in range(count)]
                return [builder.inttoptr(one, F32.as_pointer()) for one in starts]

            tall, across = rows(weights, weight_stride, TALL), rows(x, x_stride, wide)
            sums = [[cgutils.alloca_once(builder, FLOATS) for _ in tall] for _ in across]
            for row in sums:
                for one in row:
                    builder.store(ir.Constant(FLOATS, [0.0] * LANES), one)
            with cgutils.for_range(builder, chunks) as over:
                column = builder.mul(over.index, I64(LANES))
                parts = [vector_at(builder, one, column, FLOATS) for one in across]
                for i, one in enumerate(tall):
                    weight = vector_at(builder, one, column, FLOATS)
                    for part, row in zip(parts, sums, strict=True):
                        product = builder.fmul(weight, part, flags=FLAGS)
                        total = builder.fadd(builder.load(row[i]), product, flags=FLAGS)
                        builder.store(total, row[i])
            for row, out in zip(sums, rows(y, y_stride, wide), strict=True):
                total = _sums_of_four(builder, [builder.load(one) for one in row])
                place = builder.bitcast(out, _HALF.as_pointer())
                before = builder.load(place, align=4)
                builder.store(builder.fadd(before, total, flags=FLAGS), place, align=4)
            return context.get_dummy_value()

        return types.none(*(types.int64,) * 7), generate

    return tile


_tile_1, _tile_2, _tile_3 = _tile(1), _tile(2), _tile(3)


def _widen(size, convert):
    """An intrinsic: `chunks` times LANES numbers of `size` bytes to floats, times a factor.

    What lies `further` bytes behind is asked for.
    """

    @intrinsic
    def widen(_typing, at, out, chunks, factor, further):
        def generate(context, builder, _signature, args):
            at, out, chunks, factor, further = args
            weights = builder.inttoptr(at, I8.as_pointer())
            out, factor = builder.inttoptr(out, F32.as_pointer()), spread(builder, factor)
            with cgutils.for_range(builder, chunks) as over:
                column = builder.mul(over.index, I64(LANES))
                byte = builder.mul(column, I64(size))
                ahead_of(builder, builder.add(builder.add(at, byte), further))
                value = builder.fmul(convert(builder, weights, byte), factor)
                place = builder.bitcast(builder.gep(out, [column]), FLOATS.as_pointer())
                builder.store(value, place, align=4)
            return context.get_dummy_value()

        return types.none(
            types.int64, types.int64, types.int64, types.float32, types.int64
        ), generate

    return widen


_widen_float32, _widen_float16 = _widen(4, float32s), _widen(2, float16s)
_widen_bfloat16, _widen_int8 = _widen(2, bfloat16s), _widen(1, int8s)


@intrinsic
def _widen_int4(_typing, at, out, chunks, step, least, further):
    """The same for a group of codes, in `chunks` times LANES bytes."""

    def generate(context, builder, _signature, args):
        at, out, chunks, step, least, further = args
        codes, out = builder.inttoptr(at, I8.as_pointer()), builder.inttoptr(out, F32.as_pointer())
        step, least = spread(builder, step), spread(builder, least)
        half = builder.mul(chunks, I64(LANES))
        ahead_of(builder, builder.add(at, further))
        with cgutils.for_range(builder, chunks) as over:
            column = builder.mul(over.index, I64(LANES))
            low, high = nibbles(builder, codes, column)
            for values, first in ((low, column), (high, builder.add(column, half))):
                scaled = builder.fmul(builder.sitofp(values, FLOATS), step, flags=FLAGS)
                place = builder.bitcast(builder.gep(out, [first]), FLOATS.as_pointer())
                builder.store(builder.fadd(scaled, least, flags=FLAGS), place, align=4)
        return context.get_dummy_value()

    kinds = (types.int64,) * 3 + (types.float32,) * 2 + (types.int64,)
    return types.none(*kinds), generate


@inlined
def _unpack_plain(matrix, row, first, count, y):
    """Columns of one row that have no groups."""
    kind, columns, one = matrix[KIND], matrix[COLUMNS], np.float32(1)
    chunks, out = count // LANES, y.ctypes.data
    done = chunks * LANES
    if kind == FLOAT32:
        at = matrix[AT] + (row * columns + first) * 4
        _widen_float32(at, out, chunks, one, columns * 8)
        rest = floats(at, count)
        for i in range(done, count):
            y[i] = rest[i]
    elif kind == INT8:
        at, scale = matrix[AT] + row * columns + first, floats(matrix[SCALES], row + 1)[row]
        _widen_int8(at, out, chunks, scale, columns * 2)
        codes = signed_bytes(at, count)
        for i in range(done, count):
            y[i] = np.float32(codes[i]) * scale
    else:
        at = matrix[AT] + (row * columns + first) * 2
        bits = halves(at, count)
        if kind == FLOAT16:
            _widen_float16(at, out, chunks, one, columns * 4)
            for i in range(done, count):
                y[i] = from_float16(bits[i])
        else:
            _widen_bfloat16(at, out, chunks, one, columns * 4)
            for i in range(done, count):
                y[i] = from_bfloat16(bits[i])


@inlined
def _unpack_int8_groups(matrix, row, first, count, y):
    columns, group = matrix[COLUMNS], matrix[GROUP]
    at, chunks = matrix[AT] + row * columns + first, group // LANES
    scale = floats(matrix[SCALES] + (row * columns + first) // group * 4, count // group)
    codes = signed_bytes(at, count)
    for g in range(count // group):
        begin = g * group
        _widen_int8(at + begin, y.ctypes.data + begin * 4, chunks, scale[g], columns * 2)
        for i in range(begin + chunks * LANES, begin + group):
            y[i] = np.float32(codes[i]) * scale[g]


@inlined
def _unpack_int4(matrix, row, first, count, y):
    """Up to a whole group."""
    group = matrix[GROUP]
    half, of_row = group // 2, (matrix[COLUMNS] + group - 1) // group
    place = row * of_row + first // group
    at, chunks = matrix[AT] + place * half, half // LANES
    groups = (count + group - 1) // group
    steps, minima = (
        halves(matrix[SCALES] + place * 2, groups),
        halves(matrix[MINIMA] + place * 2, groups),
    )
    for g in range(groups):
        step, least, begin = from_float16(steps[g]), from_float16(minima[g]), g * group
        if half % LANES == 0:
            out = y.ctypes.data + begin * 4
            _widen_int4(at + g * half, out, chunks, step, least, of_row * group)
        else:
            packed = unsigned_bytes(at + g * half, half)
            for i in range(half):
                y[begin + i] = step * low_half(packed[i]) + least
                y[begin + half + i] = step * high_half(packed[i]) + least


@inlined
def _unpack(matrix, row, first, count, y):
    """`count` columns of one row as floats, and zeros up to a whole chunk."""
    apart()
    kind = matrix[KIND]
    if kind == INT4:
        _unpack_int4(matrix, row, first, count, y)
    elif kind in (FLOAT32, FLOAT16, BFLOAT16, INT8):
        _unpack_plain(matrix, row, first, count, y)
    else:
        _unpack_int8_groups(matrix, row, first, count, y)
    for i in range(count, (count + LANES - 1) // LANES * LANES):
        y[i] = 0


@inlined
def times_panel(panel, stride, rows, x, x_stride, count, y, y_stride, chunks):
    """y [count, rows] += x times the panel's rows. Addresses, and bytes from row to row."""
    apart()
    whole = rows // TALL * TALL
    for begin in range(0, count, _ACROSS):
        end = min(begin + _ACROSS, count)
        for row in range(0, whole, TALL):
            weights, one = panel + row * stride, begin
            while one < end:
                left, here, out = end - one, x + one * x_stride, y + one * y_stride + row * 4
                # Two and two rather than three and one, which would leave sums waiting.
                if left >= 3 and left != 4:
                    _tile_3(weights, stride, here, x_stride, out, y_stride, chunks)
                    one += 3
                elif left >= 2:
                    _tile_2(weights, stride, here, x_stride, out, y_stride, chunks)
                    one += 2
                else:
                    _tile_1(weights, stride, here, x_stride, out, y_stride, chunks)
                    one += 1
        for row in range(whole, rows):
            for one in range(begin, end):
                sum_ = floats(y + one * y_stride + row * 4, 1)
                sum_[0] += dot_float32(x + one * x_stride, panel + row * stride, chunks)


@inlined
def mixed(weights, weight_stride, count, rows, width, keys, out, out_stride):
    """out [count, width] += weights [count, keys] times rows [keys, width].

    Addresses, and bytes from row to row; the width is a multiple of LANES.
    """
    apart()
    stride, wide = width * 4, width // (4 * LANES) * (4 * LANES)
    for column in range(0, width, LANES):
        if column < wide and column % (4 * LANES):
            continue
        one, here = 0, rows + column * 4
        while one < count:
            p, y = weights + one * weight_stride, out + one * out_stride + column * 4
            if one + 3 <= count:
                if column < wide:
                    mix_3_by_4(p, weight_stride, here, stride, keys, y, out_stride)
                else:
                    mix_3_by_1(p, weight_stride, here, stride, keys, y, out_stride)
                one += 3
            else:
                if column < wide:
                    mix_1_by_4(p, weight_stride, here, stride, keys, y, out_stride)
                else:
                    mix_1_by_1(p, weight_stride, here, stride, keys, y, out_stride)
                one += 1


@inlined
def rows_times_each(matrix, count, x, x_width, room, y, y_width, start, stop):
    """y[:, start:stop] = those rows of the matrix times each row of x, plus the bias.

    x [count, x_width] and y [count, y_width] are addresses. x has zeros behind its columns, up to
    a whole group and a whole chunk; `room` has PANEL runs of columns.
    """
    apart()
    columns, run = matrix[COLUMNS], matrix[RUN]
    for one in range(count):
        out = floats(y + one * y_width * 4, stop)
        if matrix[BIAS]:
            bias = floats(matrix[BIAS], stop)
            for row in range(start, stop):
                out[row] = bias[row]
        else:
            for row in range(start, stop):
                out[row] = 0
    for begin in range(start, stop, PANEL):
        rows = min(PANEL, stop - begin)
        for first in range(0, columns, run):
            width = min(run, columns - first)
            for row in range(rows):
                _unpack(matrix, begin + row, first, width, room[row * run :])
            times_panel(
                room.ctypes.data,
                run * 4,
                rows,
                x + first * 4,
                x_width * 4,
                count,
                y + begin * 4,
                y_width * 4,
                (width + LANES - 1) // LANES,
            )
