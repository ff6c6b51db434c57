"""Sets: the different elements of arrays, and of two of them together.

How many there are is data: of a traced array `size` of them are given, cut off or filled up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import INT64, is_float
from ..stage.errors import ConcretizationError, UnsupportedError
from ..stage.spec import DimLike
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .along_axis import take_along_axis_p
from .arguments import array_operand, dim_argument, size_of
from .arithmetic import add, subtract, where
from .comparison import equal, less, less_equal, logical_and, logical_not, logical_or, logical_xor, not_equal
from .creation import iota
from .cumulative import cumsum
from .extremum import maximum
from .gather import dim_operand, take
from .joining import join
from .operands import cast, dtype_of, operand, promoted, shape_of
from .predicates import isin
from .reductions import any as any_
from .reductions import count_nonzero
from .registry import implements
from .selection import flatnonzero
from .slicing import pad, slice_axis
from .sorting import argsort
from .structure import broadcast_to_p, reshape_p


def _no_size(what: str, arguments: str = "x") -> ConcretizationError:
    return ConcretizationError(
        f"{what}: how many elements there are in a traced array is known only when the program runs; give a bound, "
        f"ons.numpy.{what}({arguments}, size=n), or use np.sort, np.isin or np.where, whose results have known sizes"
    )


def _flat(x: Any) -> Any:
    return x if len(shape_of(x)) == 1 else bind(reshape_p, x, shape=(size_of(x),))


class _Runs:
    """The sorted elements of an array, in runs of equal ones."""

    def __init__(self, x: Any, equal_nan: bool) -> None:
        self.flat = _flat(x)
        self.order = argsort(self.flat)
        self.elements = bind(take_along_axis_p, self.flat, self.order, axis=0)
        self.is_first = self._firsts(equal_nan)

    def _firsts(self, equal_nan: bool) -> Any:
        x = self.elements
        place = iota(size_of(x))
        before = take(x, maximum(subtract(place, 1), 0))
        is_new = not_equal(x, before)
        if equal_nan and is_float(dtype_of(x)[0]):
            is_new = logical_and(is_new, logical_or(equal(x, x), equal(before, before)))
        return logical_or(is_new, equal(place, 0))


class _Chosen:
    """`size` places in the sorted elements: those where `mask` holds, then the first of them again."""

    def __init__(self, mask: Any, size: DimLike) -> None:
        self.size = size
        self.places = flatnonzero(mask, size=size)
        self.places = where(less(iota(size), count_nonzero(mask)), self.places, flatnonzero(mask, size=1))
        self.is_filled = less(iota(size), count_nonzero(mask))

    def take(self, x: Any, fill_value: Any) -> Any:
        """Elements at the places; beyond the last one fill_value, by default the first of them again."""
        length = size_of(x)
        if not isinstance(length, Dim) and length == 0:
            value = np.zeros((), dtype_of(x)[0]) if fill_value is None else cast(operand(fill_value), dtype_of(x)[0])
            return bind(broadcast_to_p, value, shape=(self.size,))
        # Where the array may be empty there is a zero to take.
        found = take(pad(x, [0], [1]) if isinstance(length, Dim) else x, self.places)
        if fill_value is None:
            return found
        return where(self.is_filled, found, cast(operand(fill_value), dtype_of(x)[0]))


class UniqueAll(NamedTuple):
    """The different elements, where each occurs first, for every element which one it is, and how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The different elements, and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The different elements, and for every element of the array which one it is."""

    values: Any
    inverse_indices: Any


def _unique(x: Any, size: Any, fill_value: Any, equal_nan: bool) -> tuple[_Runs, _Chosen, Any]:
    runs = _Runs(x, equal_nan)
    chosen = _Chosen(runs.is_first, dim_argument(size))
    return runs, chosen, chosen.take(runs.elements, fill_value)


def _inverse(runs: _Runs, shape: Any) -> Any:
    """For every element the number of its run: of the elements cut off it is `size` or more."""
    number = subtract(cumsum(cast(runs.is_first, INT64)), 1)
    inverse = bind(take_along_axis_p, number, argsort(runs.order), axis=0)
    return bind(reshape_p, inverse, shape=shape)


def _counts(runs: _Runs, chosen: _Chosen) -> Any:
    """How often each element occurs; 0 beyond the last one."""
    total = dim_operand(size_of(runs.flat))
    size = chosen.size
    starts = flatnonzero(runs.is_first, size=size + 1)
    starts = where(less(iota(size + 1), count_nonzero(runs.is_first)), starts, total)
    return subtract(slice_axis(starts, 0, 1, None), slice_axis(starts, 0, 0, size))


def _indices(runs: _Runs, chosen: _Chosen) -> Any:
    return chosen.take(runs.order, None)


@implements(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
    size: Any = None,
    fill_value: Any = None,
) -> Any:
    """The different elements of the flattened array, sorted: [count], or [size], cut off or filled up with fill_value.

    With it, as wanted: the index of each one's first occurrence, for every element the number of its like, and how often each occurs
    (0 where filled up). fill_value is the smallest element by default. Raises ConcretizationError for a traced array without size,
    UnsupportedError for one with an axis.
    """
    x = array_operand(ar, "unique")
    if not isinstance(x, Tracer) and size is None:
        return np.unique(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    if size is None:
        raise _no_size("unique")
    if axis is not None:
        raise UnsupportedError("unique: axis= is not supported on traced arrays; np.lexsort orders rows by their columns")
    runs, chosen, values = _unique(x, size, fill_value, equal_nan)
    result = [values]
    if return_index:
        result.append(_indices(runs, chosen))
    if return_inverse:
        result.append(_inverse(runs, shape_of(x)))
    if return_counts:
        result.append(_counts(runs, chosen))
    return tuple(result) if len(result) > 1 else values


@implements(np.unique_values)
def unique_values(x: Any, /, *, size: Any = None, fill_value: Any = None) -> Any:
    """The different elements, sorted, every NaN by itself; see `unique` for size and fill_value."""
    x = array_operand(x, "unique_values")
    if size is None:
        _require_known(x, "unique_values")
        return np.unique(x, equal_nan=False)
    return _unique(x, size, fill_value, False)[2]


@implements(np.unique_counts)
def unique_counts(x: Any, /, *, size: Any = None, fill_value: Any = None) -> UniqueCounts:
    """(values, counts) of the different elements, every NaN by itself; see `unique` for size and fill_value."""
    x = array_operand(x, "unique_counts")
    if size is None:
        _require_known(x, "unique_counts")
        return UniqueCounts(*np.unique_counts(x))
    runs, chosen, values = _unique(x, size, fill_value, False)
    return UniqueCounts(values, _counts(runs, chosen))


@implements(np.unique_inverse)
def unique_inverse(x: Any, /, *, size: Any = None, fill_value: Any = None) -> UniqueInverse:
    """(values, inverse_indices) with values[inverse_indices] = x, every NaN by itself; see `unique` for size and fill_value."""
    x = array_operand(x, "unique_inverse")
    if size is None:
        _require_known(x, "unique_inverse")
        return UniqueInverse(*np.unique_inverse(x))
    runs, _, values = _unique(x, size, fill_value, False)
    return UniqueInverse(values, _inverse(runs, shape_of(x)))


@implements(np.unique_all)
def unique_all(x: Any, /, *, size: Any = None, fill_value: Any = None) -> UniqueAll:
    """(values, indices, inverse_indices, counts) of the different elements, every NaN by itself; see `unique` for size and fill_value."""
    x = array_operand(x, "unique_all")
    if size is None:
        _require_known(x, "unique_all")
        return UniqueAll(*np.unique_all(x))
    runs, chosen, values = _unique(x, size, fill_value, False)
    return UniqueAll(values, _indices(runs, chosen), _inverse(runs, shape_of(x)), _counts(runs, chosen))


def _require_known(x: Any, what: str) -> None:
    if isinstance(x, Tracer):
        raise _no_size(what)


# ---------------------------------------------------------------------------------------------------------------- of two arrays


def _pair(a: Any, b: Any, what: str) -> tuple[Any, Any]:
    x, y = promoted(array_operand(a, what), array_operand(b, what), strong=True)
    return _flat(x), _flat(y)


def _known(x: Any, y: Any, size: Any, what: str) -> bool:
    if size is None and (isinstance(x, Tracer) or isinstance(y, Tracer)):
        raise _no_size(what, "x, y")
    return size is None


@implements(np.union1d)
def union1d(ar1: Any, ar2: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    """The different elements of either array, sorted; see `unique` for size and fill_value."""
    x, y = _pair(ar1, ar2, "union1d")
    if _known(x, y, size, "union1d"):
        return np.union1d(x, y)
    return _unique(join([x, y], 0), size, fill_value, True)[2]


@implements(np.intersect1d)
def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: Any = None,
    fill_value: Any = None,
) -> Any:
    """The different elements that lie in both arrays, sorted; see `unique` for size and fill_value. No indices of traced arrays."""
    x, y = _pair(ar1, ar2, "intersect1d")
    if _known(x, y, size, "intersect1d"):
        return np.intersect1d(x, y, assume_unique, return_indices)
    if return_indices:
        raise UnsupportedError("intersect1d: return_indices= is not supported on traced arrays; np.isin gives a mask")
    runs = _Runs(x, True)
    return _Chosen(logical_and(runs.is_first, isin(runs.elements, y)), dim_argument(size)).take(runs.elements, fill_value)


@implements(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: Any = None, fill_value: Any = None) -> Any:
    """The different elements of the first array that do not lie in the second, sorted; see `unique` for size and fill_value."""
    x, y = _pair(ar1, ar2, "setdiff1d")
    if _known(x, y, size, "setdiff1d"):
        return np.setdiff1d(ar1, ar2, assume_unique)
    # The result has the first array's dtype.
    runs = _Runs(_flat(array_operand(ar1, "setdiff1d")), True)
    mask = logical_and(runs.is_first, logical_not(isin(runs.elements, y)))
    return _Chosen(mask, dim_argument(size)).take(runs.elements, fill_value)


@implements(np.setxor1d)
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: Any = None, fill_value: Any = None) -> Any:
    """The different elements that lie in one of the arrays but not in the other, sorted; see `unique` for size and fill_value."""
    x, y = _pair(ar1, ar2, "setxor1d")
    if _known(x, y, size, "setxor1d"):
        return np.setxor1d(x, y, assume_unique)
    runs = _Runs(join([x, y], 0), True)
    mask = logical_and(runs.is_first, logical_xor(isin(runs.elements, x), isin(runs.elements, y)))
    if is_float(dtype_of(x)[0]):
        # NaN is not equal to itself: each array's is in the result.
        is_nan = not_equal(runs.elements, runs.elements)
        wanted = add(cast(any_(not_equal(x, x)), INT64), cast(any_(not_equal(y, y)), INT64))
        mask = logical_or(mask, logical_and(is_nan, less_equal(cumsum(cast(is_nan, INT64)), wanted)))
    return _Chosen(mask, dim_argument(size)).take(runs.elements, fill_value)
