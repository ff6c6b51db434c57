"""unique and its kin, and sets of two arrays, with a bound on the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

X = np.array([[3.0, 1.0, np.nan], [1.0, 0.0, np.nan]])
N = np.array([4, 2, 2, 7, 4, 4])


def test_unique_with_everything(agree: Any) -> None:
    values, index, inverse, counts = np.unique(N, True, True, True)
    agree(
        lambda x: ons.numpy.unique(x, True, True, True, size=5),
        N,
        wanted=(np.array([*values, 2, 2]), np.array([*index, 1, 1]), inverse, np.array([*counts, 0, 0])),
    )
    agree(lambda x: ons.numpy.unique(x, return_counts=True, size=2, fill_value=9), N, wanted=(values[:2], counts[:2]))
    agree(lambda x: ons.numpy.unique(x, size=4, return_counts=True), X, wanted=np.unique(X, return_counts=True))


@pytest.mark.parametrize("x", [X, N, N.astype("u1"), N > 3])
def test_unique_functions_of_the_standard(agree: Any, x: Any) -> None:
    wanted = np.unique_all(x)
    size = len(wanted.values)
    agree(lambda x: tuple(ons.numpy.unique_all(x, size=size)), x, wanted=wanted)
    agree(lambda x: tuple(ons.numpy.unique_counts(x, size=size)), x, wanted=np.unique_counts(x))
    agree(lambda x: tuple(ons.numpy.unique_inverse(x, size=size)), x, wanted=np.unique_inverse(x))
    agree(lambda x: ons.numpy.unique_values(x, size=size), x, wanted=wanted.values)
    agree(lambda x: ons.numpy.unique_values(x, size=size), x, wanted=wanted.values, shapes=(tuple("AB"[: x.ndim]),))


def test_results_have_the_names_of_the_standard() -> None:
    result = ons.numpy.unique_all(N, size=3)
    assert result._fields == ("values", "indices", "inverse_indices", "counts")
    assert np.array_equal(result.values[result.inverse_indices], N)
    plain = ons.numpy.unique_all(N)
    assert all(np.array_equal(a, b) for a, b in zip(plain, np.unique_all(N), strict=True))


def test_empty_arrays(agree: Any) -> None:
    empty = np.zeros(0)
    agree(lambda x: ons.numpy.unique(x, size=2, fill_value=5), empty, wanted=np.array([5.0, 5.0]))
    agree(lambda x: ons.numpy.unique(x, size=2, fill_value=5), empty, wanted=np.array([5.0, 5.0]), shapes=(("N",),))
    agree(lambda x: ons.numpy.unique_counts(x, size=1), empty, wanted=(np.zeros(1), np.zeros(1, np.int64)))


A = np.array([5.0, 1.0, 3.0, 3.0, np.nan])
B = np.array([3.0, 9.0, 5.0, np.nan])


@pytest.mark.parametrize("name", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_of_two_arrays(agree: Any, name: str) -> None:
    for a, b in ((A, B), (A[:4], B), (A, B[:3]), (N, np.array([7, 8])), (N, np.array([4.5, 2.0]))):
        wanted = getattr(np, name)(a, b)
        f = getattr(ons.numpy, name)
        agree(lambda a, b, f=f, n=len(wanted): f(a, b, size=n), a, b, wanted=wanted)
        filled = np.array([*wanted, -1]).astype(wanted.dtype)
        agree(lambda a, b, f=f, n=len(wanted): f(a, b, size=n + 1, fill_value=-1), a, b, wanted=filled)


@pytest.mark.parametrize(
    "name", ["unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "union1d", "intersect1d", "setdiff1d", "setxor1d"]
)
def test_without_a_bound(name: str) -> None:
    f = getattr(np, name)
    with pytest.raises(ons.ConcretizationError, match=rf"ons\.numpy\.{name}\(x(, y)?, size=n\)"):
        ons.stage(lambda x: f(x, x) if name.endswith("1d") else f(x), N)
