"""floor_divide, remainder, fmod and divmod, with NumPy's signs; integers by zero give 0, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.primitive import Case, Sample
from ..stage.trace import bind
from .families import NUMBERS, binary_cases, elementwise, kind_of
from .formulas import Mathematics, lowering, sign_factor, with_sign
from .registry import implements
from .rounding import floor, trunc
from .ufuncs import binary_function, ufunc_operands, zero_tangent

# ------------------------------------------------------------------------------------------------------------------ lowering


def _holds(b: Any, y: str, values: tuple[int, ...]) -> bool:
    """Whether a divisor may be one of the values; a constant tells."""
    array = b.value_of(y)
    return array is None or bool(np.isin(array, values).any())


def _safe_division(b: Any, x: str, y: str, rule: Callable[[Any, str, str], str], by_minus_one: Callable[[str], str]) -> str:
    """An integer rule kept from the divisors that trap: 0, and -1 under the least integer."""
    dtype = b.dtype(y)
    zero, one = b.const(0, dtype), b.const(1, dtype)
    may_be_zero = _holds(b, y, (0,))
    may_be_minus_one = dtype.kind == "i" and _holds(b, y, (-1,))
    is_zero = b.op("Equal", y, zero) if may_be_zero else ""
    is_minus_one = b.op("Equal", y, b.const(-1, dtype)) if may_be_minus_one else ""
    divisor = y
    for condition in (is_zero, is_minus_one):
        divisor = b.op("Where", condition, one, divisor) if condition else divisor
    result = rule(b, x, divisor)
    if is_minus_one:
        result = b.op("Where", is_minus_one, by_minus_one(x), result)
    return b.op("Where", is_zero, zero, result) if is_zero else result


def _floor_quotient(b: Any, x: str, y: str) -> str:
    # ONNX divides integers towards zero, and its Mod has the divisor's sign: where the two disagree the quotient is one too large
    quotient = b.op("Div", x, y)
    if b.dtype(x).kind == "u":
        return quotient
    rest = b.op("Sub", x, b.op("Mul", quotient, y))
    off = b.op("Not", b.op("Equal", rest, b.op("Mod", x, y)))
    return b.op("Sub", quotient, b.cast(off, b.dtype(x)))


def _floor_divide_formula(m: Mathematics, x: Any, y: Any) -> Any:
    rest = m.fmod(x, y)
    quotient = (x - rest) / y
    quotient = m.where(~m.equal(rest, 0.0) & ~_same_sign(m, rest, y), quotient - 1.0, quotient)
    whole = m.floor(quotient)
    whole = m.where(quotient - whole > 0.5, whole + 1.0, whole)
    plain = x / y
    return with_sign(m, m.abs(m.where(m.equal(y, 0.0), plain, whole)), plain)


def _same_sign(m: Mathematics, x: Any, y: Any) -> Any:
    return m.equal(m.where(x < 0.0, 1.0, 0.0), m.where(y < 0.0, 1.0, 0.0))


def _remainder_formula(m: Mathematics, x: Any, y: Any) -> Any:
    rest = m.fmod(x, y)
    shifted = m.where(m.equal(rest, 0.0) | _same_sign(m, rest, y), rest, rest + y)
    return m.abs(shifted) * sign_factor(m, y < 0.0)


_floor_divide_float = lowering(_floor_divide_formula)
_remainder_float = lowering(_remainder_formula)


def _floor_divide_onnx(b: Any, x: str, y: str) -> str:
    if kind_of(b.dtype(x)) == "f":
        return _floor_divide_float(b, x, y)
    return _safe_division(b, x, y, _floor_quotient, lambda n: b.op("Sub", b.const(0, b.dtype(n)), n))


def _mod(b: Any, x: str, y: str) -> str:
    return b.op("Mod", x, y, fmod=0)


def _truncated_rest(b: Any, x: str, y: str) -> str:
    # Not by fmod=1, for which ONNX Runtime goes through float64
    return b.op("Sub", x, b.op("Mul", b.op("Div", x, y), y))


def _zero_like(b: Any) -> Callable[[str], str]:
    # x % -1 is 0; by a subtraction, so that it has the shape of x
    return lambda x: b.op("Sub", x, x)


def _remainder_onnx(b: Any, x: str, y: str) -> str:
    if kind_of(b.dtype(x)) == "f":
        return _remainder_float(b, x, y)
    return _safe_division(b, x, y, _mod, _zero_like(b))


def _fmod_onnx(b: Any, x: str, y: str) -> str:
    if kind_of(b.dtype(x)) == "f":
        return b.op("Mod", x, y, fmod=1)
    return _safe_division(b, x, y, _truncated_rest, _zero_like(b))


# ---------------------------------------------------------------------------------------------------------------- primitives


def _quotient_tangent(rounding: Callable[[Any], Any]) -> Callable[..., Any]:
    """x - rounded(x / y) * y: the rounded quotient is a constant."""

    def jvp(output: Any, primals: Any, tangents: Any) -> Any:
        x, y = primals
        a, b = tangents
        if b is None:
            return a
        second = b * -rounding(x / y)
        return second if a is None else a + second

    return jvp


def _divisible_cases(smooth: bool) -> list[Case]:
    signs = Case(
        (Sample((4,), values=[5.5, -5.5, 5.5, -5.5]), Sample((4,), values=[2.0, 2.0, -2.0, -2.0])),
        smooth=smooth,
    )
    edges = Case(
        (
            Sample((8,), values=[1.0, -1.0, 0.0, -0.0, np.inf, 1.0, -1.0, np.nan]),
            Sample((8,), values=[0.0, 0.0, 0.0, 3.0, 2.0, np.inf, np.inf, 1.0]),
        ),
        smooth=False,
    )
    integers = Case(
        (
            Sample((6,), "int64", values=[7, -7, 7, -7, 5, -(2**63)]),
            Sample((6,), "int64", values=[2, 2, -2, -2, 0, -1]),
        )
    )
    narrow = Case((Sample((4,), "int8", values=[-128, -128, 127, 5]), Sample((4,), "int8", values=[-1, 3, -128, 0])))
    return [
        *binary_cases((2.1, 2.9), (0.75, 0.95), smooth=smooth),
        *binary_cases((-9, 9), (-3, 3), "int"),
        signs,
        edges,
        integers,
        narrow,
    ]


floor_divide_p = elementwise(
    "floor_divide",
    np.floor_divide,
    dtypes=NUMBERS,
    jvp=zero_tangent,
    onnx=_floor_divide_onnx,
    exact=True,
    shadow="decision",
    cases=_divisible_cases(smooth=True),
)
remainder_p = elementwise(
    "remainder",
    np.remainder,
    dtypes=NUMBERS,
    jvp=_quotient_tangent(floor),
    onnx=_remainder_onnx,
    exact=True,
    shadow="decision",
    cases=_divisible_cases(smooth=True),
)
fmod_p = elementwise(
    "fmod",
    np.fmod,
    dtypes=NUMBERS,
    jvp=_quotient_tangent(trunc),
    onnx=_fmod_onnx,
    exact=True,
    shadow="decision",
    cases=_divisible_cases(smooth=True),
)

floor_divide = binary_function(
    floor_divide_p,
    np.floor_divide,
    operator="floor_divide",
    doc="floor(x / y), rounded towards -inf; integers by 0 give 0. Slope 0.",
)
remainder = binary_function(
    remainder_p,
    np.remainder,
    operator="remainder",
    doc="x - floor(x / y) * y, with the sign of y; integers by 0 give 0. Slopes: 1 in x, -floor(x / y) in y.",
)
fmod = binary_function(fmod_p, np.fmod, doc="x - trunc(x / y) * y, with the sign of x. Slopes: 1 in x, -trunc(x / y) in y.")


@implements(np.divmod, operator="divmod")
def divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """(x // y, x % y)."""
    a, b = ufunc_operands(np.divmod, x, y, keep_weak=True)
    return bind(floor_divide_p, a, b), bind(remainder_p, a, b)
