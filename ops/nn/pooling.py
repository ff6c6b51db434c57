"""Pools: the maximum or mean of each window of x: [N, C, *spatial].

The maximum goes axis by axis, the last one first, by Max nodes over shifted slices: ONNX Runtime's MaxPool drops NaN and makes -inf the
lowest finite number. Its derivative goes tap by tap at the pooled size, ties to the first element of the window in row-major order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...stage.dims import Dim, exact_div, product
from ...stage.dtypes import BOOL, FLOAT64, is_float, short_name
from ...stage.errors import DTypeError, ShapeError, UnsupportedError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, DimLike, Shape, make_spec
from ...stage.trace import bind
from ..along_axis import take_along_axis_p
from ..arg_reductions import argmax
from ..arithmetic import add_p, floating, multiply, true_divide, where_p
from ..comparison import less_p, logical_and_p, logical_not_p, logical_or_p
from ..extremum import maximum
from ..families import kind_of
from ..formulas import half_as_single
from ..gather import gather_p
from ..joining import join
from ..matmul import matmul
from ..operands import cast, dtype_of, operand, shape_of
from ..slicing import pad, pad_p, slice_axis, spread_out
from ..statistics import mean
from ..structure import broadcast, move_axis, reduce_sum_p, reshape_p
from .precision import lower_function
from .windows import Pads, paddings, per_axis, quotient, require_room, spatial_axes, window_count

Ints = tuple[int, ...]

# Above it the maximum over a window is put together of maxima over windows that double
_FEW_TAPS = 4


def _size(shape: Shape, axis: int, window: int, stride: int, pads: tuple[DimLike, DimLike]) -> DimLike:
    return window_count(shape[axis], pads, window, stride)


def _end(n: DimLike, size: DimLike, window: int, stride: int, before: DimLike) -> DimLike:
    """The padding after an axis that `_tap` reads: the last window ends with it, or a stride after that for a named size."""
    return (size if isinstance(size, Dim) else size - 1) * stride + window - n - before


def _is_zero(d: DimLike) -> bool:
    return type(d) is int and d == 0


def _is_tiling(n: DimLike, window: int, stride: int, pads: tuple[DimLike, DimLike]) -> bool:
    """Whether the windows take every element once."""
    return window == stride and _is_zero(pads[0]) and _is_zero(pads[1]) and exact_div(n, window) is not None


def _framed(x: Any, axis: int, before: DimLike, after: DimLike, value: float) -> Any:
    """x padded along one axis."""
    zeros = [0] * len(shape_of(x))
    return pad(
        x, [before if i == axis else d for i, d in enumerate(zeros)], [after if i == axis else d for i, d in enumerate(zeros)], value
    )


def _tap(x: Any, axis: int, start: int, size: DimLike, stride: int) -> Any:
    """Of each window along an axis of a padded array the element at one place."""
    if not isinstance(size, Dim) or stride == 1:
        return slice_axis(x, axis, start, start + (size - 1) * stride + 1, stride)
    # A strided slice would lose what is known of its size
    x = slice_axis(x, axis, start, start + size * stride)
    shape = shape_of(x)
    x = bind(reshape_p, x, shape=(*shape[:axis], size, stride, *shape[axis + 1 :]))
    return bind(reshape_p, slice_axis(x, axis + 1, 0, 1), shape=(*shape[:axis], size, *shape[axis + 1 :]))


def _tiles(x: Any, axis: int, window: int) -> Any:
    """x with an axis that windows tile taken apart: [window, ..., windows, ...]. One transpose is faster than strided slices."""
    shape = shape_of(x)
    x = bind(reshape_p, x, shape=(*shape[:axis], quotient(shape[axis], window), window, *shape[axis + 1 :]))
    return move_axis(x, axis + 1, 0)


def _untiled(tiles: Any, axis: int) -> Any:
    window, *shape = shape_of(tiles)
    x = move_axis(tiles, 0, axis + 1)
    return bind(reshape_p, x, shape=(*shape[:axis], shape[axis] * window, *shape[axis + 1 :]))


def _first(tiles: Any, index: int) -> Any:
    """tiles[index]."""
    return bind(reshape_p, slice_axis(tiles, 0, index, index + 1), shape=shape_of(tiles)[1:])


def _max_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int, **params: Any) -> Any:
    return bind(max_window_p, move_axis(args[0], batch_axes[0], 0), axis=axis + 1, **params), 0


def _windows_numpy(x: Array, axis: int, window: int, stride: int, pads: Any, value: float) -> Array:
    """[..., windows, ..., window] of an array padded along an axis."""
    before, after = ([p if i == axis else 0 for i in range(x.ndim)] for p in pads)
    framed = pad_p.numpy(x, low=before, high=after, value=value)
    views = np.lib.stride_tricks.sliding_window_view(framed, window, axis=axis)
    return views[(slice(None),) * axis + (slice(None, None, stride),)]


def _case(
    shape: Ints, axis: int, window: int, stride: int, pads: Ints, dtype: str = "float", named: Any = None, values: Any = None
) -> Case:
    params = {"axis": axis, "window": window, "stride": stride, "pads": pads}
    return Case((Sample(shape, dtype, values=values),), params, smooth=values is None, named=named)


# ------------------------------------------------------------------------------------------------------------------- maximum


def _max_abstract(x: ArraySpec, *, axis: int, window: int, stride: int, pads: Any) -> ArraySpec:
    if x.dtype == BOOL:
        raise DTypeError("max_pool: booleans have no maximum; cast to a number first")
    return make_spec((*x.shape[:axis], _size(x.shape, axis, window, stride, pads), *x.shape[axis + 1 :]), x.dtype)


def _lowest(dtype: Any) -> float:
    return -math.inf if is_float(dtype) else int(np.iinfo(dtype).min)


def _max_numpy(x: Array, *, axis: int, window: int, stride: int, pads: Any) -> Array:
    size = _size(x.shape, axis, window, stride, pads)
    if size == 0:
        return np.zeros((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.dtype)
    return np.asarray(np.max(_windows_numpy(x, axis, window, stride, pads, _lowest(x.dtype)), axis=-1))


def _max_composed(x: Any, *, axis: int, window: int, stride: int, pads: Any) -> Any:
    """The maximum of slices that start at each place of the window."""
    shape = shape_of(x)
    size = _size(shape, axis, window, stride, pads)
    if _is_tiling(shape[axis], window, stride, pads):
        tiles = _tiles(x, axis, window)
        return functools.reduce(maximum, (_first(tiles, i) for i in range(window)))
    x = _framed(x, axis, pads[0], _end(shape[axis], size, window, stride, pads[0]), _lowest(dtype_of(x)[0]))
    width = 1
    while width * 2 < window and window > _FEW_TAPS:
        x = maximum(slice_axis(x, axis, 0, shape_of(x)[axis] - width), slice_axis(x, axis, width, None))
        width *= 2
    starts = range(window) if width == 1 else (0, window - width)
    return functools.reduce(maximum, (_tap(x, axis, start, size, stride) for start in starts))


def _max_onnx(b: Any, x: str, **params: Any) -> str:
    out = b.out_specs[0]
    if any(_is_zero(d) for d in out.shape):
        return b.op("Expand", b.const(np.zeros((), out.dtype)), b.shape(out.shape))
    return lower_function(b, lambda x: _max_composed(x, **params), x)


def _max_jvp(output: Any, primals: Any, tangents: Any, *, axis: int, window: int, stride: int, pads: Any) -> Any:
    x, t = primals[0], tangents[0]
    n, size = x.shape[axis], output.shape[axis]
    if _is_zero(size):
        return None
    zero = np.zeros((), x.dtype)
    if window == 1:
        return _tap(_framed(t, axis, 0, _end(n, size, 1, stride, 0), 0), axis, 0, size, stride)
    if _is_tiling(n, window, stride, pads):
        tiles = _tiles(x, axis, window)
        masks = _first_hits((_first(tiles, i) for i in range(window)), output, window, None)
        chosen = join([bind(reshape_p, m, shape=(1, *m.shape)) for m in masks], 0)
        return bind(reduce_sum_p, bind(where_p, chosen, _tiles(t, axis, window), zero), axes=(0,), keepdims=False)
    after = _end(n, size, window, stride, pads[0])
    outside: list[Any] | None = None
    if not (_is_zero(pads[0]) and _is_zero(pads[1])):
        along = (1,) * (len(x.shape) - axis - 1)
        padding = _framed(broadcast(np.zeros((1, *along), bool), (n, *along)), 0, pads[0], after, 1)
        outside = [_tap(padding, 0, i, size, stride) for i in range(window)]
    x, t = _framed(x, axis, pads[0], after, 0), _framed(t, axis, pads[0], after, 0)
    masks = _first_hits((_tap(x, axis, i, size, stride) for i in range(window)), output, window, outside)
    terms = [bind(where_p, mask, _tap(t, axis, i, size, stride), zero) for i, mask in enumerate(masks)]
    return functools.reduce(lambda a, b: bind(add_p, a, b), terms)


def _first_hits(taps: Iterator[Any], output: Any, window: int, outside: list[Any] | None) -> list[Any]:
    """For each place of the window where it is the first that holds the maximum; the first of all where that is NaN."""
    masks: list[Any] = []
    passed: Any = None
    for i, tap in enumerate(taps):
        if i == window - 1:
            masks.append(passed)
            break
        below = bind(less_p, tap, output)
        if outside is not None:
            below = bind(logical_or_p, below, outside[i])
        hit = bind(logical_not_p, below)
        masks.append(hit if passed is None else bind(logical_and_p, passed, hit))
        passed = below if passed is None else bind(logical_and_p, passed, below)
    return masks


_TIED = [[1, 1, 2, 2, 0, np.nan], [-np.inf, -np.inf, np.nan, np.nan, 3, -np.inf]]

max_window_p = Primitive(
    "max_window",
    exact=True,
    abstract=_max_abstract,
    numpy=_max_numpy,
    jvp=_max_jvp,
    batch=_max_batch,
    onnx=_max_onnx,
    cases=[
        _case((2, 3, 4, 6), 3, 3, 3, (0, 0), named=(("B", 3, 4, 6),)),
        _case((2, 4, 3), 1, 2, 2, (0, 0), named=(("B", 4, 3),)),
        _case((2, 5, 3), 1, 3, 2, (1, 1), named=(("B", 5, 3),)),
        _case((2, 7), 1, 2, 3, (0, 1), named=(("B", "L"),)),
        _case((2, 6), 1, 3, 1, (1, 0), named=(("B", "L"),)),
        _case((14,), 0, 9, 2, (3, 2)),
        _case((2, 5), 1, 2, 2, (1, 0), "int"),
        _case((2, 6), 1, 2, 2, (0, 0), values=_TIED),
        _case((2, 6), 1, 2, 2, (1, 1), values=_TIED),
        _case((2, 5), 1, 1, 2, (0, 0)),
        _case((0, 4), 1, 2, 2, (0, 0)),
        _case((3, 4), 0, 5, 1, (0, 0)),
    ],
)


# ---------------------------------------------------------------------------------------------------------------------- mean


def _mean_abstract(x: ArraySpec, *, window: Ints, strides: Ints, padding: Pads, count_include_pad: bool) -> ArraySpec:
    if kind_of(x.dtype) != "f":
        raise DTypeError(f"avg_pool: not supported for {short_name(x.dtype)}")
    return make_spec((*x.shape[:2], *_sizes(x.shape[2:], window, strides, padding)), x.dtype)


def _sizes(spatial: Shape, window: Ints, strides: Ints, padding: Pads) -> Shape:
    return tuple(window_count(*axis) for axis in zip(spatial, padding, window, strides, strict=True))


def _mean_numpy(x: Array, *, window: Ints, strides: Ints, padding: Any, count_include_pad: bool) -> Array:
    wide = half_as_single(x.dtype)
    sizes = _sizes(x.shape[2:], window, strides, padding)
    if 0 in sizes:
        return np.zeros((*x.shape[:2], *sizes), x.dtype)
    total = x.astype(wide, copy=False)
    count: Any = np.asarray(math.prod(window) if count_include_pad else 1, wide)
    for i, axis in enumerate(zip(window, strides, padding, strict=True)):
        total = np.sum(_windows_numpy(total, 2 + i, *axis, 0), axis=-1)
        if not count_include_pad:
            along = np.sum(_windows_numpy(np.ones(x.shape[2 + i], wide), 0, *axis, 0), axis=-1)
            count = count * along.reshape(-1, *(1,) * (x.ndim - 3 - i))
    return np.asarray(total / count).astype(x.dtype, copy=False)


def _sum_along(x: Any, axis: int, window: int, stride: int, size: DimLike) -> Any:
    return functools.reduce(lambda a, b: bind(add_p, a, b), (_tap(x, axis, start, size, stride) for start in range(window)))


def _window_sums(x: Any, axis: int, window: int, stride: int, pads: tuple[DimLike, DimLike]) -> Any:
    """The sum of each window along an axis."""
    shape = shape_of(x)
    if _is_tiling(shape[axis], window, stride, pads):
        return bind(reduce_sum_p, _tiles(x, axis, window), axes=(0,), keepdims=False)
    size = _size(shape, axis, window, stride, pads)
    return _sum_along(_framed(x, axis, pads[0], _end(shape[axis], size, window, stride, pads[0]), 0), axis, window, stride, size)


def _counts(spatial: Shape, window: Ints, strides: Ints, padding: Pads, include_pad: bool, dtype: Any) -> Any:
    """How many elements each mean is over: a number, or [*windows]."""
    if include_pad or all(_is_zero(d) for p in padding for d in p):
        return np.asarray(math.prod(window), dtype)
    result: Any = np.ones((), dtype)
    for i, (n, w, s, p) in enumerate(zip(spatial, window, strides, padding, strict=True)):
        along = _window_sums(broadcast(np.ones(1, dtype), (n,)), 0, w, s, p)
        result = multiply(result, bind(reshape_p, along, shape=(shape_of(along)[0], *(1,) * (len(spatial) - 1 - i))))
    return result


def _mean_composed(x: Any, *, window: Ints, strides: Ints, padding: Pads, count_include_pad: bool) -> Any:
    """What the node computes, in simpler functions."""
    dtype, spatial = dtype_of(x)[0], shape_of(x)[2:]
    total = cast(x, half_as_single(dtype))
    for i, axis in enumerate(zip(window, strides, padding, strict=True)):
        total = _window_sums(total, 2 + i, *axis)
    return cast(true_divide(total, _counts(spatial, window, strides, padding, count_include_pad, dtype_of(total)[0])), dtype)


def _mean_transpose(
    ct: Any, primals: Any, output: Any, *, active: Any, window: Ints, strides: Ints, padding: Pads, count_include_pad: bool
) -> Any:
    dtype, spatial = ct.dtype, primals[0].shape[2:]
    share = cast(ct, half_as_single(dtype))
    share = true_divide(share, _counts(spatial, window, strides, padding, count_include_pad, share.dtype))
    for i, (n, w, s, p) in enumerate(zip(spatial, window, strides, padding, strict=True)):
        size = share.shape[2 + i]
        if _is_tiling(n, w, s, p):
            # Repeated along a leading axis: an Expand of short rows is slow
            share = _untiled(broadcast(share, (w, *share.shape)), 2 + i)
            continue
        if s != 1:
            share = spread_out(share, 2 + i, s)
        # Element j of x stands in the windows that end at j or later: the sums start w - 1 - before elements ahead
        share = _framed(share, 2 + i, w - 1 - p[0], n + p[0] - size * s, 0)
        share = _sum_along(share, 2 + i, w, 1, n)
    return (cast(share, dtype),)


def _mean_batch(ctx: Any, args: Any, axes: Any, /, **params: Any) -> Any:
    x = move_axis(args[0], axes[0], 0)
    b, n = x.shape[:2]
    y = bind(avg_pool_p, bind(reshape_p, x, shape=(b * n, *x.shape[2:])), **params)
    return bind(reshape_p, y, shape=(b, n, *y.shape[1:])), 0


def _mean_onnx(b: Any, x: str, *, window: Ints, strides: Ints, padding: Pads, count_include_pad: bool) -> str:
    shape, out = b.in_specs[0].shape, b.out_specs[0]
    if any(_is_zero(d) for d in out.shape):
        return b.op("Expand", b.const(np.zeros((), out.dtype)), b.shape(out.shape))
    known = all(type(d) is int for p in padding for d in p) and all(type(d) is int and d > 0 for d in (*shape[2:], *out.shape[2:]))
    if out.dtype == FLOAT64 or not known:
        settings: dict[str, Any] = {"window": window, "strides": strides, "padding": padding, "count_include_pad": count_include_pad}
        return lower_function(b, lambda x: _mean_composed(x, **settings), x)
    return b.op(
        "AveragePool",
        x,
        kernel_shape=list(window),
        strides=list(strides),
        pads=[p[0] for p in padding] + [p[1] for p in padding],
        count_include_pad=int(count_include_pad),
    )


def _mean_case(shape: Ints, window: Ints, strides: Ints, padding: Any, include_pad: bool, named: Any = None) -> Case:
    params = {"window": window, "strides": strides, "padding": padding, "count_include_pad": include_pad}
    return Case((Sample(shape),), params, named=named)


avg_pool_p = Primitive(
    "avg_pool",
    abstract=_mean_abstract,
    numpy=_mean_numpy,
    linear=((0,),),
    transpose=_mean_transpose,
    batch=_mean_batch,
    onnx=_mean_onnx,
    cases=[
        _mean_case((2, 3, 4, 6), (2, 3), (2, 3), ((0, 0), (0, 0)), False, named=(("B", 3, 4, 6),)),
        _mean_case((2, 1, 5, 4), (3, 2), (2, 1), ((1, 1), (0, 1)), False, named=(("B", 1, 5, 4),)),
        _mean_case((2, 1, 5, 4), (3, 2), (2, 1), ((1, 2), (0, 1)), True),
        _mean_case((1, 2, 7), (2,), (3,), ((1, 1),), False, named=(("B", 2, "L"),)),
        _mean_case((0, 1, 4), (2,), (2,), ((0, 0),), True),
        _mean_case((1, 1, 3, 2, 4), (2, 2, 2), (1, 1, 1), ((0, 0),) * 3, True),
    ],
)


# -------------------------------------------------------------------------------------------------------------------- public


def _arguments(what: str, x: Any, window: Any, stride: Any, padding: Any) -> tuple[Any, dict[str, Any]]:
    count = spatial_axes(what, len(shape_of(x)))
    windows = per_axis(f"{what}: window", window, count)
    strides = windows if stride is None else per_axis(f"{what}: stride", stride, count)
    pads = paddings(what, padding, shape_of(x)[2:], windows, strides)
    require_room(what, shape_of(x)[2:], pads, windows)
    for w, p in zip(windows, pads, strict=True):
        if any(type(d) is int and d >= w for d in p):
            raise ShapeError(f"{what}: padding {p} is not smaller than the window, {w}: some windows would hold padding alone")
    return x, {"window": windows, "strides": strides, "padding": pads}


def max_pool(x: Any, window: Any, *, stride: Any = None, padding: Any = 0) -> Any:
    """The maximum of each window of x: [N, C, *spatial]; padding never wins. Ties go to the first element of a window in gradients.

    window, stride (the window by default): an int or one for each spatial axis. padding: an int, ints, (before, after) pairs, "SAME" or
    "VALID", smaller than the window. An axis has (size + before + after - window) // stride + 1 results; NaN in a window makes its result
    NaN (and its first element gets the gradient). Raises ValueError for windows that do not fit.
    """
    x = operand(x, "max_pool")
    x, params = _arguments("max_pool", cast(x, dtype_of(x)[0]), window, stride, padding)
    axes = list(enumerate(zip(params["window"], params["strides"], params["padding"], strict=True)))
    # The last axis first: of elements that tie, the first in row-major order is then the first along each axis
    for i, (w, s, pads) in reversed(axes):
        x = bind(max_window_p, x, axis=2 + i, window=w, stride=s, pads=pads)
    return x


def avg_pool(x: Any, window: Any, *, stride: Any = None, padding: Any = 0, count_include_pad: bool = False) -> Any:
    """The mean of each window of x: [N, C, *spatial], over its elements that are not padding, or over the whole window.

    Arguments as of `max_pool`; count_include_pad: count the padding, as zeros. Integers are averaged in floating point.
    """
    x = floating(x)
    x, params = _arguments("avg_pool", cast(x, dtype_of(x)[0]), window, stride, padding)
    return bind(avg_pool_p, x, **params, count_include_pad=bool(count_include_pad))


def global_avg_pool(x: Any) -> Any:
    """The mean over all spatial axes of x: [N, C, *spatial], which are kept with size 1."""
    x = floating(x)
    count = spatial_axes("global_avg_pool", len(shape_of(x)))
    return mean(x, tuple(range(2, 2 + count)), keepdims=True)


def global_max_pool(x: Any) -> Any:
    """The maximum over all spatial axes of x: [N, C, *spatial], which are kept with size 1; ties go to the first in gradients."""
    x = operand(x, "global_max_pool")
    shape = shape_of(x)
    count = spatial_axes("global_max_pool", len(shape))
    flat = bind(reshape_p, cast(x, dtype_of(x)[0]), shape=(*shape[:2], product(shape[2:])))
    found = bind(take_along_axis_p, flat, argmax(flat, -1, keepdims=True), axis=2)
    return bind(reshape_p, found, shape=(*shape[:2], *(1,) * count))


def adaptive_avg_pool(x: Any, size: Any) -> Any:
    """x: [N, C, *spatial] averaged to `size` (an int or one for each axis) results an axis.

    Result i is the mean over the elements from floor(i * n / size) up to ceil((i + 1) * n / size), as in PyTorch. Spatial sizes are
    known numbers.
    """
    x = floating(x)
    x = cast(x, dtype_of(x)[0])
    sizes, spatial = _adaptive("adaptive_avg_pool", x, size)
    dtype = dtype_of(x)[0]
    if all(_divides(o, n) for o, n in zip(sizes, spatial, strict=True)):
        return avg_pool(x, tuple(n // o for n, o in zip(spatial, sizes, strict=True)))
    wide = cast(x, half_as_single(dtype))
    for i, (o, n) in enumerate(zip(sizes, spatial, strict=True)):
        weights = np.zeros((n, o), dtype_of(wide)[0])
        for j, (start, stop) in enumerate(_spans(n, o)):
            weights[start:stop, j] = 1 / (stop - start)
        wide = move_axis(matmul(move_axis(wide, 2 + i, 1 + len(sizes)), weights), 1 + len(sizes), 2 + i)
    return cast(wide, dtype)


def adaptive_max_pool(x: Any, size: Any) -> Any:
    """The maximum over the windows of `adaptive_avg_pool`; ties go to the first in gradients."""
    x = operand(x, "adaptive_max_pool")
    x = cast(x, dtype_of(x)[0])
    sizes, spatial = _adaptive("adaptive_max_pool", x, size)
    window: list[int] = []
    for i, (o, n) in enumerate(zip(sizes, spatial, strict=True)):
        if _divides(o, n):
            window.append(n // o)
            continue
        spans = _spans(n, o)
        width = max(stop - start for start, stop in spans)
        window.append(width)
        # Shorter windows repeat their last element, which is never the first of its value
        places = np.asarray([min(start + k, stop - 1) for start, stop in spans for k in range(width)], np.int64)
        x = bind(gather_p, x, places, axis=2 + i, unique=False)
    return max_pool(x, tuple(window))


def _divides(size: int, n: int) -> bool:
    return n % size == 0


def _spans(n: int, size: int) -> list[tuple[int, int]]:
    return [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]


def _adaptive(what: str, x: Any, size: Any) -> tuple[Ints, Ints]:
    """The numbers of results and of elements along the spatial axes."""
    sizes = per_axis(f"{what}: size", size, spatial_axes(what, len(shape_of(x))))
    spatial: list[int] = []
    for n in shape_of(x)[2:]:
        if isinstance(n, Dim):
            raise UnsupportedError(f"{what}: spatial sizes are known numbers, got {n} in shape {list(shape_of(x))}; use a global pool")
        if n == 0:
            raise ShapeError(f"{what}: a spatial axis of x is empty (shape {list(shape_of(x))})")
        spatial.append(n)
    return sizes, tuple(spatial)
