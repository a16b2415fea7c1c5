"""Rows of a matrix made floats and laid side by side in a panel, for each way of holding them.

A panel [columns, PANEL] has a column of all its rows at once. Squares of LANES rows and LANES
columns are turned in registers; what no square fits goes number by number.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels.layout import (
    AT,
    BFLOAT16,
    COLUMNS,
    FLOAT16,
    FLOAT32,
    GROUP,
    INT4,
    INT8,
    KIND,
    MINIMA,
    PANEL,
    SCALES,
)
from llmcli.kernels.sources.vectors import (
    FLAGS,
    FLOATS,
    LANES,
    ahead_of,
    bfloat16s,
    float16s,
    float32s,
    int8s,
    nibbles,
)
from llmcli.kernels.sources.words import (
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
    halves_to_floats,
    high_half,
    inlined,
    low_half,
    signed_bytes,
    unsigned_bytes,
)


def _turned(builder, rows):
    """The columns of a square, from its rows: each round pairs what is twice as far apart."""

    def merged(a, b, places):
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), places))

    def pairs(a, b, order):
        """Within each half of a register, which is what processors do at once."""
        return merged(a, b, [i + half for half in (0, LANES // 2) for i in order])

    b = LANES
    twos = [
        pairs(rows[i], rows[i + 1], order)
        for order in ([0, b, 1, b + 1], [2, b + 2, 3, b + 3])
        for i in range(0, LANES, 2)
    ]
    fours = [
        pairs(twos[i + first], twos[i + first + 1], order)
        for i in (0, 4)
        for order in ([0, 1, b, b + 1], [2, 3, b + 2, b + 3])
        for first in (0, 2)
    ]
    low, high = range(4), range(4, 8)
    return [
        merged(fours[i], fours[i + 1], [*half, *(b + place for place in half)])
        for half in (low, high)
        for i in range(0, LANES, 2)
    ]


def _starts(builder, at, stride, count, kind):
    """Where LANES rows begin; behind the last of `count`, that one again."""
    last = builder.sub(count, I64(1))
    found = []
    for i in range(LANES):
        row = builder.select(builder.icmp_signed("<", I64(i), count), I64(i), last)
        start = builder.add(at, builder.mul(stride, row))
        found.append(builder.inttoptr(start, kind.as_pointer()))
    return found


def _one_each(builder, pointers, index, kind):
    """The number at `index` of each row, as a vector."""
    made = ir.Constant(ir.VectorType(kind, LANES), ir.Undefined)
    for lane, one in enumerate(pointers):
        number = builder.load(builder.gep(one, [index]))
        made = builder.insert_element(made, number, I32(lane))
    return made


def _ask_ahead(builder, at, stride, chunk, size):
    """Ask for the next LANES rows, a line of each once: `size` of them at a chunk of columns."""
    byte = builder.mul(chunk, I64(LANES * size))
    for i in range(size):
        row = builder.and_(builder.add(builder.mul(chunk, I64(size)), I64(i)), I64(LANES - 1))
        there = builder.mul(stride, builder.add(row, I64(LANES)))
        ahead_of(builder, builder.add(builder.add(at, there), byte))


def _store(builder, panel, column, columns):
    for i, one in enumerate(columns):
        place = builder.mul(builder.add(column, I64(i)), I64(PANEL))
        at = builder.bitcast(builder.gep(panel, [place]), FLOATS.as_pointer())
        builder.store(one, at, align=4)


def _lay_plain(size, convert, *, scaled=False):
    """An intrinsic: `count` rows of `chunks` times LANES numbers, `size` bytes each.

    Where `scaled`, row i is multiplied by the float `scales` + i.
    """

    @intrinsic
    def lay(_typing, at, stride, count, chunks, scales, panel):
        def generate(context, builder, _signature, args):
            at, stride, count, chunks, scales, panel = args
            rows = _starts(builder, at, stride, count, I8)
            panel = builder.inttoptr(panel, F32.as_pointer())
            if scaled:
                each = _starts(builder, scales, I64(4), count, F32)
                factors = _one_each(builder, each, I64(0), F32)
            with cgutils.for_range(builder, chunks) as over:
                column = builder.mul(over.index, I64(LANES))
                byte = builder.mul(column, I64(size))
                _ask_ahead(builder, at, stride, over.index, size)
                square = _turned(builder, [convert(builder, one, byte) for one in rows])
                if scaled:
                    square = [builder.fmul(one, factors, flags=FLAGS) for one in square]
                _store(builder, panel, column, square)
            return context.get_dummy_value()

        return types.none(*(types.int64,) * 6), generate

    return lay


lay_float32, _lay_float16 = _lay_plain(4, float32s), _lay_plain(2, float16s)
_lay_bfloat16, _lay_int8 = _lay_plain(2, bfloat16s), _lay_plain(1, int8s, scaled=True)


@intrinsic
def _lay_int8_groups(_typing, at, stride, count, groups, chunks, scales, scale_stride, panel):
    """Groups of `chunks` times LANES columns, each with a scale."""

    def generate(context, builder, _signature, args):
        at, stride, count, groups, chunks, scales, scale_stride, panel = args
        rows = _starts(builder, at, stride, count, I8)
        each = _starts(builder, scales, scale_stride, count, F32)
        panel = builder.inttoptr(panel, F32.as_pointer())
        with cgutils.for_range(builder, groups) as group:
            factors = _one_each(builder, each, group.index, F32)
            first = builder.mul(group.index, chunks)
            with cgutils.for_range(builder, chunks) as over:
                chunk = builder.add(first, over.index)
                column = builder.mul(chunk, I64(LANES))
                _ask_ahead(builder, at, stride, chunk, 1)
                square = _turned(builder, [int8s(builder, one, column) for one in rows])
                scaled = [builder.fmul(one, factors, flags=FLAGS) for one in square]
                _store(builder, panel, column, scaled)
        return context.get_dummy_value()

    return types.none(*(types.int64,) * 8), generate


@intrinsic
def _lay_int4(_typing, at, stride, count, groups, chunks, scales, minima, scale_stride, panel):
    """Groups of `chunks` times LANES bytes, each with a scale and a minimum in float16."""

    def generate(context, builder, _signature, args):
        at, stride, count, groups, chunks, scales, minima, scale_stride, panel = args
        rows = _starts(builder, at, stride, count, I8)
        each_scale, each_least = (
            _starts(builder, one, scale_stride, count, I16) for one in (scales, minima)
        )
        panel = builder.inttoptr(panel, F32.as_pointer())
        half = builder.mul(chunks, I64(LANES))
        with cgutils.for_range(builder, groups) as group:
            scale, least = (
                halves_to_floats(builder, _one_each(builder, one, group.index, I16))
                for one in (each_scale, each_least)
            )
            first = builder.mul(group.index, chunks)
            with cgutils.for_range(builder, chunks) as over:
                chunk = builder.add(first, over.index)
                byte = builder.mul(chunk, I64(LANES))
                _ask_ahead(builder, at, stride, chunk, 1)
                # A group's first half of columns is in the low halves of its bytes.
                low = builder.add(builder.mul(first, I64(LANES)), byte)
                both = [nibbles(builder, one, byte) for one in rows]
                for codes, column in zip(
                    zip(*both, strict=True), (low, builder.add(low, half)), strict=True
                ):
                    numbers = [builder.sitofp(one, FLOATS) for one in codes]
                    made = [
                        builder.fadd(builder.fmul(one, scale, flags=FLAGS), least, flags=FLAGS)
                        for one in _turned(builder, numbers)
                    ]
                    _store(builder, panel, column, made)
        return context.get_dummy_value()

    return types.none(*(types.int64,) * 9), generate


@inlined
def _lay_one_by_one(matrix, row, first, count, panel):
    """Columns of one row, whatever their number and their groups."""
    kind, columns, group = matrix[KIND], matrix[COLUMNS], matrix[GROUP]
    begin, out = row * columns + first, floats(panel, count * PANEL)
    if kind == FLOAT32:
        weights = floats(matrix[AT] + begin * 4, count)
        for i in range(count):
            out[i * PANEL] = weights[i]
    elif kind == FLOAT16:
        bits = halves(matrix[AT] + begin * 2, count)
        for i in range(count):
            out[i * PANEL] = from_float16(bits[i])
    elif kind == BFLOAT16:
        bits = halves(matrix[AT] + begin * 2, count)
        for i in range(count):
            out[i * PANEL] = from_bfloat16(bits[i])
    elif kind == INT4:
        of_row, half = (columns + group - 1) // group, group // 2
        place = row * of_row + first // group
        groups = (count + group - 1) // group
        steps, minima = (
            halves(matrix[SCALES] + place * 2, groups),
            halves(matrix[MINIMA] + place * 2, groups),
        )
        packed = unsigned_bytes(matrix[AT] + place * half, groups * half)
        for i in range(count):
            g, own = i // group, i % group
            byte = packed[g * half + own % half]
            code = low_half(byte) if own < half else high_half(byte)
            out[i * PANEL] = from_float16(steps[g]) * code + from_float16(minima[g])
    else:
        codes = signed_bytes(matrix[AT] + begin, count)
        each = columns if kind == INT8 else group
        scales = floats(matrix[SCALES], begin // each + (count + each - 1) // each + 1)
        for i in range(count):
            out[i * PANEL] = codes[i] * scales[(begin + i) // each]


@inlined
def lay(matrix, row, rows, first, count, panel):
    """`count` columns of up to LANES rows, and zeros up to a whole chunk, where `panel` begins."""
    apart()
    kind, columns, group = matrix[KIND], matrix[COLUMNS], matrix[GROUP]
    begin, chunks = row * columns + first, count // LANES
    whole = count % LANES == 0
    if kind == INT4 and group % (2 * LANES) == 0:
        of_row, half = (columns + group - 1) // group, group // 2
        place, groups = row * of_row + first // group, (count + group - 1) // group
        at, scales, minima = (
            matrix[AT] + place * half,
            matrix[SCALES] + place * 2,
            matrix[MINIMA] + place * 2,
        )
        _lay_int4(at, of_row * half, rows, groups, half // LANES, scales, minima, of_row * 2, panel)
    elif kind == FLOAT32 and whole:
        lay_float32(matrix[AT] + begin * 4, columns * 4, rows, chunks, 0, panel)
    elif kind == FLOAT16 and whole:
        _lay_float16(matrix[AT] + begin * 2, columns * 2, rows, chunks, 0, panel)
    elif kind == BFLOAT16 and whole:
        _lay_bfloat16(matrix[AT] + begin * 2, columns * 2, rows, chunks, 0, panel)
    elif kind == INT8 and whole:
        scales = matrix[SCALES] + row * 4
        _lay_int8(matrix[AT] + begin, columns, rows, chunks, scales, panel)
    elif whole and kind not in (INT8, INT4) and group % LANES == 0:
        scales, stride = matrix[SCALES] + begin // group * 4, columns // group * 4
        groups, each = count // group, group // LANES
        _lay_int8_groups(matrix[AT] + begin, columns, rows, groups, each, scales, stride, panel)
    else:
        end = (count + LANES - 1) // LANES * LANES
        for one in range(rows):
            out = floats(panel + one * 4, end * PANEL)
            for i in range(count, end):
                out[i * PANEL] = 0
            _lay_one_by_one(matrix, row + one, first, count, panel + one * 4)
