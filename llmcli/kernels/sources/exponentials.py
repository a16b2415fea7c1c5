"""e^x on vectors, and what stands on it: attention's softmax and the smooth activations.

Arguments are addresses and counts; the scalar twin is words.py's exp.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmcli.kernels.sources.vectors import (
    FLOATS,
    INTS,
    LANES,
    largest,
    spread,
    total,
    vector_at,
)
from llmcli.kernels.sources.words import EXP_STEPS, F32, I32, I64, LEAST_EXP, LN2, LOG2_E, MOST_EXP

_LONGS = ir.VectorType(I64, LANES)
_LOWEST = float("-inf")
# Far beyond what tells sigmoids of it from 0 or 1, and its cube is still a float.
SATURATED = 1e4


def _all(number):
    return ir.Constant(FLOATS, [float(number)] * LANES)


# Not in any order: what is lost in one step of an exponential is kept for the next.
_IN_ORDER = ("contract", "nsz")


def _multiplied(builder, a, b):
    return builder.fmul(a, b, flags=_IN_ORDER)


def _added(builder, a, b):
    return builder.fadd(a, b, flags=_IN_ORDER)


def _bounded(builder, x, least, most):
    """A NaN stays one."""
    x = builder.select(builder.fcmp_ordered("<", x, _all(least)), _all(least), x)
    return builder.select(builder.fcmp_ordered(">", x, _all(most)), _all(most), x)


def exps(builder, x):
    """IR that makes e^x of a vector, as words.exp does of a number."""
    x = _bounded(builder, x, LEAST_EXP, MOST_EXP)
    kind = ir.FunctionType(FLOATS, [FLOATS])
    floor = cgutils.get_or_insert_function(builder.module, kind, f"llvm.floor.v{LANES}f32")
    n = builder.call(floor, [_added(builder, _multiplied(builder, x, _all(LOG2_E)), _all(0.5))])
    for part in LN2:
        x = builder.fsub(x, _multiplied(builder, n, _all(part)), flags=_IN_ORDER)
    p = _all(EXP_STEPS[0])
    for step in EXP_STEPS[1:]:
        p = _added(builder, _multiplied(builder, p, x), _all(step))
    p = _added(builder, _multiplied(builder, _multiplied(builder, p, x), x), x)
    exponent = builder.add(builder.fptosi(n, INTS), ir.Constant(INTS, [127] * LANES))
    power = builder.shl(exponent, ir.Constant(INTS, [23] * LANES))
    return _multiplied(builder, _added(builder, p, _all(1)), builder.bitcast(power, FLOATS))


def _between(builder, chunk, low, high):
    """Which lanes of a chunk are the numbers low ... high."""
    first = builder.mul(chunk, I64(LANES))
    lanes = ir.Constant(_LONGS, list(range(LANES)))

    def each(number):
        one = builder.insert_element(ir.Constant(_LONGS, ir.Undefined), number, I32(0))
        return builder.shuffle_vector(one, one, ir.Constant(INTS, [0] * LANES))

    place = builder.add(each(builder.sub(first, low)), lanes)
    return builder.icmp_unsigned("<", place, each(builder.sub(high, low)))


@intrinsic
def scaled_scores(_typing, scores, low, high, chunks, scale, peak):
    """Scores low ... high times `scale`, all else of the chunks minus infinity.

    Returns the largest of them and of `peak`.
    """

    def generate(_context, builder, _signature, args):
        scores, low, high, chunks, scale, peak = args
        scores, scale = builder.inttoptr(scores, F32.as_pointer()), spread(builder, scale)
        peaks = cgutils.alloca_once_value(builder, spread(builder, peak))
        with cgutils.for_range(builder, chunks) as over:
            at = builder.gep(scores, [builder.mul(over.index, I64(LANES))])
            place = builder.bitcast(at, FLOATS.as_pointer())
            value = _multiplied(builder, builder.load(place, align=4), scale)
            value = builder.select(_between(builder, over.index, low, high), value, _all(_LOWEST))
            builder.store(value, place, align=4)
            held = builder.load(peaks)
            more = builder.fcmp_ordered(">", value, held)
            builder.store(builder.select(more, value, held), peaks)
        return largest(builder, builder.load(peaks))

    kinds = (types.int64,) * 4 + (types.float32,) * 2
    return types.float32(*kinds), generate


@intrinsic
def exponentials(_typing, scores, low, high, chunks, peak):
    """Scores low ... high become exp(score - peak), all else of the chunks 0; returns their sum."""

    def generate(_context, builder, _signature, args):
        scores, low, high, chunks, peak = args
        scores, peak = builder.inttoptr(scores, F32.as_pointer()), spread(builder, peak)
        sums = cgutils.alloca_once_value(builder, _all(0))
        with cgutils.for_range(builder, chunks) as over:
            at = builder.gep(scores, [builder.mul(over.index, I64(LANES))])
            place = builder.bitcast(at, FLOATS.as_pointer())
            value = exps(builder, builder.fsub(builder.load(place, align=4), peak))
            value = builder.select(_between(builder, over.index, low, high), value, _all(0))
            builder.store(value, place, align=4)
            builder.store(_added(builder, builder.load(sums), value), sums)
        return total(builder, builder.load(sums))

    return types.float32(*(types.int64,) * 4, types.float32), generate


@intrinsic
def times_sigmoid(_typing, x, y, chunks, linear, cubic):
    """y = x * sigmoid(linear * x + cubic * x^3), of `chunks` times LANES numbers."""

    def generate(context, builder, _signature, args):
        x, y, chunks, linear, cubic = args
        x, y = (builder.inttoptr(one, F32.as_pointer()) for one in (x, y))
        linear, cubic = spread(builder, linear), spread(builder, cubic)
        with cgutils.for_range(builder, chunks) as over:
            column = builder.mul(over.index, I64(LANES))
            value = vector_at(builder, x, column, FLOATS)
            near = _bounded(builder, value, -SATURATED, SATURATED)
            square = _multiplied(builder, near, near)
            slope = _added(builder, linear, _multiplied(builder, cubic, square))
            down = exps(builder, builder.fneg(_multiplied(builder, near, slope)))
            made = builder.fdiv(value, _added(builder, _all(1), down), flags=_IN_ORDER)
            place = builder.bitcast(builder.gep(y, [column]), FLOATS.as_pointer())
            builder.store(made, place, align=4)
        return context.get_dummy_value()

    kinds = (types.int64,) * 3 + (types.float32,) * 2
    return types.none(*kinds), generate
