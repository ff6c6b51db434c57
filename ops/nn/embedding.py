"""one_hot and embedding: integers as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dtypes import BOOL, FLOAT32, INT64, DType, as_dtype, is_integer, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, DimLike, make_spec
from ...stage.trace import bind
from ..gather import take
from ..operands import cast, dtype_of, normalize_axis, operand, shape_of
from ..structure import dim_or_int, move_axis
from ..ufuncs import zero_tangent


def _abstract(ids: ArraySpec, *, classes: DimLike, dtype: DType) -> ArraySpec:
    if ids.dtype != INT64:
        raise DTypeError(f"one_hot: ids are {short_name(ids.dtype)}, not int64")
    return make_spec((*ids.shape, classes), dtype)


def _numpy(ids: Array, *, classes: int, dtype: DType) -> Array:
    return (ids[..., None] == np.arange(classes)).astype(dtype)


def _batch(ctx: Any, args: Any, axes: Any, **params: Any) -> Any:
    return bind(one_hot_p, move_axis(args[0], axes[0], 0), **params), 0


def _onnx(b: Any, ids: str, *, classes: DimLike, dtype: DType) -> str:
    depth = b.dim(classes)
    if type(classes) is int and classes > 0 and b.spec(ids).ndim > 0:
        # The node counts negative ids from the end; one past the end has no class
        index = b.op("Where", b.op("Less", ids, b.const(0, INT64)), depth, ids)
        return b.cast(b.op("OneHot", index, depth, b.const([0, 1], FLOAT32), axis=-1), dtype)
    # What the node refuses: no classes, and 0-d ids
    numbers = b.op("Range", b.const(0, INT64), depth, b.const(1, INT64))
    return b.cast(b.op("Equal", b.op("Unsqueeze", ids, b.const([-1], INT64)), numbers), dtype)


one_hot_p = Primitive(
    "one_hot",
    abstract=_abstract,
    numpy=_numpy,
    jvp=zero_tangent,
    batch=_batch,
    onnx=_onnx,
    exact=True,
    shadow="decision",
    cases=[
        Case((Sample((3,), "int64", (0, 4)),), {"classes": 4, "dtype": np.dtype("float32")}, named=(("B",),)),
        Case((Sample((2, 3), "int64", (-2, 6)),), {"classes": 4, "dtype": np.dtype("float64")}),
        Case((Sample((), "int64", (0, 2)),), {"classes": 2, "dtype": np.dtype("int32")}),
        Case((Sample((0,), "int64"),), {"classes": 3, "dtype": np.dtype("bool")}),
        Case((Sample((2,), "int64"),), {"classes": 0, "dtype": np.dtype("float32")}),
    ],
)


def one_hot(ids: Any, num_classes: Any, *, dtype: Any = np.float32, axis: int = -1) -> Any:
    """A new axis of size num_classes that is 1 at each id and 0 elsewhere; all 0 for an id that is not in [0, num_classes).

    num_classes may be a named dim. Raises TypeError for ids that are not integers.
    """
    ids = _integer_ids("one_hot", ids)
    classes = dim_or_int(num_classes)
    if type(classes) is int and classes < 0:
        raise ShapeError(f"one_hot: num_classes is {classes}, which is negative")
    result = bind(one_hot_p, cast(ids, INT64), classes=classes, dtype=as_dtype(dtype))
    ndim = len(shape_of(result))
    return move_axis(result, ndim - 1, normalize_axis(axis, ndim))


def embedding(table: Any, ids: Any) -> Any:
    """table[ids] for a table of rows: ids of any shape give ids.shape + table.shape[1:]. Equal ids add up in the gradient.

    Ids count from 0, negative ones from the end, as in NumPy; ids out of range raise IndexError, and in a file fail the run.
    """
    return take(table, _integer_ids("embedding", ids), axis=0)


def _integer_ids(what: str, ids: Any) -> Any:
    ids = operand(ids, "ids")
    if not is_integer(dtype_of(ids)[0]):
        raise DTypeError(f"{what}: ids are integers, got {short_name(dtype_of(ids)[0])}{'' if dtype_of(ids)[0] != BOOL else ' (a mask?)'}")
    return ids
