"""det and slogdet."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..exponential import log
from ..floating_point import absolute, sign
from ..joining import stack
from ..matrices import matrix_diagonal
from ..reductions import prod
from ..reductions import sum as sum_
from ..registry import implements
from ..shape import squeeze
from ..slicing import slice_axes
from .elimination import factorize
from .stacks import first, require_floats, require_square, square_stack
from .systems import solve_p


def _abstract(what: str, a: ArraySpec) -> ArraySpec:
    require_floats(what, a)
    require_square(what, a)
    return make_spec(a.shape[:-2], a.dtype)


def _relative_change(a: Any, da: Any) -> Any:
    """The trace of a^-1 da."""
    return sum_(matrix_diagonal(bind(solve_p, a, da)), axis=-1)


# ----------------------------------------------------------------------------------------------------------------------- det


def _det_abstract(a: ArraySpec) -> ArraySpec:
    return _abstract("det", a)


def _det_numpy(a: Array) -> Array:
    return np.linalg.det(a)


def _det_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    a, da = primals[0], tangents[0]
    n = a.shape[-1]
    if type(n) is int and 1 <= n <= 3:
        return sum_(_cofactors(a, n) * da, axis=(-2, -1))
    return output * _relative_change(a, da)


def _cofactors(a: Any, n: int) -> Any:
    """The derivative of the determinant by each element, for n up to 3: polynomials, so that singular matrices are ordinary."""

    def at(i: int, j: int) -> Any:
        i, j = i % n, j % n
        ndim = len(a.shape)
        return squeeze(slice_axes(a, {ndim - 2: slice(i, i + 1), ndim - 1: slice(j, j + 1)}), (-2, -1))

    if n == 1:
        return a * 0 + 1
    if n == 2:
        rows = [[at(1, 1), -at(1, 0)], [-at(0, 1), at(0, 0)]]
    else:
        rows = [[at(i + 1, j + 1) * at(i + 2, j + 2) - at(i + 1, j + 2) * at(i + 2, j + 1) for j in range(n)] for i in range(n)]
    return stack([stack(r, axis=-1) for r in rows], axis=-2)


def _det_batch(ctx: Any, args: Any, axes: Any) -> Any:
    return bind(det_p, first(args[0], axes[0])), 0


def _det_decompose(a: Any) -> Any:
    lu, _, parity = factorize(a)
    return parity * prod(matrix_diagonal(lu), axis=-1)


_MATRIX = [[2.0, -1.0, 0.5], [0.25, 1.5, -1.0], [4.0, 0.5, 1.0]]
_LARGER = [[0.0, 1.0, 0.5, -1.0], [2.0, 0.25, 1.5, 0.5], [-1.0, 3.0, 0.5, 1.0], [0.5, -0.5, 1.0, 2.0]]
_CASES = [
    Case((Sample((3, 3), values=_MATRIX),)),
    Case((Sample((2, 2, 2), values=[[[0.0, 2.0], [1.5, -0.5]], [[3.0, 1.0], [1.0, 2.0]]]),)),
    Case((Sample((4, 4), values=_LARGER),)),
    Case((Sample((1, 1), domain=(1, 2)),)),
    Case((Sample((0, 0)),)),
    Case((Sample((0, 2, 2)),)),
]

det_p = Primitive(
    "det",
    abstract=_det_abstract,
    numpy=_det_numpy,
    jvp=_det_jvp,
    batch=_det_batch,
    decompose=_det_decompose,
    cases=[*_CASES, Case((Sample((3, 3), values=[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]),))],
)


@implements(np.linalg.det)
def det(a: Any) -> Any:
    """The determinants of square matrices a: [..., n, n]; shape [...].

    The gradient of singular matrices of more than 3 rows is LinAlgError on arrays, NaN in an ONNX file.
    Raises LinAlgError for matrices that are not square.
    """
    return bind(det_p, square_stack(a, "det"))


# ------------------------------------------------------------------------------------------------------------------- slogdet


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: Any
    logabsdet: Any


def _slogdet_abstract(a: ArraySpec) -> tuple[ArraySpec, ArraySpec]:
    result = _abstract("slogdet", a)
    return result, result


def _slogdet_numpy(a: Array) -> tuple[Array, Array]:
    result = np.linalg.slogdet(a)
    return result.sign, result.logabsdet


def _slogdet_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    return None, _relative_change(primals[0], tangents[0])


def _slogdet_batch(ctx: Any, args: Any, axes: Any) -> Any:
    return bind(slogdet_p, first(args[0], axes[0])), (0, 0)


def _slogdet_decompose(a: Any) -> Any:
    lu, _, parity = factorize(a)
    diagonal = matrix_diagonal(lu)
    return parity * prod(sign(diagonal), axis=-1), sum_(log(absolute(diagonal)), axis=-1)


slogdet_p = Primitive(
    "slogdet",
    abstract=_slogdet_abstract,
    numpy=_slogdet_numpy,
    jvp=_slogdet_jvp,
    batch=_slogdet_batch,
    decompose=_slogdet_decompose,
    cases=_CASES,
)


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> SlogdetResult:
    """(sign, logarithm of the absolute value) of the determinants of square matrices a: [..., n, n]; each of shape [...].

    A singular matrix gives (0, -inf). Raises LinAlgError for matrices that are not square.
    """
    return SlogdetResult(*bind(slogdet_p, square_stack(a, "slogdet")))
