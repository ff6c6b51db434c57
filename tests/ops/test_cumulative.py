"""cumsum, cumprod, running maxima and minima, diff, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons


def data(dtype="float64", shape=(3, 5)):
    rng = np.random.default_rng(0)
    return (rng.normal(size=shape) * 3).astype(dtype)


@pytest.mark.parametrize(
    "f",
    [np.cumsum, np.cumprod, np.maximum.accumulate, np.minimum.accumulate],
    ids=["sum", "prod", "max", "min"],
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_values(agree, f, dtype):
    x = np.abs(data(dtype)) if dtype[0] == "u" else data(dtype)
    rtol = {"float16": 5e-3, "float32": 1e-5}.get(dtype)
    agree(lambda x: f(x, axis=1), x, rtol=rtol)
    agree(lambda x: f(x, axis=0), x, rtol=rtol)


def test_numpy_forms(agree):
    x = data()
    agree(np.cumsum, x)
    agree(np.cumprod, x)
    agree(lambda x: x.cumsum(axis=-1) + x.cumprod(1), x)
    agree(np.cumsum, np.array([True, True, False]).astype(bool), wanted=np.array([1, 2, 2]))
    agree(lambda x: np.cumsum(x, dtype=np.int8), np.full(5, 60, np.int8))
    agree(np.cumsum, np.float64(3.0))
    agree(lambda x: np.cumulative_sum(x, axis=1, include_initial=True), x)
    agree(lambda x: np.cumulative_prod(x, axis=0, include_initial=True), x)
    agree(np.add.accumulate, x)
    agree(np.multiply.accumulate, x)
    agree(np.logaddexp.accumulate, x)
    agree(np.maximum.accumulate, np.array([False, True, False]))
    agree(np.nancumsum, np.array([1.0, np.nan, 2.0]))
    agree(np.nancumprod, np.array([1.0, np.nan, 2.0]))
    for f in (np.cumsum, np.cumprod, np.maximum.accumulate):
        agree(lambda x, f=f: f(x, axis=0), np.zeros((0, 2)))
        agree(lambda x, f=f: f(x, axis=0), np.ones((1, 2)))
    agree(np.maximum.accumulate, np.array([1.0, np.nan, 3.0, 0.0]))


@pytest.mark.parametrize("n", [0, 1, 3, 40])
def test_named_dims(agree, n):
    x = data(shape=(n, 2))
    for f in (np.cumsum, np.cumprod, np.maximum.accumulate, np.minimum.accumulate):
        agree(lambda x, f=f: f(x, axis=0), x, shapes=[("B", 2)])
        agree(lambda x, f=f: f(x, axis=1), x, shapes=[("B", 2)])
    agree(lambda x: np.diff(x, axis=0), x, shapes=[("B", 2)])


def test_diff(agree):
    x = data()
    agree(np.diff, x)
    agree(lambda x: np.diff(x, n=3), x)
    agree(lambda x: np.diff(x, n=0), x)
    agree(lambda x: np.diff(x, axis=0, prepend=0.0, append=x[:1]), x)
    agree(lambda x: np.diff(x, n=2, axis=0), data("int32", (1, 2)))
    agree(np.diff, np.array([True, False, False]))
    agree(lambda x: np.ediff1d(x, to_begin=-99.0, to_end=[88.0, 99.0]), x)
    with pytest.raises(ValueError, match="one dimensional"):
        ons.stage(np.diff, 1.0)


def test_gradients(slopes):
    x = data()
    for f in (np.cumsum, np.cumprod, np.maximum.accumulate, np.minimum.accumulate, np.logaddexp.accumulate):
        slopes(lambda x, f=f: f(x, axis=1), x, rtol=1e-5)
    slopes(lambda x: np.diff(x, 2), x)
    slopes(lambda x: np.cumprod(x, axis=0), x, shapes=[("B", 5)], rtol=1e-5)
    slopes(lambda x: np.cumsum(x, axis=0), x, shapes=[("B", 5)], rtol=1e-5)


def test_cumprod_gradient_at_zeros():
    x = np.array([2.0, 0.0, 3.0])
    gradient = ons.grad(lambda x: np.sum(np.cumprod(x)))
    for f in (
        gradient,
        ons.stage(gradient, x),
        ons.stage(gradient, specs=(ons.ArraySpec(("B",), "float64"),)),
    ):
        np.testing.assert_array_equal(f(x), [1, 8, 0])
    np.testing.assert_array_equal(ons.grad(lambda x: np.cumsum(x)[-1])(x), np.ones(3))
