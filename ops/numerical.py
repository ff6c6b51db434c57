"""Numerical recipes of NumPy made of other operations: trapezoid, gradient, interp, digitize, cov, corrcoef, polyval, vander, unwrap."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import FLOAT64, INT64, is_float, promote
from ..stage.errors import ShapeError, UnsupportedError
from ..stage.spec import DimLike
from ..stage.trace import bind
from .along_axis import take_along_axis_p
from .arguments import array_of, array_operand, listed, size_of
from .arithmetic import add, divide_p, multiply, subtract, true_divide, where
from .comparison import equal, greater, less, logical_and
from .creation import iota
from .cumulative import cumsum, diff
from .division import remainder
from .exponential import sqrt
from .extremum import clip, maximum, minimum
from .floating_point import absolute
from .joining import concatenate, join, stack
from .matmul import matmul
from .operands import cast, dtype_of, normalize_axis, promoted, shape_of
from .reductions import sum as sum_
from .registry import implements
from .slicing import reverse, slice_axis
from .sorting import searchsorted
from .statistics import mean
from .structure import broadcast, reshape_p, transpose_p


def _as_float(a: Any, what: str) -> Any:
    x = array_operand(a, what)
    return x if is_float(dtype_of(x)[0]) else cast(x, FLOAT64)


def _spread(x: Any, axis: int, ndim: int) -> Any:
    """A 1-d array along one of several axes."""
    return bind(reshape_p, x, shape=tuple(size_of(x) if i == axis else 1 for i in range(ndim)))


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    """The integral along an axis by the trapezoidal rule, at points `x` (1-d or of the shape of y) or at distances dx."""
    values = _as_float(y, "trapezoid")
    place = normalize_axis(axis, len(shape_of(values)))
    if x is None:
        widths: Any = array_operand(dx, "trapezoid: dx")
    else:
        points = array_operand(x, "trapezoid: x")
        if len(shape_of(points)) == 1:
            widths = _spread(diff(points), place, len(shape_of(values)))
        else:
            widths = diff(points, axis=place)
    heights = add(slice_axis(values, place, 1, None), slice_axis(values, place, None, -1))
    return sum_(multiply(multiply(widths, heights), 0.5), place)


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    """Differences along each axis: central inside, one-sided of first or second order at the edges.

    varargs: one distance for all axes, or one an axis; a 1-d array gives the points themselves. A list where several axes are asked for.
    """
    x = _as_float(f, "gradient")
    ndim = len(shape_of(x))
    axes = [normalize_axis(i, ndim) for i in (range(ndim) if axis is None else listed(axis))]
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError("invalid number of arguments")
    steps = [1.0] * len(axes) if not varargs else list(varargs) * (len(axes) if len(varargs) == 1 else 1)
    results = [_gradient_along(x, i, array_operand(h, "gradient"), edge_order) for i, h in zip(axes, steps, strict=True)]
    return results[0] if len(results) == 1 else tuple(results)


def _gradient_along(x: Any, axis: int, step: Any, edge_order: int) -> Any:
    size = shape_of(x)[axis]
    if not isinstance(size, Dim) and size < edge_order + 1:
        raise ValueError("Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required.")
    x, step = promoted(x, step, strong=True)
    if isinstance(size, Dim):
        return _gradient_of_any_size(x, axis, size, step, edge_order)

    def part(start: DimLike | None, stop: DimLike | None) -> Any:
        return slice_axis(x, axis, start, stop)

    if len(shape_of(step)) == 0:
        inside = true_divide(subtract(part(2, None), part(None, -2)), multiply(step, 2.0))
        if edge_order == 1:
            first = true_divide(subtract(part(1, 2), part(0, 1)), step)
            last = true_divide(subtract(part(-1, None), part(-2, -1)), step)
        else:
            double = multiply(step, 2.0)
            first = true_divide(subtract(subtract(multiply(part(1, 2), 4.0), multiply(part(0, 1), 3.0)), part(2, 3)), double)
            last = true_divide(
                add(subtract(multiply(part(-1, None), 3.0), multiply(part(-2, -1), 4.0)), part(-3, -2)),
                double,
            )
        return join([first, inside, last], axis)
    if len(shape_of(step)) != 1 or edge_order == 2:
        raise UnsupportedError("gradient: points that are not evenly spaced are supported as 1-d arrays with edge_order=1")
    gaps = _spread(diff(step), axis, len(shape_of(x)))
    before, after = slice_axis(gaps, axis, None, -1), slice_axis(gaps, axis, 1, None)
    # The parabola through three points
    a = true_divide(multiply(after, -1.0), multiply(before, add(before, after)))
    b = true_divide(subtract(after, before), multiply(before, after))
    c = true_divide(before, multiply(after, add(before, after)))
    inside = add(add(multiply(a, part(None, -2)), multiply(b, part(1, -1))), multiply(c, part(2, None)))
    first = true_divide(subtract(part(1, 2), part(0, 1)), slice_axis(gaps, axis, 0, 1))
    last = true_divide(subtract(part(-1, None), part(-2, -1)), slice_axis(gaps, axis, -1, None))
    return join([first, inside, last], axis)


def _gradient_of_any_size(x: Any, axis: int, size: Dim, step: Any, edge_order: int) -> Any:
    """Each element's neighbours, itself at the ends, by index: so that the size is seen to stay the same."""
    if len(shape_of(step)) or edge_order == 2:
        raise UnsupportedError("gradient: along an axis of unknown size one distance and edge_order=1 are supported")
    here = iota(size)
    lower, upper = maximum(subtract(here, 1), 0), minimum(add(here, 1), array_of(size - 1, INT64))
    shape = shape_of(x)

    def at(places: Any) -> Any:
        return bind(take_along_axis_p, x, broadcast(_spread(places, axis, len(shape)), shape), axis=axis)

    distance = multiply(_spread(cast(subtract(upper, lower), dtype_of(x)[0]), axis, len(shape)), step)
    return true_divide(subtract(at(upper), at(lower)), distance)


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The index of the bin each value lies in; `bins` rise, or fall if they are known to."""
    edges = array_operand(bins, "digitize: bins")
    side = "left" if right else "right"
    if isinstance(edges, np.ndarray) and edges.size > 1 and bool(np.all(edges[1:] <= edges[:-1])) and bool(edges[0] != edges[-1]):
        return subtract(edges.size, searchsorted(edges[::-1].copy(), x, "right" if right else "left"))
    return searchsorted(edges, x, side)


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Values at x of the piecewise linear function through the points (xp, fp), xp rising; beyond the ends `left` and `right`."""
    if period is not None:
        raise UnsupportedError("interp: period= is not supported on traced arrays")
    at, points, values = (array_of(v, FLOAT64, "interp") for v in (x, xp, fp))
    if len(shape_of(points)) != 1 or len(shape_of(values)) != 1:
        raise ValueError("object too deep for desired array")
    shape = shape_of(at)
    flat = bind(reshape_p, at, shape=(size_of(at),))
    count = array_of(size_of(points), INT64)
    upper = clip(searchsorted(points, flat, "right"), 1, maximum(subtract(count, 1), 0))
    lower = maximum(subtract(upper, 1), 0)
    x0, x1 = _pick(points, lower), _pick(points, upper)
    y0, y1 = _pick(values, lower), _pick(values, upper)
    width = subtract(x1, x0)
    flatness = equal(width, 0.0)
    slope = where(flatness, 0.0, bind(divide_p, subtract(y1, y0), where(flatness, 1.0, width)))
    inside = add(y0, multiply(slope, subtract(flat, x0)))
    first, last = _pick(points, np.zeros(1, np.int64)), _pick(points, -np.ones(1, np.int64))
    low = _pick(values, np.zeros(1, np.int64)) if left is None else array_of(left, FLOAT64)
    high = _pick(values, -np.ones(1, np.int64)) if right is None else array_of(right, FLOAT64)
    result = where(
        less(flat, first),
        low,
        where(greater(flat, last), high, where(equal(flat, last), _pick(values, -np.ones(1, np.int64)), inside)),
    )
    return bind(reshape_p, result, shape=shape)


def _pick(x: Any, places: Any) -> Any:
    return bind(take_along_axis_p, x, places, axis=0)


def _rows(m: Any, y: Any, rowvar: bool) -> Any:
    x = _as_float(m, "cov")
    if len(shape_of(x)) > 2:
        raise ValueError("m has more than 2 dimensions")

    def as_rows(a: Any) -> Any:
        if len(shape_of(a)) < 2:
            return bind(reshape_p, a, shape=(1, size_of(a)))
        return a if rowvar else bind(transpose_p, a, permutation=(1, 0))

    return as_rows(x) if y is None else concatenate([as_rows(x), as_rows(_as_float(y, "cov"))], 0)


@implements(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """The covariance matrix of variables in rows (columns if not rowvar), divided by their number less ddof (1; 0 with bias)."""
    if fweights is not None or aweights is not None:
        raise UnsupportedError("cov: weights are not supported on traced arrays")
    rows = _rows(m, y, rowvar)
    rows = rows if dtype is None else array_of(rows, np.dtype(dtype))
    less_by = (0 if bias else 1) if ddof is None else ddof
    centered = subtract(rows, mean(rows, 1, keepdims=True))
    count = array_of(shape_of(rows)[1] - less_by, dtype_of(rows)[0])
    result = true_divide(matmul(centered, bind(transpose_p, centered, permutation=(1, 0))), count)
    return bind(reshape_p, result, shape=()) if shape_of(rows)[0] == 1 else result


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The matrix of correlation coefficients of variables in rows."""
    c = cov(x, y, rowvar, dtype=dtype)
    if len(shape_of(c)) == 0:
        return true_divide(c, c)
    n = shape_of(c)[0]
    places = np.arange(n)[:, None] if not isinstance(n, Dim) else None
    if places is None:
        raise ShapeError("corrcoef: the number of variables must be known")
    deviation = sqrt(bind(reshape_p, bind(take_along_axis_p, c, places, axis=1), shape=(n,)))
    scaled = true_divide(true_divide(c, bind(reshape_p, deviation, shape=(n, 1))), bind(reshape_p, deviation, shape=(1, n)))
    return clip(scaled, -1, 1)


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """The polynomial with coefficients p, the highest power first, at x."""
    coefficients = array_operand(p, "polyval")
    result: Any = multiply(array_operand(x, "polyval"), 0)
    for i in range(shape_of(coefficients)[0].__index__()):
        result = add(multiply(result, x), bind(reshape_p, slice_axis(coefficients, 0, i, i + 1), shape=()))
    return result


@implements(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """The matrix [len(x), N] of powers of x, falling from N - 1 to 0 unless increasing."""
    values = array_operand(x, "vander")
    values = cast(values, promote([(dtype_of(values)[0], False), (INT64, False)])[0])
    if len(shape_of(values)) != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    count = (shape_of(values)[0] if N is None else N).__index__()
    columns = [broadcast(np.ones((), dtype_of(values)[0]), shape_of(values))]
    for _ in range(count - 1):
        columns.append(multiply(columns[-1], values))
    if count == 0:
        return broadcast(np.ones((), dtype_of(values)[0]), (*shape_of(values), 0))
    matrix = stack(columns, 1)
    return matrix if increasing else reverse(matrix, (1,))


@implements(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: Any = -1, *, period: Any = 2 * np.pi) -> Any:
    """Jumps along an axis of more than `discont` (half a period) taken out by adding whole periods."""
    x = _as_float(p, "unwrap")
    place = normalize_axis(axis, len(shape_of(x)))
    half = period / 2
    jumps = diff(x, axis=place)
    wrapped = subtract(remainder(add(jumps, half), period), half)
    wrapped = where(logical_and(equal(wrapped, -half), greater(jumps, 0)), half, wrapped)
    correction = subtract(wrapped, jumps)
    correction = where(less(absolute(jumps), half if discont is None else discont), 0.0, correction)
    return join([slice_axis(x, place, 0, 1), add(slice_axis(x, place, 1, None), cumsum(correction, place))], place)
