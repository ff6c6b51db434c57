"""Bits of integers: and, or, xor, invert, shifts, bit counts, gcd and lcm. On booleans the first four are logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, INT64, DType
from ..stage.primitive import Case, Primitive, Sample
from ..stage.spec import ArraySpec
from ..stage.trace import bind
from .comparison import logical_and_p, logical_not_p, logical_or_p, logical_xor_p
from .families import INTEGERS, binary_cases, elementwise, unary_cases
from .operands import cast, dtype_of
from .registry import implements
from .ufuncs import binary_function, named, ufunc_operands

_REASON = "an integer has no tangent"
_UINT8 = np.dtype(np.uint8)


def _integer(name: str, numpy: Callable[..., Any], onnx: Any, cases: list[Case], result: DType | None = None) -> Primitive:
    return elementwise(
        name,
        numpy,
        dtypes=INTEGERS,
        result=result,
        nondifferentiable=_REASON,
        onnx=onnx,
        exact=True,
        shadow="decision",
        cases=cases,
    )


_SIGNED = binary_cases((-9, 9), (-9, 9), "int")
bitwise_and_p = _integer("bitwise_and", np.bitwise_and, "BitwiseAnd", _SIGNED)
bitwise_or_p = _integer("bitwise_or", np.bitwise_or, "BitwiseOr", _SIGNED)
bitwise_xor_p = _integer("bitwise_xor", np.bitwise_xor, "BitwiseXor", _SIGNED)
invert_p = _integer("invert", np.invert, "BitwiseNot", unary_cases((-9, 9), "int"))


def _bits(ufunc: Any, primitive: Primitive, logical: Primitive, doc: str) -> Callable[..., Any]:
    def function(*xs: Any) -> Any:
        operands = ufunc_operands(ufunc, *xs, keep_weak=True)
        return bind(logical if dtype_of(operands[0])[0] == BOOL else primitive, *operands)

    return named(function, ufunc.__name__, doc, (ufunc,), ufunc.__name__)


bitwise_and = _bits(np.bitwise_and, bitwise_and_p, logical_and_p, "x & y; TypeError for floats.")
bitwise_or = _bits(np.bitwise_or, bitwise_or_p, logical_or_p, "x | y; TypeError for floats.")
bitwise_xor = _bits(np.bitwise_xor, bitwise_xor_p, logical_xor_p, "x ^ y; TypeError for floats.")
invert = _bits(np.invert, invert_p, logical_not_p, "~x; of booleans their negation; TypeError for floats.")

# -------------------------------------------------------------------------------------------------------------------- shifts


def _shift_dtype(dtype: DType) -> DType:
    """The unsigned dtype in which ONNX Runtime shifts: it has no kernels for the others."""
    return np.dtype({1: np.uint8, 2: np.uint32, 4: np.uint32, 8: np.uint64}[dtype.itemsize])


def _in_range(b: Any, count: str, bits: int) -> tuple[str, str]:
    """(the count, with a 0 for every one that shifts all bits out, where that is: "" for nowhere). A negative count counts as large."""
    dtype = b.dtype(count)
    known = b.value_of(count)
    if known is not None and bool(np.all((known >= 0) & (known < bits))):
        return count, ""
    limit = b.const(bits, dtype)
    out = b.op("GreaterOrEqual", count, limit)
    if dtype.kind == "i":
        out = b.op("Or", out, b.op("Less", count, b.const(0, dtype)))
    return b.op("Where", out, b.const(0, dtype), count), out


def _left_shift_onnx(b: Any, x: str, count: str) -> str:
    dtype = b.dtype(x)
    carrier = _shift_dtype(dtype)
    count, out = _in_range(b, count, dtype.itemsize * 8)
    shifted = b.cast(b.op("BitShift", b.cast(x, carrier), b.cast(count, carrier), direction="LEFT"), dtype)
    return b.op("Where", out, b.const(0, dtype), shifted) if out else shifted


def _right_shift_onnx(b: Any, x: str, count: str) -> str:
    dtype = b.dtype(x)
    carrier = _shift_dtype(dtype)
    count, out = _in_range(b, count, dtype.itemsize * 8)
    zero = b.const(0, dtype)
    if dtype.kind == "u":
        shifted = b.cast(b.op("BitShift", b.cast(x, carrier), b.cast(count, carrier), direction="RIGHT"), dtype)
        return b.op("Where", out, zero, shifted) if out else shifted
    # The sign bit is shifted in: by complement, so that what is shifted is not negative
    mask = b.op("Where", b.op("Less", x, zero), b.const(-1, dtype), zero)
    positive = b.cast(b.op("BitwiseXor", x, mask), carrier)
    shifted = b.cast(b.op("BitShift", positive, b.cast(count, carrier), direction="RIGHT"), dtype)
    result = b.op("BitwiseXor", shifted, mask)
    return b.op("Where", out, mask, result) if out else result


_SHIFTS = [
    *binary_cases((-100, 100), (0, 5), "int"),
    Case(
        (
            Sample((6,), "int32", values=[-3, 3, -3, 5, 2**31 - 1, -1]),
            Sample((6,), "int32", values=[1, 40, 40, -1, 31, 31]),
        )
    ),
    Case((Sample((3,), "int16", values=[-300, 300, -1]), Sample((3,), "int16", values=[2, 15, 16]))),
]
left_shift_p = _integer("left_shift", np.left_shift, _left_shift_onnx, _SHIFTS)
right_shift_p = _integer("right_shift", np.right_shift, _right_shift_onnx, _SHIFTS)

left_shift = binary_function(
    left_shift_p,
    np.left_shift,
    operator="left_shift",
    doc="x << y; 0 where y is negative or all bits are out.",
)
right_shift = binary_function(
    right_shift_p,
    np.right_shift,
    operator="right_shift",
    doc="x >> y, the sign shifted in; 0 or -1 where y is negative or all bits are out.",
)

# ------------------------------------------------------------------------------------------------------------------ bit count


def _bit_count_onnx(b: Any, x: str) -> str:
    """Sums of neighbouring bits, pairs, nibbles, ...: in 32 or 64 bits, of the absolute value, as NumPy counts."""
    dtype = b.dtype(x)
    size = 8 if dtype.itemsize == 8 else 4
    word = np.dtype(np.uint64 if size == 8 else np.uint32)
    signed = np.dtype(np.int64)
    if dtype.kind == "i":
        # The least integer is its own absolute value: as an unsigned number it is right again
        x = b.op("Abs", x) if size == dtype.itemsize else b.op("Abs", b.cast(x, signed))
    value = b.cast(x, word)

    def constant(byte: int) -> str:
        return b.const(int.from_bytes(bytes([byte]) * size, "little"), word)

    def shifted(v: str, by: int) -> str:
        return b.op("BitShift", v, b.const(by, word), direction="RIGHT")

    pairs = b.op("Sub", value, b.op("BitwiseAnd", shifted(value, 1), constant(0x55)))
    nibbles = b.op(
        "Add",
        b.op("BitwiseAnd", pairs, constant(0x33)),
        b.op("BitwiseAnd", shifted(pairs, 2), constant(0x33)),
    )
    octets = b.op("BitwiseAnd", b.op("Add", nibbles, shifted(nibbles, 4)), constant(0x0F))
    return b.cast(shifted(b.op("Mul", octets, constant(0x01)), 8 * (size - 1)), _UINT8)


bitwise_count_p = _integer(
    "bitwise_count",
    np.bitwise_count,
    _bit_count_onnx,
    [
        *unary_cases((-100, 100), "int"),
        Case((Sample((4,), "int32", values=[-(2**31), 2**31 - 1, -1, 0]),)),
        Case((Sample((2,), "int8", values=[-128, -1]),)),
    ],
    result=_UINT8,
)


@implements(np.bitwise_count)
def bitwise_count(x: Any) -> Any:
    """How many bits of |x| are set: uint8."""
    (x,) = ufunc_operands(np.bitwise_count, x)
    return bind(bitwise_count_p, x) if dtype_of(x)[0] != BOOL else bind(bitwise_count_p, cast(x, _UINT8))


# ---------------------------------------------------------------------------------------------------------------- gcd and lcm


def _gcd_onnx(b: Any, x: str, y: str) -> str:
    """Euclid's algorithm on all elements at once, until no remainder is left."""
    dtype = b.dtype(x)
    spec = b.out_specs[0].update(weak=False)
    zero, one = b.const(0, dtype), b.const(1, dtype)
    starts = [b.op("Expand", n, b.shape(spec.shape)) for n in (x, y)]
    if dtype.kind == "i":
        starts = [b.op("Abs", n) for n in starts]

    def unfinished(rest: str) -> str:
        left = b.cast(b.op("Not", b.op("Equal", rest, zero)), INT64)
        flat = b.op("Reshape", left, b.const([-1], INT64))
        return b.op("Greater", b.op("ReduceSum", flat, b.const([0], INT64), keepdims=0), b.const(0, INT64))

    with b.graph("gcd") as body:
        body.input(ArraySpec((), np.int64))
        body.input(ArraySpec((), BOOL))
        a, c = body.input(spec), body.input(spec)
        done = b.op("Equal", c, zero)
        rest = b.op("Where", done, zero, b.op("Mod", a, b.op("Where", done, one, c)))
        body.output(unfinished(rest), ArraySpec((), BOOL))
        body.output(b.op("Where", done, a, c), spec)
        body.output(rest, spec)
    result = b.op("Loop", "", unfinished(starts[1]), *starts, outputs=2, body=body.proto)[0]
    return b.op("Abs", result) if dtype.kind == "i" else result


def _lcm_onnx(b: Any, x: str, y: str) -> str:
    dtype = b.dtype(x)
    zero = b.const(0, dtype)
    divisor = _gcd_onnx(b, x, y)
    nothing = b.op("Equal", divisor, zero)
    quotient = b.op("Div", b.op("Abs", x) if dtype.kind == "i" else x, b.op("Where", nothing, b.const(1, dtype), divisor))
    product = b.op("Mul", quotient, b.op("Abs", y) if dtype.kind == "i" else y)
    return b.op("Where", nothing, zero, product)


_FACTORS = [
    *binary_cases((-100, 100), (-100, 100), "int"),
    Case((Sample((4,), "int64", values=[0, 12, -18, 2**62]), Sample((4,), "int64", values=[0, 0, 12, 6]))),
]
gcd_p = _integer("gcd", np.gcd, _gcd_onnx, _FACTORS)
lcm_p = _integer("lcm", np.lcm, _lcm_onnx, _FACTORS)

gcd = binary_function(gcd_p, np.gcd, doc="The greatest common divisor of |x| and |y|; gcd(0, 0) is 0.")
lcm = binary_function(lcm_p, np.lcm, doc="The least common multiple of |x| and |y|; 0 where one of them is 0.")
