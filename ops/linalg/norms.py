"""Norms of vectors and of matrices. The 2-norm and the Frobenius norm have slope 0 at zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...stage.dtypes import FLOAT64, is_float
from ...stage.narrowing import is_sequence
from ...stage.trace import bind
from ..arguments import array_operand
from ..arithmetic import where
from ..exponential import sqrt
from ..floating_point import absolute
from ..operands import cast, dtype_of, normalize_axes, normalize_axis, shape_of
from ..power import power
from ..reductions import max as max_
from ..reductions import min as min_
from ..reductions import sum as sum_
from ..registry import implements
from ..structure import move_axis, reshape_p
from .spectral import svdvals
from .stacks import MatrixError


def _floating(x: Any, what: str) -> Any:
    x = array_operand(x, what)
    return x if is_float(dtype_of(x)[0]) else cast(x, FLOAT64)


def _root_of_squares(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    total = sum_(x * x, axis=axes, keepdims=keepdims)
    is_zero = total == 0
    return where(is_zero, total, sqrt(where(is_zero, 1, total)))


def _along(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The vector norm over axes."""
    if ord is None or ord == 2:
        return _root_of_squares(x, axes, keepdims)
    if ord == math.inf:
        return max_(absolute(x), axis=axes, keepdims=keepdims)
    if ord == -math.inf:
        return min_(absolute(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        return sum_(cast(x != 0, dtype_of(x)[0]), axis=axes, keepdims=keepdims)
    if ord == 1:
        return sum_(absolute(x), axis=axes, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    total = sum_(power(absolute(x), ord), axis=axes, keepdims=keepdims)
    if ord < 0:
        return power(total, 1 / ord)
    is_zero = total == 0
    return where(is_zero, total, power(where(is_zero, 1, total), 1 / ord))


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The ord-norms of vectors along an axis or axes; of all elements for axis None.

    ord: any number: 2 the root of squares, 1 the sum and inf the maximum of absolute values, 0 the number of elements that are not 0.
    Integers are computed in float64.
    """
    x = _floating(x, "vector_norm")
    return _along(x, ord, normalize_axes(axis, len(shape_of(x))), bool(keepdims))


def _matrix(x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    """The matrix norm over two axes: rows, columns."""
    row_axis, column_axis = axes
    ndim = len(shape_of(x))
    if ord is None or ord in ("fro", "f"):
        return _root_of_squares(x, tuple(sorted(axes)), keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(move_axis(move_axis(x, row_axis, ndim - 1), column_axis - (row_axis < column_axis), ndim - 1))
        result = sum_(values, axis=-1) if ord == "nuc" else (max_ if ord == 2 else min_)(values, axis=-1)
        kept = tuple(1 if i in axes else d for i, d in enumerate(shape_of(x)))
        return bind(reshape_p, result, shape=kept) if keepdims else result
    largest = {1: True, -1: False, math.inf: True, -math.inf: False}.get(ord)
    if largest is None:
        raise ValueError(f"Invalid norm order {ord!r} for matrices")
    summed, other = (row_axis, column_axis) if abs(ord) == 1 else (column_axis, row_axis)
    totals = sum_(absolute(x), axis=summed, keepdims=True)
    result = (max_ if largest else min_)(totals, axis=other, keepdims=True)
    return result if keepdims else _without(result, axes)


def _without(x: Any, axes: tuple[int, int]) -> Any:
    return bind(reshape_p, x, shape=tuple(d for i, d in enumerate(x.shape) if i not in axes))


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norms of the matrices along the last two axes.

    ord: "fro" the root of squares, inf and -inf the largest and smallest row sum of absolute values, 1 and -1 column sum, "nuc" the sum
    of singular values, 2 and -2 the largest and smallest of them. Integers are computed in float64.
    """
    x = _floating(x, "matrix_norm")
    ndim = len(shape_of(x))
    if ndim < 2:
        raise MatrixError(f"matrix_norm: at least two axes are needed, got shape {list(shape_of(x))}")
    return _matrix(x, ord, (ndim - 2, ndim - 1), bool(keepdims))


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """A vector norm along one axis or a matrix norm along two; for axis None of all of x, flattened if ord is None too.

    See vector_norm and matrix_norm for `ord`. Raises ValueError for orders that a norm does not have.
    """
    x = _floating(x, "norm")
    ndim = len(shape_of(x))
    if axis is None and ord is None:
        return _root_of_squares(x, tuple(range(ndim)), bool(keepdims))
    given: Any = range(ndim) if axis is None else axis if is_sequence(axis) else (axis,)
    axes = tuple([normalize_axis(a, ndim) for a in given])
    if len(axes) == 1:
        return _along(x, ord, axes, bool(keepdims))
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    if axes[0] == axes[1]:
        raise ValueError("Duplicate axes given.")
    return _matrix(x, ord, (axes[0], axes[1]), bool(keepdims))
