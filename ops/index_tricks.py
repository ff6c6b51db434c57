"""Positions in arrays: of flat indices and back, of diagonals and triangles; np.resize, which goes round and round them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim, product, same_dim
from ..stage.dtypes import INT64, is_integer, short_name
from ..stage.errors import ShapeError
from ..stage.narrowing import is_array, is_sequence
from ..stage.spec import Shape
from ..stage.trace import bind
from .arguments import array_operand, listed, shape_argument, size_of
from .arithmetic import add, multiply, where
from .comparison import less, logical_not
from .creation import iota, tri
from .division import floor_divide, remainder
from .gather import dim_operand, take
from .joining import unstack
from .operands import cast, dtype_of, shape_of
from .registry import implements
from .selection import nonzero
from .slicing import pad
from .structure import reshape_p

_MODES = ("raise", "wrap", "clip")


def _integers(x: Any, what: str) -> Any:
    index = array_operand(x, what)
    if not is_integer(dtype_of(index)[0]):
        raise TypeError(f"{what}: integers are needed, got {short_name(dtype_of(index)[0])}")
    return cast(index, INT64)


def _order(order: str, shape: Sequence[Any]) -> list[int]:
    """The axes from the slowest to the fastest."""
    if order not in ("C", "F"):
        raise ValueError("only 'C' or 'F' order is permitted")
    axes = list(range(len(shape)))
    return axes if order == "C" else axes[::-1]


def _bounded(index: Any, size: Any, mode: str) -> Any:
    length = dim_operand(size)
    if mode == "wrap":
        return remainder(index, length)
    if mode == "clip":
        below = where(less(index, 0), 0, index)
        return where(less(below, length), below, add(length, -1))
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if is_array(index) and not isinstance(size, Dim) and bool(((index < 0) | (index >= size)).any()):
        raise ValueError("invalid entry in coordinates array")
    return index


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """The flat indices (int64) of positions in an array of shape `dims`, given as an integer array for each axis.

    mode: "raise", "wrap" or "clip", or one for each axis. Whether traced positions lie within is not checked: see `np.clip`.
    Raises ValueError for constants beyond the shape, TypeError for no integers.
    """
    indices = listed(multi_index) if isinstance(multi_index, list | tuple) else list(unstack(multi_index))
    shape = shape_argument(dims)
    if len(indices) != len(shape):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(shape)}")
    modes = list(mode) if is_sequence(mode) else [mode] * len(shape)
    flat: Any = np.zeros((), INT64)
    for axis in _order(order, shape):
        index = _bounded(_integers(indices[axis], "ravel_multi_index"), shape[axis], modes[axis])
        flat = add(multiply(flat, dim_operand(shape[axis])), index)
    return flat


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """The positions in an array of a shape that flat indices name: an int64 array for each axis.

    Whether traced indices lie within is not checked. Raises ValueError for constants beyond the size, TypeError for no integers.
    """
    wanted = shape_argument(shape)
    rest = _integers(indices, "unravel_index")
    if is_array(rest) and not any(isinstance(d, Dim) for d in wanted):
        sizes: Any = wanted
        unravel: Any = np.unravel_index  # its stub takes two literals for the order
        return tuple(unravel(rest, sizes, order))
    result: list[Any] = [None] * len(wanted)
    for axis in reversed(_order(order, wanted)):
        length = dim_operand(wanted[axis])
        result[axis] = remainder(rest, length)
        rest = floor_divide(rest, length)
    return tuple(result)


def _square(arr: Any, what: str) -> Shape:
    shape = shape_of(array_operand(arr, what))
    if len(shape) != 2:
        raise ValueError("input array must be 2-d")
    return shape


@implements(np.diag_indices_from)
def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """The positions of the main diagonal of an array whose axes, two or more, are equally long: an int64 [n] for each axis."""
    shape = shape_of(array_operand(arr, "diag_indices_from"))
    if len(shape) < 2:
        raise ValueError("input array must be at least 2-d")
    if not all(same_dim(d, shape[0]) for d in shape):
        raise ValueError("All dimensions of input must be of equal length")
    return (iota(shape[0]),) * len(shape)


def _triangle(arr: Any, k: Any, what: str, upper: bool) -> tuple[Any, Any]:
    n, m = _square(arr, what)
    offset = k.__index__()
    if not isinstance(n, Dim) and not isinstance(m, Dim):
        return np.triu_indices(n, offset, m) if upper else np.tril_indices(n, offset, m)
    if offset not in (0, 1 if upper else -1) or not same_dim(n, m):
        raise ShapeError(f"{what}: of an array of shape {[str(n), str(m)]} square ones with the diagonal (k=0) or without are supported")
    half = n * (n + 1) // 2
    # Without the diagonal there are n fewer; they are cut off, since the bound must be seen not to be negative.
    mask = logical_not(tri(n, m, offset - 1, np.bool_)) if upper else tri(n, m, offset, np.bool_)
    places = nonzero(mask, size=half)
    if offset:
        places = tuple(pad(i, [0], [-n]) for i in places)
    return places[0], places[1]


@implements(np.tril_indices_from)
def tril_indices_from(arr: Any, k: Any = 0) -> tuple[Any, Any]:
    """The positions (rows, columns), int64, of the elements on and below the k-th diagonal of a matrix."""
    return _triangle(arr, k, "tril_indices_from", upper=False)


@implements(np.triu_indices_from)
def triu_indices_from(arr: Any, k: Any = 0) -> tuple[Any, Any]:
    """The positions (rows, columns), int64, of the elements on and above the k-th diagonal of a matrix."""
    return _triangle(arr, k, "triu_indices_from", upper=True)


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    """An array of another shape filled with the elements in order, over and over; zeros where there are none."""
    x = array_operand(a, "resize")
    shape = shape_argument(new_shape)
    if any(type(d) is int and d < 0 for d in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    count = size_of(x)
    flat = bind(reshape_p, x, shape=(count,))
    # One zero more, which is taken where there is nothing else: the remainder by zero is zero.
    padded = flat if isinstance(count, int) and count > 0 else pad(flat, [0], [1])
    return bind(reshape_p, take(padded, remainder(iota(product(shape)), dim_operand(count))), shape=shape)
