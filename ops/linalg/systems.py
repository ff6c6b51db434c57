"""Systems of linear equations: solve, inv, solve_triangular, tensorsolve, tensorinv.

On arrays a singular matrix raises LinAlgError, as in NumPy; in an ONNX file it gives infinities or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...stage.dims import product, same_dim
from ...stage.errors import ShapeError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..creation import eye
from ..matmul import matmul_p, swap_last
from ..operands import broadcast_shapes, dtype_of, normalize_axis, shape_of, spec
from ..registry import implements
from ..structure import broadcast, move_axis, reshape_p
from .elimination import solve_by_elimination, substitute
from .stacks import (
    MatrixError,
    column,
    first,
    flat_column,
    promoted_pair,
    require_floats,
    require_square,
    same_batch,
    square_stack,
    triangle,
)

# --------------------------------------------------------------------------------------------------------------------- solve


def _abstract(what: str, a: ArraySpec, b: ArraySpec) -> ArraySpec:
    require_floats(what, a, b)
    require_square(what, a)
    if b.ndim != a.ndim or not same_batch(a.shape[:-1], b.shape[:-1]):
        raise ShapeError(f"{what}: the right-hand sides do not fit the matrices: a is {a!r}, b is {b!r}")
    return make_spec(b.shape, b.dtype)


def _solve_abstract(a: ArraySpec, b: ArraySpec) -> ArraySpec:
    return _abstract("solve", a, b)


def _solve_numpy(a: Array, b: Array) -> Array:
    return np.linalg.solve(a, b)


def _solve_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    da, db = tangents
    if da is None:
        return bind(solve_p, primals[0], db)
    moved = bind(matmul_p, da, output)
    return bind(solve_p, primals[0], -moved if db is None else db - moved)


def _solve_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    back = bind(solve_p, swap_last(primals[0]), ct)
    return (-bind(matmul_p, back, swap_last(output)) if active[0] else None), (back if active[1] else None)


def columns_of_batch(a: Any, b: Any, b_axis: int, apply: Any) -> tuple[Any, int]:
    """One matrix for a batch of right-hand sides: they are its further columns. Gives the result and its batch axis."""
    b = move_axis(b, b_axis, len(b.shape) - 1)
    shape = b.shape
    wide = bind(reshape_p, b, shape=(*shape[:-2], shape[-2] * shape[-1]))
    return bind(reshape_p, apply(a, wide), shape=shape), len(shape) - 1


def _solve_batch(ctx: Any, args: Any, axes: Any) -> Any:
    (a, b), (a_axis, b_axis) = args, axes
    if a_axis is None:
        return columns_of_batch(a, b, b_axis, lambda x, y: bind(solve_p, x, y))
    b = first(b, b_axis) if b_axis is not None else broadcast(b, (ctx.size, *b.shape))
    return bind(solve_p, first(a, a_axis), b), 0


_MATRIX = [[2.0, -1.0, 0.5], [0.25, 1.5, -1.0], [4.0, 0.5, 1.0]]
_SWAPPED = [[0.0, 2.0], [1.5, -0.5]]

solve_p = Primitive(
    "solve",
    abstract=_solve_abstract,
    numpy=_solve_numpy,
    jvp=_solve_jvp,
    linear=((1,),),
    transpose=_solve_transpose,
    batch=_solve_batch,
    decompose=solve_by_elimination,
    cases=[
        Case((Sample((3, 3), values=_MATRIX), Sample((3, 2)))),
        Case((Sample((2, 2, 2), values=[_SWAPPED, [[3.0, 1.0], [1.0, 2.0]]]), Sample((2, 2, 1)))),
        Case((Sample((1, 1), domain=(1, 2)), Sample((1, 3)))),
        Case((Sample((0, 0)), Sample((0, 2)))),
        Case((Sample((0, 2, 2)), Sample((0, 2, 1)))),
    ],
)


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    """The x with a @ x = b. a: [..., n, n]; b: [n], one vector, or [..., n, m]; the leading axes broadcast.

    As in NumPy 2, b is a vector only if it has one axis. Computed in float32 or float64, with partial pivoting.
    Raises LinAlgError for matrices that are not square, or singular (in an ONNX file they give infinities or NaN); ValueError where
    the sizes differ.
    """
    a, b = promoted_pair(a, b, "solve")
    a = square_stack(a, "solve")
    if not shape_of(b):
        raise ShapeError(f"solve: b is a vector or a stack of matrices, got {spec(b)!r}")
    if len(shape_of(b)) == 1:
        if not same_dim(shape_of(a)[-1], shape_of(b)[0]):
            raise ShapeError(f"solve: the right-hand side does not fit the matrices: a is {spec(a)!r}, b is {spec(b)!r}")
        return flat_column(solve(a, column(b)))
    return _broadcast_and_bind("solve", a, b, lambda x, y: bind(solve_p, x, y))


def _broadcast_and_bind(what: str, a: Any, b: Any, apply: Any) -> Any:
    a_shape, b_shape = shape_of(a), shape_of(b)
    if not same_dim(a_shape[-1], b_shape[-2]):
        raise ShapeError(f"{what}: the right-hand side does not fit the matrices: a is {spec(a)!r}, b is {spec(b)!r}")
    if len(a_shape) == 2 and len(b_shape) == 3:
        result, axis = columns_of_batch(a, b, 0, apply)
        return move_axis(result, axis, 0)
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2], what=what)
    return apply(broadcast(a, (*batch, *a_shape[-2:])), broadcast(b, (*batch, *b_shape[-2:])))


@implements(np.linalg.inv)
def inv(a: Any) -> Any:
    """The inverses of square matrices a: [..., n, n].

    Raises LinAlgError for matrices that are not square, or singular (in an ONNX file they give infinities or NaN). To solve equations,
    `solve` is faster and more accurate.
    """
    a = square_stack(a, "inv")
    return bind(solve_p, a, identity_like(a))


def identity_like(a: Any) -> Any:
    """Identity matrices of a's shape and dtype."""
    shape = shape_of(a)
    return broadcast(eye(shape[-1], dtype=dtype_of(a)[0]), shape)


# --------------------------------------------------------------------------------------------------------- triangular systems


def _triangular_abstract(a: ArraySpec, b: ArraySpec, *, lower: bool, unit: bool) -> ArraySpec:
    return _abstract("solve_triangular", a, b)


def _triangular_numpy(a: Array, b: Array, *, lower: bool, unit: bool) -> Array:
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        np.einsum("...ii->...i", t)[...] = 1
    return np.linalg.solve(t, b)


def _triangular_jvp(output: Any, primals: Any, tangents: Any, *, lower: bool, unit: bool) -> Any:
    da, db = tangents
    if da is not None:
        moved = bind(matmul_p, triangle(da, lower, strict=unit), output)
        db = -moved if db is None else db - moved
    return solve_triangle(primals[0], db, lower=lower, unit=unit)


def _triangular_transpose(ct: Any, primals: Any, output: Any, *, active: Any, lower: bool, unit: bool) -> Any:
    back = solve_triangle(swap_last(primals[0]), ct, lower=not lower, unit=unit)
    return (
        -triangle(bind(matmul_p, back, swap_last(output)), lower, strict=unit) if active[0] else None,
        back if active[1] else None,
    )


def _triangular_batch(ctx: Any, args: Any, axes: Any, *, lower: bool, unit: bool) -> Any:
    (a, b), (a_axis, b_axis) = args, axes
    if a_axis is None:
        return columns_of_batch(a, b, b_axis, lambda x, y: solve_triangle(x, y, lower=lower, unit=unit))
    b = first(b, b_axis) if b_axis is not None else broadcast(b, (ctx.size, *b.shape))
    return solve_triangle(first(a, a_axis), b, lower=lower, unit=unit), 0


_TRIANGLE = [[2.0, 9.0, 0.5], [0.25, 1.5, -1.0], [1.0, 0.5, -1.0]]

solve_triangular_p = Primitive(
    "solve_triangular",
    abstract=_triangular_abstract,
    numpy=_triangular_numpy,
    jvp=_triangular_jvp,
    linear=((1,),),
    transpose=_triangular_transpose,
    batch=_triangular_batch,
    decompose=substitute,
    cases=[
        Case((Sample((3, 3), values=_TRIANGLE), Sample((3, 2))), {"lower": True, "unit": False}),
        Case((Sample((3, 3), values=_TRIANGLE), Sample((3, 2))), {"lower": False, "unit": False}),
        Case((Sample((2, 3, 3), values=[_TRIANGLE, _MATRIX]), Sample((2, 3, 1))), {"lower": False, "unit": True}),
        Case((Sample((0, 0)), Sample((0, 2))), {"lower": True, "unit": True}),
    ],
)


def solve_triangle(a: Any, b: Any, *, lower: bool, unit: bool = False) -> Any:
    """The x with t x = b for the lower or upper triangle t of a: [..., n, n]; b: [..., n, m]."""
    return bind(solve_triangular_p, a, b, lower=lower, unit=unit)


def solve_triangular(a: Any, b: Any, *, lower: bool = False, trans: bool = False, unit_diagonal: bool = False) -> Any:
    """The x with t @ x = b, t being the upper (or lower) triangle of a; with `trans`, t transposed @ x = b.

    a: [..., n, n], whose other triangle is not read; b: [n] or [..., n, m]; the leading axes broadcast. unit_diagonal: the diagonal of t
    counts as ones and is not read. Raises LinAlgError for matrices that are not square or have a zero on the diagonal (infinities or
    NaN in an ONNX file).
    """
    a, b = promoted_pair(a, b, "solve_triangular")
    a = square_stack(a, "solve_triangular")
    if trans:
        a, lower = swap_last(a), not lower
    if not shape_of(b):
        raise ShapeError(f"solve_triangular: b is a vector or a stack of matrices, got {spec(b)!r}")
    vector = len(shape_of(b)) == 1
    result = _broadcast_and_bind(
        "solve_triangular",
        a,
        column(b) if vector else b,
        lambda x, y: solve_triangle(x, y, lower=lower, unit=unit_diagonal),
    )
    return flat_column(result) if vector else result


# ------------------------------------------------------------------------------------------------------------ tensor equations


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Any:
    """The x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to its end first. Raises LinAlgError unless the sizes make a square."""
    a, b = promoted_pair(a, b, "tensorsolve")
    if axes is not None:
        for axis in axes:
            ndim = len(shape_of(a))
            a = move_axis(a, normalize_axis(axis, ndim), ndim - 1)
    shape = shape_of(a)
    result_shape = shape[len(shape_of(b)) :]
    size = product(result_shape)
    if not same_dim(product(shape[: len(shape_of(b))]), size) or not same_dim(product(shape_of(b)), size):
        raise MatrixError(f"tensorsolve: the sizes do not make a square system: a is {spec(a)!r}, b is {spec(b)!r}")
    x = solve(bind(reshape_p, a, shape=(size, size)), bind(reshape_p, b, shape=(size,)))
    return bind(reshape_p, x, shape=result_shape)


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of tensordot(a, ., ind): shape a.shape[ind:] + a.shape[:ind]. Raises ValueError for ind below 1."""
    a = promoted_pair(a, a, "tensorinv")[0]
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = shape_of(a)
    rows, columns = product(shape[:ind]), product(shape[ind:])
    if not same_dim(rows, columns):
        raise MatrixError(f"tensorinv: the first {ind} axes and the others must have one size, got {spec(a)!r}")
    return bind(reshape_p, inv(bind(reshape_p, a, shape=(rows, columns))), shape=(*shape[ind:], *shape[:ind]))
