"""slice and pad: windows of arrays along their axes, and the other way round; each is made of the other's transpose.

A slice is kept in canonical form, for every axis (start, stop, step) with positions, not NumPy's negative indices: start >= 0 and
stop >= start for a positive step, start >= stop >= -1 for a negative one. Positions past the end mean the end, so that
`x[1:]` of a named dim is (1, B, 1) and has size max(B - 1, 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim, Max, Min, bounds, max_dim, min_dim, same_dim
from ..stage.dtypes import is_float
from ..stage.errors import ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from ..stage.trace import bind
from .structure import move_axis, reshape_p

AxisSlice = tuple[DimLike, DimLike, int]
_LAST = np.iinfo(np.int64).max
_FIRST = np.iinfo(np.int64).min

# --------------------------------------------------------------------------------------------------------- canonical slices


def _wrapped(position: Any, size: DimLike) -> DimLike:
    """A position from a NumPy index: what is negative counts from the end."""
    if not isinstance(position, Dim):
        position = position.__index__()
        return position if position >= 0 else size + position
    low, high = bounds(position)
    if low is not None and low >= 0:
        return position
    if high is not None and high < 0:
        return size + position
    if same_dim(position + 1, size):
        # n - 1 is negative only where the axis is empty.
        return position
    not_negative = min_dim(1, max_dim(0, position + 1))
    return position + size * (1 - not_negative)


def canonical_slice(index: slice, size: DimLike) -> AxisSlice:
    """(start, stop, step) in canonical form of a Python slice over an axis; its bounds may be ints, Dims or None.

    Raises ValueError for a step of 0, TypeError for what is no integer.
    """
    step = 1 if index.step is None else index.step.__index__()
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if not isinstance(size, Dim) and not isinstance(index.start, Dim) and not isinstance(index.stop, Dim):
        start, stop, step = index.indices(size)
        count = len(range(start, stop, step))
        if count == 0:
            return 0, 0, 1
        return (start, stop, step) if step == 1 else (start, start + (count - 1) * step + (1 if step > 0 else -1), step)
    if step > 0:
        begin: DimLike = 0 if index.start is None else max_dim(_wrapped(index.start, size), 0)
        end: DimLike = size if index.stop is None else max_dim(_wrapped(index.stop, size), 0)
        return begin, _no_further(end, size), step
    begin = size - 1 if index.start is None else max_dim(_wrapped(index.start, size), -1)
    end = -1 if index.stop is None else max_dim(_wrapped(index.stop, size), -1)
    return _no_further(begin, size - 1), end, step


def _no_further(position: DimLike, limit: DimLike) -> DimLike:
    """The limit where the position is never before it; else the position as it is: what runs a slice cuts it off."""
    if not isinstance(position, Dim) and not isinstance(limit, Dim):
        return min(position, limit)
    low = bounds(position - limit)[0]
    return limit if low is not None and low >= 0 else position


def _alternatives(d: DimLike, kind: type[Max] | type[Min]) -> tuple[DimLike, ...]:
    if isinstance(d, Dim) and len(d.terms) == 1 and d.terms[0][0] == 1 and len(d.terms[0][1]) == 1:
        atom = d.terms[0][1][0]
        if isinstance(atom, kind):
            return atom.args
    return (d,)


def slice_size(start: DimLike, stop: DimLike, step: int, size: DimLike) -> DimLike:
    """How many elements a canonical slice takes of an axis."""
    if step > 0:
        upper, lower = (stop, size), start
    else:
        upper, lower = (start, size - 1), stop
    # max(min(u, ...) - max(l, ...), 0) is written with one min inside, so that equal sizes have equal forms.
    lows = _alternatives(lower, Max)
    gaps: list[DimLike] = []
    for u in upper:
        whole = [u - low for low in _alternatives(lower, Min)]
        gaps.append(max_dim(*whole) if len(whole) > 1 else min_dim(*(u - low for low in lows)))
    length = max_dim(0, min_dim(*gaps))
    return length if abs(step) == 1 else (length + (abs(step) - 1)) // abs(step)


# --------------------------------------------------------------------------------------------------------------------- slice


def _slice_abstract(x: ArraySpec, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> ArraySpec:
    if not len(start) == len(stop) == len(step) == x.ndim:
        raise ShapeError(f"slice: {len(start)} axes are sliced of an array of shape {list(x.shape)}")
    return make_spec(tuple(map(slice_size, start, stop, step, x.shape)), x.dtype, x.weak)


def _python_slice(start: int, stop: int, step: int) -> slice:
    if step > 0:
        return slice(start, stop, step)
    return slice(start, None if stop < 0 else stop, step) if start >= 0 else slice(0, 0)


def _slice_numpy(x: Array, *, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]) -> Array:
    return np.asarray(x[tuple(map(_python_slice, start, stop, step))])


def _slice_transpose(ct: Any, primals: Any, output: Any, *, active: Any, start: Shape, stop: Shape, step: tuple[int, ...]) -> Any:
    shape = primals[0].shape
    low: list[DimLike] = []
    high: list[DimLike] = []
    for axis, (first, stride, size) in enumerate(zip(start, step, shape, strict=True)):
        count = ct.shape[axis]
        gap = abs(stride)
        if stride < 0:
            ct = reverse(ct, (axis,))
            # The last element that was taken is now the first.
            before = min_dim(first, size - 1) - (count - 1) * gap
        else:
            before = min_dim(first, size)
        if gap > 1:
            ct = spread_out(ct, axis, gap)
        low.append(before)
        high.append(size - before - count * gap)
    return (pad(ct, low, high),)


def spread_out(x: Any, axis: int, gap: int) -> Any:
    """Each element along an axis followed by gap - 1 zeros."""
    shape = tuple(x.shape)
    column = bind(reshape_p, x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    spaced = pad(column, [0] * (len(shape) + 1), [gap - 1 if i == axis + 1 else 0 for i in range(len(shape) + 1)])
    return bind(reshape_p, spaced, shape=(*shape[:axis], shape[axis] * gap, *shape[axis + 1 :]))


def _slice_batch(ctx: Any, args: Any, batch_axes: Any, /, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> Any:
    x = move_axis(args[0], batch_axes[0], 0)
    return bind(slice_p, x, start=(0, *start), stop=(x.shape[0], *stop), step=(1, *step)), 0


def _slice_onnx(b: Any, x: str, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> str:
    shape = b.in_specs[0].shape
    starts: list[DimLike] = []
    stops: list[DimLike] = []
    steps: list[int] = []
    axes: list[int] = []
    first: list[tuple[int, DimLike]] = []
    for axis, (begin, end, stride, size) in enumerate(zip(start, stop, step, shape, strict=True)):
        if _is_whole(begin, end, stride, size):
            continue
        axes.append(axis)
        steps.append(stride)
        if stride > 0:
            starts.append(begin)
            stops.append(end if not same_dim(end, size) else _LAST)
            continue
        low = bounds(begin)[0]
        length = size
        if not same_dim(begin + 1, size) and (low is None or low < 0):
            # A start before the first element would be moved onto it: what comes after it is cut off beforehand.
            first.append((axis, begin + 1))
            begin, length = _LAST, min_dim(begin + 1, size)
        starts.append(_LAST if same_dim(begin + 1, size) else begin)
        # Counted from the end, so that -1 is before the first element; a plain -1 would mean the last one.
        stops.append(_FIRST if not isinstance(end, Dim) and end < 0 else min_dim(end - length, -1) if isinstance(length, Dim) else end)
    if first:
        x = b.op(
            "Slice",
            x,
            b.const([0] * len(first), np.int64),
            b.shape(tuple(e for _, e in first)),
            b.const([a for a, _ in first], np.int64),
        )
    if not axes:
        return b.op("Identity", x)
    return b.op(
        "Slice",
        x,
        b.shape(tuple(starts)),
        b.shape(tuple(stops)),
        b.const(axes, np.int64),
        b.const(steps, np.int64),
    )


def _is_whole(start: DimLike, stop: DimLike, step: int, size: DimLike) -> bool:
    return step == 1 and not isinstance(start, Dim) and start == 0 and same_dim(stop, size)


def _slice_simplify(ctx: Any, x: Any, *, start: Shape, stop: Shape, step: tuple[int, ...]) -> Any:
    return x if all(map(_is_whole, start, stop, step, ctx.spec(x).shape)) else None


slice_p = Primitive(
    "slice",
    exact=True,
    abstract=_slice_abstract,
    numpy=_slice_numpy,
    linear=((0,),),
    transpose=_slice_transpose,
    batch=_slice_batch,
    onnx=_slice_onnx,
    simplify=_slice_simplify,
    cases=[
        Case((Sample((5, 4), "any"),), {"start": (1, 0), "stop": (4, 4), "step": (1, 1)}),
        Case((Sample((5, 4)),), {"start": (4, 0), "stop": (-1, 3), "step": (-2, 2)}),
        Case((Sample((5,)),), {"start": (3,), "stop": (0,), "step": (-1,)}),
        Case((Sample((5, 2)),), {"start": (0, 0), "stop": (0, 2), "step": (1, 1)}),
        Case((Sample((0, 2)),), {"start": (0, 1), "stop": (0, -1), "step": (1, -1)}),
        Case((Sample((4, 3)),), {"start": (1, 2), "stop": (3, -1), "step": (1, -1)}, named=(("B", 3),)),
    ],
)


def slice_axes(x: Any, slices: dict[int, slice]) -> Any:
    """x sliced along some axes; nothing is recorded where the whole is taken."""
    shape = x.shape
    parts = [canonical_slice(slices.get(i, slice(None)), d) for i, d in enumerate(shape)]
    if all(_is_whole(*part, d) for part, d in zip(parts, shape, strict=True)):
        return x
    return bind(
        slice_p,
        x,
        start=tuple(p[0] for p in parts),
        stop=tuple(p[1] for p in parts),
        step=tuple(p[2] for p in parts),
    )


def slice_axis(x: Any, axis: int, start: DimLike | None, stop: DimLike | None, step: int = 1) -> Any:
    """x[..., start:stop:step, ...] along one axis, with Python's meaning of negative numbers."""
    return slice_axes(x, {axis: slice(start, stop, step)})


def reverse(x: Any, axes: Sequence[int]) -> Any:
    """x with the order of the elements along axes turned round."""
    return slice_axes(x, {a: slice(None, None, -1) for a in axes})


# ----------------------------------------------------------------------------------------------------------------------- pad


def _pad_abstract(x: ArraySpec, *, low: Shape, high: Shape, value: float) -> ArraySpec:
    shape: list[DimLike] = []
    for before, size, after in zip(low, x.shape, high, strict=True):
        length = before + size + after
        if not isinstance(length, Dim) and length < 0:
            raise ShapeError(f"pad: {list(low)} before and {list(high)} after leave nothing of shape {list(x.shape)}")
        shape.append(length)
    return make_spec(tuple(shape), x.dtype, x.weak)


def _pad_numpy(x: Array, *, low: tuple[int, ...], high: tuple[int, ...], value: float) -> Array:
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    wide = np.full([a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)], value, x.dtype)
    wide[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, widths, strict=True))] = x
    return wide[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(wide.shape, low, high, strict=True))].copy()


def _pad_jvp(output: Any, primals: Any, tangents: Any, *, low: Shape, high: Shape, value: float) -> Any:
    return bind(pad_p, tangents[0], low=low, high=high, value=0)


def _pad_transpose(ct: Any, primals: Any, output: Any, *, active: Any, low: Shape, high: Shape, value: float) -> Any:
    return (bind(pad_p, ct, low=tuple(-d for d in low), high=tuple(-d for d in high), value=0),)


def _pad_batch(ctx: Any, args: Any, batch_axes: Any, /, *, low: Shape, high: Shape, value: float) -> Any:
    return bind(pad_p, move_axis(args[0], batch_axes[0], 0), low=(0, *low), high=(0, *high), value=value), 0


def _may_be_negative(d: DimLike) -> bool:
    low = bounds(d)[0]
    return low is None or low < 0


def _may_be_positive(d: DimLike) -> bool:
    high = bounds(d)[1]
    return high is None or high > 0


def _pad_onnx(b: Any, x: str, *, low: Shape, high: Shape, value: float) -> str:
    if any(_may_be_positive(d) for d in (*low, *high)):
        amounts = tuple(d if not _may_be_negative(d) else max_dim(d, 0) for d in (*low, *high))
        dtype = b.dtype(x)
        x = b.op("Pad", x, b.shape(amounts), b.const(np.asarray(value, dtype)), mode="constant")
    cropped = [(i, a, c) for i, (a, c) in enumerate(zip(low, high, strict=True)) if _may_be_negative(a) or _may_be_negative(c)]
    if cropped:
        shape = b.in_specs[0].shape
        starts = tuple(max_dim(0, -a) for _, a, _ in cropped)
        # The length after padding, less what is cropped: the start plus the final length.
        stops = tuple(max_dim(0, -a) + shape[i] + a + c for i, a, c in cropped)
        axes = b.const([i for i, _, _ in cropped], np.int64)
        x = b.op("Slice", x, b.shape(starts), b.shape(stops), axes)
    return x


def _pad_simplify(ctx: Any, x: Any, *, low: Shape, high: Shape, value: float) -> Any:
    return x if all(not isinstance(d, Dim) and d == 0 for d in (*low, *high)) else None


pad_p = Primitive(
    "pad",
    exact=True,
    abstract=_pad_abstract,
    numpy=_pad_numpy,
    jvp=_pad_jvp,
    linear=((0,),),
    transpose=_pad_transpose,
    batch=_pad_batch,
    onnx=_pad_onnx,
    simplify=_pad_simplify,
    cases=[
        Case((Sample((2, 3), "any"),), {"low": (1, 0), "high": (0, 2), "value": 0}, named=(("B", 3),)),
        Case((Sample((4, 3)),), {"low": (-1, 2), "high": (3, -2), "value": 0}, named=(("B", 3),)),
        Case((Sample((0, 2)),), {"low": (1, 1), "high": (-1, 0), "value": 0}),
        Case((Sample((2,)),), {"low": (1,), "high": (1,), "value": float("-inf")}, smooth=False),
        Case((Sample((3,)),), {"low": (-3,), "high": (0,), "value": 0}),
        Case((Sample(()),), {"low": (), "high": (), "value": 0}),
    ],
)


def pad(x: Any, low: Sequence[DimLike], high: Sequence[DimLike], value: float = 0) -> Any:
    """x with `value` put before and after along each axis; a negative amount takes elements away, after the rest was added."""
    if all(not isinstance(d, Dim) and d == 0 for d in (*low, *high)):
        return x
    if not is_float(x.dtype):
        value = bool(value) if x.dtype.kind == "b" else int(value)
    return bind(pad_p, x, low=tuple(low), high=tuple(high), value=value)
