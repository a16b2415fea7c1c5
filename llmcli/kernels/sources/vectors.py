"""Sums of products on vectors, written as LLVM's code where numba's own would not be fast.

Arguments are addresses and counts. Several lanes run side by side; rows are read as one stream.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels.layout import CHUNK
from llmcli.kernels.sources import words
from llmcli.kernels.sources.words import F32, I8, I16, I32, I64

# Codes of a group that are unpacked together; groups of four bits hold a multiple of twice it.
LANES = CHUNK
FLOATS, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
BYTES, SHORTS = ir.VectorType(I8, LANES), ir.VectorType(I16, LANES)
# Chunks of LANES whose sums are kept apart, so that one need not wait for the other.
_UNROLLED = 4
# Bytes: far enough ahead that memory answers in time.
_AHEAD = 4096
FLAGS = ("reassoc", "contract", "nsz")


def vector_at(builder, pointer, index, kind):
    at = builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())
    load = builder.load(at)
    load.align = 1
    return load


def spread(builder, value):
    one = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(INTS, [0] * LANES))


def _folded(builder, vector, together):
    """One number of a vector: halves are put together until one is left."""
    width = LANES
    while width > 1:
        width //= 2
        halves = [
            builder.shuffle_vector(
                vector,
                vector,
                ir.Constant(ir.VectorType(I32, width), list(range(begin, begin + width))),
            )
            for begin in (0, width)
        ]
        vector = together(*halves)
    return builder.extract_element(vector, I32(0))


def total(builder, vector):
    return _folded(builder, vector, lambda a, b: builder.fadd(a, b, flags=FLAGS))


def largest(builder, vector):
    def larger(a, b):
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return _folded(builder, vector, larger)


def ahead_of(builder, address):
    """Ask for memory that will be read soon: rows are short, and the hardware stops at each end."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    there = builder.inttoptr(address, I8.as_pointer())
    builder.call(prefetch, [there, I32(0), I32(3), I32(1)])


def _far_ahead(builder, address):
    ahead_of(builder, builder.add(address, I64(_AHEAD)))


def _dot(size, convert, *, far=True):
    """An intrinsic: `chunks` times LANES columns of one row, `size` bytes each, times x."""

    @intrinsic
    def dot(_typing, at, x, chunks):
        def generate(_context, builder, _signature, args):
            at, x, chunks = args
            zeros = ir.Constant(FLOATS, [0.0] * LANES)
            sums = [cgutils.alloca_once(builder, FLOATS) for _ in range(_UNROLLED)]
            for one in sums:
                builder.store(zeros, one)
            weights = builder.inttoptr(at, I8.as_pointer())
            x = builder.inttoptr(x, F32.as_pointer())

            def add(chunk, sum_):
                column = builder.mul(chunk, I64(LANES))
                value = convert(builder, weights, builder.mul(column, I64(size)))
                product = builder.fmul(value, vector_at(builder, x, column, FLOATS), flags=FLAGS)
                builder.store(builder.fadd(builder.load(sum_), product, flags=FLAGS), sum_)

            rounds = builder.udiv(chunks, I64(_UNROLLED))
            with cgutils.for_range(builder, rounds) as over:
                first = builder.mul(over.index, I64(_UNROLLED))
                if far:
                    _far_ahead(builder, builder.add(at, builder.mul(first, I64(LANES * size))))
                for one, sum_ in enumerate(sums):
                    add(builder.add(first, I64(one)), sum_)
            done = builder.mul(rounds, I64(_UNROLLED))
            with cgutils.for_range(builder, builder.sub(chunks, done)) as over:
                add(builder.add(done, over.index), sums[0])
            lanes = builder.load(sums[0])
            for sum_ in sums[1:]:
                lanes = builder.fadd(lanes, builder.load(sum_), flags=FLAGS)
            return total(builder, lanes)

        return types.float32(*(types.int64,) * 3), generate

    return dot


def float32s(builder, weights, byte):
    return builder.load(builder.bitcast(builder.gep(weights, [byte]), FLOATS.as_pointer()), align=4)


def float16s(builder, weights, byte):
    return words.halves_to_floats(builder, vector_at(builder, weights, byte, SHORTS))


def bfloat16s(builder, weights, byte):
    wide = builder.zext(vector_at(builder, weights, byte, SHORTS), INTS)
    return builder.bitcast(builder.shl(wide, ir.Constant(INTS, [16] * LANES)), FLOATS)


def int8s(builder, weights, byte):
    return builder.sitofp(builder.sext(vector_at(builder, weights, byte, BYTES), INTS), FLOATS)


def nibbles(builder, codes, byte):
    """The low and the high halves of LANES bytes, as integers."""
    wide = builder.zext(vector_at(builder, codes, byte, BYTES), INTS)
    low = builder.and_(wide, ir.Constant(INTS, [15] * LANES))
    kind = ir.FunctionType(INTS, [INTS])
    high = cgutils.get_or_insert_function(builder.module, kind, words.HIGH_NAME)
    return low, builder.call(high, [wide])


# Rows of keys lie behind one another, which the hardware sees for itself.
dot_float32 = _dot(4, float32s, far=False)
dot_float16, dot_bfloat16, dot_int8 = _dot(2, float16s), _dot(2, bfloat16s), _dot(1, int8s)


def _mix(tall, chunks):
    """An intrinsic: out[j] += sum over s of weights[j, s] rows[s], for j < tall.

    Of each row `chunks` times LANES floats. Addresses; strides are bytes from row to row.
    """

    @intrinsic
    def mix(_typing, weights, weight_stride, rows, row_stride, count, out, out_stride):
        def generate(context, builder, _signature, args):
            weights, weight_stride, rows, row_stride, count, out, out_stride = args

            def starts(first, stride):
                at = [builder.add(first, builder.mul(stride, I64(j))) for j in range(tall)]
                return [builder.inttoptr(one, F32.as_pointer()) for one in at]

            outs, weights = starts(out, out_stride), starts(weights, weight_stride)
            columns = [I64(chunk * LANES) for chunk in range(chunks)]
            sums = [[cgutils.alloca_once(builder, FLOATS) for _ in columns] for _ in outs]
            for one, own in zip(outs, sums, strict=True):
                for column, sum_ in zip(columns, own, strict=True):
                    builder.store(vector_at(builder, one, column, FLOATS), sum_)
            with cgutils.for_range(builder, count) as over:
                at = builder.add(rows, builder.mul(over.index, row_stride))
                row = builder.inttoptr(at, F32.as_pointer())
                parts = [vector_at(builder, row, column, FLOATS) for column in columns]
                for one, own in zip(weights, sums, strict=True):
                    weight = spread(builder, builder.load(builder.gep(one, [over.index])))
                    for part, sum_ in zip(parts, own, strict=True):
                        product = builder.fmul(weight, part, flags=FLAGS)
                        builder.store(builder.fadd(builder.load(sum_), product, flags=FLAGS), sum_)
            for one, own in zip(outs, sums, strict=True):
                for column, sum_ in zip(columns, own, strict=True):
                    place = builder.bitcast(builder.gep(one, [column]), FLOATS.as_pointer())
                    builder.store(builder.load(sum_), place, align=4)
            return context.get_dummy_value()

        return types.none(*(types.int64,) * 7), generate

    return mix


# Twelve sums stay in registers.
mix_3_by_4, mix_1_by_4, mix_3_by_1, mix_1_by_1 = _mix(3, 4), _mix(1, 4), _mix(3, 1), _mix(1, 1)


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
            zeros = ir.Constant(FLOATS, [0.0] * LANES)
            lanes = cgutils.alloca_once(builder, FLOATS)
            offset = cgutils.alloca_once(builder, F32)
            builder.store(zeros, lanes)
            builder.store(ir.Constant(F32, 0.0), offset)
            with cgutils.for_range(builder, groups) as over:
                g = over.index
                byte, first = builder.mul(g, I64(half)), builder.mul(g, I64(2 * half))
                _far_ahead(builder, builder.add(codes_at, byte))
                scale = words.half_to_float(builder, builder.load(builder.gep(scales, [g])))
                minimum = words.half_to_float(builder, builder.load(builder.gep(minima, [g])))
                moved = builder.fmul(minimum, builder.load(builder.gep(sums, [g])), flags=FLAGS)
                builder.store(builder.fadd(builder.load(offset), moved, flags=FLAGS), offset)
                inner = None
                for chunk in range(chunks):
                    at = builder.add(byte, I64(chunk * LANES))
                    low, high = nibbles(builder, codes, at)
                    for code, start in ((low, chunk * LANES), (high, half + chunk * LANES)):
                        part = vector_at(builder, x, builder.add(first, I64(start)), FLOATS)
                        product = builder.fmul(builder.sitofp(code, FLOATS), part, flags=FLAGS)
                        inner = builder.fadd(inner, product, flags=FLAGS) if inner else product
                scaled = builder.fmul(spread(builder, scale), inner, flags=FLAGS)
                builder.store(builder.fadd(builder.load(lanes), scaled, flags=FLAGS), lanes)
            return builder.fadd(
                total(builder, builder.load(lanes)), builder.load(offset), flags=FLAGS
            )

        return types.float32(*(types.int64,) * 6), generate

    return dot


dot_int4_32, dot_int4_16 = _dot_int4(2), _dot_int4(1)


def _dot_int8_groups(chunks):
    """An intrinsic: sum over groups, `chunks` times LANES columns each, of scale * (codes . x)."""
    group = chunks * LANES

    @intrinsic
    def dot(_typing, codes_at, scales, x, groups):
        def generate(_context, builder, _signature, args):
            codes_at, scales, x, groups = args
            codes = builder.inttoptr(codes_at, I8.as_pointer())
            scales, x = (builder.inttoptr(one, F32.as_pointer()) for one in (scales, x))
            lanes = cgutils.alloca_once(builder, FLOATS)
            builder.store(ir.Constant(FLOATS, [0.0] * LANES), lanes)
            with cgutils.for_range(builder, groups) as over:
                first = builder.mul(over.index, I64(group))
                _far_ahead(builder, builder.add(codes_at, first))
                inner = None
                for chunk in range(chunks):
                    at = builder.add(first, I64(chunk * LANES))
                    value, part = int8s(builder, codes, at), vector_at(builder, x, at, FLOATS)
                    product = builder.fmul(value, part, flags=FLAGS)
                    inner = builder.fadd(inner, product, flags=FLAGS) if inner else product
                scale = spread(builder, builder.load(builder.gep(scales, [over.index])))
                scaled = builder.fmul(scale, inner, flags=FLAGS)
                builder.store(builder.fadd(builder.load(lanes), scaled, flags=FLAGS), lanes)
            return total(builder, builder.load(lanes))

        return types.float32(*(types.int64,) * 4), generate

    return dot


dot_int8_32, dot_int8_16, dot_int8_8 = (_dot_int8_groups(chunks) for chunks in (4, 2, 1))
