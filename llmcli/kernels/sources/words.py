"""What numba lacks: memory at an address, 16-bit floats, atomic counters, a vectorised exp.

Arrays made here are views of memory that the caller keeps alive.
"""

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

F32, I8, I16, I32, I64 = ir.FloatType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))

# Sums may be taken in any order; NaN and infinities keep their meaning.
FAST = {"reassoc", "nsz", "contract", "arcp"}


def inlined(function):
    """Compiled as a part of whatever calls it, and never called from Python."""
    return numba.njit(
        function,
        fastmath=FAST,
        nogil=True,
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )


def _pointer_to(kind):
    @intrinsic
    def pointer(_typing, address):
        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), generate

    return pointer


_floats, _ints, _halves, _signed, _unsigned = map(
    _pointer_to, (types.float32, types.int64, types.uint16, types.int8, types.uint8)
)


@intrinsic
def apart(_typing):
    """Called in a function, keeps it one function, which would else be compiled at each call."""

    def generate(context, builder, _signature, _args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.none(), generate


@inlined
def floats(address, count):
    """float32 [count] at an address."""
    return numba.carray(_floats(address), (count,))


@inlined
def address_of(array):
    """The address of an array, as the integer that addresses are everywhere."""
    return np.int64(array.ctypes.data)


@inlined
def ints(address, count):
    """int64 [count] at an address."""
    return numba.carray(_ints(address), (count,))


@inlined
def halves(address, count):
    """The bits of 16-bit floats, uint16 [count], at an address."""
    return numba.carray(_halves(address), (count,))


@inlined
def signed_bytes(address, count):
    """int8 [count] at an address."""
    return numba.carray(_signed(address), (count,))


@inlined
def unsigned_bytes(address, count):
    """uint8 [count] at an address."""
    return numba.carray(_unsigned(address), (count,))


def _half_of_a_byte(shift):
    @intrinsic
    def half(_typing, byte):
        def generate(_context, builder, _signature, args):
            wide = builder.lshr(builder.zext(args[0], I32), I32(shift))
            return builder.sitofp(builder.and_(wide, I32(15)), F32)

        return types.float32(types.uint8), generate

    return half


low_half, high_half = _half_of_a_byte(0), _half_of_a_byte(4)


@intrinsic
def from_bfloat16(_typing, bits):
    """uint16 to float32."""

    def generate(_context, builder, _signature, args):
        wide = builder.shl(builder.zext(args[0], I32), I32(16))
        return builder.bitcast(wide, F32)

    return types.float32(types.uint16), generate


# What code.py completes. numba wants an address for it, though what it links is never run.
HALF_NAME, HALVES_NAME = "llmcli_half", "llmcli_halves"
HIGH_NAME, GIVE_WAY_NAME = "llmcli_high", "llmcli_give_way"
for _name in (HALF_NAME, HALVES_NAME, HIGH_NAME, GIVE_WAY_NAME):
    llvmlite.binding.add_symbol(_name, 1)
# As many as processors have an instruction for; code.py says what it is.
_HALVES_AT_ONCE = 8


def halves_to_floats(builder, bits):
    """IR that makes floats of the bits of eight float16."""
    floats_kind = ir.VectorType(F32, _HALVES_AT_ONCE)
    kind = ir.FunctionType(floats_kind, [ir.VectorType(I16, _HALVES_AT_ONCE)])
    convert = cgutils.get_or_insert_function(builder.module, kind, HALVES_NAME)
    return builder.call(convert, [bits])


def half_to_float(builder, bits):
    """IR that makes a float of the bits of a float16."""
    kind = ir.FunctionType(F32, [I16])
    convert = cgutils.get_or_insert_function(builder.module, kind, HALF_NAME)
    return builder.call(convert, [bits])


@intrinsic
def from_float16(_typing, bits):
    """uint16 to float32."""

    def generate(_context, builder, _signature, args):
        return half_to_float(builder, args[0])

    return types.float32(types.uint16), generate


@intrinsic
def root(_typing, x):
    """The square root of a float32."""

    def generate(_context, builder, _signature, args):
        kind = ir.FunctionType(F32, [F32])
        sqrt = cgutils.get_or_insert_function(builder.module, kind, "llvm.sqrt.f32")
        return builder.call(sqrt, args)

    return types.float32(types.float32), generate


@intrinsic
def _as_float(_typing, bits):
    def generate(_context, builder, _signature, args):
        return builder.bitcast(args[0], F32)

    return types.float32(types.int32), generate


LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts, so that x - n ln 2 is exact to more bits than a float has (Cody and Waite).
LN2 = np.float32(0.693359375), np.float32(-2.12194440e-4)
# The minimax polynomial of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, from the Cephes library's expf.
EXP_STEPS = tuple(
    map(
        np.float32,
        (
            1.9875691500e-4,
            1.3981999507e-3,
            8.3334519073e-3,
            4.1665795894e-2,
            1.6666665459e-1,
            5.0000001201e-1,
        ),
    )
)
LEAST_EXP, MOST_EXP = np.float32(-87.3), np.float32(88.3)
_HALF, _ONE = np.float32(0.5), np.float32(1)
_LN2_HIGH, _LN2_LOW = LN2
_C0, _C1, _C2, _C3, _C4, _C5 = EXP_STEPS


@inlined
def exp(x):
    """e^x to about 1e-7.

    What lies below -87.3 is taken as that (about 1e-38), and above 88.3 likewise; NaN stays NaN.
    """
    bounded = LEAST_EXP if x < LEAST_EXP else (MOST_EXP if x > MOST_EXP else x)
    n = np.floor(bounded * LOG2_E + _HALF)
    r = bounded - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((_C0 * r + _C1) * r + _C2) * r + _C3) * r + _C4) * r + _C5
    return (p * r * r + r + _ONE) * _as_float((np.int32(n) + np.int32(127)) << np.int32(23))


@intrinsic
def add_atomically(_typing, address, amount):
    """Add to the int64 at the address."""

    def generate(_context, builder, _signature, args):
        pointer = builder.inttoptr(args[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def load_atomically(_typing, address):
    """The int64 at the address."""

    def generate(_context, builder, _signature, args):
        pointer = builder.inttoptr(args[0], I64.as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(types.int64), generate


_give_way = types.ExternalFunction(GIVE_WAY_NAME, types.int32())


@inlined
def give_way():
    """Let another thread run, where the system has a way to."""
    _give_way()
