"""Special functions: error functions and their inverses, logistic, gamma, x log y; and their names in scipy.special.

Their NumPy rules compute in float64 with the formulas that the ONNX rules write out; the approximations are good to a few units in the last
place of float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..stage.primitive import Case, DerivativeRule, Rule, Sample
from ..stage.trace import bind
from .approximations import ERF, ERFCX, ERFINV_CENTRE, ERFINV_MIDDLE, ERFINV_TAIL, approximate
from .arithmetic import floating, where
from .comparison import equal, isnan, logical_and, logical_not
from .exponential import exp, expit_p, log, log1p_formula
from .families import FLOATS, binary_cases, elementwise, unary_cases
from .formulas import Mathematics, evaluation, lowering, native, with_sign
from .operands import operand, promoted
from .registry import implements_special
from .ufuncs import like

_SMALL: Final = 0.75
_TWO_BY_SQRT_PI: Final = 2 / math.sqrt(math.pi)
_HALF_SQRT_PI: Final = math.sqrt(math.pi) / 2
_SQRT_2: Final = math.sqrt(2.0)
_SQRT_2_PI: Final = math.sqrt(2 * math.pi)

# ----------------------------------------------------------------------------------------------------------- error functions


def _erfc_tail(m: Mathematics, a: Any) -> Any:
    """erfc for a >= 0.75: exp(-a^2) times a polynomial. a^2 is split, since exp magnifies its rounding."""
    a = m.minimum(a, 30.0)
    high = m.floor(a * 1048576.0) * (1.0 / 1048576.0)
    u = 1.0 / (a + 4.0)
    return m.exp(-(high * high)) * m.exp((high - a) * (high + a)) * (u * approximate(u, ERFCX))


def erf_formula(m: Mathematics, x: Any) -> Any:
    a = m.abs(x)
    b = m.minimum(a, _SMALL)
    c = m.minimum(m.maximum(a, _SMALL), 7.0)
    u = 1.0 / (c + 4.0)
    # 1 - erfc: the rounding of c^2 does not matter here
    tail = 1.0 - m.exp(-(c * c)) * (u * approximate(u, ERFCX))
    return with_sign(m, m.where(a < _SMALL, b * approximate(b * b, ERF), tail), x)


def erfc_formula(m: Mathematics, x: Any) -> Any:
    a = m.abs(x)
    b = m.minimum(a, _SMALL)
    tail = _erfc_tail(m, m.maximum(a, _SMALL))
    return m.where(a < _SMALL, 1.0 - x * approximate(b * b, ERF), m.where(x < 0.0, 2.0 - tail, tail))


def _erfinv_ratio(m: Mathematics, w: Any) -> Any:
    """erfinv(x) / x of w = -log(1 - x^2), in three pieces."""
    s = m.sqrt(m.maximum(w, 1.0))
    middle = 1.0 / (m.minimum(m.maximum(s, 2.0), 4.0) + 2.0)
    far = 1.0 / (m.minimum(m.maximum(s, 4.0), 28.0) + 2.0)
    outer = m.where(w < 16.0, approximate(middle, ERFINV_MIDDLE) / middle, approximate(far, ERFINV_TAIL) / far)
    return m.where(w < 4.0, approximate(m.minimum(w, 4.0), ERFINV_CENTRE), outer)


def _erfinv_formula(m: Mathematics, x: Any) -> Any:
    a = m.abs(x)
    w = -m.log((1.0 - a) * (1.0 + a))
    inside = m.where(a < 1.0, w, 0.0)
    return x * m.where(a < 1.0, _erfinv_ratio(m, inside), m.where(m.equal(a, 1.0), np.inf, np.nan))


def ndtr_formula(m: Mathematics, x: Any) -> Any:
    return 0.5 * erfc_formula(m, x * -math.sqrt(0.5))


def ndtri_formula(m: Mathematics, p: Any) -> Any:
    """sqrt(2) erfinv(2p - 1), where 1 - (2p - 1)^2 = 4p (1 - p) keeps its digits for small p."""
    inside = (p > 0.0) & (p < 1.0)
    safe = m.where(inside, p, 0.5)
    w = -(m.log(safe) + m.log(4.0 * (1.0 - safe)))
    value = _SQRT_2 * (2.0 * safe - 1.0) * _erfinv_ratio(m, m.maximum(w, 0.0))
    edge = m.where(m.equal(p, 0.0), -np.inf, m.where(m.equal(p, 1.0), np.inf, np.nan))
    return m.where(inside, value, edge)


def _special(
    name: str,
    formula: Callable[..., Any],
    jvp: DerivativeRule,
    cases: list[Case],
    *,
    onnx: Rule | None = None,
    **rules: Any,
) -> Any:
    return elementwise(
        name,
        evaluation(formula),
        dtypes=FLOATS,
        jvp=jvp,
        onnx=onnx or lowering(formula, wide=True),
        cases=cases,
        **rules,
    )


def _gauss(x: Any, scale: float) -> Any:
    return scale * exp(-(x * x))


def _points(*values: float) -> Case:
    return Case((Sample((len(values),), values=list(values)),), smooth=False)


_ENDS = _points(0.0, -0.0, np.inf, -np.inf, np.nan, 0.75, -0.75, 1e-9, 5.5, -7.0, 20.0)
erf_p = _special(
    "erf",
    erf_formula,
    lambda output, primals, tangents: tangents[0] * _gauss(primals[0], _TWO_BY_SQRT_PI),
    [*unary_cases((-2.5, 2.5)), _ENDS],
    onnx=native("Erf", erf_formula),
)
erfc_p = _special(
    "erfc",
    erfc_formula,
    lambda output, primals, tangents: tangents[0] * -_gauss(primals[0], _TWO_BY_SQRT_PI),
    [*unary_cases((-2.5, 2.5)), _ENDS],
)
erfinv_p = _special(
    "erfinv",
    _erfinv_formula,
    lambda output, primals, tangents: tangents[0] * (_HALF_SQRT_PI * exp(output * output)),
    [*unary_cases((-0.9, 0.9)), _points(0.0, -0.0, 1.0, -1.0, 1.5, np.nan, 0.999, -0.99999)],
)
ndtr_p = _special(
    "ndtr",
    ndtr_formula,
    lambda output, primals, tangents: tangents[0] * (exp(primals[0] * primals[0] * -0.5) * (1 / _SQRT_2_PI)),
    [*unary_cases((-2.5, 2.5)), _ENDS],
)
ndtri_p = _special(
    "ndtri",
    ndtri_formula,
    lambda output, primals, tangents: tangents[0] * (_SQRT_2_PI * exp(output * output * 0.5)),
    [*unary_cases((0.05, 0.95)), _points(0.0, 1.0, 0.5, -0.5, 1.5, np.nan, 1e-30, 0.999)],
)

# ------------------------------------------------------------------------------------------------------------ logit, x log y


def _logit_formula(m: Mathematics, x: Any) -> Any:
    """log(x / (1 - x)); near 1/2, where that cancels, by log1p."""
    near = (x > 0.3) & (x < 0.65)
    inner = m.where(near, x, 0.5)
    return m.where(near, log1p_formula(m, (inner - 0.5) * 2.0 / (1.0 - inner)), m.log(x / (1.0 - x)))


logit_p = _special(
    "logit",
    _logit_formula,
    lambda output, primals, tangents: tangents[0] / (primals[0] * (1 - primals[0])),
    [*unary_cases((0.1, 0.9)), _points(0.0, 1.0, 0.5, 1.5, -0.5, np.nan)],
)


def _xlogy_formula(m: Mathematics, x: Any, y: Any) -> Any:
    nothing = m.equal(x, 0.0) & ~m.isnan(y)
    return m.where(nothing, 0.0, x * m.log(m.where(nothing, 1.0, y)))


def _xlogy_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    x, y = primals
    terms: list[Any] = []
    if tangents[0] is not None:
        terms.append(tangents[0] * log(y))
    if tangents[1] is not None:
        nothing = logical_and(equal(x, like(x, 0)), logical_not(isnan(y)))
        terms.append(tangents[1] * where(nothing, like(x, 0), x / where(nothing, like(y, 1), y)))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


xlogy_p = _special(
    "xlogy",
    _xlogy_formula,
    _xlogy_jvp,
    [
        *binary_cases((0.5, 2), (0.3, 3)),
        Case(
            (
                Sample((5,), values=[0.0, 0.0, 1.0, 0.0, 2.0]),
                Sample((5,), values=[0.0, np.nan, 0.0, np.inf, -1.0]),
            ),
            smooth=False,
        ),
    ],
    onnx=lowering(_xlogy_formula),
)


# ----------------------------------------------------------------------------------------------------------------- functions


def _unary(primitive: Any, doc: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return bind(primitive, floating(x))

    return _named(function, primitive.name, doc)


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return implements_special(name)(function)


erf = _unary(erf_p, "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.")
erfc = _unary(erfc_p, "1 - erf(x), accurate where that is small.")
erfinv = _unary(erfinv_p, "The inverse of erf; infinite at -1 and 1, NaN beyond.")
ndtr = _unary(ndtr_p, "The standard normal distribution function, accurate in its lower tail.")
ndtri = _unary(ndtri_p, "The inverse of ndtr: quantiles of the standard normal distribution.")
expit = _unary(expit_p, "The logistic function 1 / (1 + exp(-x)).")
logit = _unary(logit_p, "log(x / (1 - x)), the inverse of expit.")


def _xlogy(x: Any, y: Any) -> Any:
    a, b = promoted(operand(x), operand(y), strong=True)
    return bind(xlogy_p, floating(a), floating(b))


xlogy: Callable[[Any, Any], Any] = _named(_xlogy, "xlogy", "x log(y), 0 where x is 0 (unless y is NaN). Slopes: log(y) in x, x / y in y.")
