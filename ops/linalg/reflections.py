"""qr: Householder reflections, one column after the other (Golub and Van Loan, Matrix Computations, section 5.2; signs as in LAPACK)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...stage.dims import Dim
from ...stage.errors import ShapeError, UnsupportedError
from ...stage.primitive import Array, Case, Primitive, Sample, Unknown
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..arithmetic import where
from ..control.scan import scan
from ..creation import eye, iota
from ..exponential import sqrt
from ..gather import take
from ..joining import join
from ..matmul import matmul, matmul_p, swap_last
from ..operands import shape_of
from ..reductions import sum as sum_
from ..registry import implements
from ..slicing import pad, slice_axis
from ..structure import broadcast
from .stacks import column, first, float_stack, require_floats, row, static_sizes, triangle
from .systems import solve_triangle


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle whose product is the matrix."""

    Q: Any
    R: Any


def _abstract(a: ArraySpec, *, complete: bool) -> tuple[ArraySpec, ArraySpec]:
    require_floats("qr", a)
    m, n = a.shape[-2:]
    if isinstance(m, Dim) or isinstance(n, Dim) or m < n:
        raise ShapeError(f"qr: matrices of known sizes and no fewer rows than columns are needed, got {a!r}")
    size = m if complete else n
    return make_spec((*a.shape[:-1], size), a.dtype), make_spec((*a.shape[:-2], size, n), a.dtype)


def _numpy(a: Array, *, complete: bool) -> tuple[Array, Array]:
    result = np.linalg.qr(a, mode="complete" if complete else "reduced")
    return result.Q, result.R


def _jvp(output: Any, primals: Any, tangents: Any, *, complete: bool) -> Any:
    q, r = output
    m, n = primals[0].shape[-2:]
    tall = complete and m > n
    if tall:
        r = slice_axis(r, len(r.shape) - 2, 0, n)
        # Not a part of Q, which has no derivative, so that R has a second one
        q = swap_last(solve_triangle(swap_last(r), swap_last(primals[0]), lower=True))
    moved = swap_last(solve_triangle(swap_last(r), swap_last(tangents[0]), lower=True))
    inner = bind(matmul_p, swap_last(q), moved)
    below = triangle(inner, True, strict=True)
    turn = below - swap_last(below)
    dr = triangle(bind(matmul_p, inner - turn, r), False)
    if tall:
        zeros_below = [0] * (len(r.shape) - 2) + [m - n, 0]
        message = (
            "qr: with mode='complete' the further columns of Q are not determined by the matrix, so Q has no derivative; use mode='reduced'"
        )
        return Unknown(message), pad(dr, [0] * len(r.shape), zeros_below)
    return bind(matmul_p, q, turn - inner) + moved, dr


def _batch(ctx: Any, args: Any, axes: Any, *, complete: bool) -> Any:
    return bind(qr_p, first(args[0], axes[0]), complete=complete), (0, 0)


def by_reflections(a: Any, *, complete: bool) -> tuple[Any, Any]:
    """Q and R of a: [..., m, n] with m >= n."""
    m, n = a.shape[-2:]
    size = m if complete else n
    rows = iota(m)
    q = broadcast(eye(m, size, dtype=a.dtype), (*a.shape[:-2], m, size))
    if n == 0:
        return q, slice_axis(a, len(a.shape) - 2, 0, size)

    def reflect(r: Any, k: Any) -> Any:
        whole = take(r, k, axis=-1)
        head, rest = take(whole, k, axis=-1), where(rows > k, whole, 0)
        square = sum_(rest * rest, axis=-1)
        is_done = square == 0
        length = sqrt(head * head + square)
        target = where(head < 0, length, -length)
        factor = where(is_done, 0, (target - head) / where(is_done, 1, target))
        vector = where(rows == k, 1, rest / column(where(is_done, 1, head - target)))
        return _reflected(r, vector, factor), (vector, factor)

    r, steps = scan(reflect, a, iota(n))
    q = scan(lambda q, step: (_reflected(q, *step), None), q, steps, reverse=True)[0]
    return q, triangle(slice_axis(r, len(r.shape) - 2, 0, size), False)


def _reflected(x: Any, vector: Any, factor: Any) -> Any:
    return x - column(vector) * (column(column(factor)) * matmul(row(vector), x))


_TALL = [[1.0, 0.5], [-2.0, 1.0], [0.25, 3.0]]
_SQUARE = [[2.0, -1.0, 0.5], [0.25, 1.5, -1.0], [4.0, 0.5, 1.0]]

qr_p = Primitive(
    "qr",
    abstract=_abstract,
    numpy=_numpy,
    jvp=_jvp,
    batch=_batch,
    decompose=by_reflections,
    cases=[
        Case((Sample((3, 2), values=_TALL),), {"complete": False}),
        Case((Sample((2, 3, 3), values=[_SQUARE, [[1.0, 2.0, 0.0], [0.5, 3.0, 1.0], [0.0, 0.5, -2.0]]]),), {"complete": True}),
        Case((Sample((1, 1), domain=(1, 2)),), {"complete": False}),
        Case((Sample((2, 0)),), {"complete": False}),
    ],
)


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    """(Q, R) with a = Q @ R, the columns of Q orthonormal and R upper triangular; a: [..., m, n], k = min(m, n).

    mode: "reduced" gives Q: [..., m, k] and R: [..., k, n]; "complete" Q: [..., m, m] and R: [..., m, n]; "r" only R of "reduced".
    Differentiable where the first k columns are independent, but for Q of "complete" with m > n. m and n must be known sizes.
    Raises ValueError for another mode, LinAlgError for fewer than two axes.
    """
    if mode == "raw":
        raise UnsupportedError("qr: mode='raw' is LAPACK's own storage; use 'reduced' or 'complete'")
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    a = float_stack(a, "qr")
    m, n = static_sizes("qr", a)
    complete = mode == "complete"
    if m >= n:
        q, r = bind(qr_p, a, complete=complete)
    else:
        last = len(shape_of(a)) - 1
        q, left = bind(qr_p, slice_axis(a, last, 0, m), complete=complete)
        r = join([left, matmul(swap_last(q), slice_axis(a, last, m, n))], last)
    return r if mode == "r" else QRResult(q, r)
