"""Polynomials as 1-d arrays of coefficients, the highest power first, as np.poly1d has them.

How many leading coefficients are zero is data: they are kept where NumPy drops them, so that every size is known. np.polyval stands
in `numerical`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, same_dim
from ..stage.dtypes import FLOAT32, FLOAT64, is_float
from ..stage.errors import ShapeError, UnsupportedError
from ..stage.trace import bind
from .arguments import array_operand
from .arithmetic import add, divide_p, multiply, subtract, true_divide
from .exponential import sqrt
from .joining import join, stack
from .matmul import matmul, swap_last
from .numerical import vander
from .operands import cast, dtype_of, operand, promoted, shape_of
from .power import square
from .reductions import sum as sum_
from .registry import implements
from .signals import convolve
from .slicing import pad, slice_axis
from .structure import reshape_p


def _coefficients(p: Any, what: str) -> Any:
    x = array_operand(getattr(p, "coeffs", p), what)
    if len(shape_of(x)) > 1:
        raise ValueError(f"{what}: coefficients are a 1-d array, got shape {list(shape_of(x))}")
    return bind(reshape_p, x, shape=(1,)) if not shape_of(x) else x


def _count(x: Any, what: str) -> int:
    size = shape_of(x)[0]
    if isinstance(size, Dim):
        raise ShapeError(f"{what}: the number of coefficients must be known, got {size}")
    return size


def _float(x: Any) -> Any:
    return x if is_float(dtype_of(x)[0]) else cast(x, FLOAT64)


def _at(x: Any, i: int) -> Any:
    """x[i], along the first axis."""
    return bind(reshape_p, slice_axis(x, 0, i, i + 1), shape=shape_of(x)[1:])


@implements(np.poly)
def poly(seq_of_zeros: Any) -> Any:
    """The coefficients [n + 1] of the monic polynomial with the n given zeros.

    Raises UnsupportedError for a square matrix, whose eigenvalues may be complex.
    """
    zeros = array_operand(seq_of_zeros, "poly")
    if len(shape_of(zeros)) == 2:
        raise UnsupportedError(
            "poly: the characteristic polynomial of a matrix is not supported on traced arrays; of a symmetric one it is "
            "np.poly(np.linalg.eigvalsh(a))"
        )
    if len(shape_of(zeros)) > 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    zeros = bind(reshape_p, zeros, shape=(1,)) if not shape_of(zeros) else zeros
    zeros = zeros if dtype_of(zeros)[0] == FLOAT32 else cast(zeros, FLOAT64)
    count = _count(zeros, "poly")
    if count == 0:
        return 1.0
    result: Any = np.ones(1, dtype_of(zeros)[0])
    for i in range(count):
        result = subtract(pad(result, [0], [1]), pad(multiply(result, _at(zeros, i)), [1], [0]))
    return result


def _aligned(a1: Any, a2: Any, what: str) -> tuple[Any, Any]:
    x, y = _coefficients(a1, what), _coefficients(a2, what)
    gap = _count(x, what) - _count(y, what)
    return (x, pad(y, [gap], [0])) if gap > 0 else (pad(x, [-gap], [0]), y)


@implements(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    """The coefficients of the sum of two polynomials."""
    return add(*_aligned(a1, a2, "polyadd"))


@implements(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    """The coefficients of the difference of two polynomials."""
    return subtract(*_aligned(a1, a2, "polysub"))


@implements(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    """The coefficients [n + m - 1] of the product of two polynomials; leading zeros are kept."""
    return convolve(_coefficients(a1, "polymul"), _coefficients(a2, "polymul"))


@implements(np.polydiv)
def polydiv(u: Any, v: Any) -> tuple[Any, Any]:
    """(quotient, remainder) of polynomials of n and m coefficients: [n - m + 1] and [m - 1], of one zero where that is none.

    The remainder's leading zeros are kept. The first coefficient of v is divided by.
    """
    x, y = promoted(_float(_coefficients(u, "polydiv")), _float(_coefficients(v, "polydiv")), strong=True)
    n, m = _count(x, "polydiv"), _count(y, "polydiv")
    nothing = np.zeros(1, dtype_of(x)[0])
    if n < m:
        return nothing, x
    scale = bind(divide_p, np.ones((), dtype_of(x)[0]), _at(y, 0))
    rest, tail = x, slice_axis(y, 0, 1, None)
    quotient: list[Any] = []
    for k in range(n - m + 1):
        quotient.append(multiply(scale, _at(rest, 0)))
        rest = subtract(slice_axis(rest, 0, 1, None), pad(multiply(quotient[-1], tail), [0], [n - m - k]))
    return stack(quotient), rest if m > 1 else nothing


@implements(np.polyder)
def polyder(p: Any, m: Any = 1) -> Any:
    """The coefficients of the m-th derivative of a polynomial: [n - m], none once it is gone."""
    order = m.__index__()
    if order < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    x = _coefficients(p, "polyder")
    for _ in range(order):
        n = _count(x, "polyder")
        x = multiply(slice_axis(x, 0, 0, max(n - 1, 0)), np.arange(n - 1, 0, -1))
    return x


@implements(np.polyint)
def polyint(p: Any, m: Any = 1, k: Any = None) -> Any:
    """The coefficients [n + m] of the m-th antiderivative of a polynomial; `k` are the constants of integration (0)."""
    order = m.__index__()
    if order < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = array_operand(0.0 if k is None else k, "polyint: k")
    constants = bind(reshape_p, constants, shape=(1,)) if not shape_of(constants) else constants
    if _count(constants, "polyint") == 1 and order > 1:
        constants = multiply(constants, np.ones(order))
    if _count(constants, "polyint") < order:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    x = _coefficients(p, "polyint")
    for i in range(order):
        n = _count(x, "polyint")
        last = slice_axis(constants, 0, i, i + 1)
        x = join(promoted(true_divide(x, np.arange(n, 0, -1)), last, strong=True), 0)
    return x


# ----------------------------------------------------------------------------------------------------------------- least squares


def _orthogonal(a: Any, count: int) -> tuple[Any, list[list[Any]]]:
    """Q [n, count] with orthonormal columns and the upper triangle of R, row by row, with a = Q R.

    By Gram and Schmidt, each column twice, which is as exact as reflections.
    """
    columns: list[Any] = []
    rows: list[list[Any]] = [[] for _ in range(count)]
    for j in range(count):
        v = slice_axis(a, 1, j, j + 1)
        if columns:
            q = join(columns, 1)
            first = matmul(swap_last(q), v)
            v = subtract(v, matmul(q, first))
            second = matmul(swap_last(q), v)
            v = subtract(v, matmul(q, second))
            along = add(first, second)
            for i in range(j):
                rows[i].append(bind(reshape_p, slice_axis(along, 0, i, i + 1), shape=()))
        length = sqrt(sum_(square(v)))
        rows[j].append(length)
        columns.append(bind(divide_p, v, length))
    return join(columns, 1), rows


def _back_substituted(rows: list[list[Any]], z: Any) -> Any:
    """R^-1 z for the upper triangle R and z [count, k]."""
    found: list[Any] = []
    for i in reversed(range(len(rows))):
        rest = _at(z, i)
        for coefficient, x in zip(rows[i][1:], found, strict=True):
            rest = subtract(rest, multiply(coefficient, x))
        found.insert(0, bind(divide_p, rest, rows[i][0]))
    return stack(found)


@implements(np.polyfit)
def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    """The float64 coefficients [deg + 1], or [deg + 1, k] for y [n, k], of the polynomial of least squared distance from n points.

    w: weights of the residuals; cov: the matrix of covariances too ("unscaled": as w are 1 / sigma). The points must lie at deg + 1
    different x at least: no singular values are cut off. Raises UnsupportedError for rcond and full, TypeError and ValueError as NumPy.
    """
    if rcond is not None or full:
        raise UnsupportedError(
            "polyfit: rcond= and full= are not supported on traced arrays; np.linalg.lstsq(np.vander(x, deg + 1), y) gives singular values"
        )
    order = deg.__index__() + 1
    points, values = promoted(_float(array_operand(x, "polyfit: x")), _float(array_operand(y, "polyfit: y")), strong=True)
    if order < 1:
        raise ValueError("expected deg >= 0")
    if len(shape_of(points)) != 1:
        raise TypeError("expected 1D vector for x")
    if len(shape_of(values)) not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    count = shape_of(points)[0]
    if not isinstance(count, Dim) and count < order:
        raise UnsupportedError(
            f"polyfit: a polynomial of degree {order - 1} is not determined by {count} points; give {order} or more, or a lower degree"
        )
    if not same_dim(shape_of(values)[0], count):
        raise TypeError("expected x and y to have same length")
    # np.vander gives float64, and all else follows.
    points, rhs, flat = cast(points, FLOAT64), cast(values, FLOAT64), len(shape_of(values)) == 1
    rhs = bind(reshape_p, rhs, shape=(count, 1)) if flat else rhs
    lhs = vander(points, order)
    if w is not None:
        weights = cast(array_operand(w, "polyfit: w"), FLOAT64)
        if len(shape_of(weights)) != 1:
            raise TypeError("expected a 1-d array for weights")
        weights = bind(reshape_p, weights, shape=(count, 1))
        lhs, rhs = multiply(lhs, weights), multiply(rhs, weights)
    scale = sqrt(sum_(square(lhs), 0))
    lhs = bind(divide_p, lhs, bind(reshape_p, scale, shape=(1, order)))
    q, rows = _orthogonal(lhs, order)
    scaled = _back_substituted(rows, matmul(swap_last(q), rhs))
    column = bind(reshape_p, scale, shape=(order, 1))
    solution = bind(divide_p, scaled, column)
    result = _at(swap_last(solution), 0) if flat else solution
    if not cov:
        return result
    inverse = _back_substituted(rows, np.eye(order))
    base = bind(divide_p, matmul(inverse, swap_last(inverse)), multiply(column, swap_last(column)))
    if cov != "unscaled":
        if not isinstance(count, Dim) and count <= order:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        freedom = cast(operand(count - order), FLOAT64)
        residuals = bind(divide_p, sum_(square(subtract(rhs, matmul(lhs, scaled))), 0), freedom)
        base = multiply(bind(reshape_p, base, shape=(order, order, 1)), residuals)
        base = bind(reshape_p, base, shape=(order, order)) if flat else base
    elif not flat:
        base = bind(reshape_p, base, shape=(order, order, 1))
    return result, base
