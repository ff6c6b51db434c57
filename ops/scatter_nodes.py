"""How scatters are written in ONNX.

Two nodes of ONNX Runtime could do it. ScatterND writes whole rows and is fast, but several threads race where a row is named twice.
ScatterElements is sequential, so always right, at about 3 ns an element. So: ScatterND where rows are unique or where all writers of a
row write the same, else ScatterElements over the flattened array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, product
from ..stage.dtypes import INT32, INT64, is_float
from ..stage.spec import DimLike, Shape

_COMBINE = {"add": "Add", "multiply": "Mul", "min": "Min", "max": "Max"}
_REDUCTION = {"add": "add", "multiply": "mul", "min": "min", "max": "max"}


def _reshaped(b: Any, x: str, *shape: DimLike) -> str:
    return b.op("Reshape", x, b.shape(shape), allowzero=1)


def _vector(b: Any, *values: int) -> str:
    return b.const(list(values), INT64)


def _range(b: Any, count: DimLike) -> str:
    if not isinstance(count, Dim):
        return b.const(np.arange(count, dtype=INT64))
    return b.op("Range", b.const(0, INT64), b.dim(count), b.const(1, INT64))


def flat_rows(b: Any, indices: str, index_shape: Shape, leading: Shape, batch_dims: int) -> str:
    """The position [M] of every named row among all rows of an array whose axes before the rows are `leading`.

    An index out of range becomes the number of rows, which no scatter accepts: flattened, it might name another row.
    """
    count, depth, rows = product(index_shape[:-1]), index_shape[-1], product(leading)
    sizes, batch = leading[batch_dims:], product(leading[:batch_dims])
    tuples = _reshaped(b, indices, count, depth)
    zero = b.const(0, INT64)
    lengths = b.shape(sizes)
    wrapped = b.op("Where", b.op("Less", tuples, zero), b.op("Add", tuples, lengths), tuples)
    inside = b.op("And", b.op("GreaterOrEqual", wrapped, zero), b.op("Less", wrapped, lengths))
    if len(sizes) == 1:
        position, inside = _reshaped(b, wrapped, count), _reshaped(b, inside, count)
    else:
        strides = b.shape(tuple(product(sizes[i + 1 :]) for i in range(len(sizes))))
        position = b.op("ReduceSum", b.op("Mul", wrapped, strides), _vector(b, 1), keepdims=0)
        inside = b.op("Equal", b.op("ReduceMin", b.cast(inside, INT32), _vector(b, 1), keepdims=0), b.const(1, INT32))
    if batch_dims:
        starts = b.op("Mul", _range(b, batch), b.dim(product(sizes)))
        each = product(index_shape[batch_dims:-1])
        position = b.op("Add", _reshaped(b, position, batch, each), _reshaped(b, starts, batch, 1))
        position = _reshaped(b, position, count)
    return b.op("Where", inside, position, b.dim(rows))


def _last_writers(b: Any, rows: str, count: DimLike, total: DimLike) -> str:
    """For each of `count` updates the last one that goes to the same row."""
    nothing = b.op("Expand", b.const(-1, INT64), b.shape((total,)))
    last = b.op("ScatterElements", nothing, rows, _range(b, count), axis=0, reduction="max")
    return b.op("Gather", last, rows, axis=0)


def last_writer(b: Any, indices: str, *, shape: Shape, batch_dims: int) -> str:
    """The lowering of last_writer: whether each update is the last one to its row."""
    index_shape = b.in_specs[0].shape
    count = product(index_shape[:-1])
    rows = flat_rows(b, indices, index_shape, shape, batch_dims)
    own = b.op("Equal", _last_writers(b, rows, count, product(shape)), _range(b, count))
    return b.op("Reshape", own, b.shape(index_shape[:-1]), allowzero=1)


def scatter(b: Any, x: str, indices: str, updates: str, *, mode: str, batch_dims: int, unique: bool) -> str:
    """The lowering of scatter and its kinds."""
    shape, index_shape = b.in_specs[0].shape, b.in_specs[1].shape
    if unique and not batch_dims:
        if mode != "set":
            updates = _combined(b, mode, b.op("GatherND", x, indices), updates)
        return b.op("ScatterND", x, indices, updates)
    depth = index_shape[-1]
    leading, row = shape[: batch_dims + depth], product(shape[batch_dims + depth :])
    count, total = product(index_shape[:-1]), product(leading)
    rows = flat_rows(b, indices, index_shape, leading, batch_dims)
    if mode == "set" or unique:
        table, values = _reshaped(b, x, total, row), _reshaped(b, updates, count, row)
        if mode != "set":
            values = _combined(b, mode, b.op("Gather", table, rows, axis=0), values)
        elif not unique:
            values = b.op("Gather", values, _last_writers(b, rows, count, total), axis=0)
        result = b.op("ScatterND", table, _reshaped(b, rows, count, 1), values)
    else:
        if isinstance(row, Dim) or row != 1:
            first = b.op("Mul", _reshaped(b, rows, count, 1), b.dim(row))
            rows = _reshaped(b, b.op("Add", first, _range(b, row)), count * row)
        result = _accumulated(b, mode, _reshaped(b, x, total * row), rows, _reshaped(b, updates, count * row))
    return b.op("Reshape", result, b.shape(shape), allowzero=1)


def _combined(b: Any, mode: str, old: str, new: str) -> str:
    return b.op(_COMBINE[mode], old, new)


def _accumulated(b: Any, mode: str, x: str, places: str, values: str) -> str:
    dtype = b.dtype(x)
    if mode not in ("min", "max") or not is_float(dtype):
        return b.op("ScatterElements", x, places, values, axis=0, reduction=_REDUCTION[mode])
    # The kernel loses NaN: it is carried beside the numbers.
    bound = b.const(np.asarray(np.inf if mode == "min" else -np.inf, dtype))
    x_nan, values_nan = b.op("IsNaN", x), b.op("IsNaN", values)
    x, values = b.op("Where", x_nan, bound, x), b.op("Where", values_nan, bound, values)
    result = b.op("ScatterElements", x, places, values, axis=0, reduction=mode)
    flags = b.op("ScatterElements", b.cast(x_nan, INT32), places, b.cast(values_nan, INT32), axis=0, reduction="max")
    return b.op("Where", b.cast(flags, np.dtype(np.bool_)), b.const(np.asarray(np.nan, dtype)), result)
