"""Trigonometric and hyperbolic functions and their inverses, hypot, arctan2, degrees and radians, sinc.

ONNX Runtime's CPU kernels of most of them take float32 only: for float64 they are written out, by formulas good to a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..stage.dtypes import FLOAT64
from ..stage.primitive import Array, Case, Rule, Sample
from ..stage.trace import bind
from .approximations import ATAN, approximate
from .arithmetic import floating, multiply, where
from .comparison import equal, less
from .exponential import log1p_formula, sqrt
from .families import FLOATS, binary_cases, elementwise, unary_cases
from .floating_point import absolute
from .formulas import Mathematics, half_as_single, horner, lowering, native, negative_sign, with_sign
from .operands import cast, dtype_of
from .registry import implements
from .ufuncs import binary_function, like, named, unary_function

_PI: Final = math.pi
# pi / 2 to twice the precision: the sum of two floats
_HALF_PI: Final = math.pi / 2
_HALF_PI_REST: Final = 6.123233995736766e-17
_QUARTER_PI_REST: Final = _HALF_PI_REST / 2
_TAN_EIGHTH: Final = math.tan(math.pi / 8)
_LARGE: Final = 2.0**28
_LN2: Final = math.log(2.0)

# ------------------------------------------------------------------------------------------------------------------ formulas


def atan_formula(m: Mathematics, x: Any) -> Any:
    """Reduced to [-tan(pi/8), tan(pi/8)] by atan(x) = pi/2 - atan(1/x) and pi/4 + atan((x - 1) / (x + 1))."""
    a = m.abs(x)
    inverted = a > 1.0
    r = m.where(inverted, 1.0 / a, a)
    middle = r > _TAN_EIGHTH
    s = m.where(middle, (r - 1.0) / (r + 1.0), r)
    core = s * approximate(s * s, ATAN)
    core = m.where(middle, math.pi / 4 + (core + _QUARTER_PI_REST), core)
    core = m.where(inverted, _HALF_PI + (_HALF_PI_REST - core), core)
    return with_sign(m, core, x)


def _asin_formula(m: Mathematics, x: Any) -> Any:
    return 2.0 * atan_formula(m, x / (1.0 + m.sqrt((1.0 - x) * (1.0 + x))))


def _acos_formula(m: Mathematics, x: Any) -> Any:
    return 2.0 * atan_formula(m, m.sqrt(1.0 - x) / m.sqrt(1.0 + x))


def _sinh_formula(m: Mathematics, x: Any) -> Any:
    """The Taylor series up to 1; beyond, by exp(|x| / 2), whose square may overflow where sinh does not."""
    a = m.abs(x)
    z = a * a
    series = a + a * (z * horner(z, [1.0 / math.factorial(2 * k + 3) for k in range(9)]))
    h = m.exp(0.5 * a)
    large = (0.5 * h) * h - 0.5 / h / h
    return with_sign(m, m.where(a < 1.0, series, large), x)


def _cosh_formula(m: Mathematics, x: Any) -> Any:
    h = m.exp(0.5 * m.abs(x))
    return (0.5 * h) * h + 0.5 / h / h


def _asinh_formula(m: Mathematics, x: Any) -> Any:
    a = m.abs(x)
    b = m.minimum(a, _LARGE)
    small = log1p_formula(m, b + b * b / (1.0 + m.sqrt(1.0 + b * b)))
    return with_sign(m, m.where(a > _LARGE, m.log(a) + _LN2, small), x)


def _acosh_formula(m: Mathematics, x: Any) -> Any:
    t = m.minimum(x, _LARGE) - 1.0
    return m.where(x > _LARGE, m.log(x) + _LN2, log1p_formula(m, t + m.sqrt(t * (t + 2.0))))


def _atanh_formula(m: Mathematics, x: Any) -> Any:
    a = m.abs(x)
    return with_sign(m, 0.5 * log1p_formula(m, 2.0 * a / (1.0 - a)), x)


def _tan_formula(m: Mathematics, x: Any) -> Any:
    return m.sin(x) / m.cos(x)


def _hypot_wide(m: Mathematics, x: Any, y: Any) -> Any:
    """In a wider dtype squares do not overflow. An infinity wins over a NaN."""
    return m.where(m.isinf(x) | m.isinf(y), np.inf, m.sqrt(x * x + y * y))


def _hypot_scaled(m: Mathematics, x: Any, y: Any) -> Any:
    a, b = m.abs(x), m.abs(y)
    large, small = m.maximum(a, b), m.minimum(a, b)
    ratio = small / m.where(m.equal(large, 0.0), 1.0, large)
    return m.where(m.isinf(x) | m.isinf(y), np.inf, large * m.sqrt(1.0 + ratio * ratio))


def _hypot_onnx() -> Rule:
    wide, scaled = lowering(_hypot_wide, wide=True), lowering(_hypot_scaled)

    def rule(b: Any, x: str, y: str) -> Any:
        return scaled(b, x, y) if b.dtype(x) == FLOAT64 else wide(b, x, y)

    return rule


def _arctan2_formula(atan: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """From the angle of the first octant, with C's rules for signed zeros and infinities."""

    def formula(m: Mathematics, y: Any, x: Any) -> Any:
        a, b = m.abs(y), m.abs(x)
        large, small = m.maximum(a, b), m.minimum(a, b)
        ratio = m.where(m.equal(large, small), 1.0, small / m.where(m.equal(large, 0.0), 1.0, large))
        ratio = m.where(m.equal(large, 0.0), 0.0, ratio)
        angle = atan(m, ratio)
        angle = m.where(a > b, _HALF_PI - angle, angle)
        angle = m.where(negative_sign(m, x), _PI - angle, angle)
        angle = m.where(m.isnan(x) | m.isnan(y), np.nan, angle)
        return with_sign(m, angle, y)

    return formula


def _arctan2_onnx() -> Rule:
    exact = lowering(_arctan2_formula(atan_formula))
    single = lowering(_arctan2_formula(lambda m, r: m.node("Atan", r)))

    def rule(b: Any, y: str, x: str) -> Any:
        return exact(b, y, x) if b.dtype(y) == FLOAT64 else single(b, y, x)

    return rule


# ---------------------------------------------------------------------------------------------------------------- primitives


def _function(
    name: str,
    ufunc: Any,
    onnx: Rule | str,
    slope: Callable[[Any, Any], Any],
    domain: tuple[float, float],
    special: tuple[float, ...] = (),
) -> Any:
    edges = [Case((Sample((len(special),), values=list(special)),), smooth=False)] if special else []
    return elementwise(
        name,
        ufunc,
        dtypes=FLOATS,
        jvp=lambda output, primals, tangents: tangents[0] * slope(output, primals[0]),
        onnx=onnx,
        cases=[*unary_cases(domain), *edges],
    )


_ZERO = (0.0, -0.0, np.nan)
_ENDS = (np.inf, -np.inf, *_ZERO)
sin_p = _function("sin", np.sin, "Sin", lambda output, x: bind(cos_p, x), (-3, 3), _ENDS)
cos_p = _function("cos", np.cos, "Cos", lambda output, x: -bind(sin_p, x), (-3, 3), _ENDS)
tan_p = _function("tan", np.tan, native("Tan", _tan_formula), lambda output, x: 1 + output * output, (-1.3, 1.3), _ZERO)
arcsin_p = _function(
    "arcsin",
    np.arcsin,
    native("Asin", _asin_formula),
    lambda output, x: 1 / sqrt((1 - x) * (1 + x)),
    (-0.9, 0.9),
    (1.0, -1.0, 1.5, *_ZERO),
)
arccos_p = _function(
    "arccos",
    np.arccos,
    native("Acos", _acos_formula),
    lambda output, x: -1 / sqrt((1 - x) * (1 + x)),
    (-0.9, 0.9),
    (1.0, -1.0, 1.5, *_ZERO),
)
arctan_p = _function(
    "arctan",
    np.arctan,
    native("Atan", atan_formula),
    lambda output, x: 1 / (1 + x * x),
    (-3, 3),
    (*_ENDS, 1e-9, 1e4),
)
sinh_p = _function("sinh", np.sinh, native("Sinh", _sinh_formula), lambda output, x: bind(cosh_p, x), (-2, 2), (*_ENDS, 1e-9))
cosh_p = _function("cosh", np.cosh, native("Cosh", _cosh_formula), lambda output, x: bind(sinh_p, x), (-2, 2), _ENDS)
arcsinh_p = _function(
    "arcsinh",
    np.arcsinh,
    native("Asinh", _asinh_formula),
    lambda output, x: 1 / bind(hypot_p, x, like(x, 1)),
    (-3, 3),
    (*_ENDS, 1e-9, 1e4, -1e4),
)
arccosh_p = _function(
    "arccosh",
    np.arccosh,
    native("Acosh", _acosh_formula),
    lambda output, x: 1 / sqrt((x - 1) * (x + 1)),
    (1.2, 4),
    (1.0, 0.5, np.inf, np.nan, 1e4),
)
arctanh_p = _function(
    "arctanh",
    np.arctanh,
    native("Atanh", _atanh_formula),
    lambda output, x: 1 / ((1 - x) * (1 + x)),
    (-0.9, 0.9),
    (1.0, -1.0, 1.5, 1e-9, *_ZERO),
)

# --------------------------------------------------------------------------------------------------------- of two operands


def _nonzero(length: Any) -> Any:
    """The length, 1 where it is 0, so that slopes there are 0."""
    return where(equal(length, like(length, 0)), like(length, 1), length)


def _hypot_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    safe = _nonzero(output)
    terms = [t * (v / safe) for t, v in zip(tangents, primals, strict=True) if t is not None]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _half_precision(function: Callable[..., Any]) -> Callable[..., Array]:
    """bfloat16 has no loops of its own for some functions of NumPy."""

    def rule(*arrays: Array) -> Array:
        dtype = arrays[0].dtype
        return function(*(x.astype(half_as_single(dtype), copy=False) for x in arrays)).astype(dtype, copy=False)

    return rule


hypot_p = elementwise(
    "hypot",
    _half_precision(np.hypot),
    dtypes=FLOATS,
    jvp=_hypot_jvp,
    onnx=_hypot_onnx(),
    cases=[
        *binary_cases((0.5, 2), (-2, -0.5)),
        Case(
            (
                Sample((6,), values=[0.0, np.inf, np.nan, np.nan, 3.0, -3.0]),
                Sample((6,), values=[0.0, np.nan, -np.inf, 1.0, 4.0, 4.0]),
            ),
            smooth=False,
        ),
        Case(
            (Sample((2,), "float32", values=[3e30, 3e-30]), Sample((2,), "float32", values=[4e30, 4e-30])),
            smooth=False,
        ),
        Case(
            (
                Sample((2,), "float64", values=[3e300, 3e-300]),
                Sample((2,), "float64", values=[4e300, 4e-300]),
            ),
            smooth=False,
        ),
    ],
)


def _arctan2_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    y, x = primals
    # Each side is divided by the length, so that its square cannot overflow
    length = _nonzero(bind(hypot_p, y, x))
    terms: list[Any] = []
    if tangents[0] is not None:
        terms.append(tangents[0] * (x / length / length))
    if tangents[1] is not None:
        terms.append(tangents[1] * -(y / length / length))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


arctan2_p = elementwise(
    "arctan2",
    np.arctan2,
    dtypes=FLOATS,
    jvp=_arctan2_jvp,
    onnx=_arctan2_onnx(),
    cases=[
        *binary_cases((0.5, 2), (0.5, 2)),
        *binary_cases((-2, -0.5), (-2, -0.5)),
        Case(
            (
                Sample((12,), values=[0.0, -0.0, 1.0, 0.0, -0.0, 0.0, np.inf, -np.inf, np.inf, 1.0, np.nan, -1.0]),
                Sample(
                    (12,),
                    values=[-1.0, -1.0, 0.0, 0.0, -0.0, -0.0, np.inf, np.inf, -np.inf, -np.inf, 1.0, 0.0],
                ),
            ),
            smooth=False,
        ),
    ],
)

# --------------------------------------------------------------------------------------------------------------------- sinc


def _sinc_formula(m: Mathematics, x: Any) -> Any:
    y = _PI * m.where(m.equal(x, 0.0), 1.0, x)
    return m.where(m.equal(x, 0.0), 1.0, m.sin(y) / y)


def _sinc_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    """(cos y - sinc) / y with y = pi x; near 0, where that cancels, the series."""
    y = primals[0] * _PI
    near = less(absolute(y), like(y, 0.5))
    z = where(near, y * y, like(y, 0))
    series = y * horner(z, [(-1.0) ** (k + 1) * (2 * k + 2) / math.factorial(2 * k + 3) for k in range(8)])
    safe = where(near, like(y, 1), y)
    return tangents[0] * (_PI * where(near, series, (bind(cos_p, safe) - output) / safe))


sinc_p = elementwise(
    "sinc",
    lambda x: np.asarray(np.sinc(x.astype(half_as_single(x.dtype), copy=False)), x.dtype),
    dtypes=FLOATS,
    jvp=_sinc_jvp,
    onnx=lowering(_sinc_formula),
    cases=[*unary_cases((-0.9, 0.9)), Case((Sample((4,), values=[0.0, 1e-6, 0.1, 1.5]),), smooth=True)],
)


@implements(np.sinc)
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), 1 at 0; integers in float64."""
    x = floating(x)
    return bind(sinc_p, x)


sin = unary_function(sin_p, np.sin, doc="The sine of x radians.")
cos = unary_function(cos_p, np.cos, doc="The cosine of x radians.")
tan = unary_function(tan_p, np.tan, doc="The tangent of x radians.")
arcsin = unary_function(arcsin_p, np.arcsin, doc="The angle in [-pi/2, pi/2] radians whose sine is x; NaN outside [-1, 1].")
arccos = unary_function(arccos_p, np.arccos, doc="The angle in [0, pi] radians whose cosine is x; NaN outside [-1, 1].")
arctan = unary_function(arctan_p, np.arctan, doc="The angle in [-pi/2, pi/2] radians whose tangent is x.")
sinh = unary_function(sinh_p, np.sinh, doc="The hyperbolic sine.")
cosh = unary_function(cosh_p, np.cosh, doc="The hyperbolic cosine.")
arcsinh = unary_function(arcsinh_p, np.arcsinh, doc="The inverse of sinh.")
arccosh = unary_function(arccosh_p, np.arccosh, doc="The inverse of cosh on [0, inf); NaN below 1.")
arctanh = unary_function(arctanh_p, np.arctanh, doc="The inverse of tanh; infinite at -1 and 1, NaN beyond.")
hypot = binary_function(hypot_p, np.hypot, doc="sqrt(x**2 + y**2) without overflow; slope 0 at the origin.")
arctan2 = binary_function(
    arctan2_p,
    np.arctan2,
    doc="The angle of the point (x=second, y=first operand) in [-pi, pi] radians; slope 0 at the origin.",
)


def _scaled(factor: float, doc: str, *ufuncs: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        x = floating(x)
        dtype = dtype_of(x)[0]
        return cast(multiply(cast(x, half_as_single(dtype)), factor), dtype)

    return named(function, ufuncs[0].__name__, doc, ufuncs, None)


deg2rad = _scaled(math.pi / 180, "Degrees in radians.", np.deg2rad, np.radians)
rad2deg = _scaled(180 / math.pi, "Radians in degrees.", np.rad2deg, np.degrees)
