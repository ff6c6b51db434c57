"""Histograms, bits, positions, sets and the functions that call functions, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

X = np.random.default_rng(1).normal(size=40)
Y = np.random.default_rng(2).uniform(-2, 2, 40)
W = np.random.default_rng(3).uniform(0.5, 1.5, 40)
EDGES = np.array([-2.0, -0.5, 0.25, 1.0, 3.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: np.histogram(x),
        lambda x, w: np.histogram(x, 5, range=(-1, 1)),
        lambda x, w: np.histogram(x, EDGES),
        lambda x, w: np.histogram(x, EDGES, weights=w),
        lambda x, w: np.histogram(x, 7, density=True),
        lambda x, w: np.histogram(x, EDGES, density=True, weights=w),
        lambda x, w: np.histogram(x.reshape(5, 8), w[:5].cumsum()),
        lambda x, w: np.histogram_bin_edges(x, 4),
        lambda x, w: np.histogram_bin_edges(x, 3, range=(2, 2)),
    ],
)
def test_histogram(agree: Any, function: Any) -> None:
    agree(function, X, W, rtol=1e-11)


def test_histogram_of_edges_dtypes_and_sizes(agree: Any) -> None:
    agree(lambda x: np.histogram(x, EDGES), np.array([-2.0, 3.0, 3.0001, 1.0, 0.25, -2.1, np.nan, np.inf]))
    agree(lambda x: np.histogram(x, 4), np.array([3.0, 3.0]))
    agree(lambda x: np.histogram(x, 3), np.array([1, 2, 2, 5]))
    agree(lambda x: np.histogram(x, 3), np.zeros(0))
    agree(lambda x: np.histogram(x, 5), X.astype("f4"))
    agree(lambda x, w: np.histogram(x, 3, weights=w), np.array([1, 2, 2, 5]), np.array([1, 2, 3, 4], "i4"))
    agree(lambda x: np.histogram(x, 5), X, shapes=(("N",),))


def test_histograms_of_points(agree: Any) -> None:
    agree(lambda x, y: np.histogram2d(x, y, 4), X, Y, rtol=1e-11)
    agree(lambda x, y: np.histogram2d(x, y, [3, EDGES]), X, Y, rtol=1e-11)
    agree(lambda x, y: np.histogram2d(x, y, EDGES), X, Y)
    agree(lambda x, y, w: np.histogram2d(x, y, 3, range=[[-1, 1], [-2, 2]], weights=w, density=True), X, Y, W, rtol=1e-11)

    def flat(x: Any) -> Any:
        counts, edges = np.histogramdd(x, (2, 3, 2))
        return (counts, *edges)

    agree(flat, X[:39].reshape(13, 3), rtol=1e-11)


def test_slope_of_a_histogram_in_its_weights(slopes: Any) -> None:
    slopes(lambda w: ons.numpy.histogram(X, EDGES, weights=w)[0], W)


def test_errors_of_histograms() -> None:
    with pytest.raises(ons.ConcretizationError, match="bins='auto'.*give a number or edges"):
        ons.stage(lambda x: np.histogram(x, "auto"), X)
    with pytest.raises(ValueError, match="must increase monotonically"):
        ons.stage(lambda x: np.histogram(x, [2, 1]), X)
    with pytest.raises(ValueError, match="`bins` must be positive"):
        ons.stage(lambda x: np.histogram(x, 0), X)
    with pytest.raises(ValueError, match="max must be larger than min"):
        ons.stage(lambda x: np.histogram(x, 3, range=(1, 0)), X)
    with pytest.raises(ValueError, match="weights should have the same shape"):
        ons.stage(lambda x: np.histogram(x, 3, weights=np.ones(3)), X)


# -------------------------------------------------------------------------------------------------------- bits and positions


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_bits(agree: Any, order: Any, axis: Any) -> None:
    bits = np.random.default_rng(5).integers(0, 2, (3, 11))
    agree(lambda x: np.packbits(x, axis, order), bits)
    agree(lambda x: np.packbits(x, axis, order), bits.astype(bool))
    octets = np.random.default_rng(6).integers(0, 256, (2, 3)).astype(np.uint8)
    for count in (None, 5, -3, 30):
        agree(lambda x, count=count: np.unpackbits(x, axis, count, order), octets)


def test_bits_of_named_sizes_and_other_dtypes(agree: Any) -> None:
    agree(lambda x: np.packbits(x, axis=1), np.eye(3, 9, dtype=np.int32), shapes=((3, "N"),))
    agree(np.unpackbits, np.array([7, 255, 128], np.uint8), shapes=(("N",),))
    with pytest.raises(TypeError, match="integer or boolean"):
        ons.stage(np.packbits, X)
    with pytest.raises(TypeError, match="unsigned byte"):
        ons.stage(np.unpackbits, np.zeros(3, np.int8))


@pytest.mark.parametrize("order", ["C", "F"])
def test_flat_positions_and_back(agree: Any, order: Any) -> None:
    i, j = np.array([0, 2, 1]), np.array([[3], [0]])
    agree(lambda i, j: np.ravel_multi_index((i, j), (3, 4), order=order), i, j)
    agree(lambda i, j: np.ravel_multi_index((i - 4, j + 7), (3, 4), mode=("wrap", "clip"), order=order), i, j)
    agree(lambda i: np.unravel_index(i, (2, 3, 4), order), np.array([[0, 23], [13, 7]]))
    with pytest.raises(ValueError, match="invalid entry in coordinates array"):
        ons.stage(lambda i: np.ravel_multi_index((i, np.array([5])), (3, 4)), i)
    with pytest.raises(TypeError, match="integers are needed"):
        ons.stage(lambda x: np.unravel_index(x, (2, 3)), X)


def test_positions_of_triangles(agree: Any) -> None:
    for k in (-1, 0, 2):
        agree(lambda x, k=k: np.tril_indices_from(x, k), np.zeros((4, 3)))
        agree(lambda x, k=k: np.triu_indices_from(x, k), np.zeros((3, 4)))
    agree(np.diag_indices_from, np.zeros((3, 3)))
    for n in (1, 4):
        named = (("N", "N"),)
        agree(np.diag_indices_from, np.zeros((n, n)), shapes=named)
        agree(lambda x: np.tril_indices_from(x), np.zeros((n, n)), shapes=named)
        agree(lambda x: np.tril_indices_from(x, -1), np.zeros((n, n)), shapes=named)
        agree(lambda x: np.triu_indices_from(x), np.zeros((n, n)), shapes=named)
        agree(lambda x: np.triu_indices_from(x, 1), np.zeros((n, n)), shapes=named)
    with pytest.raises(ons.ShapeError, match="square ones"):
        ons.stage(lambda x: np.triu_indices_from(x, 2), ons.ArraySpec(("N", "N"), "float64"))


# ------------------------------------------------------------------------------------------------------------------- the rest


def test_questions_with_constant_answers() -> None:
    seen: dict[str, Any] = {}

    def ask(x: Any, n: Any) -> Any:
        seen["common"] = np.common_type(x, n)
        seen["scalar"] = np.min_scalar_type(x)
        seen["path"] = np.einsum_path("ij,jk,kl->il", x, np.ones((3, 4)), np.ones((4, 2)))
        return np.real_if_close(x) + np.resize(n, (2, 3))

    x, n = np.ones((2, 3), "f4"), np.arange(4)
    program = ons.stage(ask, x, n)
    assert seen["common"] is np.float64 and seen["scalar"] == np.float32
    assert seen["path"] == np.einsum_path("ij,jk,kl->il", x, np.ones((3, 4)), np.ones((4, 2)))
    assert np.array_equal(program(x, n), ask(x, n))
    with pytest.raises(ons.ConcretizationError, match="min_scalar_type.*x.dtype"):
        ons.stage(lambda x: np.zeros(2, np.min_scalar_type(x)), 1.0)
    with pytest.raises(TypeError, match="non-numeric"):
        ons.stage(lambda x: np.zeros(2, np.common_type(x)), True)


def test_angle(agree: Any) -> None:
    agree(np.angle, np.array([1.0, -2.0, 0.0, -0.0, np.nan, -np.inf]))
    agree(lambda x: np.angle(x, deg=True), np.array([3, -1], "i4"))


def test_places_of_extremes_among_numbers(agree: Any) -> None:
    x = np.array([[1.0, np.nan, 3.0], [np.nan, -1.0, -4.0]])
    for axis in (None, 0, 1):
        agree(lambda x, axis=axis: np.nanargmax(x, axis), x)
        agree(lambda x, axis=axis: np.nanargmin(x, axis, keepdims=True), x)
    agree(np.nanargmax, np.array([3, 5, 1]))
    nothing = np.array([[np.nan, np.nan], [1.0, np.nan]])
    agree(lambda x: np.nanargmax(x, 1), nothing, wanted=np.array([-1, 0]))
    with pytest.raises(ValueError, match="All-NaN"):
        ons.numpy.nanargmax(nothing, 1)


def test_resize(agree: Any) -> None:
    for shape in (7, (2, 2), (3, 0), ()):
        agree(lambda x, shape=shape: np.resize(x, shape), np.arange(5.0))
    agree(lambda x: np.resize(x, (2, 2)), np.zeros(0, "i4"))
    for n in (0, 1, 5):
        agree(lambda x: np.resize(x, (2, 4)), np.arange(1.0, n + 1), shapes=(("N",),))


def test_functions_over_slices(agree: Any) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for axis in (0, 1, -1):
        agree(lambda x, axis=axis: np.apply_along_axis(np.sum, axis, x), x)
        agree(lambda x, axis=axis: np.apply_along_axis(np.outer, axis, x, np.array([1.0, 2.0])), x)
    agree(lambda x: np.apply_over_axes(np.sum, x, [0, 2]), x)
    agree(lambda x: np.apply_along_axis(np.cumsum, 1, x), x, shapes=(("B", 3, 4),))
    with pytest.raises(ValueError, match="iteration dimensions are 0"):
        ons.stage(lambda x: np.apply_along_axis(np.sum, 0, x), np.zeros((2, 0)))


def test_piecewise(agree: Any, slopes: Any) -> None:
    x = np.linspace(-2, 2, 9)
    agree(lambda x: np.piecewise(x, [x < 0, x >= 1], [lambda v: -v, 3.5]), x)
    agree(lambda x: np.piecewise(x, [x < 0, x >= -1], [-1, lambda v, k: v * k, 7.0], 2.0), x)
    agree(lambda x: np.piecewise(x, x < 0, [lambda v: v - 1, lambda v: v + 1]), x)
    agree(lambda x: np.piecewise(x, [x < 0], [0.9, 1.9]), np.arange(-2, 3))
    slopes(lambda x: ons.numpy.piecewise(x, [x < 0.3], [ons.numpy.square, ons.numpy.sin]), x)
    with pytest.raises(ValueError, match=r"with 1 condition\(s\), either 1 or 2 functions are expected"):
        ons.stage(lambda x: np.piecewise(x, [x < 0], [1, 2, 3]), x)
