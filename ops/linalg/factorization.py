"""cholesky: positive definite matrices as products of a triangle and its transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..arithmetic import where
from ..control.scan import scan
from ..creation import iota
from ..exponential import sqrt
from ..gather import take
from ..matmul import matmul, matmul_p, swap_last
from ..registry import implements
from ..structure import zeros
from .stacks import column, first, flat_column, has_no_rows, require_floats, require_square, square_stack, triangle
from .systems import solve_triangle


def _abstract(a: ArraySpec) -> ArraySpec:
    require_floats("cholesky", a)
    require_square("cholesky", a)
    return make_spec(a.shape, a.dtype)


def _numpy(a: Array) -> Array:
    return np.linalg.cholesky(a)


def symmetric_tangent(da: Any, lower: bool = True) -> Any:
    """The change of the symmetric matrix that one triangle of `a` stands for."""
    return triangle(da, lower) + swap_last(triangle(da, lower, strict=True))


def _jvp(output: Any, primals: Any, tangents: Any) -> Any:
    half = solve_triangle(output, symmetric_tangent(tangents[0]), lower=True)
    inner = swap_last(solve_triangle(output, swap_last(half), lower=True))
    return bind(matmul_p, output, (triangle(inner, True) + triangle(inner, True, strict=True)) * 0.5)


def _batch(ctx: Any, args: Any, axes: Any) -> Any:
    return bind(cholesky_p, first(args[0], axes[0])), 0


def _by_columns(a: Any) -> Any:
    """Golub and Van Loan, Matrix Computations, section 4.2.5: each column from those before it."""
    if has_no_rows(a):
        return a
    n = a.shape[-1]
    rows = iota(n)

    def step(factor: Any, k: Any) -> Any:
        known = matmul(factor, column(take(factor, k, axis=-2)))
        rest = take(a, k, axis=-1) - flat_column(known)
        scaled = where(rows >= k, rest / column(sqrt(take(rest, k, axis=-1))), 0)
        return where(rows == k, column(scaled), factor), None

    return scan(step, zeros(a.shape, a.dtype), iota(n))[0]


_POSITIVE = [[4.0, 99.0, 99.0], [1.0, 3.0, 99.0], [-0.5, 0.25, 2.0]]

cholesky_p = Primitive(
    "cholesky",
    abstract=_abstract,
    numpy=_numpy,
    jvp=_jvp,
    batch=_batch,
    decompose=_by_columns,
    cases=[
        Case((Sample((3, 3), values=_POSITIVE),)),
        Case((Sample((2, 2, 2), values=[[[2.0, 1.0], [1.0, 3.0]], [[1.0, 0.0], [-0.5, 0.5]]]),)),
        Case((Sample((1, 1), domain=(1, 2)),)),
        Case((Sample((0, 0)),)),
    ],
)


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The lower triangles L with L @ L.T = a, for symmetric positive definite a: [..., n, n]; upper ones U with U.T @ U = a.

    Only that triangle of `a` is read, as in NumPy, and only it has a gradient. Raises LinAlgError for matrices that are not square or
    not positive definite (in an ONNX file they give NaN).
    """
    a = square_stack(a, "cholesky")
    return swap_last(bind(cholesky_p, swap_last(a))) if upper else bind(cholesky_p, a)
