"""Random numbers of given distributions: uniform, normal, truncated normal, Gumbel, exponential, Bernoulli.

float16 and bfloat16 numbers are drawn in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...stage.dims import Dim, same_shape
from ...stage.dtypes import FLOAT64, INT64, DType, as_dtype, kind_rank, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Primitive
from ...stage.spec import Shape
from ...stage.trace import bind
from ...stage.tracer import Tracer
from ..arithmetic import add, add_p, multiply_p, negative, subtract, where, where_p
from ..comparison import greater, less_p
from ..extremum import clip
from ..formulas import half_as_single
from ..operands import broadcast_shapes, cast, dtype_of, operand, shape_of
from ..structure import broadcast
from .bits import stream
from .keys import as_key, float_dtype, sample_shape
from .quantiles import ndtr, ndtri
from .transforms import (
    EXPONENTIAL_BITS,
    GUMBEL_BITS,
    NORMAL_BITS,
    random_exponential_p,
    random_gumbel_p,
    random_normal_p,
)
from .words import UINT32, UINT64

_MANTISSA: Final = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_LEAST_TAIL: Final = 1e-300


def _arguments(what: str, key: Any, shape: Any, dtype: Any) -> tuple[Any, Shape, DType]:
    return as_key(what, key), sample_shape(what, shape), float_dtype(what, as_dtype(dtype))


def _integers(key: Any, shape: Shape, dtype: DType, bits: int) -> Any:
    """Random integers that a draw in a dtype starts from: of 32 bits, or for float64 of so many."""
    return stream(key, shape, bits, INT64) if dtype == FLOAT64 else stream(key, shape, 32, UINT32)


def _scaled(integers: Any, dtype: DType, bits: int) -> Any:
    """Integers below 2**bits as multiples of 2**-bits."""
    return bind(multiply_p, cast(integers, dtype), np.asarray(2.0**-bits, dtype))


def _parameter(what: str, name: str, value: Any, shape: Shape, dtype: DType) -> Any:
    """A parameter of a distribution, which may be an array that broadcasts to the shape of the draw."""
    x = operand(value, f"{what}: {name}")
    x = np.asarray(x, dtype) if isinstance(x, bool | int | float) else cast(x, dtype)
    try:
        fits = same_shape(broadcast_shapes(shape_of(x), shape, what=what), shape)
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"{what}: {name} of shape {list(shape_of(x))} does not broadcast to the shape {list(shape)} that is drawn")
    return x


def _all_known(*xs: Any) -> bool:
    return not any(isinstance(x, Tracer | Dim) for x in xs)


# ------------------------------------------------------------------------------------------------------------------- uniform


def uniform(key: Any, shape: Any = (), dtype: Any = np.float64, minval: Any = 0, maxval: Any = 1) -> Any:
    """Numbers uniformly distributed in [minval, maxval), on a grid of 2**-p of that interval, p the bits of the dtype's mantissa.

    minval, maxval: numbers or arrays that broadcast to `shape`, which may be traced; the derivatives are 1 - u and u for the underlying u in
    [0, 1). What rounding would put onto maxval becomes minval. Where the two are equal, minval. The same bit for bit in every runtime.
    Raises ValueError for minval > maxval, if known, OverflowError for bounds too far apart, TypeError for a dtype that is not floating.
    """
    key, shape, wanted = _arguments("uniform", key, shape, dtype)
    work, bits = half_as_single(wanted), _MANTISSA[wanted.name]
    u = _scaled(stream(key, shape, bits, INT64 if bits > 32 else UINT32), work, bits)
    if type(minval) in (int, float) and minval == 0 and type(maxval) in (int, float) and maxval == 1:
        return cast(u, wanted)
    low, high = (_parameter("uniform", n, x, shape, work) for n, x in (("minval", minval), ("maxval", maxval)))
    if _all_known(low, high):
        _check_bounds(low, high)
    value = cast(add(bind(multiply_p, u, subtract(high, low)), low), wanted)
    low, high = cast(low, wanted), cast(high, wanted)
    return bind(where_p, bind(less_p, value, high), value, broadcast(low, shape))


def _check_bounds(low: Any, high: Any) -> None:
    if not np.all(low <= high):
        raise ValueError(f"uniform: minval {low} is not at most maxval {high}")
    with np.errstate(all="ignore"):
        if not np.all(np.isfinite(high - low)):
            raise OverflowError(f"uniform: the interval from {low} to {high} is not finite in its dtype")


# ------------------------------------------------------------------------------------------------- normal, exponential, gumbel


def normal(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of the standard normal distribution; `mean + deviation * normal(key)` has derivatives in mean and deviation.

    They reach 8.5 deviations in float64 and 6.7 in the other dtypes. The same in every runtime to 4 units in the last place.
    """
    key, shape, wanted = _arguments("normal", key, shape, dtype)
    work = half_as_single(wanted)
    if work != FLOAT64:
        return cast(bind(random_normal_p, stream(key, shape, 64, UINT64), dtype=work), wanted)
    words = stream(key, (2, *shape), NORMAL_BITS, INT64)
    return bind(random_normal_p, words[0], words[1], dtype=FLOAT64)


def exponential(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of the exponential distribution of mean 1, from 0 to 36.7 in float64 and 22.2 in the other dtypes."""
    return _transformed("exponential", random_exponential_p, EXPONENTIAL_BITS, key, shape, dtype)


def gumbel(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of the standard Gumbel distribution, -log(-log(u)): the largest of `log p + gumbel` falls on i with probability p[i]."""
    return _transformed("gumbel", random_gumbel_p, GUMBEL_BITS, key, shape, dtype)


def _transformed(what: str, primitive: Primitive, bits: int, key: Any, shape: Any, dtype: Any) -> Any:
    key, shape, wanted = _arguments(what, key, shape, dtype)
    work = half_as_single(wanted)
    return cast(bind(primitive, _integers(key, shape, work, bits), dtype=work), wanted)


# ---------------------------------------------------------------------------------------------------------- truncated normal


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of the standard normal distribution, given that they lie in [lower, upper]; by inversion, in float64.

    lower, upper: numbers (infinite ones too) or arrays that broadcast to `shape`, which may be traced; the derivatives are those of the quantile.
    Beyond 37 deviations the numbers are the bound that is nearer to 0. Raises ValueError for lower >= upper, if known.
    """
    key, shape, wanted = _arguments("truncated_normal", key, shape, dtype)
    low, high = (_parameter("truncated_normal", n, x, shape, FLOAT64) for n, x in (("lower", lower), ("upper", upper)))
    if _all_known(low, high) and not np.all(low < high):
        raise ValueError(f"truncated_normal: lower {low} is not below upper {high}")
    # The lower tail keeps its digits, so an interval above 0 is drawn in its mirror image
    mirrored = greater(low, np.zeros((), FLOAT64))
    first, last = where(mirrored, negative(high), low), where(mirrored, negative(low), high)
    below = ndtr(first)
    bits = GUMBEL_BITS if wanted == FLOAT64 else 32
    u = bind(add_p, _scaled(_integers(key, shape, wanted, bits), FLOAT64, bits), np.asarray(2.0 ** -(bits + 1)))
    p = add(below, bind(multiply_p, u, subtract(ndtr(last), below)))
    usable = greater(p, np.asarray(_LEAST_TAIL))
    z = where(usable, ndtri(where(usable, p, np.asarray(0.5))), last)
    z = clip(where(mirrored, negative(z), z), low, high)
    return cast(z, wanted)


# ----------------------------------------------------------------------------------------------------------------- bernoulli


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """Booleans that are true with probability p, to 2**-32. p: a number or an array, also traced; its shape is that of the draw by default.

    The same in every runtime. Raises ValueError for a known p outside [0, 1]; a traced one below 0 counts as 0, above 1 as 1, NaN as 0.
    """
    key = as_key("bernoulli", key)
    x = operand(p, "bernoulli: p")
    if kind_rank(dtype_of(x)[0]) < 1:
        raise DTypeError(f"bernoulli: p is a probability, got {short_name(dtype_of(x)[0])}")
    shape = shape_of(x) if shape is None else sample_shape("bernoulli", shape)
    chance = _parameter("bernoulli", "p", p, shape, FLOAT64)
    if _all_known(chance) and not np.all((chance >= 0) & (chance <= 1)):
        raise ValueError(f"bernoulli: p is a probability, in [0, 1], got {_some(chance, (chance >= 0) & (chance <= 1))}")
    words = cast(stream(key, shape, 32, UINT32), FLOAT64)
    return bind(less_p, words, broadcast(bind(multiply_p, chance, np.asarray(2.0**32)), shape))


def _some(x: Any, good: Any) -> Any:
    return x[~good].reshape(-1)[0]
