"""Choosing elements: select, choose, compress, extract, ix_, delete, insert, and what is found by value: nonzero, argwhere, bincount.

How many elements a traced array has that are nonzero is known only at run time: those functions take `size=`; so do those of `sets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import BOOL, INT64, is_integer
from ..stage.errors import ConcretizationError, ShapeError
from ..stage.narrowing import is_array
from ..stage.primitive import Array
from ..stage.spec import Shape
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .along_axis import take_along_axis
from .arguments import dim_argument, no_out, size_of
from .arithmetic import add, subtract, where
from .comparison import greater_equal, less, logical_and
from .creation import iota, zeros
from .cumulative import cumsum
from .division import floor_divide, remainder
from .gather import dim_operand, take
from .index_plan import mask_array
from .joining import join, stack
from .operands import broadcast_shapes, cast, dtype_of, normalize_axis, operand, promoted, shape_of
from .reductions import count_nonzero
from .registry import implements
from .scatter import scatter_add_p, scatter_max_p
from .slicing import slice_axis
from .structure import broadcast, reshape_p


def _array(x: Any, what: str) -> Any:
    x = operand(x, what)
    return x if isinstance(x, Tracer) else np.asarray(x)


def _flat(x: Any) -> Any:
    return x if len(shape_of(x)) == 1 else bind(reshape_p, x, shape=(size_of(x),))


def _known(x: Any) -> Array | None:
    """The value of an array, where it is known while tracing."""
    return x._value if isinstance(x, Tracer) else x


# ------------------------------------------------------------------------------------------------------------ by conditions


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """For each place the choice whose condition is the first to hold, else the default; all broadcast and are promoted.

    Raises ValueError where the lists differ in length or are empty, TypeError for conditions that are not boolean.
    """
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    conditions = [_array(c, "select: condition") for c in condlist]
    for i, condition in enumerate(conditions):
        if dtype_of(condition)[0] != BOOL:
            raise TypeError(f"invalid entry {i} in condlist: should be boolean ndarray")
    choices = promoted(*(operand(c, "select: choice") for c in (*choicelist, default)), strong=True)
    result = choices[-1]
    for condition, choice in zip(reversed(conditions), reversed(choices[:-1]), strict=True):
        result = where(condition, choice, result)
    return result


@implements(np.choose, method="choose")
def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """For each place the element of the choice that `a` names there; all broadcast.

    mode: "raise" (ValueError for constants out of range, IndexError at run time), "wrap" or "clip".
    """
    no_out(out, "choose")
    index = _array(a, "choose")
    if not is_integer(index.dtype):
        raise TypeError(f"choose: integers are needed to choose by, got {index.dtype.name}")
    index = cast(index, INT64)
    items = [choices[i] for i in range(len(choices))]
    arrays = promoted(*(_array(c, "choose: choice") for c in items), strong=True)
    shape = broadcast_shapes(shape_of(index), *map(shape_of, arrays), what="choose")
    count = np.asarray(len(arrays))
    if mode == "wrap":
        index = remainder(index, count)
    elif mode == "clip":
        index = where(less(index, np.asarray(0)), np.asarray(0), where(less(index, count), index, count - 1))
    elif mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    elif isinstance(index, np.ndarray):
        if ((index < 0) | (index >= len(arrays))).any():
            raise ValueError("invalid entry in choice array")
    else:
        # A negative entry must not count from the end.
        index = where(less(index, np.asarray(0)), count, index)
    table = stack([broadcast(x, shape) for x in arrays])
    found = take_along_axis(table, bind(reshape_p, broadcast(index, shape), shape=(1, *shape)), axis=0)
    return bind(reshape_p, found, shape=shape)


def _positions(condition: Any, what: str) -> Array:
    return np.flatnonzero(np.asarray(mask_array(_array(condition, what), f"{what}: a condition")))


def compress(condition: Any, a: Any, axis: Any = None, out: None = None) -> Any:
    """The slices of `a` along an axis (of the flattened array for None) where a 1-d condition holds, which must be no traced one."""
    no_out(out, "compress")
    return take(a, _positions(condition, "compress"), axis)


implements(np.compress)(compress)


@implements(method="compress")
def _compress_method(a: Any, condition: Any, axis: Any = None, out: None = None) -> Any:
    return compress(condition, a, axis, out)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    """The elements of the flattened array where a condition of its size holds, which must be no traced one."""
    return take(arr, _positions(condition, "extract"))


@implements(np.ix_)
def ix_(*args: Any) -> tuple[Any, ...]:
    """Index arrays that broadcast to an open mesh, from 1-d integers or (not traced) booleans."""
    result: list[Any] = []
    for k, item in enumerate(args):
        x = _array(item, "ix_")
        if len(shape_of(x)) != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if is_array(x) and x.size == 0:
            x = x.astype(INT64)
        if x.dtype == BOOL:
            x = np.flatnonzero(mask_array(x, "ix_: a boolean mask"))
        size = shape_of(x)[0]
        result.append(bind(reshape_p, x, shape=(*(1,) * k, size, *(1,) * (len(args) - k - 1))))
    return tuple(result)


# ----------------------------------------------------------------------------------------------------- elements taken and put


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """`arr` without the slices that constant indices, a mask or a Python slice name along an axis (of the flattened array for None)."""
    x = _array(arr, "delete")
    if axis is None:
        x, axis = _flat(x), 0
    axis = normalize_axis(axis, len(shape_of(x)))
    kept = np.delete(np.arange(_static_size(x, axis, "delete")), _constant(obj, "delete"))
    return take(x, kept, axis)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """`arr` with values put before constant positions along an axis (of the flattened array for None)."""
    x = _array(arr, "insert")
    if axis is None:
        x, axis = _flat(x), 0
    shape = shape_of(x)
    axis = normalize_axis(axis, len(shape))
    size, places = _static_size(x, axis, "insert"), _constant(obj, "insert")
    new = cast(_array(values, "insert"), x.dtype)
    # NumPy's insert moves the axis of values for one scalar position, so that each value is a row.
    if np.ndim(places) == 0 and not isinstance(places, slice) and len(shape_of(new)):
        new = _moved(new, axis, len(shape))
    places = np.atleast_1d(np.arange(size)[places] if isinstance(places, slice) else places)
    places = np.flatnonzero(places) if places.dtype == BOOL else places
    if ((places < -size) | (places > size)).any():
        raise IndexError(f"index {int(places[0])} is out of bounds for axis {axis} with size {size}")
    places = np.where(places < 0, places + size, places)
    have = shape_of(new)
    count = have[int(axis)] if len(places) == 1 and len(have) == len(shape) else len(places)
    if isinstance(count, Dim):
        raise ShapeError(f"insert: the number of values along axis {axis} must be known, got {count}")
    new = broadcast(new, (*shape[:axis], count, *shape[axis + 1 :]))
    places = np.repeat(places, count) if len(places) == 1 else places
    table = np.insert(np.arange(size), places, size + np.arange(count))
    return take(join([x, new], axis), table, axis)


def _moved(x: Any, axis: int, ndim: int) -> Any:
    shape = (*(1,) * (ndim - len(shape_of(x))), *shape_of(x))
    x = bind(reshape_p, x, shape=shape)
    order = [*range(1, axis + 1), 0, *range(axis + 1, ndim)]
    return x.transpose(order) if axis else x


def _static_size(x: Any, axis: int, what: str) -> int:
    size = shape_of(x)[axis]
    if isinstance(size, Dim):
        raise ShapeError(f"{what}: axis {axis} has size {size}, which is known only at run time; slice and concatenate instead")
    return size


def _constant(obj: Any, what: str) -> Any:
    if isinstance(obj, Tracer):
        raise ConcretizationError(f"{what}: the positions are traced; constants are needed, or x[index] with a traced index of known shape")
    return obj


# ------------------------------------------------------------------------------------------------------------------ by value


def _no_size(what: str, x: Any) -> ConcretizationError:
    return ConcretizationError(
        f"{what}: how many elements a traced array ({x.spec!r}) gives is known only when the program runs; give a bound, "
        f"ons.numpy.{what}(x, size=n), or keep the shape: np.where(condition, x, other)"
    )


@implements(np.flatnonzero)
def flatnonzero(a: Any, *, size: Any = None, fill_value: Any = 0) -> Any:
    """Positions of the nonzero elements of the flattened array: int64 [count], or [size], cut off or filled up with fill_value.

    Raises ConcretizationError for a traced array without size.
    """
    x = _array(a, "flatnonzero")
    known = _known(x)
    if size is None:
        if known is None:
            raise _no_size("flatnonzero", x)
        return np.flatnonzero(known)
    size = dim_argument(size)
    hits = cast(_flat(x), BOOL)
    rank = subtract(cumsum(cast(hits, INT64)), np.asarray(1))
    limit = dim_operand(size)
    slot = where(logical_and(hits, less(rank, limit)), rank, limit)
    total = size_of(x)
    table = zeros((size + 1,), INT64)
    slots = bind(reshape_p, slot, shape=(total, 1))
    found = bind(scatter_max_p, table, slots, iota(total), batch_dims=0, unique=False)
    return where(less(iota(size), count_nonzero(hits)), slice_axis(found, 0, 0, size), np.asarray(fill_value, INT64))


@implements(np.nonzero, method="nonzero")
def nonzero(a: Any, *, size: Any = None, fill_value: Any = 0) -> tuple[Any, ...]:
    """Indices of the nonzero elements, an int64 array for each axis: [count], or [size], cut off or filled up with fill_value.

    Raises ConcretizationError for a traced array without size, ValueError for a 0-d one.
    """
    x = _array(a, "nonzero")
    shape = shape_of(x)
    if not shape:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    if size is None:
        known = _known(x)
        if known is None:
            raise _no_size("nonzero", x)
        return np.nonzero(known)
    flat = flatnonzero(x, size=size)
    is_filled = less(iota(dim_argument(size)), count_nonzero(x))
    return tuple(where(is_filled, i, np.asarray(fill_value, INT64)) for i in _unraveled(flat, shape))


def _unraveled(flat: Any, shape: Shape) -> list[Any]:
    result: list[Any] = []
    for size in reversed(shape):
        length = dim_operand(size)
        result.insert(0, remainder(flat, length))
        flat = floor_divide(flat, length)
    return result


@implements(np.argwhere)
def argwhere(a: Any, *, size: Any = None, fill_value: Any = 0) -> Any:
    """Indices of the nonzero elements as rows: int64 [count, ndim], or [size, ndim]; see `nonzero`."""
    x = _array(a, "argwhere")
    if size is None and _known(x) is None:
        raise _no_size("argwhere", x)
    if size is None:
        return np.argwhere(np.asarray(_known(x)))
    return stack(nonzero(x, size=size, fill_value=fill_value), axis=1)


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0, *, length: Any = None) -> Any:
    """How often each of 0, 1, ... occurs in a 1-d array of integers, or the sum of its weights: int64 or float64 [length].

    Raises ConcretizationError for a traced array without length, IndexError at run time for integers that are not below it.
    """
    index = _array(x, "bincount")
    values = None if weights is None else _array(weights, "bincount: weights")
    if length is None:
        known = _known(index)
        if known is None:
            raise ConcretizationError(
                "bincount: the size of the result is known only when the program runs; give a bound: ons.numpy.bincount(x, length=n)"
            )
        length = max(int(known.max(initial=-1)) + 1, minlength)
    if len(shape_of(index)) != 1:
        raise ValueError("object too deep for desired array" if len(shape_of(index)) else "object of too small depth for desired array")
    if not is_integer(index.dtype):
        raise TypeError(f"Cannot cast array data from dtype({index.dtype.name!r}) to dtype('int64') according to the rule 'safe'")
    index = cast(index, INT64)
    limit = dim_operand(dim_argument(length))
    index = where(greater_equal(index, np.asarray(0)), index, add(limit, np.asarray(1)))
    dtype = INT64 if values is None else np.dtype(np.float64)
    values = np.ones((), INT64) if values is None else cast(values, dtype)
    values = broadcast(values, shape_of(index))
    places = bind(reshape_p, index, shape=(size_of(index), 1))
    return bind(scatter_add_p, zeros((dim_argument(length),), dtype), places, values, batch_dims=0, unique=False)
