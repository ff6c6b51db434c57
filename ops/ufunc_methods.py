"""reduce, accumulate and reduceat of binary ufuncs, from the ufunc alone: where no reduction of its own is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import BOOL, as_dtype, is_integer
from ..stage.errors import ConcretizationError, DTypeError, ShapeError, UnsupportedError
from ..stage.spec import DimLike
from ..stage.tracer import Tracer
from .arguments import array_of, array_operand, listed, no_out
from .control.scan import scan
from .joining import join
from .operands import cast, dtype_of, normalize_axis, shape_of
from .registry import NUMPY, UFUNC_METHODS
from .shape import squeeze
from .slicing import slice_axis
from .structure import move_axis

# So many steps are written out; more of them become a loop.
_WRITTEN_OUT = 16


def ufunc_method(ufunc: Any, method: str) -> Callable[..., Any] | None:
    """The function for `ufunc.reduce`, `accumulate` or `reduceat`; None for another method, or a ufunc that is not supported."""
    registered = UFUNC_METHODS.get((ufunc, method))
    if registered is not None or ufunc not in NUMPY or (ufunc.nin, ufunc.nout) != (2, 1):
        return registered
    generic = {"reduce": _reduce, "accumulate": _accumulate, "reduceat": _reduceat}.get(method)
    if generic is None:
        return None

    def function(array: Any, *args: Any, **kwargs: Any) -> Any:
        return generic(ufunc, array, *args, **kwargs)

    return function


def _steady(ufunc: Any, x: Any, dtype: Any) -> Any:
    """The operand in the dtype that the ufunc gives back for it, so that results can be operands again."""
    x = x if dtype is None else cast(x, as_dtype(dtype))
    source = dtype_of(x)[0]
    one = np.ones((), source)
    with np.errstate(all="ignore"):
        given = dtype_of(NUMPY[ufunc](one, one))[0]
        if given != dtype_of(x)[0]:
            x, one = cast(x, given), np.ones((), given)
            given = dtype_of(NUMPY[ufunc](one, one))[0]
    if given != dtype_of(x)[0] or (given == BOOL and source != BOOL and ufunc is not np.logical_xor):
        raise DTypeError(
            f"np.{ufunc.__name__}: its results of {source.name} are {given.name} and cannot be combined again; cast to bool first"
        )
    return x


def _step(ufunc: Any, carry: Any, x: Any) -> Any:
    return NUMPY[ufunc](carry, x)


def _folded(ufunc: Any, x: Any, start: Any) -> Any:
    """((start . x[0]) . x[1]) . ... along the first axis; x[0] is the start where there is none."""
    size = shape_of(x)[0]
    if start is None:
        start, x = squeeze(slice_axis(x, 0, 0, 1), 0), slice_axis(x, 0, 1, None)
        size = size - 1
    if isinstance(size, Dim) or size > _WRITTEN_OUT:
        return scan(lambda carry, row: (_step(ufunc, carry, row), ()), start, x)[0]
    for i in range(size):
        start = _step(ufunc, start, squeeze(slice_axis(x, 0, i, i + 1), 0))
    return start


def _reduce(
    ufunc: Any,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    label = f"np.{ufunc.__name__}.reduce"
    no_out(out, label)
    if where is not True:
        raise UnsupportedError(f"{label}: where= is not supported on traced arrays")
    x = _steady(ufunc, array_operand(array, label), dtype)
    ndim = len(shape_of(x))
    axes = list(range(ndim)) if axis is None else sorted(normalize_axis(a, ndim) for a in listed(axis))
    if len(axes) > 1 and ufunc.identity is None and ufunc not in (np.fmax, np.fmin, np.hypot, np.logaddexp2):
        raise ValueError(f"reduction operation '{ufunc.__name__}' is not reorderable, so at most one axis may be specified")
    start = None if initial is None else array_of(initial, dtype_of(x)[0])
    for place in axes:
        size = shape_of(x)[place]
        if start is None and (isinstance(size, Dim) or size == 0):
            start = _identity(ufunc, x, size, label)
        rest = (*shape_of(x)[:place], *shape_of(x)[place + 1 :])
        carry = None if start is None else _filled(start, rest, dtype_of(x)[0])
        folded = _folded(ufunc, move_axis(x, place, 0), carry)
        x, start = _expanded(folded, place), None
    return x if keepdims else squeeze(x, tuple(axes))


def _identity(ufunc: Any, x: Any, size: DimLike, label: str) -> Any:
    if ufunc.identity is None and not isinstance(size, Dim):
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
    if ufunc.identity is None:
        raise ShapeError(f"{label}: an axis of {size} elements may be empty, and there is no identity; give initial=")
    return array_of(ufunc.identity, dtype_of(x)[0])


def _filled(start: Any, shape: Any, dtype: Any) -> Any:
    return NUMPY[np.broadcast_to](array_of(start, dtype), shape)


def _expanded(x: Any, axis: int) -> Any:
    return NUMPY[np.expand_dims](x, axis)


def _accumulate(ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, out: None = None) -> Any:
    label = f"np.{ufunc.__name__}.accumulate"
    no_out(out, label)
    x = _steady(ufunc, array_operand(array, label), dtype)
    if not shape_of(x):
        raise TypeError("cannot accumulate on a scalar")
    place = normalize_axis(axis, len(shape_of(x)))
    size = shape_of(x)[place]
    if not isinstance(size, Dim) and size < 2:
        return x
    if isinstance(size, Dim):
        raise ShapeError(f"{label}: the size of the axis must be known, got {size}")
    rows = move_axis(x, place, 0)
    parts = [slice_axis(rows, 0, 0, 1)]
    if size <= _WRITTEN_OUT:
        for i in range(1, size):
            parts.append(_step(ufunc, parts[-1], slice_axis(rows, 0, i, i + 1)))
        return move_axis(join(parts, 0), 0, place)

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        result = _step(ufunc, carry, row)
        return result, result

    rest = scan(step, squeeze(parts[0], 0), slice_axis(rows, 0, 1, None))[1]
    return move_axis(join([parts[0], rest], 0), 0, place)


def _reduceat(ufunc: Any, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: None = None) -> Any:
    label = f"np.{ufunc.__name__}.reduceat"
    no_out(out, label)
    if isinstance(indices, Tracer):
        raise ConcretizationError(
            f"{label}: the indices are traced; constants are needed, or ons.nn.segment_sum with a traced number of the segment for each element"
        )
    x = array_operand(array, label)
    places = np.asarray(indices)
    if places.ndim != 1 or not is_integer(places.dtype):
        raise TypeError(f"{label}: indices must be a 1-d array of integers")
    place = normalize_axis(axis, len(shape_of(x)))
    size = shape_of(x)[place]
    if not isinstance(size, Dim):
        outside = places[(places < 0) | (places >= size)]
        if outside.size:
            raise IndexError(f"index {outside[0]} out-of-bounds in {ufunc.__name__}.reduceat [0, {size})")
    reduce = ufunc_method(ufunc, "reduce")
    if reduce is None or not places.size:
        raise UnsupportedError(f"{label}: not supported on traced arrays with {places.size} indices")
    starts = places.tolist()
    parts: list[Any] = []
    for start, stop in zip(starts, [*starts[1:], None], strict=True):
        segment = slice_axis(x, place, start, stop if stop is None or stop > start else start + 1)
        parts.append(reduce(segment, place, dtype, keepdims=True))
    return join(parts, place)
