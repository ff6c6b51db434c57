"""Reductions over segments: the rows of an array that carry the same id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...stage.dims import Dim, same_dim
from ...stage.dtypes import INT64, is_float, is_integer, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.spec import DimLike
from ...stage.trace import bind
from ..arithmetic import floating, true_divide, where
from ..at import at
from ..comparison import greater_equal, less, logical_and
from ..extremum import maximum
from ..formulas import half_as_single
from ..operands import cast, dtype_of, operand, shape_of
from ..slicing import slice_axis
from ..structure import broadcast, dim_or_int, reshape_p


def segment_sum(data: Any, ids: Any, num_segments: Any) -> Any:
    """The sum of the rows of data: [n, ...] with each id: [n] of integers; [num_segments, ...], zeros where there is none.

    Rows whose id is not in [0, num_segments) are left out. num_segments may be a named dim. Booleans are counted. float16 and bfloat16
    are summed in float32. Raises TypeError for ids that are no integers, ValueError for shapes that do not fit.
    """
    data = _array("segment_sum", data)
    data = cast(data, INT64) if dtype_of(data)[0].kind == "b" else data
    dtype = dtype_of(data)[0]
    return cast(_segmented("segment_sum", cast(data, half_as_single(dtype)), ids, num_segments, 0, "add"), dtype)


def segment_mean(data: Any, ids: Any, num_segments: Any) -> Any:
    """The mean of the rows with each id; zeros where there is none. See `segment_sum`; integers are averaged in floating point."""
    data = floating(_array("segment_mean", data))
    dtype = dtype_of(data)[0]
    wide = cast(data, half_as_single(dtype))
    total = _segmented("segment_mean", wide, ids, num_segments, 0, "add")
    ones = broadcast(np.ones(1, dtype_of(wide)[0]), (shape_of(data)[0],))
    count = maximum(_segmented("segment_mean", ones, ids, num_segments, 0, "add"), np.ones((), dtype_of(wide)[0]))
    count = bind(reshape_p, count, shape=(shape_of(count)[0], *(1,) * (len(shape_of(data)) - 1)))
    return cast(true_divide(total, count), dtype)


def segment_max(data: Any, ids: Any, num_segments: Any) -> Any:
    """The maximum of the rows with each id; -inf, or the least integer, where there is none. Ties share gradients. See `segment_sum`."""
    data = _array("segment_max", data)
    return _segmented("segment_max", data, ids, num_segments, _limit(data, least=True), "max")


def segment_min(data: Any, ids: Any, num_segments: Any) -> Any:
    """The minimum of the rows with each id; inf, or the greatest integer, where there is none. Ties share gradients. See `segment_sum`."""
    data = _array("segment_min", data)
    return _segmented("segment_min", data, ids, num_segments, _limit(data, least=False), "min")


def _array(what: str, data: Any) -> Any:
    data = operand(data, what)
    if not shape_of(data):
        raise ShapeError(f"{what}: data is 0-d; rows are needed")
    return cast(data, dtype_of(data)[0])


def _limit(data: Any, least: bool) -> Any:
    dtype = dtype_of(data)[0]
    if dtype.kind == "b":
        return not least
    if is_float(dtype):
        return -np.inf if least else np.inf
    limits = np.iinfo(dtype)
    return limits.min if least else limits.max


def _segmented(what: str, data: Any, ids: Any, num_segments: Any, start: Any, method: str) -> Any:
    size: DimLike = dim_or_int(num_segments)
    if not isinstance(size, Dim) and size < 0:
        raise ShapeError(f"{what}: num_segments is {size}, which is negative")
    ids = operand(ids, f"{what}: ids")
    if not is_integer(dtype_of(ids)[0]):
        raise DTypeError(f"{what}: ids are integers, got {short_name(dtype_of(ids)[0])}")
    shape = shape_of(data)
    if len(shape_of(ids)) != 1 or not same_dim(shape_of(ids)[0], shape[0]):
        raise ShapeError(f"{what}: ids have shape {list(shape_of(ids))}, data has {list(shape)}; one id a row is needed")
    ids = cast(ids, INT64)
    count = cast(operand(size), INT64)
    # One more row takes what is left out
    places = where(logical_and(greater_equal(ids, 0), less(ids, count)), ids, count)
    rows = broadcast(np.asarray(start, dtype_of(data)[0]), (size + 1, *shape[1:]))
    updated: Callable[..., Any] = getattr(at(rows)[places], method)
    return slice_axis(updated(data), 0, 0, size)
