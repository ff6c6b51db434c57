"""The normal distribution function and its inverse, the same bit for bit in every runtime.

A difference in the last place of a probability may be one in many places of the quantile, where that is small. So these use their own log and exp,
of + - * /, rounding and a table of powers of two. The native log only says which power to take out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...stage.dtypes import FLOAT64, INT64
from ...stage.primitive import Array, Primitive
from ...stage.trace import bind
from ..families import elementwise, unary_cases
from ..formulas import Formula, NumpyMath, OnnxMath, Value, horner
from ..special import ndtr_formula, ndtr_p, ndtri_formula, ndtri_p

_LEAST_POWER, _LARGEST_POWER = -1074, 1023
_POWERS: Final = np.array([math.ldexp(1.0, n) for n in range(_LEAST_POWER, _LARGEST_POWER + 1)])
# log 2 in two parts, of which the first times any exponent is exact
_LOG_2_HIGH, _LOG_2_LOW = 0.6931471804855391, 7.440617110012397e-11
_ATANH: Final = (
    2.0,
    0.6666666666666666,
    0.40000000000007796,
    0.28571428568729573,
    0.2222222268994207,
    0.18181772718522998,
    0.1538720490861947,
    0.1324778016741517,
    0.1327098719495135,
)
"""2 atanh(s) / s in s^2 up to 0.0296: the interpolant at Chebyshev's points, within 1e-20 of it."""
_EXP: Final = (
    1.0,
    1.0,
    0.5,
    0.16666666666666702,
    0.04166666666666669,
    0.008333333333309458,
    0.001388888888887184,
    0.0001984126990936602,
    2.4801587350217137e-05,
    2.7557224820682715e-06,
    2.7557251805838646e-07,
    2.51149153726104e-08,
    2.092161270126645e-09,
)
"""exp on [-0.3467, 0.3467], within 6e-20."""


class _Portable:
    """log of positive numbers and exp of negative ones (no less than -744), for a mathematics that has native_log and power (of two, by an integer value)."""

    def log(self: Any, x: Any) -> Any:
        n = self.minimum(self.maximum(self.rint(self.native_log(x) * (1 / math.log(2))), float(-_LARGEST_POWER)), 1023.0)
        r = x * self.power_of_two(-n)
        s = (r - 1.0) / (r + 1.0)
        return n * _LOG_2_HIGH + (n * _LOG_2_LOW + s * horner(s * s, _ATANH))

    def exp(self: Any, x: Any) -> Any:
        x = self.maximum(x, -744.0)
        n = self.rint(x * (1 / math.log(2)))
        return horner((x - n * _LOG_2_HIGH) - n * _LOG_2_LOW, _EXP) * self.power_of_two(n)


class _NumpyPortable(_Portable, NumpyMath):
    native_log = staticmethod(np.log)

    def power_of_two(self, n: Array) -> Array:
        known = np.nan_to_num(n, nan=0.0)
        return _POWERS[known.astype(INT64) - _LEAST_POWER]


class _OnnxPortable(_Portable, OnnxMath):
    def native_log(self, x: Value) -> Value:
        return self.node("Log", x)

    def power_of_two(self, n: Value) -> Value:
        known = self.where(self.isnan(n), 0.0, n)
        place = self.cast(known - float(_LEAST_POWER), INT64)
        return self.value(self.builder.op("Gather", self.builder.const(_POWERS), place.name))


def _evaluation(formula: Formula) -> Callable[[Array], Array]:
    m = _NumpyPortable(FLOAT64)
    return lambda x: np.asarray(formula(m, x.astype(FLOAT64))).astype(x.dtype)


def _lowering(formula: Formula) -> Callable[..., str]:
    def rule(b: Any, x: str) -> str:
        m = _OnnxPortable(b, FLOAT64)
        return b.cast(formula(m, m.value(b.cast(x, FLOAT64))).name, b.out_specs[0].dtype)

    return rule


def _portable(name: str, formula: Formula, like: Primitive, domain: tuple[float, float]) -> Primitive:
    return elementwise(
        name,
        _evaluation(formula),
        dtypes="f",
        jvp=like.jvp,
        onnx=_lowering(formula),
        cases=[*unary_cases(domain), *like.cases[-1:]],
    )


random_ndtr_p = _portable("random_ndtr", ndtr_formula, ndtr_p, (-2.5, 2.5))
random_ndtri_p = _portable("random_ndtri", ndtri_formula, ndtri_p, (0.05, 0.95))


def ndtr(x: Any) -> Any:
    """The normal distribution function of a float64 array."""
    return bind(random_ndtr_p, x)


def ndtri(p: Any) -> Any:
    """Its inverse."""
    return bind(random_ndtri_p, p)
