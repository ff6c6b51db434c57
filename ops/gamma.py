"""The logarithm of the gamma function and its derivatives of every order."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ..stage.primitive import Case, Sample
from ..stage.trace import bind
from .approximations import LOG_GAMMA, STIRLING, approximate
from .arithmetic import floating
from .families import FLOATS, elementwise, unary_cases
from .formulas import Mathematics, evaluation, horner, lowering
from .registry import implements_special

_HALF_LOG_2_PI: Final = 0.9189385332046727
# From here on the asymptotic series hold to float64's precision
_ASYMPTOTIC: Final = 8.0


def _stirling(m: Mathematics, x: Any) -> Any:
    v = 1.0 / x
    return (x - 0.5) * m.log(x) - x + (_HALF_LOG_2_PI + v * horner(v * v, STIRLING))


def _log_gamma_positive(m: Mathematics, x: Any) -> Any:
    """Below 3 by a polynomial on [1, 2] with the zeros at 1 and 2 taken out; beyond by Stirling's series, shifted by 5 up to 8."""
    small = m.minimum(x, 3.0)
    low, high = small < 1.0, small > 2.0
    y = m.where(low, small + 1.0, m.where(high, small - 1.0, small))
    first = m.where(low, small, m.where(high, small - 2.0, small - 1.0))
    second = m.where(low, small - 1.0, m.where(high, small - 3.0, small - 2.0))
    near = first * second * approximate(y, LOG_GAMMA)
    # gamma(x) = gamma(x + 1) / x = gamma(x - 1) (x - 1)
    near = near + m.log(m.where(low, 1.0 / small, m.where(high, small - 1.0, 1.0)))
    large = m.maximum(x, 3.0)
    shift = large < _ASYMPTOTIC
    b = m.minimum(large, _ASYMPTOTIC)
    product = m.where(shift, b * (b + 1.0) * (b + 2.0) * (b + 3.0) * (b + 4.0), 1.0)
    far = _stirling(m, m.where(shift, large + 5.0, large)) - m.log(product)
    return m.where(x < 3.0, near, m.where(x < np.inf, far, np.inf))


def _log_gamma_formula(m: Mathematics, x: Any) -> Any:
    """log |gamma(x)|: for x < 0 by gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    negative = x < 0.0
    positive = _log_gamma_positive(m, m.where(negative, 1.0 - x, m.where(m.isnan(x), 1.0, x)))
    fraction = m.where(negative & ~m.isinf(x), x - m.rint(x), 0.5)
    reflected = m.log(math.pi / m.abs(m.sin(math.pi * fraction))) - positive
    pole = m.equal(fraction, 0.0) | m.isinf(x)
    result = m.where(negative, m.where(pole, np.inf, reflected), positive)
    return m.where(m.isnan(x), x, m.where(m.equal(x, 0.0), np.inf, result))


# ----------------------------------------------------------------------------------------------------------------- polygamma


def _bernoulli(count: int) -> list[Fraction]:
    """B(0), B(1), ..., B(count - 1)."""
    numbers = [Fraction(1)]
    for n in range(1, count):
        numbers.append(-sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0)) / (n + 1))
    return numbers


_BERNOULLI = _bernoulli(25)


def _series(n: int) -> list[float]:
    """The coefficients of x^-(n + 2k), k = 1, 2, ..., in the asymptotic series of polygamma(n), without its sign."""
    return [float(_BERNOULLI[2 * k] * math.factorial(2 * k + n - 1) / math.factorial(2 * k)) for k in range(1, 9)]


def _cotangent_polynomial(n: int) -> list[float]:
    """The n-th derivative of pi cot(pi x) as a polynomial in c = cot(pi x): d/dx c = -pi (1 + c^2)."""
    p = [0.0, math.pi]
    for _ in range(n):
        slope = [i * p[i] for i in range(1, len(p))]
        p = [-math.pi * ((slope[i] if i < len(slope) else 0.0) + (slope[i - 2] if i >= 2 else 0.0)) for i in range(len(slope) + 2)]
    return p


def _whole_power(x: Any, n: int) -> Any:
    result = x
    for _ in range(n - 1):
        result = result * x
    return result


def _polygamma_positive(m: Mathematics, x: Any, n: int) -> Any:
    """The asymptotic series from 8 + n on, after as many steps of polygamma(n, x) = polygamma(n, x + 1) - (-1)^n n! / x^(n + 1)."""
    steps = int(_ASYMPTOTIC) + n
    shift = x < float(steps)
    factorial = float(math.factorial(n))
    sign = -1.0 if n % 2 == 0 else 1.0
    s = m.minimum(x, float(steps))
    total: Any = None
    for k in range(steps):
        term = 1.0 / _whole_power(s + float(k), n + 1)
        total = term if total is None else total + term
    y = m.where(shift, x + float(steps), x)
    v = 1.0 / y
    rest = v * v * horner(v * v, _series(n))
    if n == 0:
        far = m.log(y) - 0.5 * v - rest
        return m.where(shift, far - total, far)
    far = _whole_power(v, n) * (float(math.factorial(n - 1)) + 0.5 * factorial * v + rest)
    return sign * m.where(shift, far + factorial * total, far)


def _polygamma_formula(m: Mathematics, x: Any, *, n: int) -> Any:
    """For x < 0: polygamma(n, 1 - x) (-1)^n - d^n/dx^n pi cot(pi x)."""
    negative = x < 0.0
    positive = _polygamma_positive(m, m.where(negative, 1.0 - x, m.where(m.equal(x, 0.0), 1.0, x)), n)
    fraction = m.where(negative & ~m.isinf(x), x - m.rint(x), 0.25)
    pole = m.equal(fraction, 0.0) | (m.isinf(x) & negative)
    angle = math.pi * m.where(pole, 0.25, fraction)
    cotangent = m.cos(angle) / m.sin(angle)
    reflected = (-1.0) ** n * positive - horner(cotangent, _cotangent_polynomial(n))
    result = m.where(negative, m.where(pole, np.nan if n % 2 == 0 else np.inf, reflected), positive)
    at_zero = -1.0 / x if n == 0 else np.inf
    if n % 2 == 0 and n > 0:
        at_zero = -np.inf
    return m.where(m.equal(x, 0.0), at_zero, result)


def _points(*values: float) -> Case:
    return Case((Sample((len(values),), values=list(values)),), smooth=False)


def _polygamma_jvp(output: Any, primals: Any, tangents: Any, *, n: int) -> Any:
    return tangents[0] * bind(polygamma_p, primals[0], n=n + 1)


polygamma_p = elementwise(
    "polygamma",
    evaluation(_polygamma_formula),
    dtypes=FLOATS,
    jvp=_polygamma_jvp,
    onnx=lowering(_polygamma_formula, wide=True),
    cases=[
        *(Case((Sample((2, 3), "float", (0.6, 4.0)),), {"n": n}) for n in (0, 1, 2)),
        Case((Sample((3,), "float", (-0.8, -0.2)),), {"n": 0}),
        Case((Sample((3,), "float", (-0.8, -0.2)),), {"n": 1}),
        Case((Sample((5,), values=[0.0, -1.0, np.inf, np.nan, 100.0]),), {"n": 0}, smooth=False),
        Case((Sample((0, 2)),), {"n": 0}),
    ],
)
gammaln_p = elementwise(
    "gammaln",
    evaluation(_log_gamma_formula),
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * bind(polygamma_p, primals[0], n=0),
    onnx=lowering(_log_gamma_formula, wide=True),
    cases=[
        *unary_cases((0.3, 9.0)),
        *unary_cases((-0.8, -0.2)),
        _points(0.0, -1.0, 1.0, 2.0, np.inf, -np.inf, np.nan, 1e4, 3.0),
    ],
)


def _function(name: str, compute: Callable[[Any], Any], doc: str) -> Callable[[Any], Any]:
    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = doc
    return implements_special(name)(compute)


gammaln = _function("gammaln", lambda x: bind(gammaln_p, floating(x)), "log |gamma(x)|; inf at 0 and the negative integers.")
digamma = _function(
    "psi",
    lambda x: bind(polygamma_p, floating(x), n=0),
    "The derivative of log gamma(x); NaN at the negative integers.",
)
