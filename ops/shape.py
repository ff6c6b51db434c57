"""Shapes: reshape, transpose, broadcasting, axes added and taken away, elements reversed and moved round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim, max_dim, same_dim
from ..stage.errors import ShapeError
from ..stage.spec import Shape
from ..stage.trace import bind
from .arguments import array_operand, listed, require_c_order, shape_argument, size_of
from .joining import at_least, join
from .operands import broadcast_shapes, normalize_axes, normalize_axis, operand, shape_of
from .registry import implements
from .slicing import reverse, slice_axis, slice_p
from .structure import broadcast_to_p, reshape_p, resolve_reshape, transpose_p
from .views import copied, view


def _permuted(x: Any, permutation: Sequence[int]) -> Any:
    return view(bind(transpose_p, x, permutation=tuple(permutation)), x)


def _reshaped(x: Any, shape: Shape) -> Any:
    return view(bind(reshape_p, x, shape=shape), x)


# ------------------------------------------------------------------------------------------------------------------- reshape


@implements(np.reshape)
def reshape(a: Any, /, shape: Any, order: Any = "C", *, copy: bool | None = None) -> Any:
    """The same elements, in row-major order, in another shape; one entry may be -1. Sizes may be named dims.

    Raises ValueError where the numbers of elements differ for some size.
    """
    x = array_operand(a, "reshape")
    wanted = shape_argument(shape)
    if order == "F":
        backwards = _permuted(x, range(len(shape_of(x)))[::-1])
        y = bind(reshape_p, backwards, shape=resolve_reshape(shape_of(backwards), wanted[::-1]))
        result = bind(transpose_p, y, permutation=tuple(range(len(wanted)))[::-1])
    else:
        require_c_order(order, "reshape")
        result = bind(reshape_p, x, shape=resolve_reshape(shape_of(x), wanted))
    return copied(result) if copy else view(result, x)


@implements(method="reshape")
def _reshape_method(x: Any, *shape: Any, order: Any = "C", copy: bool | None = None) -> Any:
    return reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)


@implements(np.ravel, method="ravel")
def ravel(a: Any, order: Any = "C") -> Any:
    """All elements along one axis."""
    return reshape(a, (-1,), order)


@implements(method="flatten")
def flatten(x: Any, order: Any = "C") -> Any:
    """A copy with all elements along one axis."""
    return copied(ravel(x, order))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    """Axes of size 1 put in at the positions that `axis` says, an int or a tuple, in the result."""
    x = array_operand(a, "expand_dims")
    axes = listed(axis)
    ndim = len(shape_of(x)) + len(axes)
    places = normalize_axes(tuple(axes), ndim)
    old = iter(shape_of(x))
    return _reshaped(x, tuple([1 if i in places else next(old) for i in range(ndim)]))


@implements(np.squeeze, method="squeeze")
def squeeze(a: Any, axis: Any = None) -> Any:
    """Axes of size 1 taken out: all of them, or those given. Raises ValueError for one that is not (known to be) 1."""
    x = array_operand(a, "squeeze")
    shape = shape_of(x)
    if axis is None:
        axes: tuple[int, ...] = tuple(i for i, d in enumerate(shape) if type(d) is int and d == 1)
    else:
        axes = normalize_axes(axis, len(shape))
        for i in axes:
            if not same_dim(shape[i], 1):
                raise ShapeError(f"cannot select an axis to squeeze out which has size not equal to one (axis {i} of {list(shape)})")
    return _reshaped(x, tuple(d for i, d in enumerate(shape) if i not in axes))


def _at_least(ndim: int, arrays: Sequence[Any]) -> Any:
    results = tuple([view(at_least(x, ndim), x) for x in (array_operand(a, f"atleast_{ndim}d") for a in arrays)])
    return results[0] if len(results) == 1 else results


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    """Arrays of at least one axis; a tuple of them for several."""
    return _at_least(1, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    """Arrays of at least two axes, 1-d ones as rows."""
    return _at_least(2, arys)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    """Arrays of at least three axes: [n] becomes [1, n, 1], [m, n] becomes [m, n, 1]."""
    return _at_least(3, arys)


# ----------------------------------------------------------------------------------------------------------------- transpose


@implements(np.transpose)
def transpose(a: Any, axes: Any = None) -> Any:
    """The axes in another order, reversed by default. Raises ValueError for what is no permutation of them."""
    x = array_operand(a, "transpose")
    ndim = len(shape_of(x))
    if axes is None:
        return _permuted(x, range(ndim)[::-1])
    order = [normalize_axis(i, ndim) for i in axes]
    if len(order) != ndim:
        raise ShapeError(f"axes don't match array: {list(axes)} for {ndim} axes")
    if len(set(order)) != ndim:
        raise ValueError("repeated axis in transpose")
    return _permuted(x, order)


@implements(method="transpose")
def _transpose_method(x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)):
        return transpose(x, axes[0])
    return transpose(x, axes or None)


def permute_dims(x: Any, axes: Any) -> Any:
    """The axes in the order given."""
    return transpose(x, axes)


@implements(attribute="T")
def _T(x: Any) -> Any:
    return transpose(x)


@implements(np.matrix_transpose, np.linalg.matrix_transpose, attribute="mT")
def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged. Raises ValueError for arrays of fewer."""
    x = array_operand(x, "matrix_transpose")
    ndim = len(shape_of(x))
    if ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {ndim}")
    return _permuted(x, (*range(ndim - 2), ndim - 1, ndim - 2))


@implements(np.swapaxes, method="swapaxes")
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    """Two axes exchanged."""
    x = array_operand(a, "swapaxes")
    order = list(range(len(shape_of(x))))
    i, j = normalize_axis(axis1, len(order), "axis1"), normalize_axis(axis2, len(order), "axis2")
    order[i], order[j] = j, i
    return _permuted(x, order)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other positions; the others keep their order."""
    x = array_operand(a, "moveaxis")
    ndim = len(shape_of(x))
    sources = [normalize_axis(i, ndim, "source") for i in listed(source)]
    targets = [normalize_axis(i, ndim, "destination") for i in listed(destination)]
    if len(sources) != len(targets):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    if len(set(sources)) != len(sources) or len(set(targets)) != len(targets):
        raise ValueError("repeated axis in moveaxis")
    order = [i for i in range(ndim) if i not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        order.insert(target, origin)
    return _permuted(x, order)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: Any, start: Any = 0) -> Any:
    """An axis moved back until it lies before position `start`."""
    x = array_operand(a, "rollaxis")
    ndim = len(shape_of(x))
    axis = normalize_axis(axis, ndim)
    start = normalize_axis(start, ndim + 1, "start")
    return moveaxis(x, axis, start - 1 if axis < start else start)


# -------------------------------------------------------------------------------------------------------------- broadcasting


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """The array repeated along new axes and axes of size 1. Raises ValueError where it does not fit."""
    x = array_operand(array, "broadcast_to")
    wanted = shape_argument(shape)
    if any(type(d) is int and d < 0 for d in wanted):
        raise ValueError("all elements of broadcast shape must be non-negative")
    return view(bind(broadcast_to_p, x, shape=wanted), x)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """Arrays broadcast to their common shape."""
    xs = [array_operand(a, "broadcast_arrays") for a in args]
    shape = broadcast_shapes(*(shape_of(x) for x in xs), what="broadcast_arrays")
    return tuple([broadcast_to(x, shape) for x in xs])


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    """Coordinate arrays from coordinate vectors; with indexing "xy" the first two axes are exchanged."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    xs = [array_operand(x, "meshgrid") for x in xi]
    place = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        place[0], place[1] = 1, 0
    rows = [bind(reshape_p, x, shape=tuple(size_of(x) if i == p else 1 for i in range(len(xs)))) for x, p in zip(xs, place, strict=True)]
    if sparse:
        return tuple(rows)
    shape = broadcast_shapes(*(shape_of(r) for r in rows)) if rows else ()
    return tuple([bind(broadcast_to_p, r, shape=shape) for r in rows])


# ------------------------------------------------------------------------------------------------------- reversed, moved round


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """The elements in reverse order along axes, all by default."""
    x = array_operand(m, "flip")
    axes = normalize_axes(axis, len(shape_of(x)))
    return view(reverse(x, axes), x) if axes else copied(x)


@implements(np.fliplr)
def fliplr(m: Any) -> Any:
    """The second axis reversed."""
    if len(shape_of(operand(m, "fliplr"))) < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


@implements(np.flipud)
def flipud(m: Any) -> Any:
    """The first axis reversed."""
    if not shape_of(operand(m, "flipud")):
        raise ValueError("Input must be >= 1-d.")
    return flip(m, 0)


@implements(np.rot90)
def rot90(m: Any, k: Any = 1, axes: Any = (0, 1)) -> Any:
    """A quarter turn, k times, from the first of two axes towards the second."""
    x = array_operand(m, "rot90")
    ndim = len(shape_of(x))
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    first, second = (normalize_axis(a, ndim) for a in axes)
    if first == second:
        raise ValueError("Axes must be different.")
    k = k.__index__() % 4
    if k == 0:
        return view(copied(x), x)
    if k == 2:
        return flip(x, (first, second))
    return swapaxes(flip(x, second), first, second) if k == 1 else flip(swapaxes(x, first, second), second)


def _rolled(x: Any, shift: Any, axis: int) -> Any:
    size = shape_of(x)[axis]
    if isinstance(size, Dim) or isinstance(shift, Dim):
        # A window on two copies, whose size is known to be that of one. Modulo 1 where there is nothing to move.
        start = size - shift % max_dim(size, 1)
        twice = join([x, x], axis)
        ndim = len(shape_of(x))
        starts = tuple(start if i == axis else 0 for i in range(ndim))
        stops = tuple(start + size if i == axis else d for i, d in enumerate(shape_of(x)))
        return bind(slice_p, twice, start=starts, stop=stops, step=(1,) * ndim)
    shift = shift % size if size else 0
    if shift == 0:
        return x
    return join([slice_axis(x, axis, size - shift, size), slice_axis(x, axis, 0, size - shift)], axis)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved along axes by `shift` places, those that fall off coming in at the other end; flattened for axis None."""
    x = array_operand(a, "roll")
    shape = shape_of(x)
    if axis is None:
        return bind(reshape_p, _rolled(bind(reshape_p, x, shape=(size_of(x),)), _shift(shift), 0), shape=shape)
    axes, shifts = listed(axis), listed(shift)
    count = max(len(axes), len(shifts))
    if len(axes) not in (1, count) or len(shifts) not in (1, count):
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    axes, shifts = axes * (count // len(axes)), shifts * (count // len(shifts))
    result = x
    for places, i in zip(shifts, axes, strict=True):
        result = _rolled(result, _shift(places), normalize_axis(i, len(shape)))
    return copied(result) if result is x else result


def _shift(places: Any) -> Any:
    return places if isinstance(places, Dim) else places.__index__()
