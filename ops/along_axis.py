"""take_along_axis and its transpose: elements gathered along one axis by an index for each, and added back to where they came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import same_dim
from ..stage.dtypes import INT64, is_integer, short_name
from ..stage.errors import DTypeError, ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, Shape, make_spec
from ..stage.trace import bind
from .arguments import size_of
from .operands import broadcast_shapes, cast, dtype_of, normalize_axis, operand, shape_of
from .registry import implements
from .structure import broadcast, broadcast_to_p, move_axis, reshape_p, zeros


def _check(what: str, x: ArraySpec, indices: ArraySpec, axis: int) -> None:
    if not is_integer(indices.dtype):
        raise DTypeError(f"{what}: indices are {short_name(indices.dtype)}, integers are needed")
    others = [i for i in range(x.ndim) if i != axis]
    if x.ndim != indices.ndim or not all(same_dim(x.shape[i], indices.shape[i]) for i in others):
        raise ShapeError(f"{what}: indices of shape {list(indices.shape)} along axis {axis} of an array of shape {list(x.shape)}")


def _take_abstract(x: ArraySpec, indices: ArraySpec, *, axis: int) -> ArraySpec:
    _check("take_along_axis", x, indices, axis)
    return make_spec(indices.shape, x.dtype)


def _zeros_like(x: Any) -> Any:
    return zeros(x.shape, x.dtype)


def _take_transpose(ct: Any, primals: Any, output: Any, *, active: Any, axis: int) -> Any:
    x, indices = primals
    return bind(scatter_along_axis_p, _zeros_like(x), indices, ct, axis=axis), None


def batch_all(args: Any, axes: Any, size: Any) -> list[Any]:
    """Every operand with its batch axis in front; those without one are repeated."""
    result: list[Any] = []
    for x, axis in zip(args, axes, strict=True):
        if axis is None:
            x = bind(broadcast_to_p, bind(reshape_p, x, shape=(1, *x.shape)), shape=(size, *x.shape))
        result.append(x if axis is None else move_axis(x, axis, 0))
    return result


def _take_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int) -> Any:
    return bind(take_along_axis_p, *batch_all(args, batch_axes, ctx.size), axis=axis + 1), 0


def _index(b: Any, name: str) -> str:
    """Indices as ONNX takes them."""
    return name if b.dtype(name) == np.dtype(np.int32) else b.cast(name, INT64)


_CASES = [
    Case(
        (Sample((3, 4), "any"), Sample((3, 2), "int64", values=[[0, 3], [1, 1], [-1, 2]])),
        {"axis": 1},
        smooth=True,
    ),
    Case(
        (Sample((3, 2)), Sample((5, 2), "int32", values=[[0, 2], [2, 1], [0, 0], [-3, 1], [1, 1]])),
        {"axis": 0},
    ),
    Case((Sample((4,)), Sample((0,), "int64")), {"axis": 0}),
    Case((Sample((2, 3)), Sample((2, 1), "int64", values=[[2], [0]])), {"axis": 1}, named=(("B", 3), ("B", 1))),
]


def _take_along_axis_numpy(x: Array, indices: Array, *, axis: int) -> Array:
    return np.take_along_axis(x, indices.astype(np.int64, copy=False), axis)


def _take_along_axis_jvp(output: Any, primals: Any, tangents: Any, *, axis: int) -> Any:
    return bind(take_along_axis_p, tangents[0], primals[1], axis=axis)


def _take_along_axis_onnx(b: Any, x: str, indices: str, *, axis: int) -> str:
    return b.op("GatherElements", x, _index(b, indices), axis=axis)


take_along_axis_p = Primitive(
    "take_along_axis",
    exact=True,
    abstract=_take_abstract,
    numpy=_take_along_axis_numpy,
    jvp=_take_along_axis_jvp,
    linear=((0,),),
    transpose=_take_transpose,
    batch=_take_batch,
    onnx=_take_along_axis_onnx,
    cases=_CASES,
)


def _scatter_abstract(x: ArraySpec, indices: ArraySpec, updates: ArraySpec, *, axis: int) -> ArraySpec:
    _check("scatter_along_axis", x, indices, axis)
    if x.dtype != updates.dtype or len(updates.shape) != indices.ndim:
        raise ShapeError(f"scatter_along_axis: updates are {updates!r} for an array {x!r} and indices {indices!r}")
    if not all(same_dim(a, c) for a, c in zip(indices.shape, updates.shape, strict=True)):
        raise ShapeError(f"scatter_along_axis: updates are {updates!r} for an array {x!r} and indices {indices!r}")
    return make_spec(x.shape, x.dtype)


def _scatter_numpy(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    result = x.copy()
    places = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    places[axis] = indices.astype(np.int64, copy=False)
    np.add.at(result, tuple(places), updates)
    return result


def _scatter_jvp(output: Any, primals: Any, tangents: Any, *, axis: int) -> Any:
    a, _, c = tangents
    indices = primals[1]
    if c is None:
        return a
    return bind(scatter_along_axis_p, _zeros_like(output) if a is None else a, indices, c, axis=axis)


def _scatter_transpose(ct: Any, primals: Any, output: Any, *, active: Any, axis: int) -> Any:
    indices = primals[1]
    return (
        ct if active[0] else None,
        None,
        bind(take_along_axis_p, ct, indices, axis=axis) if active[2] else None,
    )


def _scatter_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int) -> Any:
    return bind(scatter_along_axis_p, *batch_all(args, batch_axes, ctx.size), axis=axis + 1), 0


def _scatter_along_axis_onnx(b: Any, x: str, indices: str, updates: str, *, axis: int) -> str:
    return b.op("ScatterElements", x, _index(b, indices), updates, axis=axis, reduction="add")


scatter_along_axis_p = Primitive(
    "scatter_along_axis",
    abstract=_scatter_abstract,
    numpy=_scatter_numpy,
    jvp=_scatter_jvp,
    linear=((0, 2),),
    transpose=_scatter_transpose,
    batch=_scatter_batch,
    onnx=_scatter_along_axis_onnx,
    cases=[
        Case(
            (Sample((3, 4)), Sample((3, 2), "int64", values=[[0, 3], [1, 1], [-1, 2]]), Sample((3, 2))),
            {"axis": 1},
        ),
        Case((Sample((4,), "int"), Sample((3,), "int64", values=[0, 0, -1]), Sample((3,), "int")), {"axis": 0}),
        Case((Sample((4,)), Sample((0,), "int64"), Sample((0,))), {"axis": 0}),
    ],
)


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """The elements of `arr` at `indices` along an axis; the other axes broadcast. With axis None `arr` is flattened.

    Raises IndexError for indices that are no integers, ValueError where the numbers of axes differ.
    """
    x, indices = operand(arr, "take_along_axis"), operand(indices, "take_along_axis: indices")
    if not is_integer(dtype_of(indices)[0]):
        raise IndexError("`indices` must be an integer array")
    if axis is None:
        if len(shape_of(indices)) != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        x, axis = bind(reshape_p, x, shape=(size_of(x),)), 0
    shape = shape_of(x)
    place = normalize_axis(axis, len(shape))
    wanted = shape_of(indices)
    if len(wanted) != len(shape):
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    others = broadcast_shapes(_without(shape, place), _without(wanted, place), what="take_along_axis")
    x = broadcast(x, (*others[:place], shape[place], *others[place:]))
    indices = broadcast(indices, (*others[:place], wanted[place], *others[place:]))
    return bind(take_along_axis_p, x, cast(indices, dtype_of(indices)[0]), axis=place)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])
