"""Powers: of arrays to arrays, to constant whole exponents, squares and reciprocals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..stage.dtypes import BOOL, FLOAT64, INT64, is_integer, kind_rank
from ..stage.narrowing import is_array
from ..stage.primitive import Array, Case, Sample
from ..stage.program import Const
from ..stage.spec import ArraySpec
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .arithmetic import where
from .comparison import equal
from .conversion import copy
from .exponential import log, sqrt_p
from .families import NUMBERS, binary_cases, elementwise, kind_of, unary_cases
from .operands import cast, dtype_of, operand
from .registry import implements
from .ufuncs import like, ufunc_operands, unary_function

_NEGATIVE_EXPONENT: Final = "Integers to negative integer powers are not allowed."
# Up to this exponent a float power is written as products: off by an ulp at most, and a tenth of the time.
_MAX_FACTORS: Final = 4

# ------------------------------------------------------------------------------------------------------ constant whole exponents


def product_chain(b: Any, x: str, exponent: int) -> str:
    """x to a whole exponent >= 1 by squaring and multiplying."""
    result = ""
    square = x
    while True:
        if exponent & 1:
            result = square if not result else b.op("Mul", result, square)
        exponent >>= 1
        if not exponent:
            return result
        square = b.op("Mul", square, square)


def _integer_power_onnx(b: Any, x: str, *, exponent: int) -> str:
    dtype = b.dtype(x)
    if kind_of(dtype) == "f" and exponent > _MAX_FACTORS:
        return b.op("Pow", x, b.const(exponent, dtype))
    return product_chain(b, x, exponent)


def _integer_power_numpy(x: Array, *, exponent: int) -> Array:
    # A 0-d array, not a number: NumPy would take the exponents 2 and 3 of a narrow integer for weak ones too, but not 300
    return np.power(x, np.asarray(exponent, x.dtype)) if kind_of(x.dtype) == "f" else _ring_power(x, exponent)


def _ring_power(x: Array, exponent: int) -> Array:
    result = np.ones_like(x)
    square = x.copy()
    while exponent:
        if exponent & 1:
            result = result * square
        exponent >>= 1
        square = square * square
    return result


def _integer_power_jvp(output: Any, primals: Any, tangents: Any, *, exponent: int) -> Any:
    x, t = primals[0], tangents[0]
    return t * (exponent * (x if exponent == 2 else bind(integer_power_p, x, exponent=exponent - 1)))


def _integer_power_exact(x: ArraySpec, *, exponent: int) -> bool:
    return exponent == 2 or kind_of(x.dtype) != "f"


integer_power_p = elementwise(
    "integer_power",
    _integer_power_numpy,
    dtypes=NUMBERS,
    jvp=_integer_power_jvp,
    onnx=_integer_power_onnx,
    exact=_integer_power_exact,
    cases=[
        Case((Sample((2, 3)),), {"exponent": 2}, named=(("B", 3),)),
        Case((Sample((3,)),), {"exponent": 3}),
        Case((Sample((3,)),), {"exponent": 7}),
        Case((Sample(()),), {"exponent": 4}),
        Case((Sample((0, 2)),), {"exponent": 2}),
        Case((Sample((4,), "int", (-9, 9)),), {"exponent": 3}),
        Case((Sample((4,), "int", (-9, 9)),), {"exponent": 21}),
    ],
)

# ----------------------------------------------------------------------------------------------------------------- reciprocal


def _reciprocal_onnx(b: Any, x: str) -> str:
    dtype = b.dtype(x)
    if kind_of(dtype) == "f":
        return b.op("Reciprocal", x)
    # NumPy casts 1.0 / x: 1, -1, else 0; of 0 the cast of infinity
    with np.errstate(all="ignore"):
        of_zero = np.reciprocal(np.zeros((), dtype))
    size = b.op("Abs", x) if dtype.kind == "i" else x
    unit = b.op("Where", b.op("Equal", size, b.const(1, dtype)), x, b.const(0, dtype))
    return b.op("Where", b.op("Equal", x, b.const(0, dtype)), b.const(of_zero, dtype), unit)


reciprocal_p = elementwise(
    "reciprocal",
    np.reciprocal,
    dtypes=NUMBERS,
    jvp=lambda output, primals, tangents: tangents[0] * -(output * output),
    onnx=_reciprocal_onnx,
    exact=lambda x: kind_of(x.dtype) == "f",
    cases=[
        *unary_cases((0.4, 3)),
        Case((Sample((5,), "int", values=[0, 1, 2, 3, 100]),)),
        Case((Sample((3,), "int32", values=[-1, -2, 0]),)),
    ],
)

# ---------------------------------------------------------------------------------------------------------------------- power


def _power_onnx(b: Any, x: str, y: str) -> str:
    dtype = b.dtype(x)
    if kind_of(dtype) == "f":
        return b.op("Pow", x, y)
    exponent = b.value_of(y)
    if exponent is not None and exponent.ndim == 0 and int(exponent) >= 1:
        return product_chain(b, x, int(exponent))
    return _power_by_loop(b, x, y)


def _guard_of_exponents(b: Any, y: str) -> str:
    """An int64 tensor (1,) of 0, whose computation fails where an exponent is negative: a Reshape of one element to no element."""
    negative = b.cast(b.op("Less", y, b.const(0, b.dtype(y))), INT64)
    count = b.op("ReduceSum", b.op("Reshape", negative, b.const([-1], INT64)), b.const([0], INT64), keepdims=1)
    fine = b.cast(b.op("Equal", count, b.const([0], INT64)), INT64)
    label, in_specs, out_specs = b.label, b.in_specs, b.out_specs
    # The error shows the node's name
    b.begin(f"{label}: {_NEGATIVE_EXPONENT[:-1].lower()}", in_specs, out_specs)
    guard: str = b.op("Reshape", b.const([0], INT64), fine, allowzero=1)
    b.begin(label, in_specs, out_specs)
    return guard


def _power_by_loop(b: Any, x: str, y: str) -> str:
    """Integers by squaring and multiplying while an exponent has bits left: ONNX Runtime's Pow goes through float64 and does not wrap.

    The model fails for a negative exponent, as NumPy does.
    """
    shape = b.out_specs[0].shape
    dtype = b.dtype(x)
    one, two = b.const(1, dtype), b.const(2, dtype)
    sizes = b.shape(shape)
    exponent = b.op("Expand", y, b.op("Add", sizes, _guard_of_exponents(b, y)) if dtype.kind == "i" else sizes)
    base = b.op("Expand", x, b.shape(shape))
    start = b.op("Expand", one, b.shape(shape))
    spec = b.out_specs[0].update(weak=False)
    with b.graph("power") as body:
        body.input(ArraySpec((), np.int64))
        running = body.input(ArraySpec((), BOOL))
        names = [body.input(spec) for _ in range(3)]
        left, square, result = names
        odd = b.op("Equal", b.op("Mod", left, two), one)
        more = b.op("Div", left, two)
        body.output(b.op("Identity", running), ArraySpec((), BOOL))
        for name in (
            more,
            b.op("Mul", square, square),
            b.op("Where", odd, b.op("Mul", result, square), result),
        ):
            body.output(name, spec)
    bits = dtype.itemsize * 8
    return b.op(
        "Loop",
        b.const(bits, np.int64),
        b.const(True, BOOL),
        exponent,
        base,
        start,
        outputs=3,
        body=body.proto,
    )[2]


def _power_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    x, y = primals
    a, b = tangents
    zero, one = like(x, 0), like(x, 1)
    terms: list[Any] = []
    if a is not None:
        # y x^(y-1) without 0 * inf where y is 0
        flat = equal(y, zero)
        slope = where(flat, zero, y * bind(power_p, where(flat, one, x), where(flat, one, y - one)))
        terms.append(a * slope)
    if b is not None:
        # x^y log(x), by convention 0 at x = 0
        at_zero = equal(x, zero)
        terms.append(b * where(at_zero, zero, output * log(where(at_zero, one, x))))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


power_p = elementwise(
    "power",
    np.power,
    dtypes=NUMBERS,
    jvp=_power_jvp,
    onnx=_power_onnx,
    cases=[
        *binary_cases((0.3, 3), (-2, 2)),
        *binary_cases((-9, 9), (0, 5), "int"),
        Case((Sample((3,), "int64", values=[3, -7, 2]), Sample((3,), "int64", values=[39, 20, 62]))),
        Case(
            (
                Sample((10,), values=[0.0, 0.0, -0.0, -0.0, 1.0, -8.0, -8.0, np.inf, np.nan, 2.0]),
                Sample((10,), values=[0.0, -1.0, 3.0, -3.0, np.nan, 3.0, 0.5, -1.0, 0.0, np.inf]),
            ),
            smooth=False,
        ),
    ],
)


def static_exponent(y: Any) -> int | float | None:
    """The value of an exponent that is a Python number or a 0-d constant; None otherwise."""
    if isinstance(y, bool):
        return int(y)
    if isinstance(y, int | float):
        return y
    if isinstance(y, Const):
        y = y.value
    if is_array(y) and y.ndim == 0:
        return y.item()
    return None


@implements(np.power, operator="power")
def power(x: Any, y: Any) -> Any:
    """x to the power y, integers wrapping as NumPy's do; ValueError for integers to negative integer powers.

    d/dx is 0 where y is 0, d/dy is 0 where x is 0.
    """
    a, b = ufunc_operands(np.power, x, y, keep_weak=True)
    dtype = dtype_of(a)[0]
    if is_integer(dtype):
        known = b.value if isinstance(b, Const) else b
        if not isinstance(known, Tracer) and bool(np.any(known < 0)):
            raise ValueError(_NEGATIVE_EXPONENT)
    exponent = static_exponent(operand(y)) if isinstance(b, Const) or not isinstance(b, Tracer) else None
    if exponent is None or not isinstance(a, Tracer):
        return bind(power_p, a, b)
    if exponent == 0.5 and kind_rank(dtype) == 2:
        return bind(sqrt_p, a)
    if exponent == -1 and kind_rank(dtype) == 2:
        return bind(reciprocal_p, a)
    if exponent == 1:
        return copy(a)
    if exponent >= 2 and float(exponent).is_integer() and exponent < 2**31:
        return bind(integer_power_p, a, exponent=int(exponent))
    return bind(power_p, a, b)


@implements(np.float_power)
def float_power(x: Any, y: Any) -> Any:
    """x to the power y, computed in float64."""
    a, b = ufunc_operands(np.float_power, x, y)
    return power(cast(a, FLOAT64), cast(b, FLOAT64))


@implements(np.square)
def square(x: Any) -> Any:
    """x * x."""
    return bind(integer_power_p, *ufunc_operands(np.square, x), exponent=2)


reciprocal: Callable[[Any], Any] = unary_function(
    reciprocal_p, np.reciprocal, doc="1 / x, in the dtype of x: of integers it is 0 except for 1 and -1."
)
