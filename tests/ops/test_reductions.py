"""sum, prod, max, min, any, all, argmax, argmin, mean, var, std, logsumexp and their kin, against NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import onstage as ons

AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2), ()]
REDUCE = [np.sum, np.prod, np.max, np.min, np.any, np.all, np.mean, np.var, np.std, np.ptp]


def data(dtype, shape=(2, 3, 4)):
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 9, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("reduce", REDUCE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_axes(agree, reduce, axis):
    if reduce is np.ptp and axis == ():
        axis = (1,)
    agree(lambda x: reduce(x, axis=axis), data("float32"), rtol=1e-5)
    agree(lambda x: reduce(x, axis=axis, keepdims=True), data("float64"))


@pytest.mark.parametrize(
    "reduce",
    [np.sum, np.prod, np.max, np.min, np.any, np.mean, np.argmax, np.argmin],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"])
def test_dtypes(agree, reduce, dtype):
    agree(lambda x: reduce(x, axis=1), data(dtype), rtol=2e-3 if dtype == "float16" else None)


def test_unsigned_64_bits_are_compared_unsigned(agree):
    x = np.array([3, 2**63 + 5, 2**64 - 1, 0], np.uint64)
    for reduce in (np.max, np.min, np.argmax, np.argmin):
        agree(reduce, x)


def test_accumulation(agree):
    agree(np.sum, np.array([True, True, False]))
    agree(np.mean, np.array([True, False, True]))
    agree(np.sum, np.ones(300, np.uint8))
    agree(np.mean, np.arange(5, dtype=np.int32))
    agree(np.sum, np.array([2**62, 2**62, 5]))
    agree(lambda x: np.sum(x, dtype=np.int32), np.full(3, 2**30, np.int32))
    agree(lambda x: np.sum(x, dtype="float64"), data("float32"))
    agree(np.mean, np.full(1000, 100, np.float16))
    agree(np.sum, np.ones(4096, np.float16))
    agree(lambda x: np.var(x, ddof=1), np.array([10001, 10002, 10003], np.float32))


def test_nan_propagates_and_argmax_finds_the_first(agree):
    nan = np.nan
    for dtype in ("float32", "float64", "float16"):
        for values in (
            [1, nan, 3],
            [nan, nan, nan, 42],
            [1, 3, 3],
            [-np.inf, -np.inf],
            [np.inf, nan, np.inf],
            [0.0, -0.0],
        ):
            for reduce in (np.max, np.min, np.argmax, np.argmin):
                agree(reduce, np.array(values, dtype))
    x = np.random.default_rng(1).normal(size=(5, 6, 7))
    x[np.random.default_rng(2).random(x.shape) < 0.05] = nan
    for axis in (0, 1, 2, (0, 2), None):
        agree(lambda x, axis=axis: np.max(x, axis=axis), x)
        agree(lambda x, axis=axis: np.min(x, axis=axis), x.astype("float32"))
    for axis in (0, 1, 2, None):
        agree(lambda x, axis=axis: np.argmax(x, axis=axis, keepdims=True), x)


def test_empty(agree):
    agree(lambda x: x.sum(1), np.zeros((2, 0)))
    agree(np.prod, np.zeros(0))
    agree(np.any, np.zeros(0))
    agree(np.all, np.zeros(0))
    agree(np.mean, np.zeros(0), wanted=np.float64(np.nan))
    agree(lambda x: np.max(x, axis=1), np.zeros((0, 3)))
    agree(lambda x: np.max(x, initial=4.0), np.zeros(0))
    for reduce in (np.max, np.min, np.argmax, np.argmin):
        with pytest.raises(ValueError, match=r"zero-size array|empty sequence"):
            ons.stage(reduce, np.zeros(0))


@pytest.mark.parametrize("n", [0, 1, 3, 5000])
def test_named_dims(agree, n):
    x = np.random.default_rng(n).normal(size=(n, 3)).astype("float32")
    for reduce in (np.sum, np.prod, np.any, np.all):
        agree(lambda x, f=reduce: f(x, axis=0), x, shapes=[("B", 3)], rtol=1e-5)
        agree(reduce, x, shapes=[("B", 3)], rtol=1e-5)
    if n:
        for reduce in (np.max, np.argmax, np.mean, np.std):
            agree(lambda x, f=reduce: f(x, axis=0), x, shapes=[("B", 3)], rtol=1e-5)
    agree(
        lambda x: np.mean(x, axis=0),
        x,
        shapes=[("B", 3)],
        wanted=x.mean(0) if n else np.full(3, np.nan, "f4"),
        rtol=1e-5,
    )
    agree(lambda x: np.logaddexp.reduce(x, axis=0), x, shapes=[("B", 3)], rtol=1e-5)


@pytest.mark.parametrize("shape", [(1_000_000,), (1000, 1000), (999_983,), (250_000, 4), (4, 250_000)], ids=str)
def test_large_sums_are_accurate(shape):
    x = np.random.default_rng(3).normal(size=shape).astype("float32")
    axis = 0 if shape == (250_000, 4) else 1 if shape == (4, 250_000) else None
    exact = x.astype("float64").sum(axis)
    assert np.max(np.abs(ons.stage(lambda x: np.sum(x, axis=axis), x)(x) - exact)) < 3e-4
    named = ons.stage(lambda x: np.sum(x, axis=axis), specs=(ons.ArraySpec(("A", "B")[: len(shape)], "float32"),))
    assert np.max(np.abs(named(x) - exact)) < 3e-4
    assert abs(ons.stage(np.mean, x)(x) - x.astype("float64").mean()) < 1e-9
    exact = x.astype("float64").var()
    assert abs(ons.stage(np.var, x)(x) - exact) < 1e-6


def test_large_float64_sums():
    x = np.random.default_rng(3).normal(size=1_000_000)
    assert abs(ons.stage(np.sum, x)(x) - x.sum()) < 1e-11


def test_where_and_initial(agree):
    x, mask = data("float32"), np.arange(24).reshape(2, 3, 4) % 3 != 0
    agree(lambda x, m: np.sum(x, axis=1, where=m), x, mask)
    agree(lambda x, m: np.prod(x, axis=1, where=m, initial=2), x, mask)
    agree(lambda x, m: np.max(x, axis=1, where=m, initial=-5), x, mask)
    agree(lambda x, m: np.min(x, axis=(0, 2), where=m, initial=0.1), x, mask)
    agree(lambda x, m: np.mean(x, axis=1, where=m), x, mask)
    agree(lambda x, m: np.std(x, axis=1, where=m, ddof=1), x, mask, rtol=1e-5)
    agree(lambda x, m: np.any(x, axis=1, where=m), x, mask)
    agree(lambda x: np.sum(x, axis=0, where=np.array([True, False, True, True]), initial=3), x)
    with pytest.raises(ValueError, match="initial"):
        ons.stage(lambda x: np.max(x, where=mask), x)


def test_methods_and_ufunc_methods(agree):
    x = data("float32")
    agree(lambda x: x.sum(0) + x.max(0) - x.min(0) * x.mean(0) + x.prod(0) + x.var(0) + x.std(0), x, rtol=1e-5)
    agree(lambda x: x.argmax(1) + x.argmin(1), x)
    agree(lambda x: x.any() & x.all(), x)
    for ufunc in (np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or, np.logaddexp):
        agree(ufunc.reduce, x, rtol=1e-5)
        agree(lambda x, u=ufunc: u.reduce(x, axis=(0, 1), keepdims=True), x, rtol=1e-5)
    agree(lambda x: np.add.reduce(x, axis=None, initial=2.0), x)


def test_other_reductions(agree):
    x = data("float64")
    agree(np.count_nonzero, data("int32"))
    agree(lambda x: np.count_nonzero(x, axis=1), data("bool"))
    agree(lambda x: np.average(x, axis=1), x)
    agree(lambda x, w: np.average(x, axis=1, weights=w), x, np.array([1.0, 2.0, 3.0]))
    agree(lambda x, w: np.average(x, weights=w, returned=True), x, np.abs(x))
    agree(lambda x, w: np.average(x, axis=(2, 0), weights=w), x, np.arange(1.0, 9).reshape(4, 2))


def test_nan_reductions(agree):
    x = data("float32").copy()
    x[0, 1, 2] = x[1, 0, 0] = np.nan
    x[:, 2, 3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for reduce in (np.nansum, np.nanprod, np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd):
            agree(lambda x, f=reduce: f(x, axis=0), x, rtol=1e-5)
            agree(reduce, data("int16"))
    np.testing.assert_array_equal(ons.grad(np.nansum)(np.array([1.0, np.nan])), [1.0, 0.0])


@pytest.mark.parametrize("where", [True, [True, True, False, True]], ids=str)
def test_what_a_variance_leaves_out_has_slope_0(where):
    x = np.array([1.0, np.nan, 5.0, 3.0])
    for reduce, slope in ((np.nanvar, 1.0), (np.nanstd, None)):
        kept = np.isfinite(x) & where
        centered = np.where(kept, x - x[kept].mean(), 0)
        slope = (2 if slope else 1 / x[kept].std()) / kept.sum()
        f = lambda x, f=reduce: f(x, where=where)
        for gradient in (ons.grad(f), ons.stage(ons.grad(f), x)):
            np.testing.assert_allclose(gradient(x), centered * slope)


def test_logsumexp(agree):
    x = data("float32") * 100
    f = ons.special.logsumexp
    staged = ons.stage(lambda x: f(x, axis=(0, 2)), x)
    np.testing.assert_allclose(staged(x), np.logaddexp.reduce(np.logaddexp.reduce(x, 2), 0), rtol=1e-5)
    y = np.array([1000, 1000], "float32")
    for gradient in (ons.grad(f), ons.stage(ons.grad(f), y)):
        np.testing.assert_array_equal(gradient(y), np.array([0.5, 0.5], "float32"))
    for values in ([-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [0.0, -np.inf]):
        agree(np.logaddexp.reduce, np.array(values))


# ------------------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("axis", [None, 0, (0, 2)], ids=str)
@pytest.mark.parametrize(
    "reduce",
    [np.sum, np.prod, np.max, np.min, np.mean, np.var, np.std, np.logaddexp.reduce],
    ids=lambda f: f.__name__,
)
def test_gradients(slopes, reduce, axis):
    slopes(lambda x: reduce(x, axis=axis), data("float64"), rtol=1e-5)


def test_gradients_with_named_dims(slopes):
    for reduce in (np.sum, np.prod, np.max, np.mean, np.std, np.logaddexp.reduce):
        slopes(lambda x, f=reduce: f(x, axis=0), data("float64", (5, 2)), shapes=[("B", 2)], rtol=1e-5)


def test_prod_gradient_at_zeros():
    x = np.array([2.0, 0.0, 3.0])
    gradient = ons.grad(np.prod)
    for f in (
        gradient,
        ons.stage(gradient, x),
        ons.stage(gradient, specs=(ons.ArraySpec(("B",), "float64"),)),
    ):
        np.testing.assert_array_equal(f(x), [0, 6, 0])
        np.testing.assert_array_equal(f(x * [1, 1, 0]), [0, 0, 0])
    hessian_row = ons.grad(lambda x: gradient(x)[0])
    for f in (hessian_row, ons.stage(hessian_row, x)):
        np.testing.assert_array_equal(f(x), [0, 3, 0])
    empty = ons.stage(gradient, specs=(ons.ArraySpec(("B",), "float64"),))
    assert empty(np.zeros(0)).shape == (0,)


def test_ties_share():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    np.testing.assert_allclose(ons.grad(lambda x: np.sum(np.max(x, axis=1)))(x), [[0, 0.5, 0.5], [1 / 3] * 3])
    np.testing.assert_allclose(ons.grad(lambda x: np.sum(np.min(x, axis=1)))(x), [[1, 0, 0], [1 / 3] * 3])


def test_std_of_equal_elements_has_slope_zero():
    np.testing.assert_array_equal(ons.grad(np.std)(np.ones(3)), np.zeros(3))


def test_errors():
    with pytest.raises(np.exceptions.AxisError, match="axis 3 is out of bounds"):
        ons.stage(lambda x: np.sum(x, axis=3), np.ones((2, 3)))
    with pytest.raises(ValueError, match="duplicate"):
        ons.stage(lambda x: np.sum(x, axis=(0, -2)), np.ones((2, 3)))
    with pytest.raises(ons.MutationError, match="out="):
        ons.stage(lambda x: np.sum(x, out=np.zeros(())), np.ones(3))
