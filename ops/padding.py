"""np.pad: modes constant, edge, reflect, symmetric, wrap, empty, linear_ramp, maximum, minimum, mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import FLOAT64, is_integer
from ..stage.errors import UnsupportedError
from ..stage.spec import DimLike
from ..stage.trace import bind
from ..stage.tracer import Tracer
from . import reductions, statistics
from .along_axis import take_along_axis_p
from .arguments import array_of, array_operand, dim_argument
from .creation import linspace
from .joining import join
from .operands import cast, dtype_of, shape_of
from .registry import implements
from .rounding import rint
from .slicing import pad as pad_constant
from .slicing import reverse, slice_axis
from .structure import broadcast, reshape_p
from .views import copied

Widths = list[tuple[DimLike, DimLike]]


def _pairs(value: Any, ndim: int, convert: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """NumPy's forms of an amount: a number, (number,), (before, after), ((before, after),), or one of these for each axis."""
    if isinstance(value, Dim | Tracer) or not hasattr(value, "__len__"):
        return [(convert(value), convert(value))] * ndim
    items = list(value)
    if len(items) == 1 and hasattr(items[0], "__len__"):
        items = list(items[0])
        return [(convert(items[0]), convert(items[-1]))] * ndim
    if not any(hasattr(i, "__len__") for i in items):
        if len(items) > 2:
            raise ValueError(f"operands could not be broadcast together with remapped shapes: {value} for {ndim} axes")
        return [(convert(items[0]), convert(items[-1]))] * ndim
    if len(items) != ndim:
        raise ValueError(f"operands could not be broadcast together with remapped shapes: {len(items)} pairs for {ndim} axes")
    pairs = [list(i) for i in items]
    return [(convert(p[0]), convert(p[-1])) for p in pairs]


def _widths(pad_width: Any, ndim: int) -> Widths:
    if isinstance(pad_width, dict):
        widths: Widths = [(0, 0)] * ndim
        given: dict[Any, Any] = {**pad_width}
        for axis, width in given.items():
            widths[axis] = _pairs(width, 1, dim_argument)[0]
        return widths
    return _pairs(pad_width, ndim, dim_argument)


def _gathered(x: Any, axis: int, places: Any) -> Any:
    """The elements at some places, an array of integers, along an axis."""
    shape = shape_of(x)
    count = len(places)
    places = np.asarray(places, np.int64).reshape((count,) + (1,) * (len(shape) - axis - 1))
    return bind(take_along_axis_p, x, broadcast(places, (*shape[:axis], count, *shape[axis + 1 :])), axis=axis)


def _mirrored(x: Any, axis: int, before: DimLike, after: DimLike, mode: str) -> Any:
    """reflect, symmetric and wrap: made of slices where those are long enough, else gathered."""
    size = shape_of(x)[axis]
    known = not isinstance(size, Dim) and not isinstance(before, Dim) and not isinstance(after, Dim)
    skip = 1 if mode == "reflect" else 0
    if known and max(before, after) > size - skip:
        if size == 0:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        return _gathered(x, axis, np.pad(np.arange(size), (before, after), mode=mode))  # type: ignore[call-overload]
    if mode == "wrap":
        head = slice_axis(x, axis, size - before, size)
        tail = slice_axis(x, axis, 0, after)
    else:
        head = reverse(slice_axis(x, axis, skip, before + skip), (axis,))
        tail = reverse(slice_axis(x, axis, size - skip - after, size - skip), (axis,))
    return join([head, x, tail], axis)


def _edges(x: Any, axis: int, before: DimLike, after: DimLike, mode: str) -> Any:
    size = shape_of(x)[axis]
    if not isinstance(size, Dim) and size == 0:
        raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    ends = [_gathered(x, axis, [0]), _gathered(x, axis, [-1])]
    shape = shape_of(x)
    head, tail = (broadcast(e, (*shape[:axis], w, *shape[axis + 1 :])) for e, w in zip(ends, (before, after), strict=True))
    return join([head, x, tail], axis)


def _constants(x: Any, axis: int, before: DimLike, after: DimLike, values: tuple[Any, Any]) -> Any:
    shape = shape_of(x)
    dtype = dtype_of(x)[0]
    head, tail = (
        broadcast(array_of(v, dtype, "constant_values"), (*shape[:axis], w, *shape[axis + 1 :]))
        for v, w in zip(values, (before, after), strict=True)
    )
    return join([head, x, tail], axis)


def _ramps(x: Any, axis: int, before: int, after: int, values: tuple[Any, Any]) -> Any:
    dtype = dtype_of(x)[0]
    parts: list[Any] = [x]
    for place, width, end in ((0, before, values[0]), (-1, after, values[1])):
        edge = _gathered(x, axis, [place])
        flat = bind(reshape_p, edge, shape=tuple(d for i, d in enumerate(shape_of(edge)) if i != axis))
        ramp = cast(linspace(array_of(end, FLOAT64), cast(flat, FLOAT64), width, endpoint=False, axis=axis), dtype)
        parts = [ramp, *parts] if place == 0 else [*parts, reverse(ramp, (axis,))]
    return join(parts, axis)


def _statistics(x: Any, axis: int, before: DimLike, after: DimLike, lengths: tuple[Any, Any], mode: str) -> Any:
    size = shape_of(x)[axis]
    parts: list[Any] = [x]
    for leading, width, length in ((True, before, lengths[0]), (False, after, lengths[1])):
        if length is None:
            window = x
        else:
            window = (
                slice_axis(x, axis, 0, length)
                if leading
                else slice_axis(x, axis, max(size - length, 0) if not isinstance(size, Dim) else size - length, size)
            )
        dtype = dtype_of(x)[0]
        if mode == "mean":
            value = statistics.mean(window, axis, keepdims=True)
            value = rint(value) if is_integer(dtype) else value
        else:
            value = (reductions.max if mode == "maximum" else reductions.min)(window, axis, keepdims=True)
        filler = broadcast(cast(value, dtype), (*shape_of(x)[:axis], width, *shape_of(x)[axis + 1 :]))
        parts = [filler, *parts] if leading else [*parts, filler]
    return join(parts, axis)


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """The array with elements put before and after along its axes, as NumPy's modes make them; widths may be named dims.

    Raises ValueError for negative widths and unknown modes, UnsupportedError for functions and `reflect_type="odd"`.
    """
    x = array_operand(array, "pad")
    if callable(mode):
        raise UnsupportedError("pad: a function as mode is not supported on traced arrays")
    allowed = {
        "constant": {"constant_values"}, "edge": set[str](), "empty": set[str](), "linear_ramp": {"end_values"}, "maximum": {"stat_length"},
        "minimum": {"stat_length"}, "mean": {"stat_length"}, "median": {"stat_length"}, "reflect": {"reflect_type"},
        "symmetric": {"reflect_type"}, "wrap": set[str](),
    }  # fmt: skip
    if mode not in allowed:
        raise ValueError(f"mode '{mode}' is not supported")
    unknown = set(kwargs) - allowed[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if mode == "median":
        raise UnsupportedError("pad: mode 'median' is not supported on traced arrays; take np.median and concatenate")
    if kwargs.get("reflect_type", "even") != "even":
        raise UnsupportedError(f"pad: reflect_type={kwargs['reflect_type']!r} is not supported on traced arrays")
    ndim = len(shape_of(x))
    widths = _widths(pad_width, ndim)
    if any(type(w) is int and w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    values = _pairs(kwargs.get("constant_values", kwargs.get("end_values", 0)), ndim, lambda v: v)
    if mode == "empty" or (mode == "constant" and all(_is_zero(v) for pair in values for v in pair)):
        result = pad_constant(x, [w for w, _ in widths], [w for _, w in widths])
        return copied(result) if result is x else result
    lengths = _pairs(kwargs.get("stat_length"), ndim, lambda v: v)
    result = x
    for axis, (before, after) in enumerate(widths):
        if type(before) is int and type(after) is int and before == after == 0:
            continue
        if mode == "constant":
            result = _constants(result, axis, before, after, values[axis])
        elif mode == "edge":
            result = _edges(result, axis, before, after, mode)
        elif mode == "linear_ramp":
            result = _ramps(result, axis, before.__index__(), after.__index__(), values[axis])
        elif mode in ("maximum", "minimum", "mean"):
            result = _statistics(result, axis, before, after, lengths[axis], mode)
        else:
            result = _mirrored(result, axis, before, after, mode)
    return copied(result) if result is x else result


def _is_zero(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.generic) and bool(value == 0) and not np.signbit(np.asarray(value, np.float64))
