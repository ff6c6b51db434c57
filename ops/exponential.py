"""Exponentials and logarithms, roots, tanh and the logistic function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..stage.dtypes import FLOAT64
from ..stage.primitive import Array, Case, Sample
from ..stage.trace import bind
from .arithmetic import where
from .comparison import equal, isinf, logical_and
from .families import FLOATS, binary_cases, elementwise, unary_cases
from .formulas import Mathematics, half_as_single, lowering, with_sign
from .ufuncs import binary_function, like, unary_function

_LN2 = math.log(2.0)
_LN10 = math.log(10.0)

exp_p = elementwise(
    "exp",
    np.exp,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * output,
    onnx="Exp",
    cases=unary_cases(),
)
log_p = elementwise(
    "log",
    np.log,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] / primals[0],
    onnx="Log",
    cases=unary_cases((0.3, 4)),
)
sqrt_p = elementwise(
    "sqrt",
    np.sqrt,
    dtypes=FLOATS,
    exact=True,
    jvp=lambda output, primals, tangents: tangents[0] * 0.5 / output,
    onnx="Sqrt",
    cases=unary_cases((0.2, 4)),
)
tanh_p = elementwise(
    "tanh",
    np.tanh,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * (1 - output * output),
    onnx="Tanh",
    cases=unary_cases((-3, 3)),
)

# ---------------------------------------------------------------------------------------- near 0 and 1: compensated formulas


def log1p_formula(m: Mathematics, x: Any) -> Any:
    """log(1 + x), the rounding of 1 + x divided out (Kahan)."""
    u = 1.0 + x
    return x * m.where(m.equal(u, 1.0) | m.equal(u, np.inf), 1.0, m.log(u) / (u - 1.0))


def expm1_formula(m: Mathematics, x: Any) -> Any:
    """exp(x) - 1, by the same device where neither exp(x) overflows nor -1 is all that is left."""
    largest = math.log(np.finfo(m.dtype).max) * (1.0 - 1e-7)
    bounded = m.minimum(m.maximum(x, -50.0), largest)
    u = m.exp(bounded)
    ratio = m.where(m.equal(u, 1.0), 1.0, (u - 1.0) / m.log(u))
    return bounded * ratio * m.where(x > largest, np.inf, 1.0)


expm1_p = elementwise(
    "expm1",
    np.expm1,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * bind(exp_p, primals[0]),
    onnx=lowering(expm1_formula),
    cases=[*unary_cases(), Case((Sample((6,), values=[-1e-9, 1e-9, -0.0, 50.0, -50.0, 0.5]),), smooth=False)],
)
log1p_p = elementwise(
    "log1p",
    np.log1p,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] / (1 + primals[0]),
    onnx=lowering(log1p_formula),
    cases=[
        *unary_cases((-0.7, 3)),
        Case((Sample((5,), values=[-1e-9, 1e-9, -0.0, -1.0, np.inf]),), smooth=False),
    ],
)

# ------------------------------------------------------------------------------------------------------------- other bases

exp2_p = elementwise(
    "exp2",
    np.exp2,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * (output * _LN2),
    onnx=lowering(lambda m, x: m.power(2.0, x)),
    cases=unary_cases(),
)


def _logarithm(base: float) -> Any:
    """log(x) / log(base), exact where x is a power of the base. `wide` formula: float64 rounds away a last bit for the narrower dtypes."""

    def formula(m: Mathematics, x: Any) -> Any:
        y = m.log(x) * (1.0 / math.log(base))
        whole = m.rint(y)
        return m.where(m.equal(m.power(base, whole), x), whole, y)

    exact = lowering(formula)
    rounded = lowering(lambda m, x: m.log(x) * (1.0 / math.log(base)), wide=True)

    def rule(b: Any, x: str) -> Any:
        return exact(b, x) if b.dtype(x) == FLOAT64 else rounded(b, x)

    return rule


log2_p = elementwise(
    "log2",
    np.log2,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] / (primals[0] * _LN2),
    onnx=_logarithm(2.0),
    cases=[*unary_cases((0.3, 4)), Case((Sample((4,), values=[8.0, 0.25, 0.0, 1024.0]),), smooth=False)],
)
log10_p = elementwise(
    "log10",
    np.log10,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] / (primals[0] * _LN10),
    onnx=_logarithm(10.0),
    cases=[*unary_cases((0.3, 4)), Case((Sample((4,), values=[1000.0, 0.01, 0.0, 10.0]),), smooth=False)],
)


def _cbrt_formula(m: Mathematics, x: Any) -> Any:
    """A power of |x|, with one Newton step. The power is exact for 0 and infinity, where the step is not."""
    a = m.abs(x)
    y = m.power(a, 1.0 / 3.0)
    regular = (a > 0.0) & (a < np.inf)
    step = m.where(regular, (y - a / (y * y)) / 3.0, 0.0)
    y = y - step
    return with_sign(m, y, x)


def _cbrt_numpy(x: Array) -> Array:
    return np.cbrt(x.astype(half_as_single(x.dtype), copy=False)).astype(x.dtype, copy=False)


cbrt_p = elementwise(
    "cbrt",
    _cbrt_numpy,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] / (3 * output * output),
    onnx=lowering(_cbrt_formula),
    cases=[
        *unary_cases((0.3, 4)),
        Case((Sample((6,), values=[-8.0, 27.0, 0.0, -0.0, np.inf, -0.5]),), smooth=False),
    ],
)

# ------------------------------------------------------------------------------------------------------- logistic, logaddexp


def _expit_formula(m: Mathematics, x: Any) -> Any:
    # ONNX Runtime's Sigmoid keeps absolute accuracy only and gives 0 below -20
    return 1.0 / (1.0 + m.exp(-x))


def _expit_numpy(x: Array) -> Array:
    wide = x.astype(half_as_single(x.dtype), copy=False)
    return (1 / (1 + np.exp(-wide))).astype(x.dtype, copy=False)


expit_p = elementwise(
    "expit",
    _expit_numpy,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * (output * (1 - output)),
    onnx=lowering(_expit_formula),
    cases=[*unary_cases((-4, 4)), Case((Sample((4,), values=[-40.0, 40.0, np.inf, -np.inf]),), smooth=False)],
)


def _shares(primals: Any, scale: float) -> tuple[Any, Any]:
    """d logaddexp / dx and / dy: the shares of the two terms, equal infinities sharing equally."""
    x, y = primals
    delta = where(logical_and(equal(x, y), isinf(x)), like(x, 0), (x - y) * scale)
    return bind(expit_p, delta), bind(expit_p, -delta)


def _logaddexp_jvp(output: Any, primals: Any, tangents: Any, *, scale: float = 1.0) -> Any:
    terms = [t * share for t, share in zip(tangents, _shares(primals, scale), strict=True) if t is not None]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _logaddexp_formula(m: Mathematics, x: Any, y: Any) -> Any:
    same = m.equal(x, y)
    gap = m.where(same, 0.0, m.abs(x - y))
    return m.where(same, x, m.maximum(x, y)) + log1p_formula(m, m.exp(-gap))


def _logaddexp2_formula(m: Mathematics, x: Any, y: Any) -> Any:
    same = m.equal(x, y)
    gap = m.where(same, 0.0, m.abs(x - y))
    return m.where(same, x, m.maximum(x, y)) + m.where(same, 1.0, log1p_formula(m, m.power(2.0, -gap)) * (1.0 / _LN2))


_LOGADDEXP_EDGES = Case(
    (
        Sample((6,), values=[-np.inf, np.inf, -np.inf, 1.0, 1000.0, np.inf]),
        Sample((6,), values=[-np.inf, np.inf, 2.0, 1.0, 1000.5, -np.inf]),
    ),
    smooth=False,
)
logaddexp_p = elementwise(
    "logaddexp",
    np.logaddexp,
    dtypes=FLOATS,
    jvp=_logaddexp_jvp,
    onnx=lowering(_logaddexp_formula),
    cases=[*binary_cases(), _LOGADDEXP_EDGES],
)
logaddexp2_p = elementwise(
    "logaddexp2",
    np.logaddexp2,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: _logaddexp_jvp(output, primals, tangents, scale=_LN2),
    onnx=lowering(_logaddexp2_formula),
    cases=[*binary_cases(), _LOGADDEXP_EDGES],
)

exp = unary_function(exp_p, np.exp, doc="e to the power x.")
exp2 = unary_function(exp2_p, np.exp2, doc="2 to the power x.")
expm1 = unary_function(expm1_p, np.expm1, doc="exp(x) - 1, accurate near 0.")
log = unary_function(log_p, np.log, doc="The natural logarithm; -inf at 0, nan below.")
log2 = unary_function(log2_p, np.log2, doc="The logarithm to base 2, exact for powers of 2.")
log10 = unary_function(log10_p, np.log10, doc="The logarithm to base 10, exact for powers of 10.")
log1p = unary_function(log1p_p, np.log1p, doc="log(1 + x), accurate near 0.")
sqrt = unary_function(sqrt_p, np.sqrt, doc="The square root; its slope at 0 is inf.")
cbrt = unary_function(cbrt_p, np.cbrt, doc="The real cube root, of negative numbers too; its slope at 0 is inf.")
tanh = unary_function(tanh_p, np.tanh, doc="The hyperbolic tangent.")
logaddexp = binary_function(logaddexp_p, np.logaddexp, doc="log(exp(x) + exp(y)) without overflow; slopes are the two terms' shares.")
logaddexp2 = binary_function(logaddexp2_p, np.logaddexp2, doc="log2(2**x + 2**y) without overflow.")
