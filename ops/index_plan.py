"""Index expressions, as NumPy reads them, resolved against a shape.

`x[index]` becomes an IndexPlan: slices along axes, axes dropped by integers, index arrays that broadcast together into a block of
axes, and where the block and the new axes stand in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..stage.dims import Dim, product, same_dim
from ..stage.dtypes import BOOL, INT64, is_integer
from ..stage.errors import ConcretizationError, ShapeError
from ..stage.narrowing import is_array, is_bool_scalar, is_integer_scalar, is_sequence, is_slice, is_tuple
from ..stage.primitive import Array
from ..stage.spec import DimLike, Shape
from ..stage.tracer import Tracer
from .gather import check_bounds, dim_operand
from .joining import stack
from .operands import broadcast_shapes, cast, operand, shape_of

NEW, BLOCK = "new", "block"
Token: TypeAlias = int | str
_INVALID = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"


class IndexPlan(NamedTuple):
    """What `x[index]` takes of an array of `shape`.

    slices: Python slices by axis, integers among them as slices of length 1, whose axes are in `dropped`. arrays: the indexed axes
    with their int64 index arrays, which broadcast to `block`. layout: the axes of the result in order, each an axis of the array,
    NEW, or BLOCK for all axes of the block. unique: no element is named twice.
    """

    shape: Shape
    slices: dict[int, slice]
    dropped: tuple[int, ...]
    arrays: tuple[tuple[int, Any], ...]
    block: Shape | None
    layout: tuple[Token, ...]
    unique: bool
    is_view: bool


class _Entry(NamedTuple):
    kind: str  # "slice", "int", "array", "flag" (a single bool), "new", "ellipsis", "mask", "gap"
    value: Any = None

    @property
    def consumed(self) -> int:
        if self.kind in ("new", "ellipsis", "flag", "gap"):
            return 0
        return self.value.ndim if self.kind == "mask" else 1


def mask_array(mask: Any, what: str = "a boolean mask") -> Array:
    """The value of a boolean mask; ConcretizationError for one that is known only at run time."""
    if not isinstance(mask, Tracer):
        return mask
    value = mask._value
    if value is None:
        raise ConcretizationError(
            f"{what} of shape {list(mask.shape)} is traced, so how many elements it takes is known only when the program runs; "
            "keep the shape: np.where(mask, x, other), x.at[mask].set(value), np.sum(x, where=mask), or give a bound: "
            "ons.numpy.nonzero(mask, size=n)"
        )
    return value


def _entry(item: Any) -> _Entry:
    if item is None:
        return _Entry("new")
    if item is Ellipsis:
        return _Entry("ellipsis")
    if is_slice(item):
        for bound in (item.start, item.stop, item.step):
            if isinstance(bound, Tracer) and bound._value is None:
                raise ConcretizationError(
                    "a slice with a traced bound has a size that is known only when the program runs; for a window of fixed size n "
                    "that starts at a traced position use x[start + np.arange(n)]"
                )
        return _Entry("slice", item)
    if is_bool_scalar(item):
        return _Entry("flag", bool(item))
    if is_integer_scalar(item):
        return _Entry("int", int(item))
    if isinstance(item, Dim):
        return _Entry("int", dim_operand(item))
    if isinstance(item, str | bytes | float | np.floating | dict | set):
        raise IndexError(_INVALID)
    array = _sequence(item) if is_sequence(item) else operand(item, "index")
    if not isinstance(array, Tracer):
        array = np.asarray(array)
    if array.dtype == BOOL:
        mask = mask_array(array)
        return _Entry("flag", bool(mask)) if mask.ndim == 0 else _Entry("mask", mask)
    if not is_integer(array.dtype):
        raise IndexError(_INVALID if not array.ndim else "arrays used as indices must be of integer (or boolean) type")
    if array.ndim:
        return _Entry("array", cast(array, INT64))
    return _Entry("int", cast(array, INT64) if isinstance(array, Tracer) else int(array))


def _sequence(items: Sequence[Any]) -> Any:
    if any(isinstance(i, Tracer | Dim) for i in items):
        return stack([operand(i, "index") for i in items])
    if any(is_sequence(i) and _holds_traced(i) for i in items):
        return stack([_sequence(i) if is_sequence(i) else operand(i, "index") for i in items])
    array = np.asarray(items)
    return array.astype(INT64) if array.size == 0 and array.dtype.kind == "f" else array


def _holds_traced(items: Sequence[Any]) -> bool:
    return any(isinstance(i, Tracer | Dim) or (is_sequence(i) and _holds_traced(i)) for i in items)


def _entries(index: Any, ndim: int) -> list[_Entry]:
    """The items of an index, its ellipsis replaced by full slices, or by a "gap" where there are none."""
    found = [_entry(item) for item in (index if is_tuple(index) else (index,))]
    places = [i for i, e in enumerate(found) if e.kind == "ellipsis"]
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(e.consumed for e in found)
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    rest = [_Entry("slice", slice(None))] * (ndim - used)
    at = places[0] if places else len(found)
    # An ellipsis parts index arrays even where it stands for no axis.
    rest = rest or [_Entry("gap")]
    return [*found[:at], *rest, *found[at + 1 :]]


def _mask_entries(mask: Any, shape: Shape, axis: int) -> list[Array]:
    for offset, size in enumerate(mask.shape):
        have = shape[axis + offset]
        if isinstance(have, Dim):
            raise ShapeError(f"a boolean mask of {size} elements indexes axis {axis + offset}, whose size {have} is known only at run time")
        if have != size and size:  # NumPy lets an empty mask pass
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + offset}; size of axis is {have} "
                f"but size of corresponding boolean axis is {size}"
            )
    return [np.asarray(i, INT64) for i in np.nonzero(mask)]


def make_plan(index: Any, shape: Shape) -> IndexPlan:
    """Resolve an index expression. Raises IndexError as NumPy does, ConcretizationError for traced masks and slice bounds."""
    has_ellipsis = any(i is Ellipsis for i in index) if is_tuple(index) else index is Ellipsis
    entries = _entries(index, len(shape))
    is_fancy = any(e.kind in ("array", "mask", "flag") for e in entries)
    slices: dict[int, slice] = {}
    dropped: list[int] = []
    arrays: list[tuple[int, Any]] = []
    broadcast: list[Any] = []
    layout: list[Token] = []
    runs, is_open, axis = 0, False, 0
    place = 0
    for kind, value in entries:
        advanced = kind in ("array", "mask", "flag") or (kind == "int" and is_fancy)
        if advanced and not is_open:
            runs += 1
            place = len(layout) if runs == 1 else place
        is_open = advanced
        if kind == "gap":
            continue
        if kind == "new":
            layout.append(NEW)
        elif kind == "flag":
            broadcast.append(np.zeros(int(value), INT64))
        elif kind == "slice":
            slices[axis] = value
            layout.append(axis)
            axis += 1
        elif kind == "int" and isinstance(value, int) and not isinstance(shape[axis], Dim):
            position = _position(value, shape[axis], axis)
            slices[axis] = slice(position, position + 1)
            dropped.append(axis)
            axis += 1
        else:
            found: list[Any] = (
                _mask_entries(value, shape, axis) if kind == "mask" else [np.asarray(value) if isinstance(value, int) else value]
            )
            for i in found:
                arrays.append((axis, i))
                broadcast.append(i)
                axis += 1
    block: Shape | None = None
    if broadcast:
        block = _block([shape_of(i) for i in broadcast])
        layout.insert(place if runs == 1 else 0, BLOCK)
    arrays = [(a, _checked(i, shape[a], a, block)) for a, i in arrays]
    is_scalar = not has_ellipsis and not is_fancy and all(e.kind in ("int", "gap") for e in entries)
    return IndexPlan(
        shape,
        slices,
        tuple(dropped),
        tuple(arrays),
        block,
        tuple(layout),
        _is_unique(arrays, shape, block),
        not is_fancy and not is_scalar,
    )


def _position(value: int, size: DimLike, axis: int) -> int:
    assert isinstance(size, int)
    if not -size <= value < size:
        raise IndexError(f"index {value} is out of bounds for axis {axis} with size {size}")
    return value % size


def _block(shapes: list[Shape]) -> Shape:
    try:
        return broadcast_shapes(*shapes, what="indexing")
    except ShapeError as error:
        if any(isinstance(d, Dim) for s in shapes for d in s):
            raise
        texts = " ".join(str(tuple(s)) for s in shapes)
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together with shapes {texts}") from error


def _checked(index: Any, size: DimLike, axis: int, block: Shape | None) -> Any:
    """Constant indices checked against the axis, and counted from its start."""
    if not is_array(index) or isinstance(size, Dim):
        return index
    if not index.ndim or not same_dim(product(block or ()), 0):
        check_bounds(index, size, axis)
    return np.where(index < 0, index + size, index)


def static_shape(shape: Shape | None) -> tuple[int, ...]:
    """The sizes of a shape without named dims."""
    return tuple(d for d in shape or () if not isinstance(d, Dim))


def _is_unique(arrays: list[tuple[int, Any]], shape: Shape, block: Shape | None) -> bool:
    """Whether it can be seen that no element is named twice."""
    count = product(block or ())
    if isinstance(count, Dim):
        return False
    if count <= 1:
        return True
    if not arrays or not all(isinstance(i, np.ndarray) for _, i in arrays):
        return False
    if any(isinstance(shape[a], Dim) and i.size and i.min() < 0 <= i.max() for a, i in arrays):
        return False
    tuples = np.stack([np.broadcast_to(i, static_shape(block)).reshape(-1) for _, i in arrays], axis=1)
    return bool(len(np.unique(tuples, axis=0)) == count)
