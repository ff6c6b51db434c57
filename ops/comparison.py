"""Comparisons and logic: boolean results, no derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, INT64, is_float, is_integer
from ..stage.primitive import Case, Primitive, Sample
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .families import FLOATS, binary_cases, elementwise, unary_cases
from .operands import cast, dtype_of, operand, promoted, shape_of
from .registry import implements
from .structure import broadcast_to_p

_UINT64 = np.dtype(np.uint64)
_REASON = "a boolean has no tangent"


def _comparison(name: str, numpy: Callable[..., Any], onnx: Any) -> Primitive:
    return elementwise(
        name,
        numpy,
        result=BOOL,
        nondifferentiable=_REASON,
        onnx=onnx,
        exact=True,
        shadow="decision",
        cases=[*binary_cases(), *binary_cases((-3, 3), (-3, 3), "int"), *binary_cases(dtype="bool")],
    )


def _ordered(op_type: str) -> Callable[..., str]:
    def rule(b: Any, x: str, y: str) -> str:
        if b.dtype(x) == BOOL:
            x, y = b.cast(x, np.dtype(np.uint8)), b.cast(y, np.dtype(np.uint8))
        return b.op(op_type, x, y)

    return rule


less_p = _comparison("less", np.less, _ordered("Less"))
less_equal_p = _comparison("less_equal", np.less_equal, _ordered("LessOrEqual"))
greater_p = _comparison("greater", np.greater, _ordered("Greater"))
greater_equal_p = _comparison("greater_equal", np.greater_equal, _ordered("GreaterOrEqual"))
equal_p = _comparison("equal", np.equal, "Equal")


def _not_equal_onnx(b: Any, x: str, y: str) -> str:
    return b.op("Not", b.op("Equal", x, y))


not_equal_p = _comparison("not_equal", np.not_equal, _not_equal_onnx)


def _logical(name: str, numpy: Callable[..., Any], onnx: str, cases: list[Case]) -> Primitive:
    return elementwise(
        name,
        numpy,
        dtypes="b",
        nondifferentiable=_REASON,
        onnx=onnx,
        exact=True,
        shadow="decision",
        cases=cases,
    )


logical_and_p = _logical("logical_and", np.logical_and, "And", binary_cases(dtype="bool"))
logical_or_p = _logical("logical_or", np.logical_or, "Or", binary_cases(dtype="bool"))
logical_xor_p = _logical("logical_xor", np.logical_xor, "Xor", binary_cases(dtype="bool"))
logical_not_p = _logical("logical_not", np.logical_not, "Not", unary_cases(dtype="bool"))

isnan_p = elementwise(
    "isnan",
    np.isnan,
    dtypes=FLOATS,
    result=BOOL,
    nondifferentiable=_REASON,
    onnx="IsNaN",
    exact=True,
    shadow="decision",
    cases=unary_cases(),
)
isinf_p = elementwise(
    "isinf",
    np.isinf,
    dtypes=FLOATS,
    result=BOOL,
    nondifferentiable=_REASON,
    onnx="IsInf",
    exact=True,
    shadow="decision",
    cases=unary_cases(),
)


def _isfinite_onnx(b: Any, x: str) -> str:
    return b.op("Not", b.op("Or", b.op("IsNaN", x), b.op("IsInf", x)))


isfinite_p = elementwise(
    "isfinite",
    np.isfinite,
    dtypes=FLOATS,
    result=BOOL,
    nondifferentiable=_REASON,
    onnx=_isfinite_onnx,
    exact=True,
    shadow="decision",
    cases=[*unary_cases(), Case((Sample((4,), values=[np.nan, np.inf, -np.inf, 1.0]),))],
)

# --------------------------------------------------------------------------------------------------------------------- logic


def _logic(primitive: Primitive, doc: str) -> Callable[..., Any]:
    def function(*xs: Any) -> Any:
        return bind(primitive, *(cast(operand(x), BOOL) for x in xs))

    return _named(function, primitive, doc, None)


def _named(function: Any, primitive: Primitive, doc: str, operator: str | None) -> Any:
    function.__name__ = function.__qualname__ = primitive.name
    function.__doc__ = doc
    return implements(getattr(np, primitive.name), operator=operator)(function)


logical_and = _logic(logical_and_p, "Whether both operands are other than 0.")
logical_or = _logic(logical_or_p, "Whether an operand is other than 0.")
logical_xor = _logic(logical_xor_p, "Whether exactly one operand is other than 0.")
logical_not = _logic(logical_not_p, "Whether the operand is 0.")

# -------------------------------------------------------------------------------------------------------------- comparisons


def _compare(primitive: Primitive) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        x, y = operand(x), operand(y)
        below, above = _out_of_range(x, y), _out_of_range(y, x)
        if below or above:
            # NumPy compares with Python integers of any size: 300 is above every uint8
            return bind(
                broadcast_to_p,
                np.asarray(primitive.numpy(below, above), BOOL),
                shape=shape_of(y if below else x),
            )
        if _is_mixed_uint64(x, y):
            return _compare_with_uint64(primitive, x, y)
        return bind(primitive, *_comparable(x, y))

    doc = f"x {primitive.name.replace('_', ' ')} y, elementwise; integers are compared exactly, whatever their dtypes."
    return _named(function, primitive, doc, primitive.name)


def _out_of_range(x: Any, other: Any) -> int:
    """-1 or 1 where x is a Python integer below or above all values of the other operand's integer dtype, else 0."""
    if type(x) is not int:
        return 0
    dtype, weak = dtype_of(other)
    if weak or not is_integer(dtype):
        return 0
    limits = np.iinfo(dtype)
    return -1 if x < limits.min else 1 if x > limits.max else 0


def _comparable(x: Any, y: Any) -> list[Any]:
    """Both operands in one dtype. A traced Python integer is compared as the int64 it is: its value may not fit the other dtype."""
    for traced, other in ((x, y), (y, x)):
        dtype, weak = dtype_of(traced)
        if weak and isinstance(traced, Tracer) and is_integer(dtype) and is_integer(dtype_of(other)[0]):
            return [cast(x, INT64), cast(y, INT64)]
    return promoted(x, y, strong=True)


def _is_mixed_uint64(x: Any, y: Any) -> bool:
    dtypes = [dtype_of(v)[0] for v in (x, y)]
    return {d.kind for d in dtypes} == {"i", "u"} and _UINT64 in dtypes and not isinstance(x, int) and not isinstance(y, int)


def _compare_with_uint64(primitive: Primitive, x: Any, y: Any) -> Any:
    """A signed integer with an unsigned one of 64 bits: no dtype holds both, so the sign is looked at first."""
    signed_first = dtype_of(x)[0].kind == "i"
    signed = x if signed_first else y
    negative = bind(less_p, cast(signed, INT64), np.zeros((), np.int64))
    answer = bool(primitive.numpy(-1, 0) if signed_first else primitive.numpy(0, -1))
    otherwise = bind(primitive, cast(x, _UINT64), cast(y, _UINT64))
    return logical_or(negative, otherwise) if answer else logical_and(logical_not(negative), otherwise)


less, less_equal = _compare(less_p), _compare(less_equal_p)
greater, greater_equal = _compare(greater_p), _compare(greater_equal_p)
equal, not_equal = _compare(equal_p), _compare(not_equal_p)


def _float_test(primitive: Primitive, of_integers: Callable[[Any, Any], Any], doc: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        x = operand(x)
        dtype, _ = dtype_of(x)
        if is_float(dtype):
            return bind(primitive, cast(x, dtype))
        return of_integers(x, x)

    return _named(function, primitive, doc, None)


isnan = _float_test(isnan_p, not_equal, "Whether x is NaN; never of integers.")
isinf = _float_test(isinf_p, not_equal, "Whether x is inf or -inf; never of integers.")
isfinite = _float_test(isfinite_p, equal, "Whether x is neither infinite nor NaN; always of integers.")
