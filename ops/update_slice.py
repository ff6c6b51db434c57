"""update_slice: a window of an array (a slice along each axis) replaced by other values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, max_dim, min_dim, product, same_dim
from ..stage.dtypes import INT64
from ..stage.errors import ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from ..stage.trace import bind
from .along_axis import batch_all
from .slicing import slice_p, slice_size
from .structure import zeros


def _abstract(x: ArraySpec, values: ArraySpec, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> ArraySpec:
    window = tuple(map(slice_size, start, stop, step, x.shape))
    if x.dtype != values.dtype or len(window) != values.ndim or not all(map(same_dim, window, values.shape)):
        raise ShapeError(f"update_slice: the values are {values!r}, the window has shape {list(window)} in {x!r}")
    return make_spec(x.shape, x.dtype)


def _numpy(x: Array, values: Array, **window: Any) -> Array:
    result = x.copy()
    slice_p.numpy(result, **window)[...] = values
    return result


def _jvp(output: Any, primals: Any, tangents: Any, **window: Any) -> Any:
    if all(t is None for t in tangents):
        return None
    return bind(
        update_slice_p,
        *(zeros(x.shape, x.dtype) if t is None else t for x, t in zip(primals, tangents, strict=True)),
        **window,
    )


def _transpose(ct: Any, primals: Any, output: Any, *, active: Any, **window: Any) -> Any:
    return (
        bind(update_slice_p, ct, zeros(primals[1].shape, ct.dtype), **window) if active[0] else None,
        bind(slice_p, ct, **window) if active[1] else None,
    )


def _batch(ctx: Any, args: Any, axes: Any, /, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> Any:
    x, values = batch_all(args, axes, ctx.size)
    return bind(update_slice_p, x, values, start=(0, *start), stop=(ctx.size, *stop), step=(1, *step)), 0


def is_whole(start: DimLike, stop: DimLike, step: int, size: DimLike) -> bool:
    """Whether a canonical slice takes an axis as it is."""
    return step == 1 and not isinstance(start, Dim) and start == 0 and same_dim(stop, size)


def _onnx(b: Any, x: str, values: str, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> str:
    shape, window = b.in_specs[0].shape, b.in_specs[1].shape
    axes = [i for i in range(len(shape)) if not is_whole(start[i], stop[i], step[i], shape[i])]
    return _replaced(b, x, values, axes, shape, window, start, step)


def _replaced(
    b: Any,
    x: str,
    values: str,
    axes: list[int],
    shape: Shape,
    window: Shape,
    start: Shape,
    step: tuple[int, ...],
) -> str:
    """Along the first axis: what stands before the window, the window with the other axes replaced in it, what stands after it."""
    if not axes:
        return b.op("Identity", values)
    axis = axes[0]
    size, count, stride = shape[axis], window[axis], step[axis]
    if stride != 1:
        table = _origins(b, size, count, start[axis], stride)
        if len(axes) > 1:
            inner = b.op("Gather", x, _positions(b, size, count, start[axis], stride), axis=axis)
            values = _replaced(b, inner, values, axes[1:], shape, window, start, step)
        return b.op("Gather", b.op("Concat", x, values, axis=axis), table, axis=axis)
    first = min_dim(start[axis], size)
    last = first + count
    if len(axes) > 1:
        values = _replaced(b, _cut(b, x, axis, first, last), values, axes[1:], shape, window, start, step)
    pieces = [values]
    if not _is_zero(first):
        pieces.insert(0, _cut(b, x, axis, 0, first))
    if not same_dim(last, size):
        pieces.append(_cut(b, x, axis, last, size))
    return b.op("Concat", *pieces, axis=axis) if len(pieces) > 1 else b.op("Identity", values)


def _is_zero(d: DimLike) -> bool:
    return not isinstance(d, Dim) and d == 0


def _cut(b: Any, x: str, axis: int, begin: DimLike, end: DimLike) -> str:
    return b.op("Slice", x, b.shape((begin,)), b.shape((end,)), b.const([axis], INT64))


def _first(size: DimLike, start: DimLike, stride: int) -> DimLike:
    return min_dim(start, size) if stride > 0 else max_dim(min_dim(start, size - 1), -1)


def _range(b: Any, count: DimLike) -> str:
    return b.op("Range", b.const(0, INT64), b.dim(count), b.const(1, INT64))


def _positions(b: Any, size: DimLike, count: DimLike, start: DimLike, stride: int) -> str:
    """The positions that a slice takes of an axis."""
    first = _first(size, start, stride)
    return b.op("Add", b.dim(first), b.op("Mul", _range(b, count), b.const(stride, INT64)))


def _origins(b: Any, size: DimLike, count: DimLike, start: DimLike, stride: int) -> str:
    """For each position of the axis where its element stands in the axis followed by the new values."""
    first = _first(size, start, stride)
    if not isinstance(first, Dim) and not isinstance(size, Dim) and not isinstance(count, Dim):
        table = np.arange(size, dtype=INT64)
        table[first + stride * np.arange(count)] = size + np.arange(count)
        return b.const(table)
    gap, zero = b.const(abs(stride), INT64), b.const(0, INT64)
    position, begin = _range(b, size), b.dim(first)
    distance = b.op("Sub", position, begin) if stride > 0 else b.op("Sub", begin, position)
    place = b.op("Div", distance, gap)
    hit = b.op("And", b.op("GreaterOrEqual", distance, zero), b.op("Less", place, b.dim(count)))
    hit = b.op("And", hit, b.op("Equal", b.op("Mod", distance, gap), zero))
    return b.op("Where", hit, b.op("Add", place, b.dim(size)), position)


def _simplify(ctx: Any, x: Any, values: Any, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> Any:
    size = product(ctx.spec(values).shape)
    if not isinstance(size, Dim) and size == 0:
        return x
    return values if all(map(is_whole, start, stop, step, ctx.spec(x).shape)) and not ctx.spec(values).weak else None


def _case(
    shape: tuple[int, ...],
    window: tuple[int, ...],
    slices: list[tuple[int, int, int]],
    dtype: str = "float",
    **more: Any,
) -> Case:
    start, stop, step = (tuple(s[i] for s in slices) for i in range(3))
    return Case((Sample(shape, dtype), Sample(window, dtype)), {"start": start, "stop": stop, "step": step}, **more)


update_slice_p = Primitive(
    "update_slice",
    exact=True,
    abstract=_abstract,
    numpy=_numpy,
    jvp=_jvp,
    linear=((0, 1),),
    transpose=_transpose,
    batch=_batch,
    onnx=_onnx,
    simplify=_simplify,
    cases=[
        _case((5, 4), (3, 4), [(1, 4, 1), (0, 4, 1)], "any"),
        _case((5, 4), (2, 2), [(1, 3, 1), (2, 4, 1)]),
        _case((5, 4), (3, 2), [(4, -1, -2), (1, 4, 2)]),
        _case((5,), (3,), [(3, 0, -1)]),
        _case((5, 2), (0, 2), [(2, 2, 1), (0, 2, 1)]),
        _case((2, 3), (2, 3), [(0, 2, 1), (0, 3, 1)]),
        _case((0, 2), (0, 1), [(0, 0, 1), (1, 0, -1)]),
    ],
)
