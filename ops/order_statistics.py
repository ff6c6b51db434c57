"""Order statistics: median, quantile, percentile and what leaves NaN out of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import product
from ..stage.dtypes import FLOAT64, INT64, is_float
from ..stage.errors import UnsupportedError
from ..stage.trace import bind
from .along_axis import take_along_axis_p
from .arguments import array_of, array_operand, no_out
from .arithmetic import add, divide_p, multiply, subtract, where_p
from .comparison import equal_p, not_equal_p
from .extremum import maximum
from .operands import cast, dtype_of, normalize_axes, shape_of
from .reductions import keep, reduce_or_p
from .registry import implements
from .rounding import ceil, floor, rint
from .sorting import sort
from .structure import broadcast, move_axis, reduce_sum_p, reduced_shape, reshape_p, transpose_p

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _sorted_last(x: Any, axes: tuple[int, ...]) -> Any:
    """x with the reduced axes as one last axis, sorted along it."""
    shape = shape_of(x)
    others = tuple(i for i in range(len(shape)) if i not in axes)
    moved = bind(transpose_p, x, permutation=(*others, *axes))
    flat = bind(reshape_p, moved, shape=(*(shape[i] for i in others), product([shape[i] for i in axes])))
    return sort(flat, -1)


def _at(x: Any, place: Any) -> Any:
    """The elements of the last axis at one place, a traced or known integer."""
    shape = shape_of(x)
    places = broadcast(bind(reshape_p, place, shape=(1,) * len(shape)), (*shape[:-1], 1))
    return bind(reshape_p, bind(take_along_axis_p, x, places, axis=len(shape) - 1), shape=shape[:-1])


def _nan_where_any(value: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """NaN where an element that went into the value is."""
    has_nan = bind(reduce_or_p, bind(not_equal_p, x, x), axes=axes, keepdims=False)
    return bind(where_p, has_nan, np.asarray(np.nan, dtype_of(value)[0]), value)


def _as_float(a: Any, what: str) -> Any:
    x = array_operand(a, what)
    return x if is_float(dtype_of(x)[0]) else cast(x, FLOAT64)


@implements(np.median)
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """The middle element over axes, or the mean of the two middle ones; NaN if there is one."""
    no_out(out, "median")
    x = _as_float(a, "median")
    axes = normalize_axes(axis, len(shape_of(x)))
    count = product([shape_of(x)[i] for i in axes])
    dtype = dtype_of(x)[0]
    if type(count) is int and count == 0:
        shape = reduced_shape(shape_of(x), axes, bool(keepdims))
        return broadcast(np.asarray(np.nan, dtype), shape)
    ordered = _sorted_last(x, axes)
    lower, upper = (_at(ordered, array_of(place, INT64)) for place in ((count - 1) // 2, count // 2))
    half = np.asarray(0.5, dtype)
    # Halved first: the sum of two large elements could overflow.
    value = _nan_where_any(add(multiply(lower, half), multiply(upper, half)), x, axes)
    return keep(value, shape_of(x), axes, False) if keepdims else value


@implements(np.quantile)
def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear", keepdims: Any = False,
    *, weights: Any = None,
) -> Any:  # fmt: skip
    """The q-th quantiles over axes (q in [0, 1], its axes come first), by the methods linear, lower, higher, midpoint and nearest.

    Raises ValueError for a known q out of range, UnsupportedError for other methods and for weights.
    """
    no_out(out, "quantile")
    if method not in _METHODS or weights is not None:
        raise UnsupportedError(f"quantile: method={method!r} or weights are not supported on traced arrays; methods: {', '.join(_METHODS)}")
    x = _as_float(a, "quantile")
    axes = normalize_axes(axis, len(shape_of(x)))
    fractions = array_of(q, FLOAT64, "quantile: q")
    if isinstance(fractions, np.ndarray) and not np.all((fractions >= 0) & (fractions <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    ordered = _sorted_last(x, axes)
    *rest, size = shape_of(ordered)
    dtype = dtype_of(x)[0]
    q_shape = shape_of(fractions)
    flat = bind(reshape_p, fractions, shape=(product(q_shape),))
    place = multiply(flat, array_of(size - 1, FLOAT64))
    below, above = floor(place), ceil(place)
    if method == "nearest":
        below = above = rint(place)
    elif method == "lower":
        above = below
    elif method == "higher":
        below = above
    lower, upper = (_gather_last(ordered, cast(p, INT64)) for p in (below, above))
    if method == "midpoint":
        value = multiply(add(lower, upper), np.asarray(0.5, dtype))
    elif method == "linear":
        value = add(lower, multiply(subtract(upper, lower), cast(subtract(place, below), dtype)))
    else:
        value = lower
    value = move_axis(value, len(rest), 0)
    has_nan = bind(reduce_or_p, bind(not_equal_p, x, x), axes=axes, keepdims=False)
    value = bind(where_p, has_nan, np.asarray(np.nan, dtype), value)
    shape = reduced_shape(shape_of(x), axes, bool(keepdims))
    return bind(reshape_p, value, shape=(*q_shape, *shape))


def _gather_last(x: Any, places: Any) -> Any:
    """The elements of the last axis at each of several places."""
    *rest, _ = shape_of(x)
    (count,) = shape_of(places)
    wide = broadcast(bind(reshape_p, places, shape=(*(1,) * len(rest), count)), (*rest, count))
    return bind(take_along_axis_p, x, wide, axis=len(rest))


@implements(np.percentile)
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear", keepdims: Any = False,
    *, weights: Any = None,
) -> Any:  # fmt: skip
    """`quantile` with q in [0, 100]."""
    fractions = bind(divide_p, array_of(q, FLOAT64, "percentile: q"), np.asarray(100.0))
    if isinstance(fractions, np.ndarray) and not np.all((fractions >= 0) & (fractions <= 1)):
        raise ValueError("Percentiles must be in the range [0, 100]")
    return quantile(a, fractions, axis, out, overwrite_input, method, keepdims, weights=weights)


def _counted(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """The reduced axes sorted along a last one, NaN at its end, and how many are not NaN, as float64 [..., 1]."""
    ordered = _sorted_last(x, axes)
    last = len(shape_of(ordered)) - 1
    valid = cast(bind(equal_p, ordered, ordered), FLOAT64)
    return ordered, bind(reduce_sum_p, valid, axes=(last,), keepdims=True)


@implements(np.nanquantile)
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear", keepdims: Any = False,
    *, weights: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of the elements that are not NaN, by the method "linear"; NaN where there are none."""
    no_out(out, "nanquantile")
    if method != "linear" or weights is not None:
        raise UnsupportedError(f"nanquantile: method={method!r} or weights are not supported on traced arrays; the method is linear")
    x = _as_float(a, "nanquantile")
    axes = normalize_axes(axis, len(shape_of(x)))
    fractions = array_of(q, FLOAT64, "nanquantile: q")
    if isinstance(fractions, np.ndarray) and not np.all((fractions >= 0) & (fractions <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    ordered, count = _counted(x, axes)
    *rest, _ = shape_of(ordered)
    q_shape = shape_of(fractions)
    flat = bind(reshape_p, fractions, shape=(*(1,) * len(rest), product(q_shape)))
    # Where all are NaN the first element is, so NaN is what is taken.
    place = maximum(multiply(flat, subtract(count, np.asarray(1.0))), np.asarray(0.0))
    below = floor(place)
    axis_last = len(rest)
    lower, upper = (bind(take_along_axis_p, ordered, cast(p, INT64), axis=axis_last) for p in (below, ceil(place)))
    value = add(lower, multiply(subtract(upper, lower), cast(subtract(place, below), dtype_of(x)[0])))
    return bind(
        reshape_p,
        move_axis(value, axis_last, 0),
        shape=(*q_shape, *reduced_shape(shape_of(x), axes, bool(keepdims))),
    )


@implements(np.nanpercentile)
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear", keepdims: Any = False,
    *, weights: Any = None,
) -> Any:  # fmt: skip
    """`nanquantile` with q in [0, 100]."""
    fractions = bind(divide_p, array_of(q, FLOAT64, "nanpercentile: q"), np.asarray(100.0))
    return nanquantile(a, fractions, axis, out, overwrite_input, method, keepdims, weights=weights)


@implements(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """The median of the elements that are not NaN; NaN where there are none."""
    return nanquantile(a, 0.5, axis, out, keepdims=keepdims)
