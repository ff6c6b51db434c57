"""Comparisons and logic: boolean results, no derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL
from ..stage.primitive import Primitive
from ..stage.trace import bind
from .families import binary_cases, elementwise, unary_cases
from .operands import cast, operand, promoted
from .registry import implements

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
not_equal_p = _comparison("not_equal", np.not_equal, lambda b, x, y: b.op("Not", b.op("Equal", x, y)))

logical_and_p = elementwise(
    "logical_and", np.logical_and, dtypes="b", nondifferentiable=_REASON, onnx="And", shadow="decision", cases=binary_cases(dtype="bool")
)
logical_or_p = elementwise(
    "logical_or", np.logical_or, dtypes="b", nondifferentiable=_REASON, onnx="Or", shadow="decision", cases=binary_cases(dtype="bool")
)
logical_xor_p = elementwise(
    "logical_xor", np.logical_xor, dtypes="b", nondifferentiable=_REASON, onnx="Xor", shadow="decision", cases=binary_cases(dtype="bool")
)
logical_not_p = elementwise(
    "logical_not", np.logical_not, dtypes="b", nondifferentiable=_REASON, onnx="Not", shadow="decision", cases=unary_cases(dtype="bool")
)


def _compare(primitive: Primitive) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        return bind(primitive, *promoted(operand(x), operand(y), strong=True))

    function.__name__ = primitive.name
    return implements(getattr(np, primitive.name), operator=primitive.name)(function)


def _logic(primitive: Primitive) -> Callable[..., Any]:
    def function(*xs: Any) -> Any:
        return bind(primitive, *(cast(operand(x), BOOL) for x in xs))

    function.__name__ = primitive.name
    return implements(getattr(np, primitive.name))(function)


less, less_equal = _compare(less_p), _compare(less_equal_p)
greater, greater_equal = _compare(greater_p), _compare(greater_equal_p)
equal, not_equal = _compare(equal_p), _compare(not_equal_p)
logical_and, logical_or = _logic(logical_and_p), _logic(logical_or_p)
logical_xor, logical_not = _logic(logical_xor_p), _logic(logical_not_p)
