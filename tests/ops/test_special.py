"""onstage.special against scipy, in its tails, at its poles and in every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import onstage as ons

INF, NAN = np.inf, np.nan
POINTS = {
    "erf": [*np.linspace(-6, 6, 97), 1e-9, -1e-300, 0.75, -0.75, INF, -INF, NAN],
    "erfc": [*np.linspace(-6, 10, 97), 1e-9, 0.75, INF, -INF, NAN],
    "erfinv": [*np.linspace(-0.999, 0.999, 97), 1e-9, 1 - 2.0**-50, 1.0, -1.0, 1.5, NAN],
    "expit": [*np.linspace(-30, 30, 61), -700.0, INF, -INF, NAN],
    "logit": [*np.linspace(0.001, 0.999, 61), 0.5, 0.5 + 1e-9, 1e-300, 0.0, 1.0, -0.5, 1.5, NAN],
    "gammaln": [
        *np.linspace(0.05, 30, 97),
        1.0,
        2.0,
        1 + 1e-7,
        2 - 1e-7,
        1e-10,
        1e6,
        1e100,
        *np.linspace(-9.7, -0.3, 31),
        0.0,
        -3.0,
        INF,
        NAN,
    ],
    "digamma": [*np.linspace(0.05, 30, 97), 1e-10, 1e6, *np.linspace(-9.7, -0.3, 31), -3.0, INF, NAN],
    "ndtr": [*np.linspace(-20, 8, 97), INF, -INF, NAN],
    "ndtri": [*np.linspace(0.001, 0.999, 61), 1e-10, 1e-100, 1e-300, 0.0, 1.0, -0.5, 1.5, NAN],
}


def staged(function: Any, *arrays: Any) -> Any:
    return ons.stage(function, *arrays)(*arrays)


@pytest.mark.parametrize("name", POINTS)
def test_float64_and_float32_agree_with_scipy(name: str) -> None:
    x = np.array(POINTS[name])
    with np.errstate(all="ignore"):
        wanted = getattr(scipy.special, name)(x)
        narrow = x.astype(np.float32)
        wanted_narrow = getattr(scipy.special, name)(narrow.astype(np.float64)).astype(np.float32)
    function = getattr(ons.special, name)
    # Absolute accuracy at the zeros of digamma and log gamma of negative numbers, and scipy's own errors far out
    rtol = {"erfc": 2e-14, "ndtr": 1e-13, "ndtri": 1e-14}.get(name, 4e-15)
    for result in (staged(function, x), function(x)):
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, wanted, rtol=rtol, atol=4e-15 if name in ("digamma", "gammaln") else 0)
    got = staged(function, narrow)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted_narrow, rtol=3e-7, atol=1e-37)


@pytest.mark.parametrize("name", POINTS)
def test_dtypes_are_promoted_as_numpys_float_functions_do(name: str) -> None:
    function = getattr(ons.special, name)
    for given, result in (
        (np.float16, np.float16),
        (np.float32, np.float32),
        (np.int8, np.float16),
        (np.int64, np.float64),
        (np.bool_, np.float16),
    ):
        assert ons.stage(function, np.ones(2, given)).out_specs.dtype == result


def test_signs_of_zero() -> None:
    zero = np.float64([-0.0])
    for name in ("erf", "erfinv"):
        assert np.signbit(staged(getattr(ons.special, name), zero)).tolist() == [True]


def test_xlogy() -> None:
    x, y = np.float64([0, 0, 1, 0, 2, 0]), np.float64([0, NAN, 0, INF, 3, -1])
    np.testing.assert_allclose(staged(ons.special.xlogy, x, y), scipy.special.xlogy(x, y), rtol=1e-15)
    assert ons.stage(lambda x: ons.special.xlogy(x, 2), np.float32([1])).out_specs.dtype == np.float32


def test_logsumexp() -> None:
    x = np.float64([1000, 1000])
    np.testing.assert_allclose(staged(ons.special.logsumexp, x), 1000 + np.log(2))


def test_other_dtypes_are_errors() -> None:
    with pytest.raises(TypeError, match="complex"):
        ons.special.erf(1j)
    with pytest.raises(TypeError, match="str"):
        ons.special.erf("a")
