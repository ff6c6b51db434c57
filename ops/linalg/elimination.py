"""Gaussian elimination and substitution as loops over standard operators: what the systems and determinants are lowered to.

Golub and Van Loan, Matrix Computations, algorithms 3.4.1 (partial pivoting), 3.1.1 and 3.1.2 (substitution by rows).
"""

from __future__ import annotations

from typing import Any

from ...stage.dtypes import INT64
from ...stage.trace import bind
from ..along_axis import take_along_axis_p
from ..arg_reductions import argmax
from ..arithmetic import where
from ..control.scan import scan
from ..creation import iota
from ..floating_point import absolute
from ..gather import take
from ..matmul import matmul
from ..structure import broadcast, zeros
from .stacks import column, has_no_rows, row


def factorize(a: Any) -> tuple[Any, Any, Any]:
    """PA = LU of square matrices a: [..., n, n]. Gives (L and U in one matrix, the order of rows: int64[..., n], det P: a.dtype[...]).

    A zero pivot, of a singular matrix, stays in U; nothing is divided by it.
    """
    n = a.shape[-1]
    rows = iota(n)
    batch = a.shape[:-2]

    def step(state: Any, k: Any) -> Any:
        lu, order, sign = state
        size = where(rows >= k, absolute(take(lu, k, axis=-1)), -1)
        pivot_row = argmax(size, axis=-1, keepdims=True)
        index = where(rows == k, pivot_row, where(rows == pivot_row, k, rows))
        lu = _rows_at(lu, index)
        order = bind(take_along_axis_p, order, index, axis=len(batch))
        pivots = take(lu, k, axis=-2)
        below = take(lu, k, axis=-1)
        pivot = take(pivots, k, axis=-1)
        factors = where(rows > k, below / column(where(pivot == 0, 1, pivot)), 0)
        eliminated = lu - column(factors) * row(where(rows > k, pivots, 0))
        lu = where((rows == k) & (rows > k)[:, None], column(factors), eliminated)
        swapped = take(pivot_row, 0, axis=-1) != k
        return (lu, order, where(swapped, -sign, sign)), None

    if has_no_rows(a):
        return a, broadcast(rows, (*batch, n)), zeros(batch, a.dtype) + 1
    start = (a, broadcast(rows, (*batch, n)), zeros(batch, a.dtype) + 1)
    (lu, order, sign), _ = scan(step, start, iota(n))
    return lu, order, sign


def _rows_at(x: Any, index: Any) -> Any:
    if len(x.shape) == 2:
        return take(x, index, axis=0)
    return rows_in_order(x, index)


def rows_in_order(x: Any, order: Any) -> Any:
    """The rows of x: [..., n, m] in an order: int64[..., n] for each matrix."""
    return bind(take_along_axis_p, x, broadcast(column(order), x.shape), axis=len(x.shape) - 2)


def substitute(t: Any, b: Any, *, lower: bool, unit: bool) -> Any:
    """The x with t x = b for triangular t: [..., n, n], whose other triangle is not used, and b: [..., n, m].

    unit: the diagonal counts as ones. Rows of x are found one after the other, from the first or, for upper triangles, the last.
    """
    if has_no_rows(t):
        return b
    n = t.shape[-1]
    places = iota(n)[:, None]

    def step(x: Any, k: Any) -> Any:
        coefficients = take(t, k, axis=-2)
        # Rows of x that are not found yet are zeros: the other triangle has no part in the product.
        rest = row(take(b, k, axis=-2)) - matmul(row(coefficients), x)
        found = rest if unit else rest / column(column(take(coefficients, k, axis=-1)))
        return where(places == k, found, x), None

    return scan(step, zeros(b.shape, b.dtype), iota(n, INT64), reverse=not lower)[0]


def solve_by_elimination(a: Any, b: Any) -> Any:
    """The x with a x = b: a: [..., n, n], b: [..., n, m]."""
    lu, order, _ = factorize(a)
    return substitute(lu, substitute(lu, rows_in_order(b, order), lower=True, unit=True), lower=False, unit=False)
