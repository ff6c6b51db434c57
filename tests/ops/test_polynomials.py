"""np.poly and its kin, convolve and correlate, i0, geomspace, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

A = np.array([2.0, -1.0, 0.5, 3.0, 1.25])
V = np.array([1.5, -2.0, 0.25])


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (4, 4), (6, 2), (2, 6), (1, 1)])
def test_convolve_and_correlate(agree: Any, mode: str, dtype: str, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    a, v = (rng.integers(0, 3, n).astype(dtype) for n in sizes)
    agree(lambda a, v: np.convolve(a, v, mode), a, v)
    agree(lambda a, v: np.correlate(a, v, mode), a, v)


def test_sequences_of_named_sizes(agree: Any) -> None:
    for n, m in ((5, 3), (3, 5)):
        a, v = np.arange(1.0, n + 1), np.arange(2.0, m + 2)
        for mode in ("full", "same", "valid"):
            agree(lambda a, v, mode=mode: np.convolve(a, v, mode), a, v, shapes=(("N",), ("M",)))
        for mode in ("full", "valid"):
            agree(lambda a, v, mode=mode: np.correlate(a, v, mode), a, v, shapes=(("N",), ("M",)))
    agree(lambda a, v: np.convolve(a, v, "same"), A, V, shapes=(("N",), (3,)))
    with pytest.raises(ons.ShapeError, match=r"correlate: mode='same'.*which sequence is longer"):
        ons.stage(lambda a, v: np.correlate(a, v, "same"), ons.ArraySpec(("N",), "float64"), ons.ArraySpec(("M",), "float64"))


def test_infinities_and_nan_reach_their_own_sums_only(agree: Any) -> None:
    agree(np.convolve, np.array([1.0, np.inf, 2.0, 3.0, 4.0, np.nan, 1.0, 2.0]), np.array([0.5, 2.0, 1.0]))


def test_long_sequences_are_cut_into_parts(agree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from onstage.ops import signals

    monkeypatch.setattr(signals, "_MAX_PRODUCTS", 60)
    rng = np.random.default_rng(0)
    agree(np.convolve, rng.normal(size=17), rng.normal(size=11))


def test_errors_of_convolve() -> None:
    with pytest.raises(ValueError, match="v cannot be empty"):
        ons.stage(lambda x: np.convolve(x, np.zeros(0)), A)
    with pytest.raises(ValueError, match="first array argument cannot be empty"):
        ons.stage(np.correlate, np.zeros(0), A)
    with pytest.raises(ValueError, match="object too deep"):
        ons.stage(lambda x: np.convolve(x, A), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="mode must be one of"):
        ons.stage(lambda x: np.convolve(x, A, "middle"), A)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, v: np.polyadd(a, v),
        lambda a, v: np.polyadd(v, a),
        lambda a, v: np.polysub(v, a),
        lambda a, v: np.polymul(a, v),
        lambda a, v: np.polydiv(a, v),
        lambda a, v: np.polydiv(v, a),
        lambda a, v: np.polydiv(a, v[:1]),
        lambda a, v: np.polyder(a),
        lambda a, v: np.polyder(a, 3),
        lambda a, v: np.polyder(v, 0),
        lambda a, v: np.polyint(a),
        lambda a, v: np.polyint(a, 2, k=v[:2]),
        lambda a, v: np.polyint(v, 3, k=2.0),
        lambda a, v: np.poly(v),
        lambda a, v: np.polyval(a, v),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_coefficients(agree: Any, function: Any, dtype: str) -> None:
    rtol = 1e-5 if dtype == "float32" else None
    if dtype == "int64":
        agree(function, np.array([2, -1, 4, 3, 1]), np.array([1, -2, 3]))
    else:
        agree(function, A.astype(dtype), V.astype(dtype), rtol=rtol)


def test_slopes_of_polynomials(slopes: Any) -> None:
    slopes(lambda a, v: ons.numpy.polymul(a, v), A, V)
    slopes(lambda a, v: ons.numpy.polydiv(a, v)[0], A, V)
    slopes(ons.numpy.poly, V)
    slopes(lambda a, v: ons.numpy.correlate(a, v, "same"), A, V)


X = np.array([-1.0, 0.2, 0.9, 2.0, 2.7, 4.0])
Y = np.array([3.0, 1.0, -0.5, 0.3, 2.0, 9.0])
W = np.array([1.0, 2.0, 0.5, 1.0, 1.5, 0.3])


@pytest.mark.parametrize("degree", [0, 1, 3, 5])
def test_polyfit(agree: Any, degree: int) -> None:
    agree(lambda x, y: np.polyfit(x, y, degree), X, Y, rtol=1e-8)
    agree(lambda x, y, w: np.polyfit(x, y, degree, w=w), X, Y, W, rtol=1e-8)
    agree(lambda x, y: np.polyfit(x, y, degree), X, np.stack([Y, W], 1), rtol=1e-8)


def test_polyfit_with_covariances(agree: Any) -> None:
    agree(lambda x, y: np.polyfit(x, y, 2, cov=True), X, Y, rtol=1e-8)
    agree(lambda x, y, w: np.polyfit(x, y, 2, w=w, cov="unscaled"), X, Y, W, rtol=1e-8)
    agree(lambda x, y: np.polyfit(x, y, 2, cov=True), X, np.stack([Y, W], 1), rtol=1e-8)
    agree(lambda x, y: np.polyfit(x, y, 2, cov=True), X, Y, shapes=(("N",), ("N",)), rtol=1e-8)


def test_polyfit_in_float32_and_its_slope(agree: Any, slopes: Any) -> None:
    agree(lambda x, y: np.polyfit(x, y, 2), X.astype("f4"), Y.astype("f4"), rtol=1e-4)
    slopes(lambda x, y: ons.numpy.polyfit(x, y, 2), X, Y, rtol=1e-5)


def test_errors_of_polyfit() -> None:
    with pytest.raises(ValueError, match="expected deg >= 0"):
        ons.stage(lambda x: np.polyfit(x, Y, -1), X)
    with pytest.raises(TypeError, match="expected x and y to have same length"):
        ons.stage(lambda x: np.polyfit(x, Y[:3], 1), X)
    with pytest.raises(ons.UnsupportedError, match="not determined by 6 points"):
        ons.stage(lambda x: np.polyfit(x, Y, 6), X)
    with pytest.raises(ons.UnsupportedError, match=r"full=.*np\.linalg\.lstsq"):
        ons.stage(lambda x: np.polyfit(x, Y, 1, full=True), X)
    with pytest.raises(ons.UnsupportedError, match="characteristic polynomial"):
        ons.stage(np.poly, np.eye(2))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_i0(agree: Any, dtype: str) -> None:
    agree(np.i0, np.array([0, 1, -3, 7, 8, 9, 20, -60], dtype), rtol=1e-14 if dtype != "float32" else 1e-6)


def test_slopes_of_i0_at_zero_and_beyond() -> None:
    slope = ons.grad(ons.numpy.i0)
    curvature = ons.grad(slope)
    # I0' = I1, I0'' = (I0 + I2) / 2; I1(2), I2(2), I1(10), I2(10) from the tables of Abramowitz and Stegun, 9.8.
    for x, i1, i2 in ((0.0, 0.0, 0.0), (2.0, 1.59063685463733, 0.688948447698738), (10.0, 2670.98830370125, 2281.51896772600)):
        assert np.isclose(slope(x), i1, rtol=1e-12)
        assert np.isclose(curvature(x), (float(np.i0(x)) + i2) / 2, rtol=1e-11)
    assert np.isclose(ons.grad(ons.grad(curvature))(0.0), 3 / 8)


def test_geomspace(agree: Any) -> None:
    for start, stop in ((1.0, 1000.0), (-2.0, -0.125), (np.array([1.0, 2.0]), 64.0)):
        agree(lambda a, b: np.geomspace(a, b, 7), start, stop)
        agree(lambda a, b: np.geomspace(a, b, 6, endpoint=False, axis=-1), start, stop)
    agree(lambda a: np.geomspace(a, np.float32(8), 4, dtype=np.float32), np.float32(1))
    with pytest.raises(ValueError, match="cannot include zero"):
        ons.stage(lambda x: np.geomspace(0, x), 1.0)
