"""Histograms: np.histogram, histogram2d, histogramdd and the edges of their bins.

Edges may hang on the data, as those of `bins=10` do; how many there are may not: names of estimators ("auto", ...) need
the data while tracing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import FLOAT64, INT64, is_float
from ..stage.errors import ConcretizationError, UnsupportedError
from ..stage.narrowing import is_array, is_sequence
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .arguments import array_operand, listed, size_of
from .arithmetic import add, multiply, subtract, true_divide, where
from .comparison import equal, greater, less, logical_and
from .creation import linspace
from .cumulative import diff
from .joining import unstack
from .operands import cast, dtype_of, operand, promoted, shape_of
from .reductions import max as max_
from .reductions import min as min_
from .reductions import sum as sum_
from .registry import implements
from .selection import bincount
from .slicing import slice_axis
from .sorting import searchsorted
from .structure import reshape_p

_UINT8 = np.dtype(np.uint8)


def _flat(x: Any) -> Any:
    return bind(reshape_p, x, shape=(size_of(x),))


def _data(a: Any, what: str) -> Any:
    x = _flat(array_operand(a, what))
    # NumPy counts booleans as uint8.
    return cast(x, _UINT8) if dtype_of(x)[0].kind == "b" else x


def _is_empty(x: Any) -> bool:
    size = size_of(x)
    return not isinstance(size, Dim) and size == 0


def _ends(x: Any, range: Any) -> tuple[Any, Any]:
    """The first and the last edge; a width of none is widened by one half either way."""
    if range is not None:
        first, last = (operand(v) for v in range)
        if not isinstance(first, Tracer) and not isinstance(last, Tracer):
            if first > last:
                raise ValueError("max must be larger than min in range parameter.")
            if not (np.isfinite(first) and np.isfinite(last)):
                raise ValueError(f"supplied range of [{first}, {last}] is not finite")
            return (first - 0.5, last + 0.5) if first == last else (first, last)
    elif _is_empty(x):
        return 0.0, 1.0
    else:
        first, last = min_(x), max_(x)
    same = equal(first, last)
    return where(same, subtract(first, 0.5), first), where(same, add(last, 0.5), last)


def _count_of(bins: Any, what: str) -> int | None:
    """How many bins are wanted; None where their edges are given."""
    if isinstance(bins, str):
        raise ConcretizationError(
            f"{what}: bins={bins!r} finds their number from the data, which is known only when the program runs; give a number or edges"
        )
    if isinstance(bins, Tracer) and len(bins.shape):
        return None
    if isinstance(bins, Tracer):
        raise ConcretizationError(f"{what}: the number of bins is traced, but a constant is needed")
    if np.ndim(bins):
        return None
    count = bins.__index__()
    if count < 1:
        raise ValueError("`bins` must be positive, when an integer")
    return count


def _given_edges(bins: Any, what: str) -> Any:
    edges = array_operand(bins, what)
    if len(shape_of(edges)) != 1:
        raise ValueError("`bins` must be 1d, when an array")
    if is_array(edges) and bool(np.any(edges[:-1] > edges[1:])):
        raise ValueError("`bins` must increase monotonically, when an array")
    return edges


def _edges(x: Any, bins: Any, range: Any, what: str) -> Any:
    count = _count_of(bins, what)
    if count is None:
        return _given_edges(bins, what)
    first, last = _ends(x, range)
    dtype = dtype_of(promoted(first, last, x, strong=True)[0])[0]
    dtype = dtype if is_float(dtype) else FLOAT64
    return linspace(first, last, count + 1, dtype=dtype)


def _bin_of(x: Any, edges: Any) -> Any:
    """The number of the half-open bin of each value, the last edge being in the last; -1 before the first, the count beyond."""
    size = shape_of(edges)[0]
    x, edges = promoted(x, edges, strong=True)
    place = subtract(searchsorted(edges, x, "right"), 1)
    last = slice_axis(edges, 0, -1, None)
    return where(equal(x, last), operand(size - 2), place)


def _bin_count(edges: Any, what: str) -> int:
    size = shape_of(edges)[0]
    if isinstance(size, Dim):
        raise UnsupportedError(f"{what}: the number of edges must be known, got {size}")
    return size - 1


def _tally(place: Any, inside: Any, count: int, weights: Any) -> Any:
    """Sums of weights, or how many there are, over the values inside: [count]."""
    totals = bincount(where(inside, place, count), weights, length=count + 1)
    return slice_axis(totals, 0, 0, count)


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges [bins + 1] of evenly spaced bins from the smallest to the largest value, or over `range`; given edges as they are.

    Raises ConcretizationError for the name of an estimator.
    """
    return _edges(_data(a, "histogram_bin_edges"), bins, range, "histogram_bin_edges")


@implements(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Any, Any]:
    """(how many values lie in each bin, the edges): int64 or the weights' dtype [bins], and [bins + 1].

    Each bin takes its lower edge in, the last one its upper edge too. density: divided by width and total. The counts have no slope in
    the values, but in the weights.
    """
    x = _data(a, "histogram")
    edges = _edges(x, bins, range, "histogram")
    count = _bin_count(edges, "histogram")
    dtype = INT64
    if weights is not None:
        weights = array_operand(weights, "histogram: weights")
        if shape_of(weights) != shape_of(array_operand(a, "histogram")):
            raise ValueError("weights should have the same shape as a.")
        dtype, weights = dtype_of(weights)[0], _flat(weights)
    place = _bin_of(x, edges)
    inside = logical_and(greater(place, -1), less(place, count))
    counts = cast(_tally(place, inside, count, weights), dtype)
    if not density:
        return counts, edges
    widths = diff(edges)
    widths = widths if is_float(dtype_of(widths)[0]) else cast(widths, FLOAT64)
    return true_divide(true_divide(counts, widths), sum_(counts)), edges


def _columns(sample: Any) -> list[Any]:
    """One 1-d array for each dimension, of an array [n, d] or a sequence of d arrays."""
    if isinstance(sample, list | tuple):
        return [_flat(array_operand(x, "histogramdd")) for x in listed(sample)]
    x = array_operand(sample, "histogramdd")
    if len(shape_of(x)) == 1:
        return [x]
    if len(shape_of(x)) != 2:
        raise ValueError("sample must be 2-d, or a sequence of 1-d arrays")
    return list(unstack(x, axis=1))


def _wanted_bins(bins: Any, dimensions: int) -> list[Any]:
    if is_sequence(bins) or is_array(bins) or isinstance(bins, Tracer):
        wanted = list(bins)
        if len(wanted) != dimensions:
            raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
        return wanted
    return [bins] * dimensions


@implements(np.histogramdd)
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Any, list[Any]]:
    """(float64 counts with an axis for each of d dimensions, d arrays of edges) of n points: [n, d], or a sequence of d arrays.

    bins: a number for all, or one number or array of edges for each. Values on the last edge lie in the last bin.
    """
    columns = _columns(sample)
    wanted = _wanted_bins(bins, len(columns))
    ranges: Sequence[Any] = [None] * len(columns) if range is None else range
    if len(ranges) != len(columns):
        raise ValueError("range argument must have one entry per dimension")
    edges = [_edges(x, b, r, "histogramdd") for x, b, r in zip(columns, wanted, ranges, strict=True)]
    counts = [_bin_count(e, "histogramdd") for e in edges]
    flat: Any = None
    inside: Any = None
    for x, e, count in zip(columns, edges, counts, strict=True):
        place = _bin_of(x, e)
        here = logical_and(greater(place, -1), less(place, count))
        flat = place if flat is None else add(multiply(flat, count), place)
        inside = here if inside is None else logical_and(inside, here)
    weights = None if weights is None else _flat(array_operand(weights, "histogramdd: weights"))
    totals = cast(_tally(flat, inside, math.prod(counts), weights), FLOAT64)
    result = bind(reshape_p, totals, shape=tuple(counts))
    if density:
        total = sum_(totals)
        for axis, e in enumerate(edges):
            widths = diff(e)
            shape = tuple(counts[i] if i == axis else 1 for i in np.arange(len(counts)).tolist())
            result = true_divide(result, bind(reshape_p, widths, shape=shape))
        result = true_divide(result, total)
    return result, edges


@implements(np.histogram2d)
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Any, Any, Any]:
    """(float64 counts [bins of x, bins of y], edges of x, edges of y) of n points; see `histogramdd`."""
    if size_of(array_operand(x, "histogram2d")) != size_of(array_operand(y, "histogram2d")):
        raise ValueError("x and y must have the same length.")
    if not isinstance(bins, int) and len(bins) not in (1, 2):
        bins = [bins, bins]
    wanted = [bins[0], bins[0]] if not isinstance(bins, int) and len(bins) == 1 else bins
    result, edges = histogramdd([x, y], wanted, range, density, weights)
    return result, edges[0], edges[1]
