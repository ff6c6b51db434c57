"""From random bits to random numbers: elementwise primitives whose arithmetic is the same, step by step, in NumPy and in ONNX Runtime.

The two agree to the last bit in + - * / and sqrt but not in log, so each result hangs on one logarithm of an exactly known number, in a
well-conditioned way. Bits come as uint32 words for float32, of which there are two in a uint64, and as int64 numbers below 2**53 or 2**52 for
float64. float32 results take logarithms that were rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...stage.dtypes import FLOAT32, FLOAT64, INT64, DType
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..along_axis import batch_all
from ..formulas import NumpyMath, OnnxMath, horner
from .words import UINT32, UINT64

NORMAL_BITS: Final = 53
EXPONENTIAL_BITS: Final = 53
GUMBEL_BITS: Final = 52


class _NumpyMath(NumpyMath):
    """NumPy's float32 logarithm is off by up to 4 units in the last place; the float64 one, rounded, by half a unit."""

    log = staticmethod(lambda x: np.log(x, dtype=np.float64).astype(x.dtype))  # pyright: ignore


# -------------------------------------------------------------------------------------------------------------------- normal

_SINE: Final = (
    3.141592653589793,
    -5.167712780049969,
    2.5501640398773007,
    -0.5992645293189447,
    0.0821458865731029,
    -0.007370430505916944,
    0.0004662998161898394,
    -2.1903497074626018e-05,
    7.697826768224191e-07,
)
"""sin(pi t) / t in t^2, |t| <= 1/2: the interpolant at Chebyshev's points, within 4e-19 of it."""

_SINE_SINGLE: Final = (
    3.141592653536132,
    -5.167712764593,
    2.550163317938427,
    -0.599252186531583,
    0.08205035020147247,
    -0.007028303855203096,
)
"""The same within 3e-11."""


def _normal(m: Any, v: Any, t: Any) -> Any:
    """Box and Muller's method: v uniform in (0, 1], t in (-1/2, 1/2). sin(pi t) is distributed as the sine of an angle all around."""
    return m.sqrt(m.log(v) * -2.0) * (t * horner(t * t, _SINE if m.dtype == FLOAT64 else _SINE_SINGLE))


def _normal_numpy(*words: Array, dtype: DType) -> Array:
    if len(words) == 1:
        radius = (words[0] >> np.uint64(32)).astype(dtype)
        angle = ((words[0] & np.uint64(0xFFFFFFFF)).astype(INT64) - (1 << 31)).astype(dtype)
        scale = 2.0**-32
    else:
        radius, angle = words[0].astype(dtype), (words[1] - (1 << 52)).astype(dtype)
        scale = 2.0**-NORMAL_BITS
    return _normal(_NumpyMath(dtype), (radius + 1.0) * scale, (angle + 0.5) * scale)


def _normal_onnx(b: Any, *words: str, dtype: DType) -> str:
    m = OnnxMath(b, dtype)
    if len(words) == 1:
        # ONNX Runtime's cast from uint64 to floats is slow, those from uint32 and int64 are not
        radius = b.cast(b.op("Div", words[0], b.const(1 << 32, UINT64)), UINT32)
        angle = b.op("Sub", b.cast(b.cast(words[0], UINT32), INT64), b.const(1 << 31, INT64))
        scale = 2.0**-32
    else:
        radius, angle = words[0], b.op("Sub", words[1], b.const(1 << 52, INT64))
        scale = 2.0**-NORMAL_BITS
    v, t = ((m.value(b.cast(x, dtype)) + shift) * scale for x, shift in ((radius, 1.0), (angle, 0.5)))
    return _normal(m, v, t).name


def _from_bits(name: str, numpy: Callable[..., Any], onnx: Callable[..., Any], cases: list[Case]) -> Primitive:
    """An elementwise primitive from integers, of one shape, to numbers of a floating `dtype`."""

    def abstract(*words: ArraySpec, dtype: DType) -> ArraySpec:
        return make_spec(words[0].shape, dtype)

    def batch(ctx: Any, args: Any, axes: Any, /, *, dtype: DType) -> Any:
        return bind(made, *batch_all(args, axes, ctx.size), dtype=dtype), 0

    made = Primitive(
        name,
        abstract=abstract,
        numpy=numpy,
        nondifferentiable="random bits are integers",
        batch=batch,
        onnx=onnx,
        cases=cases,
        elementwise=True,
    )
    return made


def _draws(dtype: str, values: list[int], kind: str, *others: list[int]) -> Case:
    samples = tuple(Sample((len(v),), kind, values=v) for v in (values, *others))
    return Case(samples, {"dtype": np.dtype(dtype)}, named=(("B",),) * len(samples))


_SPREAD = [0, 1, 2**31, 2**32 - 1, 2654435769, 1580030168, 77]
_WIDE = [0, 2**52 - 1, 2**52, 2**53 - 1, 6369051672525773, 1234567, 4503599627370000]

random_normal_p = _from_bits(
    "random_normal",
    _normal_numpy,
    _normal_onnx,
    [
        _draws("float32", [w << 32 | v for w, v in zip(_SPREAD, reversed(_SPREAD), strict=True)], "uint64"),
        _draws("float64", _WIDE, "int64", _WIDE[::-1]),
        Case((Sample((0,), "uint64"),), {"dtype": np.dtype("float32")}),
        Case((Sample((), "uint64", values=2**63 + 5),), {"dtype": np.dtype("float32")}),
    ],
)

# --------------------------------------------------------------------------------------------------------------- exponential


def _exponential(m: Any, v: Any) -> Any:
    return m.abs(m.log(v))


def _exponential_numpy(word: Array, *, dtype: DType) -> Array:
    return _exponential(_NumpyMath(dtype), (word.astype(dtype) + 1.0) * _unit(word.dtype, EXPONENTIAL_BITS))


def _exponential_onnx(b: Any, word: str, *, dtype: DType) -> str:
    m = OnnxMath(b, dtype)
    scale = _unit(b.dtype(word), EXPONENTIAL_BITS)
    return _exponential(m, (m.value(b.cast(word, dtype)) + 1.0) * scale).name


def _unit(dtype: DType, bits: int) -> float:
    return 2.0**-32 if dtype == UINT32 else 2.0**-bits


random_exponential_p = _from_bits(
    "random_exponential",
    _exponential_numpy,
    _exponential_onnx,
    [
        _draws("float32", _SPREAD, "uint32"),
        _draws("float64", _WIDE, "int64"),
        Case((Sample((), "uint32", values=5),), {"dtype": FLOAT32}),
    ],
)

# -------------------------------------------------------------------------------------------------------------------- gumbel

_CENTRE, _CENTRE_EXPONENTIAL, _CENTRE_RATIO = 0.21, 1.5606477482646683, 3.27
_ATANH: Final = (
    2.0,
    0.666666666666801,
    0.39999999996947927,
    0.28571428843837987,
    0.2222220957722288,
    0.18182168413410127,
    0.1537836104687608,
    0.13408679373411342,
    0.11137348097651065,
    0.14163135105820335,
    -0.05006945200950758,
    0.4737432167886024,
    -0.5542459970403286,
    0.597979848043115,
)
"""2 atanh(s) / s in s^2 up to 0.285: the interpolant at Chebyshev's points, within 6e-17 of it."""


def _gumbel(m: Any, v: Any) -> Any:
    """-log(e) for e = -log(v). Where that is small the rounding of e counts most, so there e is the same everywhere, of + - * / alone."""
    centre = (v > _CENTRE / _CENTRE_RATIO) & (v < _CENTRE * _CENTRE_RATIO)
    s = m.where(centre, (v - _CENTRE) / (v + _CENTRE), 0.0)
    e = m.where(centre, _CENTRE_EXPONENTIAL - s * horner(s * s, _ATANH), -m.log(v))
    return -m.log(e)


def _gumbel_numpy(word: Array, *, dtype: DType) -> Array:
    v = (word.astype(FLOAT64) + 0.5) * _unit(word.dtype, GUMBEL_BITS)
    if word.dtype == UINT32:
        return (-np.log(-np.log(v))).astype(dtype)
    return np.asarray(_gumbel(NumpyMath(FLOAT64), v)).astype(dtype)


def _gumbel_onnx(b: Any, word: str, *, dtype: DType) -> str:
    # In float64 for float32 too: what is lost around the zero is then far below its last place
    m = OnnxMath(b, FLOAT64)
    v = (m.value(b.cast(word, FLOAT64)) + 0.5) * _unit(b.dtype(word), GUMBEL_BITS)
    result = -m.log(-m.log(v)) if b.dtype(word) == UINT32 else _gumbel(m, v)
    return b.cast(result.name, dtype)


random_gumbel_p = _from_bits(
    "random_gumbel",
    _gumbel_numpy,
    _gumbel_onnx,
    [
        _draws("float32", _SPREAD, "uint32"),
        _draws(
            "float64",
            [0, 2**52 - 1, 2**51, 1656780000000000, 1656781914307654, 77, 3300000000000000],
            "int64",
        ),
        Case((Sample((), "uint32", values=5),), {"dtype": FLOAT32}),
    ],
)
