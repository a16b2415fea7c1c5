"""Several vectors times some rows of a matrix, tile by tile, all sums of a tile in registers.

Two ways. Of rows as they lie, sums run along the columns. Of rows that lie side by side in a panel
(panel.py) a column is read at once, which takes fewer reads and leaves no sums to be gathered in
the end. Addresses, and bytes from row to row.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels.layout import PANEL
from llmcli.kernels.sources.vectors import (
    FLAGS,
    FLOATS,
    LANES,
    ahead_of,
    dot_float32,
    mix_1_by_1,
    mix_1_by_4,
    mix_3_by_1,
    mix_3_by_4,
    spread,
    vector_at,
)
from llmcli.kernels.sources.words import F32, I32, I64, apart, floats, inlined

_TALL = 4
_HALF = ir.VectorType(F32, 4)
_ZEROS = ir.Constant(FLOATS, [0.0] * LANES)
# Vectors that a panel is wide: with four rows of x they make twelve sums, which hide the time
# that one addition takes, and leave registers for what is multiplied.
_WIDE = PANEL // LANES
_LINE = 64


def _rows(builder, first, stride, count):
    starts = [builder.add(first, builder.mul(stride, I64(i))) for i in range(count)]
    return [builder.inttoptr(one, F32.as_pointer()) for one in starts]


def _cleared(builder, count):
    sums = [cgutils.alloca_once(builder, FLOATS) for _ in range(count)]
    for one in sums:
        builder.store(_ZEROS, one)
    return sums


def _add_product(builder, sum_, a, b):
    product = builder.fmul(a, b, flags=FLAGS)
    builder.store(builder.fadd(builder.load(sum_), product, flags=FLAGS), sum_)


def _sums_of_four(builder, vectors):
    """Four vectors to one of their four sums."""

    def pick(a, b, places):
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 4), places))

    def folded(a, b, low, high):
        return builder.fadd(pick(a, b, low), pick(a, b, high), flags=FLAGS)

    four = [folded(one, one, [0, 1, 2, 3], [4, 5, 6, 7]) for one in vectors]
    even, odd = [0, 2, 4, 6], [1, 3, 5, 7]
    return folded(folded(*four[:2], even, odd), folded(*four[2:], even, odd), even, odd)


def _tile_of_rows(wide):
    """An intrinsic: y[j, i] += rows[i] . x[j] for i < _TALL, j < wide, of `chunks` times LANES."""

    @intrinsic
    def tile(_typing, weights, weight_stride, x, x_stride, y, y_stride, chunks):
        def generate(context, builder, _signature, args):
            weights, weight_stride, x, x_stride, y, y_stride, chunks = args
            tall = _rows(builder, weights, weight_stride, _TALL)
            across = _rows(builder, x, x_stride, wide)
            sums = [_cleared(builder, _TALL) for _ in across]
            with cgutils.for_range(builder, chunks) as over:
                column = builder.mul(over.index, I64(LANES))
                parts = [vector_at(builder, one, column, FLOATS) for one in across]
                for i, one in enumerate(tall):
                    weight = vector_at(builder, one, column, FLOATS)
                    for part, row in zip(parts, sums, strict=True):
                        _add_product(builder, row[i], weight, part)
            for row, out in zip(sums, _rows(builder, y, y_stride, wide), strict=True):
                total = _sums_of_four(builder, [builder.load(one) for one in row])
                place = builder.bitcast(out, _HALF.as_pointer())
                before = builder.load(place, align=4)
                builder.store(builder.fadd(before, total, flags=FLAGS), place, align=4)
            return context.get_dummy_value()

        return types.none(*(types.int64,) * 7), generate

    return tile


_rows_by_1, _rows_by_2, _rows_by_3 = _tile_of_rows(1), _tile_of_rows(2), _tile_of_rows(3)


@inlined
def times_rows(weights, stride, rows, x, x_stride, count, y, y_stride, chunks):
    """y [count, rows] += x times rows that lie one behind the other."""
    apart()
    whole = rows // _TALL * _TALL
    for row in range(0, whole, _TALL):
        here, one = weights + row * stride, 0
        while one < count:
            left, at, out = count - one, x + one * x_stride, y + one * y_stride + row * 4
            # Two and two rather than three and one, which would leave sums waiting.
            if left >= 3 and left != 4:
                _rows_by_3(here, stride, at, x_stride, out, y_stride, chunks)
                one += 3
            elif left >= 2:
                _rows_by_2(here, stride, at, x_stride, out, y_stride, chunks)
                one += 2
            else:
                _rows_by_1(here, stride, at, x_stride, out, y_stride, chunks)
                one += 1
    for row in range(whole, rows):
        for one in range(count):
            sum_ = floats(y + one * y_stride + row * 4, 1)
            sum_[0] += dot_float32(x + one * x_stride, weights + row * stride, chunks)


def _tile_of_panel(tall):
    """An intrinsic: y[j] = before[j] + x[j] times the panel, of `chunks` times LANES columns."""

    @intrinsic
    def tile(_typing, panel, x, x_stride, before, before_stride, y, y_stride, chunks):
        def generate(context, builder, _signature, args):
            panel, x, x_stride, before, before_stride, y, y_stride, chunks = args
            across, outs = _rows(builder, x, x_stride, tall), _rows(builder, y, y_stride, tall)
            befores = _rows(builder, before, before_stride, tall)
            panel = builder.inttoptr(panel, F32.as_pointer())
            for j in range(tall):
                # What is written in the end, and what the next tile begins with.
                out = builder.add(y, builder.mul(y_stride, I64(j)))
                coming = builder.add(x, builder.mul(x_stride, I64(tall + j)))
                for one in (out, coming):
                    ahead_of(builder, one)
                    ahead_of(builder, builder.add(one, I64(_LINE)))
            sums = [_cleared(builder, _WIDE) for _ in across]
            with cgutils.for_range(builder, chunks) as over:
                first = builder.mul(over.index, I64(LANES))
                for k in range(LANES):
                    column = builder.add(first, I64(k))
                    place = builder.mul(column, I64(PANEL))
                    weights = [
                        vector_at(builder, panel, builder.add(place, I64(i * LANES)), FLOATS)
                        for i in range(_WIDE)
                    ]
                    for one, own in zip(across, sums, strict=True):
                        part = spread(builder, builder.load(builder.gep(one, [column])))
                        for weight, sum_ in zip(weights, own, strict=True):
                            _add_product(builder, sum_, weight, part)
            for first, out, own in zip(befores, outs, sums, strict=True):
                for i, sum_ in enumerate(own):
                    column = I64(i * LANES)
                    value = vector_at(builder, first, column, FLOATS)
                    value = builder.fadd(value, builder.load(sum_), flags=FLAGS)
                    place = builder.bitcast(builder.gep(out, [column]), FLOATS.as_pointer())
                    builder.store(value, place, align=4)
            return context.get_dummy_value()

        return types.none(*(types.int64,) * 8), generate

    return tile


_panel_by_1, _panel_by_2 = _tile_of_panel(1), _tile_of_panel(2)
_panel_by_3, _panel_by_4 = _tile_of_panel(3), _tile_of_panel(4)


@inlined
def times_panel(panel, x, x_stride, count, before, before_stride, y, y_stride, chunks):
    """y [count, PANEL] = before + x times the panel's rows. `before` may be y, or a single row."""
    apart()
    one = 0
    while one < count:
        left, at = count - one, x + one * x_stride
        first, out = before + one * before_stride, y + one * y_stride
        # Three and two rather than four and one, which would leave sums waiting.
        if left >= 4 and left != 5:
            _panel_by_4(panel, at, x_stride, first, before_stride, out, y_stride, chunks)
            one += 4
        elif left >= 3:
            _panel_by_3(panel, at, x_stride, first, before_stride, out, y_stride, chunks)
            one += 3
        elif left == 2:
            _panel_by_2(panel, at, x_stride, first, before_stride, out, y_stride, chunks)
            one += 2
        else:
            _panel_by_1(panel, at, x_stride, first, before_stride, out, y_stride, chunks)
            one += 1


@inlined
def mixed(weights, weight_stride, count, rows, width, keys, out, out_stride):
    """out [count, width] += weights [count, keys] times rows [keys, width].

    The width is a multiple of LANES.
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
