"""pinv, lstsq, matrix_rank and cond: what singular values tell of matrices that need not be square or regular."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dims import Dim
from ...stage.dtypes import INT32, INT64
from ...stage.errors import ShapeError, UnsupportedError
from ...stage.narrowing import is_numpy
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..arguments import array_operand
from ..arithmetic import where
from ..matmul import matmul, matmul_p, swap_last
from ..operands import cast, dtype_of, operand, shape_of, spec
from ..reductions import any as any_
from ..reductions import max as max_
from ..reductions import sum as sum_
from ..registry import implements
from ..structure import zeros
from .factorization import symmetric_tangent
from .norms import norm
from .spectral import svd, svdvals
from .stacks import MatrixError, column, first, flat_column, float_stack, promoted_pair, require_floats, row, square_stack, static_sizes
from .systems import inv

_NOT_GIVEN: Any = object()

# ---------------------------------------------------------------------------------------------------------------------- pinv


def _pinv_abstract(a: ArraySpec, *, rcond: float) -> ArraySpec:
    require_floats("pinv", a)
    if isinstance(a.shape[-1], Dim) or isinstance(a.shape[-2], Dim):
        raise ShapeError(f"pinv: matrices of known sizes are needed, got {a!r}")
    return make_spec((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)


def _pinv_numpy(a: Array, *, rcond: float) -> Array:
    return np.linalg.pinv(a, rcond)


def _pinv_jvp(output: Any, primals: Any, tangents: Any, *, rcond: float) -> Any:
    """Golub and Pereyra 1973: of matrices of constant rank."""
    a, da, p = primals[0], tangents[0], output
    m, n = a.shape[-2:]
    change = -matmul(matmul(p, da), p)
    turned = swap_last(da)
    if m > 0 and n > 0:
        left = matmul(matmul(p, swap_last(p)), turned)
        right = matmul(matmul(turned, swap_last(p)), p)
        change = change + (left - matmul(matmul(left, a), p)) + (right - matmul(matmul(p, a), right))
    return change


def _pinv_batch(ctx: Any, args: Any, axes: Any, *, rcond: float) -> Any:
    return bind(pinv_p, first(args[0], axes[0]), rcond=rcond), 0


def _pinv_decompose(a: Any, *, rcond: float) -> Any:
    m, n = a.shape[-2:]
    if m == 0 or n == 0:
        return zeros((*a.shape[:-2], n, m), a.dtype)
    u, s, vh = svd(a, full_matrices=False)
    is_large = s > rcond * max_(s, axis=-1, keepdims=True)
    inverse = where(is_large, 1 / where(is_large, s, 1), 0)
    return matmul(swap_last(vh) * row(inverse), swap_last(u))


pinv_p = Primitive(
    "pinv",
    abstract=_pinv_abstract,
    numpy=_pinv_numpy,
    jvp=_pinv_jvp,
    batch=_pinv_batch,
    decompose=_pinv_decompose,
    cases=[
        Case((Sample((3, 2), values=[[1.0, 0.5], [-2.0, 1.0], [0.25, 3.0]]),), {"rcond": 1e-15}),
        Case((Sample((2, 2, 3), values=[[[1.0, 0.5, 2.0], [-2.0, 1.0, 0.0]], [[0.0, 1.0, 1.0], [3.0, 0.5, -1.0]]]),), {"rcond": 1e-7}),
        Case((Sample((0, 2)),), {"rcond": 1e-15}),
    ],
)


def _tolerance(value: Any, what: str) -> float:
    if not isinstance(value, int | float) and not (is_numpy(value) and value.ndim == 0):
        raise UnsupportedError(f"{what}: the tolerance must be a number that is known while staging, got {type(value)!r}")
    number: Any = value
    return float(number)


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _NOT_GIVEN) -> Any:
    """The Moore-Penrose inverses of a: [..., m, n]; shape [..., n, m].

    Singular values up to rcond times the largest count as 0: by default 1e-15 of it, as in NumPy; rtol is its newer name, None there
    meaning max(m, n) times the rounding unit. Derivatives are those of matrices of constant rank. hermitian: only the lower triangle of
    a symmetric `a` is read. m and n must be known sizes.
    """
    a = symmetric_tangent(square_stack(a, "pinv")) if hermitian else float_stack(a, "pinv")
    m, n = static_sizes("pinv", a)
    if rcond is not None and rtol is not _NOT_GIVEN:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if rcond is None:
        rcond = 1e-15 if rtol is _NOT_GIVEN else _unit(m, n, a) if rtol is None else rtol
    return bind(pinv_p, a, rcond=_tolerance(rcond, "pinv"))


def _unit(m: int, n: int, a: Any) -> float:
    return max(m, n) * float(np.finfo(dtype_of(a)[0]).eps)


# --------------------------------------------------------------------------------------------------------------- least squares


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """(x, residuals, rank: int32, singular values): the shortest x that minimises |b - a @ x|. a: [m, n]; b: [m] or [m, k].

    Singular values up to rcond times the largest count as 0: None means max(m, n) times the rounding unit, -1 the rounding unit.
    residuals: the squared lengths of b - a @ x, [k], empty where m <= n. NumPy makes them empty for a rank below n as well, which is
    known only when a staged program runs: there they are given all the same. Differentiable where the rank is constant.
    """
    a, b = promoted_pair(a, b, "lstsq")
    vector = len(shape_of(b)) == 1
    b = column(b) if vector else b
    if len(shape_of(a)) != 2 or len(shape_of(b)) != 2:
        raise MatrixError(f"lstsq: a matrix and a vector or matrix are needed, got {spec(a)!r} and {spec(b)!r}")
    m, n = static_sizes("lstsq", a)
    if shape_of(b)[0] != m:
        raise MatrixError(f"lstsq: the numbers of rows differ: a is {spec(a)!r}, b is {spec(b)!r}")
    unit = _unit(1, 1, a)
    limit = max(m, n) * unit if rcond is None else _tolerance(rcond, "lstsq")
    limit = unit if limit < 0 else limit
    x = bind(matmul_p, bind(pinv_p, a, rcond=limit), b)
    s = svdvals(a)
    rank = cast(_count(s > limit * max_(s, axis=-1, keepdims=True, initial=0), s), INT32)
    rest = b - matmul(a, x)
    residuals = sum_(rest * rest, axis=0) if m > n else zeros((0,), dtype_of(a)[0])
    return flat_column(x) if vector else x, residuals, rank, s


# ----------------------------------------------------------------------------------------------------------- rank and condition


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The number of singular values of A: [..., m, n] above `tol`, int64[...]; of fewer than two axes 1 unless all elements are 0.

    By default tol is rtol times the largest singular value, and rtol max(m, n) times the rounding unit; both may be arrays of the shape of
    the result. hermitian: only the lower triangle of a symmetric A is read. m and n must be known sizes.
    """
    x = array_operand(A, "matrix_rank")
    if len(shape_of(x)) < 2:
        return cast(any_(x != 0), INT64)
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    a = symmetric_tangent(square_stack(x, "matrix_rank")) if hermitian else float_stack(x, "matrix_rank")
    s = svdvals(a)
    if tol is None:
        share = _unit(*static_sizes("matrix_rank", a), a) if rtol is None else _last_axis(rtol)
        limit = max_(s, axis=-1, keepdims=True, initial=0) * share
    else:
        limit = _last_axis(tol)
    return _count(s > limit, s)


def _count(holds: Any, s: Any) -> Any:
    """How many hold, summed in floating point, which every device has."""
    return cast(sum_(cast(holds, dtype_of(s)[0]), axis=-1), INT64)


def _last_axis(x: Any) -> Any:
    x = operand(x)
    return column(x) if shape_of(x) else x


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    """The condition numbers of x: [..., m, n] in the norm p (see matrix_norm); None is 2, for which x need not be square.

    A singular matrix gives inf in the norms of None, 2 and -2; in the others LinAlgError on arrays, and inf or NaN in an ONNX file.
    """
    a = float_stack(x, "cond")
    if p is None or p in (2, -2):
        s = svdvals(a)
        largest, smallest = s[..., 0], s[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    a = square_stack(a, "cond")
    return norm(a, p, axis=(-2, -1)) * norm(inv(a), p, axis=(-2, -1))
