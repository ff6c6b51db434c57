"""Sorting and searching: sort, argsort, top_k, partition, lexsort, searchsorted.

One primitive gives the order of the elements along an axis; values, and their derivatives, are gathered by it. Sorting is always
stable and puts NaN last; the descending order is that of top_k: ties keep their places, NaN counts as the largest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, same_dim
from ..stage.dtypes import BOOL, FLOAT32, FLOAT64, INT64, is_float
from ..stage.errors import ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, DimLike, make_spec
from ..stage.trace import bind
from .along_axis import take_along_axis_p
from .arguments import array_of, array_operand, dim_argument, listed, size_of
from .arithmetic import add_p, subtract_p, where_p
from .comparison import less_equal_p, less_p, logical_and, logical_not, logical_or, not_equal_p
from .joining import unstack
from .operands import cast, dtype_of, normalize_axis, promoted, shape_of
from .reductions import UINT64, signed_order
from .registry import implements
from .slicing import pad
from .structure import broadcast, move_axis, reshape_p

# --------------------------------------------------------------------------------------------------------------------- order


def _order_abstract(x: ArraySpec, *, axis: int, count: DimLike, descending: bool) -> ArraySpec:
    return make_spec((*x.shape[:axis], count, *x.shape[axis + 1 :]), INT64)


def _order_numpy(x: Array, *, axis: int, count: int, descending: bool) -> Array:
    if x.dtype.name == "bfloat16":
        x = x.astype(np.float32)
    if descending:
        # The stable descending order is the ascending one of the reversed array, reversed.
        n = x.shape[axis]
        order = n - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.take(order, np.arange(count), axis).astype(np.int64, copy=False)


def _order_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int, count: DimLike, descending: bool) -> Any:
    return bind(order_p, move_axis(args[0], batch_axes[0], 0), axis=axis + 1, count=count, descending=descending), 0


def _order_onnx(b: Any, x: str, *, axis: int, count: DimLike, descending: bool) -> str:
    dtype, size = b.dtype(x), b.in_specs[0].shape[axis]
    if dtype == BOOL:
        x = b.cast(x, np.dtype(np.uint8))
    elif dtype == UINT64:
        x = signed_order(b, x)
    elif dtype == FLOAT64:
        return _float64_order(b, x, axis, count, size, descending)
    elif is_float(dtype):
        # ONNX Runtime sorts NaN anywhere. In float64 there is room for it beyond infinity.
        wide = b.cast(b.cast(x, FLOAT32), FLOAT64)
        infinity = b.const(np.inf, FLOAT64)
        finite = b.op("Where", b.op("Equal", wide, infinity), b.const(1e308, FLOAT64), wide)
        x = b.op("Where", b.op("IsNaN", wide), infinity, finite)
    return _top(b, x, axis, count, descending)


def _top(b: Any, x: str, axis: int, count: DimLike, descending: bool) -> str:
    return b.op("TopK", x, b.shape((count,)), axis=axis, largest=int(descending), sorted=1, outputs=2)[1]


def _float64_order(b: Any, x: str, axis: int, count: DimLike, size: DimLike, descending: bool) -> str:
    # Sorted with NaN as infinity; then the NaNs are moved past the infinities they lie among, each kind keeping its order.
    int64 = INT64
    key = b.op("Where", b.op("IsNaN", x), b.const(np.inf, FLOAT64), x)
    order = _top(b, key, axis, size, descending)
    is_nan = b.cast(b.op("GatherElements", b.op("IsNaN", x), order, axis=axis), int64)
    others = b.op("Sub", b.const(1, int64), is_nan)
    where = b.const(axis, int64)
    one = b.const(1, int64)
    nan_rank = b.op("Sub", b.op("CumSum", is_nan, where), one)
    other_rank = b.op("Sub", b.op("CumSum", others, where), one)
    axes = b.const([axis], int64)
    if descending:
        other_rank = b.op("Add", other_rank, b.op("ReduceSum", is_nan, axes, keepdims=1))
    else:
        nan_rank = b.op("Add", nan_rank, b.op("ReduceSum", others, axes, keepdims=1))
    place = b.op("Where", b.cast(is_nan, BOOL), nan_rank, other_rank)
    order = b.op("ScatterElements", order, place, order, axis=axis)
    if same_dim(count, size):
        return order
    return b.op("Slice", order, b.const([0], int64), b.shape((count,)), axes)


order_p = Primitive(
    "order",
    abstract=_order_abstract,
    numpy=_order_numpy,
    nondifferentiable="an index is an integer",
    batch=_order_batch,
    onnx=_order_onnx,
    shadow="decision",
    cases=[
        Case((Sample((3, 4)),), {"axis": 1, "count": 4, "descending": False}, named=(("B", 4),)),
        Case((Sample((5, 2), "int", (-2, 2)),), {"axis": 0, "count": 5, "descending": False}),
        Case((Sample((5, 2), "int", (-2, 2)),), {"axis": 0, "count": 2, "descending": True}),
        Case((Sample((6,), "bool"),), {"axis": 0, "count": 6, "descending": True}),
        Case(
            (Sample((6,), "float", values=[3, np.nan, np.inf, np.nan, -np.inf, 1]),),
            {"axis": 0, "count": 6, "descending": False},
        ),
        Case(
            (Sample((6,), "float", values=[np.inf, np.nan, 3, np.nan, -0.0, 0.0]),),
            {"axis": 0, "count": 3, "descending": True},
        ),
        Case((Sample((0, 2)),), {"axis": 0, "count": 0, "descending": False}),
    ],
)


def _axis_of(x: Any, axis: Any) -> tuple[Any, int]:
    """The operand, flattened for axis None, and a non-negative axis."""
    if axis is None:
        return bind(reshape_p, x, shape=(size_of(x),)), 0
    return x, normalize_axis(axis, len(shape_of(x)))


def _check_sort(kind: Any, order: Any) -> None:
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got '{kind}')")


@implements(np.argsort, method="argsort")
def argsort(
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: bool = False,
) -> Any:
    """The indices (int64) that sort along an axis, of the flattened array for None. Stable, whatever `kind`; NaN comes last."""
    _check_sort(kind, order)
    x, axis = _axis_of(array_operand(a, "argsort"), axis)
    return bind(order_p, x, axis=axis, count=shape_of(x)[axis], descending=bool(descending))


@implements(np.sort)
def sort(
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: bool = False,
) -> Any:
    """The elements in order along an axis, of the flattened array for None; NaN last (first if descending).

    The gradient follows the elements; ties keep their stable order.
    """
    _check_sort(kind, order)
    x, axis = _axis_of(array_operand(a, "sort"), axis)
    places = bind(order_p, x, axis=axis, count=shape_of(x)[axis], descending=bool(descending))
    return bind(take_along_axis_p, x, places, axis=axis)


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    """The elements with the k-th at its sorted place: here all of them are sorted, which is one of the partitions."""
    _check_kth(a, kth, axis)
    return sort(a, axis, order=order)


@implements(np.argpartition, method="argpartition")
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    """The indices of a `partition`."""
    _check_kth(a, kth, axis)
    return argsort(a, axis, order=order)


def _check_kth(a: Any, kth: Any, axis: Any) -> None:
    x, place = _axis_of(array_operand(a, "partition"), axis)
    size: DimLike = shape_of(x)[place]
    for k in listed(kth):
        if not isinstance(size, Dim) and not isinstance(k, Dim) and not -size <= k.__index__() < size:
            raise ValueError(f"kth(={k}) out of bounds ({size})")


def top_k(x: Any, k: Any, *, axis: Any = -1) -> tuple[Any, Any]:
    """(values, indices) of the k largest elements along an axis, largest first; the first of equal ones first, NaN before all.

    Raises ValueError for more than there are.
    """
    x = array_operand(x, "top_k")
    if not shape_of(x):
        raise ShapeError("top_k: a 0-d array has no axis to choose along")
    place = normalize_axis(axis, len(shape_of(x)))
    count = dim_argument(k)
    size = shape_of(x)[place]
    if not isinstance(count, Dim) and (count < 0 or (not isinstance(size, Dim) and count > size)):
        raise ShapeError(f"top_k: {count} of {size} elements along axis {place} of an array of shape {list(shape_of(x))}")
    indices = bind(order_p, x, axis=place, count=count, descending=True)
    return bind(take_along_axis_p, x, indices, axis=place), indices


@implements(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Any:
    """The indices that sort by several keys, the last one first of all. `keys`: a sequence of arrays, or an array's first axis."""
    xs = [array_operand(k, "lexsort") for k in (listed(keys) if isinstance(keys, tuple | list) else unstack(keys))]
    if not xs:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    axis = normalize_axis(axis, len(shape_of(xs[0])))
    places = argsort(xs[0], axis)
    for x in xs[1:]:
        again = argsort(bind(take_along_axis_p, x, places, axis=axis), axis)
        places = bind(take_along_axis_p, places, again, axis=axis)
    return places


# -------------------------------------------------------------------------------------------------------------- searchsorted


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where each of `v` would have to be put into the sorted 1-d array `a`: before equal elements for "left", after for "right".

    `sorter`: indices that sort `a`. A binary search; NaN lies after all numbers.
    """
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got '{side}')")
    x, wanted = promoted(array_operand(a, "searchsorted"), array_operand(v, "searchsorted: v"), strong=True)
    if len(shape_of(x)) != 1:
        raise ValueError("object too deep for desired array" if shape_of(x) else "object of too small depth for desired array")
    if sorter is not None:
        x = bind(take_along_axis_p, x, cast(array_operand(sorter, "sorter"), INT64), axis=0)
    size, shape = shape_of(x)[0], shape_of(wanted)
    wanted = bind(reshape_p, wanted, shape=(size_of(wanted),))
    # One more element, never looked at, so that there is one to gather where `a` is empty.
    x = pad(x, [0], [1])
    levels = 31 if isinstance(size, Dim) else size.bit_length()
    count = array_of(size, INT64)
    place = broadcast(np.zeros((), np.int64), shape_of(wanted))
    for level in reversed(range(levels)):
        further = bind(add_p, place, np.asarray(1 << level, np.int64))
        inside = bind(less_equal_p, further, broadcast(count, shape_of(wanted)))
        last = bind(where_p, inside, bind(subtract_p, further, np.asarray(1, np.int64)), np.asarray(0, np.int64))
        element = bind(take_along_axis_p, x, last, axis=0)
        before = _before(element, wanted) if side == "left" else logical_not(_before(wanted, element))
        place = bind(where_p, logical_and(inside, before), further, place)
    return bind(reshape_p, place, shape=shape)


def _before(x: Any, y: Any) -> Any:
    """x < y, where NaN lies after all numbers."""
    less = bind(less_p, x, y)
    if not is_float(dtype_of(x)[0]):
        return less
    return logical_or(less, logical_and(bind(not_equal_p, y, y), logical_not(bind(not_equal_p, x, x))))
