"""The modified Bessel function of order 0, np.i0, and its derivatives: I_k(x) / x^k for k = 0, 1, ...

These are even and without zeros, and the slope of each is x times the next one, (I_k / x^k)' = x (I_{k+1} / x^{k+1}). Up to 8 they are their
power series in x^2, whose terms are all positive; beyond, the approximations of orders 0 and 1 and the recurrence
I_{k+1}(x) = I_{k-1}(x) - 2k I_k(x) / x (Abramowitz and Stegun, 9.6.10, 9.6.26 and 9.6.28).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..stage.primitive import Case, Sample
from ..stage.trace import bind
from .approximations import I0E_FAR, I1E_FAR, approximate
from .arguments import array_operand
from .arithmetic import floating
from .families import FLOATS, elementwise, unary_cases
from .formulas import Mathematics, evaluation, horner, lowering
from .registry import implements

_SPLIT = 8.0
_TERMS = 30
# Beyond it all orders are infinite in float64, and a larger one would give infinity over infinity.
_INFINITE = 2000.0


def _series(order: int) -> list[float]:
    # In (x / 8)^2: ONNX Runtime takes an addend for zero that is smaller than float32's smallest number, even if it is a float64.
    return [16.0**m / (2.0**order * math.factorial(m) * math.factorial(m + order)) for m in range(_TERMS)]


def _formula(m: Mathematics, x: Any, *, order: int) -> Any:
    a = m.abs(x)
    is_near = a <= _SPLIT
    inner = m.where(is_near, x * (1 / _SPLIT), 0.0)
    near = horner(inner * inner, _series(order))
    outer = m.where(is_near, _SPLIT, m.where(a > _INFINITE, _INFINITE, a))
    inverse = 1.0 / outer
    value, following = (approximate(_SPLIT * inverse, table) for table in (I0E_FAR, I1E_FAR))
    half = m.exp(outer * 0.5)
    scale = half * (half / m.sqrt(outer))
    for k in range(order):
        value, following = following, value - (2.0 * (k + 1)) * inverse * following
        scale = scale * inverse
    return m.where(is_near, near, value * scale)


def _jvp(output: Any, primals: Any, tangents: Any, *, order: int) -> Any:
    x = primals[0]
    return tangents[0] * (x * bind(bessel_p, x, order=order + 1))


def _cases() -> list[Case]:
    ends = [0.0, -0.0, 8.0, -8.0, 8.25, 30.0, -700.0, 1e4, np.inf, -np.inf, np.nan]
    return [
        *(Case(c.samples, {"order": k}, named=c.named) for k in (0, 1) for c in unary_cases((-4.0, 4.0))),
        Case((Sample((4,), domain=(8.5, 12.0)),), {"order": 2}, smooth=False),
        Case((Sample((len(ends),), values=ends),), {"order": 0}, smooth=False),
    ]


bessel_p = elementwise(
    "bessel_i_by_power",
    evaluation(_formula),
    dtypes=FLOATS,
    jvp=_jvp,
    onnx=lowering(_formula, wide=True),
    cases=_cases(),
)


@implements(np.i0)
def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind of order 0, of floats; integers become float64."""
    return bind(bessel_p, floating(array_operand(x, "i0")), order=0)
