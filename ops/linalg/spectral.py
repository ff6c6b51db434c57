"""Eigenvalues of symmetric matrices and singular values: eigh, eigvalsh, svd, svdvals.

Vectors are determined up to their sign: here the sum of each one's elements with fixed positive weights is not negative, on arrays and in
ONNX files alike. Derivatives of vectors take vectors of equal values as fixed against each other, which is right for functions that do not
depend on the choice among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...stage.dims import Dim
from ...stage.errors import ShapeError
from ...stage.primitive import Array, Case, Primitive, Sample, Unknown
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..arithmetic import where
from ..joining import join
from ..matmul import matmul_p, swap_last
from ..matrices import matrix_diagonal
from ..reductions import sum as sum_
from ..registry import implements
from ..slicing import slice_axis
from .factorization import symmetric_tangent
from .reflections import by_reflections
from .rotations import eigen_rotations, sign_weights, singular_rotations
from .stacks import column, first, float_stack, require_floats, require_square, row, square_stack, static_sizes


class EighResult(NamedTuple):
    """Eigenvalues, ascending, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right singular vectors as rows."""

    U: Any
    S: Any
    Vh: Any


def _signs(vectors: Array) -> Array:
    weights = sign_weights(vectors.shape[-2], vectors.dtype)
    return np.where(np.sum(vectors * weights[:, None], axis=-2) < 0, -1, 1).astype(vectors.dtype)[..., None, :]


def _traced_signs(vectors: Any) -> Any:
    weights = sign_weights(vectors.shape[-2], vectors.dtype)
    return row(where(sum_(vectors * weights[:, None], axis=-2) < 0, -1, 1).astype(vectors.dtype))


def _gaps(values: Any) -> Any:
    """1 / (values[j] - values[i]) at [i, j], 0 where they are equal."""
    gap = row(values) - column(values)
    is_equal = gap == 0
    return where(is_equal, 0, 1 / where(is_equal, 1, gap))


# ---------------------------------------------------------------------------------------------------------------- eigenvalues


def _eigh_abstract(a: ArraySpec) -> tuple[ArraySpec, ArraySpec]:
    require_floats("eigh", a)
    require_square("eigh", a)
    if isinstance(a.shape[-1], Dim):
        raise ShapeError(f"eigh: matrices of known sizes are needed, got {a!r}")
    return make_spec(a.shape[:-1], a.dtype), make_spec(a.shape, a.dtype)


def _eigh_numpy(a: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(a)
    return values, vectors * _signs(vectors)


def _eigh_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    values, vectors = output
    moved = bind(matmul_p, bind(matmul_p, swap_last(vectors), symmetric_tangent(tangents[0])), vectors)
    return matrix_diagonal(moved), bind(matmul_p, vectors, _gaps(values) * moved)


def _eigh_batch(ctx: Any, args: Any, axes: Any) -> Any:
    return bind(eigh_p, first(args[0], axes[0])), (0, 0)


def _eigh_decompose(a: Any) -> tuple[Any, Any]:
    values, vectors = eigen_rotations(symmetric_tangent(a))
    return values, vectors * _traced_signs(vectors)


_SYMMETRIC = [[2.0, 99.0, 99.0], [0.5, -1.0, 99.0], [-0.25, 1.5, 3.0]]

eigh_p = Primitive(
    "eigh",
    abstract=_eigh_abstract,
    numpy=_eigh_numpy,
    jvp=_eigh_jvp,
    batch=_eigh_batch,
    decompose=_eigh_decompose,
    cases=[
        Case((Sample((3, 3), values=_SYMMETRIC),)),
        Case((Sample((2, 2, 2), values=[[[2.0, 0.0], [1.0, 2.0]], [[1.0, 0.0], [-0.5, 0.5]]]),)),
        Case((Sample((1, 1), domain=(1, 2)),)),
        Case((Sample((0, 0)),)),
    ],
)


def _symmetric(a: Any, uplo: str, what: str) -> Any:
    if uplo.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    a = square_stack(a, what)
    static_sizes(what, a)
    return swap_last(a) if uplo.upper() == "U" else a


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """(eigenvalues ascending: [..., n], eigenvectors as columns: [..., n, n]) of symmetric matrices a: [..., n, n].

    Only the lower (or, with UPLO="U", the upper) triangle is read and has a gradient. Signs of eigenvectors are fixed as this module
    says, not as LAPACK has them. n must be a known size. In an ONNX file Jacobi's method runs, accurate to rounding.
    """
    return EighResult(*bind(eigh_p, _symmetric(a, UPLO, "eigh")))


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues, ascending: [..., n], of symmetric matrices a: [..., n, n], of which one triangle is read."""
    return bind(eigh_p, _symmetric(a, UPLO, "eigvalsh"))[0]


# ------------------------------------------------------------------------------------------------------------- singular values


def _svd_abstract(a: ArraySpec, *, full: bool) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
    require_floats("svd", a)
    m, n = a.shape[-2:]
    if isinstance(m, Dim) or isinstance(n, Dim) or m < n:
        raise ShapeError(f"svd: matrices of known sizes and no fewer rows than columns are needed, got {a!r}")
    batch = a.shape[:-2]
    return make_spec((*batch, m, m if full else n), a.dtype), make_spec((*batch, n), a.dtype), make_spec((*batch, n, n), a.dtype)


def _svd_numpy(a: Array, *, full: bool) -> tuple[Array, Array, Array]:
    u, s, vh = np.linalg.svd(a, full_matrices=full)
    n = a.shape[-1]
    signs = _signs(u[..., :n])
    u[..., :n] *= signs
    return u, s, np.swapaxes(vh, -1, -2) * signs


def _svd_jvp(output: Any, primals: Any, tangents: Any, *, full: bool) -> Any:
    u, s, v = output
    m, n = primals[0].shape[-2:]
    wide = full and m > n
    if wide:
        u = slice_axis(u, len(u.shape) - 1, 0, n)
    moved = bind(matmul_p, tangents[0], v)
    inner = bind(matmul_p, swap_last(u), moved)
    flipped = swap_last(inner)
    gaps = _gaps(s * s)
    dv = bind(matmul_p, v, gaps * (column(s) * inner + row(s) * flipped))
    if wide:
        message = "svd: with full_matrices=True the further columns of U are not determined by the matrix, so U has no derivative; use full_matrices=False"
        return Unknown(message), matrix_diagonal(inner), dv
    du = bind(matmul_p, u, gaps * (row(s) * inner + column(s) * flipped))
    if m > n:
        is_zero = s == 0
        du = du + (moved - bind(matmul_p, u, inner)) * row(where(is_zero, 0, 1 / where(is_zero, 1, s)))
    return du, matrix_diagonal(inner), dv


def _svd_batch(ctx: Any, args: Any, axes: Any, *, full: bool) -> Any:
    return bind(svd_p, first(args[0], axes[0]), full=full), (0, 0, 0)


def _svd_decompose(a: Any, *, full: bool) -> tuple[Any, Any, Any]:
    n = a.shape[-1]
    columns, s, v = singular_rotations(a)
    # The columns are orthogonal, and null ones have no direction: reflections make orthonormal ones of them.
    u, r = by_reflections(columns, complete=full)
    last = len(u.shape) - 1
    thin = slice_axis(u, last, 0, n)
    diagonal = matrix_diagonal(slice_axis(r, last - 1, 0, n))
    thin = thin * row(where(diagonal < 0, -1, 1).astype(a.dtype))
    signs = _traced_signs(thin)
    whole = join([thin * signs, slice_axis(u, last, n, u.shape[-1])], last) if u.shape[-1] != n else thin * signs
    return whole, s, v * signs


_TALL = [[1.0, 0.5], [-2.0, 1.0], [0.25, 3.0]]
_SQUARE = [[2.0, -1.0, 0.5], [0.25, 1.5, -1.0], [4.0, 0.5, 1.0]]

svd_p = Primitive(
    "svd",
    abstract=_svd_abstract,
    numpy=_svd_numpy,
    jvp=_svd_jvp,
    batch=_svd_batch,
    decompose=_svd_decompose,
    cases=[
        Case((Sample((3, 2), values=_TALL),), {"full": False}),
        Case((Sample((2, 3, 3), values=[_SQUARE, [[1.0, 2.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.5, -2.0]]]),), {"full": True}),
        Case((Sample((1, 1), domain=(1, 2)),), {"full": False}),
        Case((Sample((2, 0)),), {"full": False}),
    ],
)


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """(U, S, Vh) with a = U @ diag(S) @ Vh; a: [..., m, n], k = min(m, n), S: [..., k] in descending order.

    U: [..., m, m] and Vh: [..., n, n]; without full_matrices U: [..., m, k] and Vh: [..., k, n], the form that has derivatives when
    m and n differ. Signs of vectors are fixed as this module says. hermitian: only the lower triangle of a symmetric `a` is read.
    compute_uv=False gives S alone. m and n must be known sizes. In an ONNX file one-sided Jacobi rotations run, accurate to rounding.
    """
    a = symmetric_tangent(square_stack(a, "svd")) if hermitian else float_stack(a, "svd")
    m, n = static_sizes("svd", a)
    full = bool(full_matrices) and compute_uv
    left, s, right = bind(svd_p, a if m >= n else swap_last(a), full=full)
    if not compute_uv:
        return s
    return SVDResult(left, s, swap_last(right)) if m >= n else SVDResult(right, s, swap_last(left))


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    """The singular values of x: [..., m, n] in descending order: [..., min(m, n)]."""
    return svd(x, compute_uv=False)
