"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, max_dim, min_dim
from ..stage.dtypes import BOOL, INT64, as_dtype
from ..stage.errors import ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind
from .arguments import array_operand, no_out, size_of
from .arithmetic import where_p
from .comparison import equal
from .creation import diagonal_mask
from .operands import dtype_of, normalize_axis, shape_of
from .reductions import reduce_or_p
from .reductions import sum as sum_
from .registry import implements
from .slicing import pad, slice_axis
from .structure import broadcast, move_axis, reduce_sum_p, reshape_p, transpose_p
from .views import view

# ----------------------------------------------------------------------------------------------------------------- triangles


def _triangle_abstract(x: ArraySpec, *, k: int, upper: bool) -> ArraySpec:
    if x.ndim < 2:
        raise ShapeError(f"triangle: an array of two or more axes is needed, got shape {list(x.shape)}")
    return make_spec(x.shape, x.dtype)


def _triangle_numpy(x: Array, *, k: int, upper: bool) -> Array:
    return np.triu(x, k) if upper else np.tril(x, k)


def _triangle_batch(ctx: Any, args: Any, batch_axes: Any, /, *, k: int, upper: bool) -> Any:
    return bind(triangle_p, move_axis(args[0], batch_axes[0], 0), k=k, upper=upper), 0


def _triangle_transpose(ct: Any, primals: Any, output: Any, *, active: Any, k: int, upper: bool) -> Any:
    return (bind(triangle_p, ct, k=k, upper=upper),)


def _triangle_onnx(b: Any, x: str, *, k: int, upper: bool) -> str:
    return b.op("Trilu", x, b.const(k, INT64), upper=int(upper))


triangle_p = Primitive(
    "triangle",
    exact=True,
    abstract=_triangle_abstract,
    numpy=_triangle_numpy,
    linear=((0,),),
    transpose=_triangle_transpose,
    batch=_triangle_batch,
    onnx=_triangle_onnx,
    cases=[
        Case((Sample((3, 4), "any"),), {"k": 0, "upper": False}, named=(("B", 4),)),
        Case((Sample((2, 4, 3)),), {"k": 1, "upper": True}, named=(("B", 4, "C"),)),
        Case((Sample((3, 3)),), {"k": -1, "upper": True}),
        Case((Sample((0, 2)),), {"k": 0, "upper": False}),
    ],
)


def _triangle(m: Any, k: Any, upper: bool, what: str) -> Any:
    x = array_operand(m, what)
    if len(shape_of(x)) == 1:
        x = broadcast(x, (*shape_of(x), *shape_of(x)))
    if len(shape_of(x)) < 2:
        raise ValueError(f"{what}: Input array must be at least 1-d.")
    return bind(triangle_p, x, k=k.__index__(), upper=upper)


@implements(np.tril)
def tril(m: Any, k: Any = 0) -> Any:
    """The elements at and below the k-th diagonal of the last two axes; the others are 0."""
    return _triangle(m, k, False, "tril")


@implements(np.triu)
def triu(m: Any, k: Any = 0) -> Any:
    """The elements at and above the k-th diagonal of the last two axes; the others are 0."""
    return _triangle(m, k, True, "triu")


# ----------------------------------------------------------------------------------------------------------------- diagonals


@implements(np.diagonal, method="diagonal")
def diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    """The diagonal of the matrices along two axes, as a new last axis; `offset` columns to the right of the main one."""
    x = array_operand(a, "diagonal")
    ndim = len(shape_of(x))
    if ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first, second = normalize_axis(axis1, ndim, "axis1"), normalize_axis(axis2, ndim, "axis2")
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    k = offset.__index__()
    y = bind(transpose_p, x, permutation=(*(i for i in range(ndim) if i not in (first, second)), first, second))
    *rest, n, m = shape_of(y)
    length = max_dim(0, min_dim(n, m - k) if k >= 0 else min_dim(n + k, m))
    if isinstance(n, Dim) or isinstance(m, Dim):
        return _masked_diagonal(y, k, length)
    flat = bind(reshape_p, y, shape=(*rest, n * m))
    start = k if k >= 0 else -k * m
    return view(slice_axis(flat, ndim - 2, start, start + (length - 1) * (m + 1) + 1 if length else start, m + 1), x)


def _masked_diagonal(y: Any, k: int, length: Any) -> Any:
    """Of sizes that are not known: what is off the diagonal is set to 0 and summed away."""
    axis = len(shape_of(y)) - 2
    # Rows i with column i + k, or columns j with row j - k: the shorter way leaves the diagonal at the start.
    y = slice_axis(y, axis + 1, k, None) if k > 0 else slice_axis(y, axis, -k, None)
    y = slice_axis(slice_axis(y, axis, None, length), axis + 1, None, length)
    n, m = shape_of(y)[-2:]
    on = diagonal_mask(n, m, 0, equal)
    kept = bind(where_p, on, y, np.zeros((), dtype_of(y)[0]))
    return bind(reduce_or_p if dtype_of(y)[0] == BOOL else reduce_sum_p, kept, axes=(axis,), keepdims=False)


@implements(np.linalg.diagonal)
def matrix_diagonal(x: Any, /, *, offset: Any = 0) -> Any:
    """The diagonal of the matrices along the last two axes."""
    return diagonal(x, offset, -2, -1)


@implements(np.diag)
def diag(v: Any, k: Any = 0) -> Any:
    """The k-th diagonal of a matrix, or a matrix with a 1-d array there."""
    x = array_operand(v, "diag")
    if len(shape_of(x)) == 2:
        return diagonal(x, k)
    if len(shape_of(x)) != 1:
        raise ValueError("Input must be 1- or 2-d.")
    k = k.__index__()
    size = size_of(x)
    n = size + abs(k)
    # A row of x beside x.size - 1 rows of zeros each shifted by one: [n + 1] wide rows, cut off at n.
    column = bind(reshape_p, x, shape=(size, 1))
    rows = pad(column, [0, 0], [0, n])
    flat = bind(reshape_p, rows, shape=(size * (n + 1),))
    start = k if k >= 0 else -k * n
    flat = pad(flat, [start], [n * n - start - size * (n + 1)])
    return bind(reshape_p, flat, shape=(n, n))


@implements(np.diagflat)
def diagflat(v: Any, k: Any = 0) -> Any:
    """A matrix with the elements of an array on its k-th diagonal."""
    x = array_operand(v, "diagflat")
    return diag(bind(reshape_p, x, shape=(size_of(x),)), k)


@implements(np.trace, method="trace")
def trace(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: None = None) -> Any:
    """The sum of the diagonal of the matrices along two axes."""
    no_out(out, "trace")
    return sum_(diagonal(a, offset, axis1, axis2), axis=-1, dtype=None if dtype is None else as_dtype(dtype))


@implements(np.linalg.trace)
def matrix_trace(x: Any, /, *, offset: Any = 0, dtype: Any = None) -> Any:
    """The sum of the diagonal of the matrices along the last two axes."""
    return trace(x, offset, -2, -1, dtype)
