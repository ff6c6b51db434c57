"""floor, ceil, trunc, rint, round: steps, whose slope is 0; and the fractional part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import kind_rank
from ..stage.primitive import Case, Primitive, Rule, Sample
from ..stage.trace import bind
from .arithmetic import floating, multiply, true_divide
from .families import FLOATS, elementwise, unary_cases
from .formulas import Mathematics, lowering, with_sign
from .operands import cast, dtype_of, operand
from .registry import implements
from .ufuncs import named, unary_function, zero_tangent

_EDGES = Case((Sample((9,), values=[0.5, 1.5, 2.5, -0.5, -0.0, np.nan, np.inf, -np.inf, -1.5]),), smooth=False)


def _step(name: str, numpy: Callable[..., Any], onnx: Rule | str) -> Primitive:
    cases = [*unary_cases((0.1, 0.4)), *unary_cases((-9.0, 9.0), smooth=False), _EDGES]
    return elementwise(name, numpy, dtypes=FLOATS, jvp=zero_tangent, onnx=onnx, exact=True, shadow="decision", cases=cases)


def trunc_formula(m: Mathematics, x: Any) -> Any:
    """Rounded towards zero; -0.0 and what rounds to it keep their sign."""
    return with_sign(m, m.floor(m.abs(x)), x)


floor_p = _step("floor", np.floor, "Floor")
ceil_p = _step("ceil", np.ceil, "Ceil")
rint_p = _step("rint", np.rint, "Round")
trunc_p = _step("trunc", np.trunc, lowering(trunc_formula))


def _fraction_formula(m: Mathematics, x: Any) -> Any:
    rest = x - trunc_formula(m, x)
    return with_sign(m, m.where(m.isinf(x), 0.0, m.abs(rest)), x)


fraction_p = elementwise(
    "fraction",
    lambda x: np.modf(x)[0],
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0],
    onnx=lowering(_fraction_formula),
    exact=True,
    shadow="decision",
    cases=[*unary_cases((1.1, 1.9)), _EDGES],
)


def _rounding(primitive: Primitive, ufunc: Any, doc: str) -> Callable[[Any], Any]:
    """Integers and booleans are whole already: NumPy gives them back."""

    def function(x: Any) -> Any:
        x = operand(x)
        dtype, weak = dtype_of(x)
        if kind_rank(dtype) < 2:
            return cast(x, dtype) if weak else x
        return bind(primitive, floating(x))

    return named(function, ufunc.__name__, doc, (ufunc,), None)


floor = _rounding(floor_p, np.floor, "The largest integer not above x, in the dtype of x.")
ceil = _rounding(ceil_p, np.ceil, "The least integer not below x, in the dtype of x.")
trunc = _rounding(trunc_p, np.trunc, "x rounded towards zero.")
fix = implements(np.fix)(trunc)
rint = unary_function(rint_p, np.rint, doc="x rounded to the nearest integer, halves to even, in floating point.")


@implements(np.round, np.around, method="round")
def round(x: Any, decimals: int = 0) -> Any:
    """x rounded to that many decimals, halves to even; negative decimals round to tens, hundreds, ... Integers stay integers."""
    x = operand(x)
    dtype, weak = dtype_of(x)
    if kind_rank(dtype) == 1:
        if decimals >= 0:
            return cast(x, dtype) if weak else x
        scaled = multiply(rint(true_divide(x, 10.0**-decimals)), 10.0**-decimals)
        return cast(scaled, dtype)
    x = floating(x)
    if decimals == 0:
        return bind(rint_p, x)
    if decimals > 0:
        return true_divide(rint(multiply(x, 10.0**decimals)), 10.0**decimals)
    return multiply(rint(true_divide(x, 10.0**-decimals)), 10.0**-decimals)


@implements(np.modf)
def modf(x: Any) -> tuple[Any, Any]:
    """(fractional part, integral part), both with the sign of x; slopes 1 and 0."""
    x = floating(x)
    return bind(fraction_p, x), bind(trunc_p, x)
