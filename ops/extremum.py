"""maximum, minimum, fmax, fmin, clip: elementwise choices. Where two operands tie, both have slope 1/2; clip has slope 1 on its closed interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, FLOAT32, DType, is_integer
from ..stage.primitive import Array, Case, Primitive, Rule, Sample
from ..stage.trace import bind
from .arithmetic import where
from .comparison import equal, greater, greater_equal, isnan, less, less_equal, logical_and, logical_or
from .conversion import copy
from .families import ANY, NUMBERS, binary_cases, elementwise, kind_of
from .operands import dtype_of, operand, promoted
from .registry import implements
from .ufuncs import binary_function, like


def _boolean_or(op_type: str, boolean: str) -> Rule:
    def rule(b: Any, x: str, y: str) -> str:
        return b.op(boolean if b.dtype(x) == BOOL else op_type, x, y)

    return rule


def _ignoring_nan(op_type: str, boolean: str) -> Rule:
    plain = _boolean_or(op_type, boolean)

    def rule(b: Any, x: str, y: str) -> str:
        if kind_of(b.dtype(x)) != "f":
            return plain(b, x, y)
        # A NaN is replaced by the other operand
        first = b.op("Where", b.op("IsNaN", x), y, x)
        second = b.op("Where", b.op("IsNaN", y), x, y)
        return b.op(op_type, first, second)

    return rule


def _choice_jvp(wins: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The tangent of the operand that wins, half of it at a tie. Selects, no products with masks: a tangent may be infinite."""

    def jvp(output: Any, primals: Any, tangents: Any) -> Any:
        x, y = primals
        zero = like(output, 0)
        tie = equal(x, y)
        terms = [where(wins(p, q), t, where(tie, t * 0.5, zero)) for t, p, q in ((tangents[0], x, y), (tangents[1], y, x)) if t is not None]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    return jvp


def _or_other_nan(wins: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda p, q: logical_or(wins(p, q), logical_and(isnan(q), less_equal(p, p)))


_TIES = Case(
    (
        Sample((6,), values=[1.0, np.nan, 0.0, -np.inf, 2.0, np.nan]),
        Sample((6,), values=[1.0, 1.0, np.nan, np.inf, -1.0, np.nan]),
    ),
    smooth=False,
)


def _extremum(name: str, numpy: Callable[..., Any], onnx: Rule, wins: Callable[[Any, Any], Any]) -> Primitive:
    return elementwise(
        name,
        numpy,
        dtypes=ANY,
        jvp=_choice_jvp(wins),
        onnx=onnx,
        exact=True,
        cases=[
            *binary_cases((-2, -0.1), (0.1, 2)),
            *binary_cases((-9, 9), (-9, 9), "int"),
            *binary_cases(dtype="bool"),
            _TIES,
        ],
    )


maximum_p = _extremum("maximum", np.maximum, _boolean_or("Max", "Or"), greater)
minimum_p = _extremum("minimum", np.minimum, _boolean_or("Min", "And"), less)
fmax_p = _extremum("fmax", np.fmax, _ignoring_nan("Max", "Or"), _or_other_nan(greater))
fmin_p = _extremum("fmin", np.fmin, _ignoring_nan("Min", "And"), _or_other_nan(less))

maximum = binary_function(maximum_p, np.maximum, doc="The larger of x and y; NaN if either is. A tie has slope 1/2 in both.")
minimum = binary_function(minimum_p, np.minimum, doc="The smaller of x and y; NaN if either is. A tie has slope 1/2 in both.")
fmax = binary_function(fmax_p, np.fmax, doc="The larger of x and y; where one is NaN, the other.")
fmin = binary_function(fmin_p, np.fmin, doc="The smaller of x and y; where one is NaN, the other.")

# ---------------------------------------------------------------------------------------------------------------------- clip


def _clip_numpy(x: Array, low: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _clip_onnx(b: Any, x: str, low: str, high: str) -> str:
    # One pass instead of two where the node says the same; of other dtypes than float32 the optimiser fuses it wrongly with Relu
    if b.dtype(x) == FLOAT32 and _are_ordered_scalars(b.value_of(low), b.value_of(high)):
        return b.op("Clip", x, low, high)
    return b.op("Min", b.op("Max", x, low), high)


def _are_ordered_scalars(low: Array | None, high: Array | None) -> bool:
    return low is not None and high is not None and low.ndim == high.ndim == 0 and bool(low <= high)


def _clip_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    x, low, high = primals
    a, t_low, t_high = tangents
    zero = like(output, 0)
    terms: list[Any] = []
    if a is not None:
        terms.append(where(logical_and(greater_equal(x, low), less_equal(x, high)), a, zero))
    if t_low is not None:
        terms.append(where(logical_and(less(x, low), less_equal(low, high)), t_low, zero))
    if t_high is not None:
        above = logical_or(greater(x, high), greater(low, high))
        terms.append(where(above, t_high, zero))
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


clip_p = elementwise(
    "clip",
    _clip_numpy,
    dtypes=NUMBERS,
    jvp=_clip_jvp,
    onnx=_clip_onnx,
    exact=True,
    cases=[
        Case(
            (Sample((2, 3)), Sample((), "float", (-0.9, -0.5)), Sample((), "float", (0.5, 0.9))),
            named=(("B", 3), (), ()),
        ),
        Case((Sample((3,)), Sample((2, 1), "float", (-3, -2.5)), Sample((3,), "float", (0.1, 0.2)))),
        Case(
            (Sample((4,), values=[np.nan, -5.0, 5.0, 0.25]), Sample((), values=0.0), Sample((), values=1.0)),
            smooth=False,
        ),
        Case((Sample((5,), "int", (-9, 9)), Sample((), "int", values=2), Sample((), "int", values=5))),
        Case((Sample((0, 3)), Sample((), values=0.0), Sample((), values=1.0))),
    ],
)


@implements(np.clip, method="clip")
def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """minimum(maximum(x, a_min), a_max), in the common dtype; None leaves a side open (min and max are other names for the bounds).

    Slope 1 on the closed interval, 0 outside.
    """
    x = operand(x)
    dtype, _ = dtype_of(x)
    low = _effective(min if a_min is None else a_min, dtype, lower=True)
    high = _effective(max if a_max is None else a_max, dtype, lower=False)
    given = [operand(v) for v in (low, high) if v is not None]
    if not given:
        return copy(x)
    x, *bounds = promoted(x, *given, strong=True)
    dtype = dtype_of(x)[0]
    if dtype == BOOL:
        x = x if low is None else bind(maximum_p, x, bounds[0])
        return x if high is None else bind(minimum_p, x, bounds[-1])
    least = _limit(dtype, largest=False) if low is None else bounds[0]
    largest = _limit(dtype, largest=True) if high is None else bounds[-1]
    return bind(clip_p, x, least, largest)


def _effective(bound: Any, dtype: DType, lower: bool) -> Any:
    """None for a Python integer that an integer dtype cannot reach, as NumPy has it."""
    if type(bound) is int and is_integer(dtype):
        limits = np.iinfo(dtype)
        if bound < limits.min if lower else bound > limits.max:
            return None
    return bound


def _limit(dtype: DType, largest: bool) -> Any:
    if is_integer(dtype):
        limits = np.iinfo(dtype)
        return np.asarray(limits.max if largest else limits.min, dtype)
    return np.asarray(np.inf if largest else -np.inf, dtype)
