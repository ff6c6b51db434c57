"""Formulas: lowerings written with Python's operators, over ONNX values or, the same formula, over NumPy arrays.

    def log1p(m, x):
        u = 1.0 + x
        return x * m.where(m.equal(u, 1.0), 1.0, m.log(u) / (u - 1.0))

`lowering(log1p)` is an `onnx` rule that writes the nodes; `evaluation(log1p)` a `numpy` rule that computes in float64. Numbers take the
dtype of what they meet, as weak scalars do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Protocol

import numpy as np

from ..stage.dtypes import BOOL, FLOAT32, FLOAT64, DType
from ..stage.primitive import Array, Rule

Formula = Callable[Concatenate[Any, Any, ...], Any]


class Mathematics(Protocol):
    """What a formula may use beside operators (+ - * / unary -, comparisons, & | ~ of booleans); `dtype` is the one it computes in."""

    dtype: DType

    def where(self, condition: Any, x: Any, y: Any) -> Any: ...
    def equal(self, x: Any, y: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def sin(self, x: Any) -> Any: ...
    def cos(self, x: Any) -> Any: ...
    def power(self, x: Any, y: Any) -> Any: ...
    def fmod(self, x: Any, y: Any) -> Any: ...
    def abs(self, x: Any) -> Any: ...
    def floor(self, x: Any) -> Any: ...
    def ceil(self, x: Any) -> Any: ...
    def rint(self, x: Any) -> Any: ...
    def maximum(self, x: Any, y: Any) -> Any: ...
    def minimum(self, x: Any, y: Any) -> Any: ...
    def isnan(self, x: Any) -> Any: ...
    def isinf(self, x: Any) -> Any: ...


class NumpyMath:
    """Formulas on NumPy arrays."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    where = staticmethod(np.where)
    equal = staticmethod(np.equal)
    exp = staticmethod(np.exp)
    log = staticmethod(np.log)
    sqrt = staticmethod(np.sqrt)
    sin = staticmethod(np.sin)
    cos = staticmethod(np.cos)
    power = staticmethod(np.power)
    fmod = staticmethod(np.fmod)
    abs = staticmethod(np.absolute)
    floor = staticmethod(np.floor)
    ceil = staticmethod(np.ceil)
    rint = staticmethod(np.rint)
    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)
    isnan = staticmethod(np.isnan)
    isinf = staticmethod(np.isinf)


class Value:
    """An ONNX value with operators; each writes a node."""

    __slots__ = ("math", "name")
    __hash__ = object.__hash__

    def __init__(self, math: OnnxMath, name: str) -> None:
        self.math = math
        self.name = name

    @property
    def dtype(self) -> DType:
        return self.math.builder.dtype(self.name)

    def __add__(self, other: Any) -> Value:
        return self.math.node("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.math.node("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.math.node("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.math.node("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.math.node("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.math.node("Mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.math.node("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.math.node("Div", other, self)

    def __neg__(self) -> Value:
        return self.math.node("Neg", self)

    def __lt__(self, other: Any) -> Value:
        return self.math.node("Less", self, other)

    def __le__(self, other: Any) -> Value:
        return self.math.node("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> Value:
        return self.math.node("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.math.node("GreaterOrEqual", self, other)

    def __and__(self, other: Any) -> Value:
        return self.math.node("And", self, other)

    def __or__(self, other: Any) -> Value:
        return self.math.node("Or", self, other)

    def __invert__(self) -> Value:
        return self.math.node("Not", self)


class OnnxMath:
    """Formulas on ONNX values: `node` writes any op, with numbers among its operands."""

    def __init__(self, builder: Any, dtype: DType) -> None:
        self.builder = builder
        self.dtype = dtype

    def value(self, name: str) -> Value:
        return Value(self, name)

    def node(self, op_type: str, *operands: Any, **attributes: Any) -> Value:
        dtype = next((x.dtype for x in operands if isinstance(x, Value) and x.dtype != BOOL), self.dtype)
        return Value(self, self.builder.op(op_type, *(self._name(x, dtype) for x in operands), **attributes))

    def _name(self, x: Any, dtype: DType) -> str:
        return x.name if isinstance(x, Value) else self.builder.const(x, dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        return Value(self, self.builder.cast(x.name, dtype))

    def where(self, condition: Any, x: Any, y: Any) -> Value:
        dtype = next((v.dtype for v in (x, y) if isinstance(v, Value)), self.dtype)
        return Value(self, self.builder.op("Where", condition.name, self._name(x, dtype), self._name(y, dtype)))

    def equal(self, x: Any, y: Any) -> Value:
        return self.node("Equal", x, y)

    def exp(self, x: Any) -> Value:
        return self.node("Exp", x)

    def log(self, x: Any) -> Value:
        return self.node("Log", x)

    def sqrt(self, x: Any) -> Value:
        return self.node("Sqrt", x)

    def sin(self, x: Any) -> Value:
        return self.node("Sin", x)

    def cos(self, x: Any) -> Value:
        return self.node("Cos", x)

    def power(self, x: Any, y: Any) -> Value:
        return self.node("Pow", x, y)

    def fmod(self, x: Any, y: Any) -> Value:
        return self.node("Mod", x, y, fmod=1)

    def abs(self, x: Any) -> Value:
        return self.node("Abs", x)

    def floor(self, x: Any) -> Value:
        return self.node("Floor", x)

    def ceil(self, x: Any) -> Value:
        return self.node("Ceil", x)

    def rint(self, x: Any) -> Value:
        return self.node("Round", x)

    def maximum(self, x: Any, y: Any) -> Value:
        return self.node("Max", x, y)

    def minimum(self, x: Any, y: Any) -> Value:
        return self.node("Min", x, y)

    def isnan(self, x: Any) -> Value:
        return self.node("IsNaN", x)

    def isinf(self, x: Any) -> Value:
        return self.node("IsInf", x)


def horner(x: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 x + c2 x^2 + ..."""
    result: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def negative_sign(m: Mathematics, x: Any) -> Any:
    """Whether the sign bit is set: of -0.0 too; of a NaN never."""
    return 1.0 / m.maximum(x, -1.0) < 0.0


def sign_factor(m: Mathematics, negative: Any) -> Any:
    """-1 where the condition holds, else 1. Signs are given by products: ONNX Runtime's Where turns -0.0 into 0.0."""
    return m.where(negative, -1.0, 1.0)


def with_sign(m: Mathematics, magnitude: Any, sign: Any) -> Any:
    """`magnitude`, which is not negative, with the sign bit of `sign`."""
    return magnitude * sign_factor(m, negative_sign(m, sign))


def half_as_single(dtype: DType) -> DType:
    """float32 for float16 and bfloat16, else the dtype itself."""
    return FLOAT32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def lowering(formula: Formula, *, wide: bool = False) -> Rule:
    """The `onnx` rule of a formula.

    float16 and bfloat16 are computed in float32 and rounded once; `wide`: everything is computed in float64.
    """

    def rule(b: Any, *names: str, **params: Any) -> Any:
        dtype = FLOAT64 if wide else half_as_single(b.dtype(names[-1]))
        m = OnnxMath(b, dtype)
        result = formula(m, *(m.value(b.cast(n, dtype)) for n in names), **params)
        return b.cast(result.name, b.out_specs[0].dtype)

    return rule


def native(op_type: str, formula: Formula) -> Rule:
    """The `onnx` rule of an op that ONNX Runtime has for float32 but not for float64: there the formula stands in."""
    composed = lowering(formula)

    def rule(b: Any, *names: str, **params: Any) -> str:
        if b.dtype(names[0]) == FLOAT64:
            return composed(b, *names, **params)
        return b.op(op_type, *names)

    return rule


def evaluation(formula: Formula) -> Callable[..., Array]:
    """The `numpy` rule of a formula: computed in float64 and rounded once."""
    m = NumpyMath(FLOAT64)

    def rule(*arrays: Array, **params: Any) -> Array:
        result = formula(m, *(np.asarray(x, FLOAT64) for x in arrays), **params)
        return np.asarray(result).astype(arrays[-1].dtype)

    return rule
