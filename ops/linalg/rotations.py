"""Jacobi's method: eigenvectors and singular vectors by plane rotations, n/2 of them at once, in loops over standard operators.

Every sweep rotates each pair of axes once, in the rounds of a round-robin tournament (Brent and Luk 1985; Golub and Van Loan, Matrix
Computations, sections 8.5 and 8.6.3). Sweeps go on until nothing is left to rotate, 6 to 10 as a rule and 30 at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dtypes import INT64, DType
from ...stage.primitive import Array
from ...stage.trace import bind
from ..along_axis import take_along_axis_p
from ..arithmetic import where
from ..control.loops import while_loop
from ..control.scan import scan
from ..creation import eye, iota
from ..exponential import sqrt
from ..extremum import maximum
from ..floating_point import absolute
from ..gather import take
from ..matrices import matrix_diagonal
from ..reductions import max as max_
from ..reductions import sum as sum_
from ..sorting import argsort
from ..structure import broadcast, zeros
from .stacks import column, flat_column, row

_SWEEPS = 30


def tournament(n: int) -> Array:
    """Who meets whom: int64[rounds, n]; for odd n one has nobody, which is itself, in each round."""
    even = n + n % 2
    rounds = np.tile(np.arange(n), (even - 1, 1))
    for r in range(even - 1):
        pairs = [(even - 1, r), *(((r + i) % (even - 1), (r - i) % (even - 1)) for i in range(1, even // 2))]
        for i, j in pairs:
            if i < n and j < n:
                rounds[r, i], rounds[r, j] = j, i
    return rounds.astype(INT64)


def _rotation(own: Any, other: Any, between: Any, partner: Any, n: int) -> tuple[Any, Any]:
    """(cosine, sine) for each axis of the rotation with its partner that makes `between` zero; axis i becomes c x_i - s x_partner.

    own, other: the diagonal at the axis and at its partner.
    """
    places = iota(n)
    idle = (between == 0) | (partner == places)
    theta = (other - own) / (2 * where(idle, 1, between))
    smaller = 1 / (absolute(theta) + sqrt(1 + theta * theta))
    upward = where(theta == 0, places < partner, theta > 0)
    tangent = where(idle, 0, where(upward, smaller, -smaller))
    cosine = 1 / sqrt(1 + tangent * tangent)
    return cosine, tangent * cosine


def _turn(x: Any, cosine: Any, sine: Any, partner: Any) -> Any:
    """The columns of x rotated."""
    return row(cosine) * x - row(sine) * take(x, partner, axis=-1)


def _scale(a: Any) -> Any:
    """The largest absolute value of each matrix, 1 where that is 0: [..., 1, 1]."""
    largest = max_(absolute(a), axis=(-2, -1), keepdims=True)
    return where(largest == 0, 1, largest)


def _start_vectors(a: Any) -> Any:
    n = a.shape[-1]
    return broadcast(eye(n, dtype=a.dtype), (*a.shape[:-2], n, n))


def in_order(values: Any, columns: Any, order: Any) -> tuple[Any, Any]:
    """Values and the columns that belong to them, in another order."""
    axis = len(values.shape) - 1
    places = broadcast(row(order), columns.shape)
    return bind(take_along_axis_p, values, order, axis=axis), bind(take_along_axis_p, columns, places, axis=axis + 1)


def eigen_rotations(a: Any) -> tuple[Any, Any]:
    """Eigenvalues, ascending, and eigenvectors of symmetric a: [..., n, n]."""
    n = a.shape[-1]
    if n < 2:
        return matrix_diagonal(a), _start_vectors(a)
    scale = _scale(a)
    a = a / scale
    enough = sum_(a * a, axis=(-2, -1)) * _square_of_epsilon(a.dtype)
    rounds = tournament(n)
    off_diagonal = ~np.eye(n, dtype=bool)

    def turn(state: Any, partner: Any) -> Any:
        a, vectors = state
        diagonal = matrix_diagonal(a)
        index = broadcast(column(partner), (*a.shape[:-1], 1))
        between = flat_column(bind(take_along_axis_p, a, index, axis=len(a.shape) - 1))
        cosine, sine = _rotation(diagonal, take(diagonal, partner, axis=-1), between, partner, n)
        a = column(cosine) * a - column(sine) * take(a, partner, axis=-2)
        a = _turn(a, cosine, sine, partner)
        met = (iota(n) == column(partner)) & off_diagonal
        return (where(met, 0, a), _turn(vectors, cosine, sine, partner)), None

    def unfinished(state: Any) -> Any:
        rest = where(off_diagonal, state[0], 0)
        return _any(sum_(rest * rest, axis=(-2, -1)) > enough)

    a, vectors = while_loop(unfinished, lambda state: scan(turn, state, rounds)[0], (a, _start_vectors(a)), max_steps=_SWEEPS)
    values = matrix_diagonal(a)
    values, vectors = in_order(values, vectors, argsort(values, axis=-1))
    return values * flat_column(scale), vectors


def _any(condition: Any) -> Any:
    return max_(where(condition, 1, 0), initial=0) > 0


def _square_of_epsilon(dtype: DType) -> float:
    return float(np.finfo(dtype).eps) ** 2


def singular_rotations(a: Any) -> tuple[Any, Any, Any]:
    """(a V, singular values, V) of a: [..., m, n] with m >= n: the columns of a V are orthogonal, longest first."""
    n = a.shape[-1]
    scale = _scale(a) if n else zeros((*a.shape[:-2], 1, 1), a.dtype) + 1
    vectors = _start_vectors(a)
    if n > 1:
        a = a / scale
        enough = float(a.shape[-2]) ** 2 * _square_of_epsilon(a.dtype)
        # Pairs of columns that are both rounding errors have no directions to make orthogonal.
        total = sum_(a * a, axis=(-2, -1))
        floor = column(total * total * _square_of_epsilon(a.dtype) ** 2)
        rounds = tournament(n)

        def turn(state: Any, partner: Any) -> Any:
            a, vectors, worst = state
            squares = sum_(a * a, axis=-2)
            others = take(squares, partner, axis=-1)
            between = sum_(a * take(a, partner, axis=-1), axis=-2)
            cosine, sine = _rotation(squares, others, between, partner, n)
            possible = maximum(squares * others, floor)
            angle = where((partner == iota(n)) | (possible == 0), 0, between * between / where(possible == 0, 1, possible))
            worst = maximum(worst, max_(angle, initial=0))
            return (_turn(a, cosine, sine, partner), _turn(vectors, cosine, sine, partner), worst), None

        def sweep(state: Any) -> Any:
            return scan(turn, (state[0], state[1], zeros((), a.dtype)), rounds)[0]

        start = (a, vectors, zeros((), a.dtype) + 1)
        a, vectors, _ = while_loop(lambda state: state[2] > enough, sweep, start, max_steps=_SWEEPS)
        a = a * scale
    lengths = _lengths(a, scale)
    order = argsort(-lengths, axis=-1)
    _, columns = in_order(lengths, a, order)
    lengths, vectors = in_order(lengths, vectors, order)
    return columns, lengths, vectors


def _lengths(a: Any, scale: Any) -> Any:
    unit = a / scale
    return sqrt(sum_(unit * unit, axis=-2)) * flat_column(scale)


def sign_weights(size: int, dtype: DType) -> Array:
    """The weights whose sum over a vector decides its sign: no vector of small integers is orthogonal to them."""
    return (2 + np.sin(np.arange(1.0, size + 1))).astype(dtype)
