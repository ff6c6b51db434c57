"""Signs and magnitudes, and the parts of floating-point numbers: absolute, sign, copysign, frexp, ldexp, nextafter, spacing, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate

import numpy as np

from ..stage.dtypes import BOOL, FLOAT64, INT32, DType, is_float
from ..stage.primitive import Array, Case, Rule, Sample
from ..stage.trace import bind
from .arithmetic import floating, where
from .comparison import equal, less
from .conversion import copy
from .families import FLOATS, NUMBERS, binary_cases, elementwise, unary_cases
from .formulas import (
    Mathematics,
    OnnxMath,
    Value,
    half_as_single,
    lowering,
    negative_sign,
    sign_factor,
    with_sign,
)
from .operands import cast, dtype_of, operand
from .registry import implements
from .structure import sum_to
from .ufuncs import binary_function, like, ufunc_operands, unary_function, zero_tangent

_EDGES = Case((Sample((7,), values=[0.0, -0.0, np.nan, np.inf, -np.inf, -1.5, 2.0]),), smooth=False)

# ---------------------------------------------------------------------------------------------------- absolute value and sign

sign_p = elementwise(
    "sign",
    np.sign,
    dtypes=NUMBERS,
    jvp=zero_tangent,
    # ONNX Runtime's float16 and bfloat16 kernels give 0 for NaN
    onnx=lambda b, x: b.cast(b.op("Sign", b.cast(x, half_as_single(b.dtype(x)))), b.dtype(x)),
    exact=True,
    shadow="decision",
    cases=[*unary_cases((0.5, 2)), *unary_cases((-2, -0.5)), *unary_cases((-9, 9), "int"), _EDGES],
)
absolute_p = elementwise(
    "absolute",
    np.absolute,
    dtypes=NUMBERS,
    jvp=lambda output, primals, tangents: tangents[0] * bind(sign_p, primals[0]),
    onnx="Abs",
    exact=True,
    cases=[*unary_cases((0.5, 2)), *unary_cases((-2, -0.5)), *unary_cases((-9, 9), "int"), _EDGES],
)
signbit_p = elementwise(
    "signbit",
    np.signbit,
    dtypes=FLOATS,
    result=BOOL,
    nondifferentiable="a boolean has no tangent",
    onnx=lambda b, x: negative_sign(OnnxMath(b, b.dtype(x)), OnnxMath(b, b.dtype(x)).value(x)).name,
    shadow="decision",
    cases=[*unary_cases(), Case((Sample((5,), values=[0.0, -0.0, np.inf, -np.inf, -1.5]),))],
)


def _flips(x: Any, y: Any) -> Any:
    """-1 where the signs differ, else 1."""
    return where(equal(bind(signbit_p, x), bind(signbit_p, y)), like(x, 1), like(x, -1))


def _copysign_formula(m: Mathematics, x: Any, y: Any) -> Any:
    return with_sign(m, m.abs(x), y)


copysign_p = elementwise(
    "copysign",
    np.copysign,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: None if tangents[0] is None else tangents[0] * _flips(*primals),
    onnx=lowering(_copysign_formula),
    exact=True,
    cases=[
        *binary_cases((0.5, 2), (0.5, 2)),
        *binary_cases((-2, -0.5), (0.5, 2)),
        Case(
            (Sample((4,), values=[1.0, -1.0, np.inf, 0.0]), Sample((4,), values=[-0.0, 0.0, -1.0, -2.0])),
            smooth=False,
        ),
    ],
)


def _heaviside_formula(m: Mathematics, x: Any, h: Any) -> Any:
    step = m.where(x < 0.0, 0.0, m.where(m.isnan(x), x, 1.0))
    return m.where(m.equal(x, 0.0), h, step)


heaviside_p = elementwise(
    "heaviside",
    np.heaviside,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: (
        None if tangents[1] is None else where(equal(primals[0], like(output, 0)), tangents[1], like(output, 0))
    ),
    onnx=lowering(_heaviside_formula),
    exact=True,
    shadow="decision",
    cases=[
        *binary_cases((0.1, 1), (0.2, 0.8)),
        Case(
            (
                Sample((5,), values=[-1.0, 0.0, -0.0, 2.0, np.nan]),
                Sample((5,), values=[0.5, 0.25, 0.75, 0.5, 0.5]),
            ),
            smooth=False,
        ),
    ],
)

fabs = unary_function(absolute_p, np.fabs, doc="The absolute value, in floating point; slope 0 at 0.")
copysign = binary_function(copysign_p, np.copysign, doc="The magnitude of x with the sign of y, that of -0.0 too.")
heaviside = binary_function(heaviside_p, np.heaviside, doc="0 below 0, 1 above, and y where x is 0. Slope 0 in x.")


@implements(np.absolute, operator="absolute")
def absolute(x: Any) -> Any:
    """The absolute value; slope 0 at 0. The least integer of a dtype is its own, as in NumPy."""
    x = operand(x)
    return copy(x) if dtype_of(x)[0] == BOOL else bind(absolute_p, x)


@implements(np.sign)
def sign(x: Any) -> Any:
    """-1, 0 or 1, NaN of NaN; TypeError for booleans."""
    return bind(sign_p, *ufunc_operands(np.sign, x))


@implements(np.positive, operator="positive")
def positive(x: Any) -> Any:
    """+x: a copy; TypeError for booleans."""
    x = operand(x)
    ufunc_operands(np.positive, x)
    return copy(x)


@implements(np.signbit)
def signbit(x: Any) -> Any:
    """Whether the sign bit is set: of -0.0 too. In ONNX that of a NaN is not seen and counts as unset."""
    x = operand(x)
    dtype, _ = dtype_of(x)
    if is_float(dtype):
        return bind(signbit_p, cast(x, dtype))
    return less(x, 0) if dtype.kind == "i" else less(x, x)


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NaN replaced by `nan`, infinities by `posinf` and `neginf`: by default the dtype's largest and least numbers. Slope 0 there."""
    x = operand(x)
    dtype, _ = dtype_of(x)
    if not is_float(dtype):
        return positive(x) if dtype != BOOL else x
    x = cast(x, dtype)
    largest = largest_number(dtype)
    for special, value in (
        (np.inf, largest if posinf is None else posinf),
        (-np.inf, -largest if neginf is None else neginf),
    ):
        x = where(equal(x, like(x, special)), cast(operand(value), dtype), x)
    return where(equal(x, x), x, cast(operand(nan), dtype))


def largest_number(dtype: DType) -> float:
    """The largest finite number of a float dtype."""
    # bfloat16 has 8 bits of significand and float32's exponents
    return float(np.finfo(dtype).max) if dtype.kind == "f" and dtype.name != "bfloat16" else (2.0 - 2.0**-7) * 2.0**127


# ------------------------------------------------------------------------------------------------------ exponent and significand


class FloatFormat:
    """digits: bits of the significand, the hidden one included; least: the exponent of the smallest positive number; largest."""

    def __init__(self, dtype: DType) -> None:
        self.largest = largest_number(dtype)
        if dtype.name == "bfloat16":
            self.digits, self.least = 8, -133
        else:
            info = np.finfo(dtype)
            self.digits, self.least = int(info.nmant) + 1, int(info.minexp) - int(info.nmant)


def _scaled(m: Any, x: Any, exponent: Any) -> Any:
    """x times 2^exponent for a whole exponent from -2200 to 2200, rounded once.

    Three factors, since 2^exponent itself may be out of range; the last of a tiny one is 2^-60, so that only its product can be subnormal and
    still matter.
    """
    tail = m.where(exponent < -1000.0, -60.0, 0.0)
    rest = exponent - tail
    first = m.minimum(m.maximum(rest, -1000.0), 1000.0)
    second = m.minimum(m.maximum(rest - first, -1000.0), 1000.0)
    third = m.minimum(m.maximum(rest - first - second, -200.0), 200.0)
    y = x * m.power(2.0, first) * m.power(2.0, second) * m.power(2.0, third)
    return y * m.power(2.0, tail)


def _exponent(m: Any, x: Any) -> Any:
    """The e of |x| = f 2^e, 0.5 <= f < 1, as a float; 0 where x is 0, infinite or NaN.

    log may be off by a last bit next to a power of two: the fraction tells.
    """
    a = m.abs(x)
    regular = (a > 0.0) & (a < np.inf)
    safe = m.where(regular, a, 0.5)
    guess = m.floor(m.log(safe) * (1.0 / np.log(2.0))) + 1.0
    fraction = _scaled(m, safe, -guess)
    guess = m.where(fraction < 0.5, guess - 1.0, m.where(fraction >= 1.0, guess + 1.0, guess))
    return m.where(regular, guess, 0.0)


def _in_float64(formula: Callable[Concatenate[Any, FloatFormat, Any, ...], Any], result: DType | None = None) -> Rule:
    """In float64, which holds every exponent of the narrower dtypes; `fmt` is the format of the operands."""

    def rule(b: Any, *names: str) -> str:
        m = OnnxMath(b, FLOAT64)
        fmt = FloatFormat(b.dtype(names[-1]))
        values = [m.value(b.cast(n, FLOAT64)) for n in names]
        made: Value = formula(m, fmt, *values)
        return b.cast(made.name, result or b.out_specs[0].dtype)

    return rule


def _mantissa_formula(m: Any, fmt: FloatFormat, x: Any) -> Any:
    # Where there is no exponent it is 0 and x its own mantissa
    return _scaled(m, x, -_exponent(m, x))


frexp_mantissa_p = elementwise(
    "frexp_mantissa",
    lambda x: np.frexp(x)[0],
    dtypes=FLOATS,
    # The exponent is locally constant
    jvp=lambda output, primals, tangents: bind(ldexp_p, -bind(frexp_exponent_p, primals[0]), tangents[0]),
    onnx=_in_float64(_mantissa_formula),
    exact=True,
    cases=[*unary_cases((0.55, 0.95)), _EDGES],
)
frexp_exponent_p = elementwise(
    "frexp_exponent",
    lambda x: np.frexp(x)[1].astype(INT32),
    dtypes=FLOATS,
    result=INT32,
    nondifferentiable="the exponent is an integer",
    onnx=_in_float64(lambda m, fmt, x: _exponent(m, x)),
    exact=True,
    shadow="decision",
    cases=[*unary_cases((0.55, 0.95)), Case((Sample((6,), values=[0.0, 1.0, 0.5, 1024.0, -3.0, 0.3]),))],
)


def _ldexp_onnx(b: Any, exponent: str, x: str) -> str:
    dtype = b.dtype(x)
    m = OnnxMath(b, FLOAT64)
    e = m.value(b.cast(exponent, FLOAT64))
    bounded = m.minimum(m.maximum(e, -2200.0), 2200.0)
    return b.cast(_scaled(m, m.value(b.cast(x, FLOAT64)), bounded).name, dtype)


def _ldexp_numpy(exponent: Array, x: Array) -> Array:
    bounded = np.clip(exponent, -2200, 2200).astype(np.int32) if exponent.dtype.itemsize > 1 else exponent.astype(np.int32)
    if x.dtype.name == "bfloat16":
        return np.ldexp(x.astype(np.float64), bounded).astype(x.dtype)
    return np.ldexp(x, bounded)


def _ldexp_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    return None, sum_to(bind(ldexp_p, primals[0], ct), primals[1].shape)


ldexp_p = elementwise(
    "ldexp",
    _ldexp_numpy,
    dtypes=FLOATS,
    mixed=True,
    linear=((1,),),
    transpose=_ldexp_transpose,
    onnx=_ldexp_onnx,
    exact=True,
    cases=[
        Case((Sample((2, 3), "int32", (-4, 4)), Sample((2, 3))), named=(("B", 3), ("B", 3))),
        Case((Sample((), "int64", (-4, 4)), Sample((3,)))),
        Case(
            (
                Sample((5,), "int32", values=[3, -2000, 2000, -1074, 0]),
                Sample((5,), "float64", values=[np.inf, 1.5, 1e-300, 1.75, np.nan]),
            ),
            smooth=False,
        ),
    ],
)


def _gaps(m: Any, fmt: FloatFormat, a: Any) -> tuple[Any, Any]:
    """The distances of a, not negative and finite, to the next number of the format away from zero, and to the one towards it."""
    e = _exponent(m, a)
    unit = m.where(m.equal(a, 0.0), float(fmt.least), m.maximum(e - float(fmt.digits), float(fmt.least)))
    outer = m.power(2.0, m.maximum(unit, -1000.0)) * m.power(2.0, m.minimum(unit + 1000.0, 0.0))
    # Below a power of two numbers are twice as dense
    dense = m.equal(_scaled(m, a, -e), 0.5) & (unit > float(fmt.least))
    return outer, m.where(dense, outer * 0.5, outer)


def _spacing_formula(m: Any, fmt: FloatFormat, x: Any) -> Any:
    regular = m.abs(x) < np.inf
    outer, inner = _gaps(m, fmt, m.where(regular, m.abs(x), 1.0))
    # NumPy's spacing of 0 is positive, that of the largest number infinite; in float16 it looks upwards
    outer = m.where(m.abs(x) >= fmt.largest, np.inf, outer)
    return m.where(regular, m.where(x < 0.0, inner if fmt.digits == 11 else -outer, outer), np.nan)


def _nextafter_formula(m: Any, fmt: FloatFormat, x: Any, y: Any) -> Any:
    a = m.abs(x)
    finite = a < np.inf
    outward = ((x > 0.0) & (y > x)) | ((x < 0.0) & (y < x))
    size = m.where(finite, a, 1.0)
    outer, inner = _gaps(m, fmt, size)
    step = m.where(finite, m.where(outward, size + outer, size - inner), m.where(outward, np.inf, fmt.largest))
    step = m.where(step > fmt.largest, np.inf, step)
    at_zero, same = m.equal(x, 0.0), m.equal(x, y)
    magnitude = m.where(same, a, m.where(at_zero, 2.0**fmt.least, step))
    by_y = at_zero | same
    negative = (by_y & negative_sign(m, y)) | (~by_y & negative_sign(m, x))
    return m.where(m.isnan(x) | m.isnan(y), np.nan, magnitude) * sign_factor(m, negative)


spacing_p = elementwise(
    "spacing",
    np.spacing,
    dtypes=FLOATS,
    jvp=zero_tangent,
    onnx=_in_float64(_spacing_formula),
    exact=True,
    shadow="decision",
    cases=[
        *unary_cases((0.55, 0.95)),
        _EDGES,
        Case((Sample((3,), values=[1.0, 1.0625, 2048.0]),), smooth=False),
    ],
)
nextafter_p = elementwise(
    "nextafter",
    np.nextafter,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0],
    onnx=_in_float64(_nextafter_formula),
    exact=True,
    shadow="decision",
    cases=[
        *binary_cases((0.55, 0.95), (-3, 3), smooth=False),
        Case(
            (
                Sample((10,), values=[0.0, -0.0, 1.0, 1.0, -1.0, np.inf, -np.inf, 1.0, 0.0, np.nan]),
                Sample((10,), values=[1.0, -1.0, 2.0, 0.0, 0.0, 0.0, np.inf, 1.0, -0.0, 0.0]),
            ),
            smooth=False,
        ),
    ],
)

spacing = unary_function(
    spacing_p,
    np.spacing,
    doc="The distance from x to the next number away from 0, with the sign of x. Slope 0.",
)
nextafter = binary_function(nextafter_p, np.nextafter, doc="The next number after x towards y. Slopes 1 and 0.")


@implements(np.frexp)
def frexp(x: Any) -> tuple[Any, Any]:
    """(f, e) with x = f * 2**e and 0.5 <= |f| < 1; e: int32."""
    x = floating(x)
    return bind(frexp_mantissa_p, x), bind(frexp_exponent_p, x)


@implements(np.ldexp)
def ldexp(x: Any, exponent: Any) -> Any:
    """x * 2**exponent for an integer exponent, rounded once."""
    x, exponent = ufunc_operands(np.ldexp, x, exponent)
    return bind(ldexp_p, exponent, x)
