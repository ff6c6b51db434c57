"""Derivatives of elementwise operations: conventions at kinks, no NaN where there is a slope, all against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons

Slopes = Callable[..., None]
INF = np.inf


def gradient(function: Callable[..., Any], *arrays: Any) -> Any:
    """The gradient of the sum, by NumPy and on ONNX Runtime, which must agree."""
    argnums = tuple(range(len(arrays)))
    transformed = ons.grad(lambda *xs: np.sum(function(*xs)), argnums=argnums)
    eager = transformed(*arrays)
    with np.errstate(all="ignore"):
        program = ons.stage(transformed, *arrays)
    for a, b in zip(eager, program(*arrays), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-12)
    return [g.tolist() for g in eager]


def second(function: Callable[..., Any], x: Any) -> Any:
    """The diagonal second derivative of an elementwise function."""
    slope = ons.grad(lambda x: np.sum(function(x)))
    return ons.grad(lambda x: np.sum(slope(x)))(x).tolist()


def test_power_at_zero() -> None:
    x, y = np.float64([0, 2]), np.float64([2, 3])
    dx, dy = gradient(lambda x, y: x**y, x, y)
    np.testing.assert_allclose(dx, [0, 12])
    np.testing.assert_allclose(dy, [0, 8 * np.log(2)])
    dx, dy = gradient(lambda x, y: x**y, np.float64([0.0, 0.0, 3.0]), np.float64([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(dx, [0, 1, 0])
    np.testing.assert_allclose(dy, [0, 0, np.log(3)])


def test_constant_powers_at_zero_and_below() -> None:
    x = np.float64([0.0, -2.0, 3.0])
    assert gradient(lambda x: x**2, x) == [[0, -4, 6]]
    assert gradient(lambda x: x**3, x) == [[0, 12, 27]]
    assert gradient(lambda x: x**0, x) == [[0, 0, 0]]
    assert gradient(lambda x: x**1, x) == [[1, 1, 1]]
    assert second(lambda x: x**3, x) == [0, -12, 18]
    assert second(lambda x: x**2, x) == [2, 2, 2]
    assert second(lambda x: np.power(x, np.float64([2, 2, 2])), x) == [2, 2, 2]


def test_ties_share_equally() -> None:
    x, y = np.float32([1, 2, 3]), np.float32([2, 2, 2])
    assert gradient(np.maximum, x, y) == [[0, 0.5, 1], [1, 0.5, 0]]
    assert gradient(np.minimum, x, y) == [[1, 0.5, 0], [0, 0.5, 1]]
    assert gradient(lambda x: np.maximum(x, 0), np.float32([-1, 0, 1])) == [[0, 0.5, 1]]
    assert gradient(np.fmax, np.float32([np.nan, 1, 2]), np.float32([1, np.nan, 2])) == [
        [0, 1, 0.5],
        [1, 0, 0.5],
    ]


def test_masked_elements_do_not_leak_nan() -> None:
    # Below 0 the square root has an infinite slope, which the maximum must not multiply by 0
    assert gradient(lambda x: np.sqrt(np.maximum(x, 0)), np.float64([-1, 4])) == [[0, 0.25]]
    assert gradient(lambda x: np.sqrt(np.clip(x, 0, None)), np.float64([-1, 4])) == [[0, 0.25]]


def test_absolute_value_sign_and_steps() -> None:
    x = np.float64([-2.5, 0, 2.5])
    assert gradient(np.abs, x) == [[-1, 0, 1]]
    assert gradient(np.fabs, x) == [[-1, 0, 1]]
    for step in (
        np.sign,
        np.floor,
        np.ceil,
        np.trunc,
        np.rint,
        np.round,
        np.spacing,
        lambda x: x // 2,
        lambda x: np.modf(x)[1],
    ):
        assert gradient(lambda x, f=step: f(x) + x, x) == [[1, 1, 1]]
    assert gradient(lambda x: np.modf(x)[0], x) == [[1, 1, 1]]
    assert gradient(np.heaviside, x, np.float64([0.5, 0.5, 0.5])) == [[0, 0, 0], [0, 1, 0]]
    assert gradient(np.copysign, np.float64([2, -2]), np.float64([-1, -1])) == [[-1, 1], [0, 0]]


def test_clip_has_slope_one_on_its_closed_interval() -> None:
    x = np.float64([-1, 0, 0.5, 1, 2])
    assert gradient(lambda x: np.clip(x, 0, 1), x) == [[0, 1, 1, 1, 0]]
    assert gradient(np.clip, x, np.zeros(5), np.ones(5)) == [
        [0, 1, 1, 1, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
    ]
    assert gradient(np.clip, np.float64([1.5]), np.float64([2]), np.float64([1])) == [[0], [0], [1]]


def test_remainders() -> None:
    x, y = np.float64([5.5, -5.5, 5.5, -5.5]), np.float64([2, 2, -2, -2])
    assert gradient(lambda x, y: x % y, x, y) == [[1, 1, 1, 1], [-2, 3, 3, -2]]
    assert gradient(np.fmod, x, y) == [[1, 1, 1, 1], [-2, 2, 2, -2]]


def test_slopes_at_the_origin() -> None:
    zero = np.zeros(1)
    assert gradient(np.hypot, zero, zero) == [[0], [0]]
    assert gradient(np.arctan2, zero, zero) == [[0], [0]]
    assert gradient(np.sinc, zero) == [[0]]
    assert gradient(np.sqrt, zero) == [[INF]]
    np.testing.assert_allclose(second(np.sinc, np.float64([0.0, 1e-3])), [-(np.pi**2) / 3] * 2, rtol=1e-5)


def test_logaddexp_shares() -> None:
    x, y = np.float64([-INF, INF, 1000, -INF, 0]), np.float64([-INF, INF, 1000, 1, np.log(3)])
    dx, dy = gradient(np.logaddexp, x, y)
    np.testing.assert_allclose(dx, [0.5, 0.5, 0.5, 0, 0.25])
    np.testing.assert_allclose(dy, [0.5, 0.5, 0.5, 1, 0.75])
    np.testing.assert_allclose(second(lambda x: np.logaddexp(x, 0), np.float64([0.0, 800.0, -800.0])), [0.25, 0, 0])


def test_nan_to_num_stops_the_slope_of_what_it_replaces() -> None:
    assert gradient(np.nan_to_num, np.float64([1, np.nan, INF])) == [[1, 0, 0]]


def test_ldexp_and_frexp() -> None:
    assert gradient(lambda x: np.ldexp(x, np.int32([3, -1])), np.float64([1.5, 2.5])) == [[8, 0.5]]
    assert gradient(lambda x: np.frexp(x)[0], np.float64([6.0, 0.3])) == [[0.125, 2]]


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "expit", "logit", "gammaln", "digamma", "ndtr", "ndtri"])
def test_special_functions(slopes: Slopes, name: str) -> None:
    slopes(getattr(ons.special, name), [0.2, 0.45, 0.85])


def test_xlogy(slopes: Slopes) -> None:
    slopes(ons.special.xlogy, [0.5, 2.0], [0.3, 4.0])
    assert gradient(ons.special.xlogy, np.float64([0.0]), np.float64([0.5])) == [
        [pytest.approx(np.log(0.5))],
        [0],
    ]
    assert gradient(lambda y: ons.special.xlogy(0.0, y), np.float64([0.0])) == [[0]]


def test_polygamma_of_every_order_and_of_negative_numbers() -> None:
    x = np.float64([1.0, 0.5, -0.5])
    np.testing.assert_allclose(gradient(ons.special.digamma, x)[0], [np.pi**2 / 6, np.pi**2 / 2, np.pi**2 / 2 + 4], rtol=1e-13)
    # psi''(1) = -2 zeta(3); psi''(1/2) = -14 zeta(3)
    zeta3 = 1.2020569031595942
    np.testing.assert_allclose(second(ons.special.digamma, x)[:2], [-2 * zeta3, -14 * zeta3], rtol=1e-13)


def test_gradients_in_narrow_floats() -> None:
    for dtype in (np.float16, np.float32):
        x = dtype([0.5, 2.0])
        for function in (np.log1p, np.hypot, np.maximum, np.power, np.arctan2, np.sinh, np.exp2):
            operands = (x, x[::-1].copy()) if function.nin == 2 else (x,)
            got = ons.grad(lambda *xs, f=function: np.sum(f(*xs)))(*operands)
            wanted = ons.grad(lambda *xs, f=function: np.sum(f(*xs)))(*(v.astype(float) for v in operands))
            assert got.dtype == dtype
            np.testing.assert_allclose(
                got,
                wanted,
                rtol=4e-3 if dtype == np.float16 else 1e-5,
                atol=1e-3 if dtype == np.float16 else 1e-6,
            )


def test_the_gradient_follows_a_second_input() -> None:
    program = ons.stage(ons.grad(lambda x: np.sum(np.sin(x) ** 2 % 0.3 + np.cbrt(x))), np.float64([1.0, 2.0]))
    x = np.float64([0.4, 1.3])
    np.testing.assert_allclose(program(x), np.sin(2 * x) + 1 / (3 * np.cbrt(x) ** 2), rtol=1e-12)


def test_integers_and_booleans_have_no_gradient() -> None:
    with pytest.raises(TypeError):
        ons.grad(lambda x: np.sum(x // 2))(np.int32([1]))
