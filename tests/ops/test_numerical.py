"""Recipes and questions: trapezoid, gradient, interp, cov, isclose, result_type, the namespace itself."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons

xp = ons.numpy


def data(*shape, dtype="float64"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    "f",
    [
        np.trapezoid,
        lambda x: np.trapezoid(x, dx=0.5, axis=0),
        lambda x: np.trapezoid(x, np.array([0.0, 1, 3, 4, 9])),
        np.gradient,
        lambda x: np.gradient(x, 2.0, axis=1),
        lambda x: np.gradient(x, 2.0, np.array([0.0, 1, 3, 4, 9])),
        lambda x: np.gradient(x, axis=(0, 1), edge_order=2),
        lambda x: np.interp(x, np.array([-1.0, 0, 1]), np.array([5.0, 2, 3])),
        lambda x: np.interp(x, np.array([-1.0, 0, 1]), np.array([5.0, 2, 3]), left=-9, right=9),
        lambda x: np.digitize(x, np.array([-1.0, 0, 0.5])),
        lambda x: np.digitize(x, np.array([0.5, 0, -1.0]), right=True),
        np.cov,
        lambda x: np.cov(x, rowvar=False, bias=True),
        lambda x: np.cov(x[0], x[1]),
        lambda x: np.cov(x[0]),
        np.corrcoef,
        lambda x: np.polyval([1.0, -2.0, 3.0], x),
        lambda x: np.polyval(x[0], 2.0),
        lambda x: np.vander(x[0]),
        lambda x: np.vander(x[0], 3, increasing=True),
        lambda x: np.unwrap(x * 5),
        lambda x: np.unwrap(x * 5, axis=0, period=3.0, discont=2.5),
        np.nanmedian,
        lambda x: np.nanquantile(x, [0.25, 0.9], axis=0),
        lambda x: np.nanpercentile(np.where(x > 1, np.nan, x), 30, axis=1, keepdims=True),
        lambda x: np.nanmedian(np.where(x > -9, np.nan, x), axis=0),
        lambda x: np.isclose(x, x + 1e-9),
        lambda x: np.allclose(x, x + 1),
        lambda x: np.isclose(
            [1.0, np.nan, np.inf, np.inf],
            x[:4, 0] * 0 + np.array([1, np.nan, np.inf, -np.inf]),
            equal_nan=True,
        ),
        lambda x: np.array_equal(x, x),
        lambda x: np.array_equiv(x, x[:1]),
        lambda x: np.isin(x > 0, [True]),
        lambda x: np.isin(x, x[0], invert=True),
        lambda x: np.isposinf(1 / (x - x)) | np.isneginf(x),
        lambda x: np.isreal(x) & ~np.iscomplex(x),
    ],
)
def test_values(agree, f):
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)
        agree(f, data(4, 5), rtol=1e-10)


def test_gradients(slopes):
    x = data(4, 5)
    for f in (np.trapezoid, lambda x: np.gradient(x, axis=0), np.cov, lambda x: np.polyval([1.0, 2, 3], x)):
        slopes(f, x, rtol=1e-5)
    slopes(lambda y: np.interp(np.array([0.3, 1.7]), np.array([0.0, 1, 2]), y), data(3))


@pytest.mark.parametrize("n", [3, 6])
def test_named_dims(agree, n):
    x = data(n, 2)
    for f in (
        np.gradient,
        lambda x: np.trapezoid(x, axis=0),
        lambda x: np.cov(x, rowvar=False),
        lambda x: np.nanmedian(x, axis=0),
    ):
        agree(f, x, shapes=[("B", 2)])


def test_result_type():
    seen = []

    def f(x, y):
        seen.append(
            (
                np.result_type(x, y),
                np.result_type(x, 1.5),
                np.result_type(x, np.float32),
                np.can_cast(x, np.int64),
                np.can_cast(y, np.int8),
            )
        )
        return x

    ons.stage(f, np.int8(1), np.float32(2))
    assert seen == [(np.float32, np.float64, np.float32, True, False)]
    assert xp.result_type(np.int8, np.float32) == np.float32


def test_namespace():
    assert (xp.pi, xp.e, xp.inf, xp.newaxis) == (np.pi, np.e, np.inf, None)
    assert np.isnan(xp.nan)
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
    ):
        assert np.dtype(getattr(xp, name)).name == name
    info = xp.__array_namespace_info__()
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert info.dtypes(kind=("bool", "integral"))["bool"] == np.bool_
    assert info.default_dtypes()["real floating"] == np.float64
    with pytest.raises(ValueError, match="kind"):
        info.dtypes(kind="texts")
    spaces = []
    ons.stage(lambda x: spaces.append(x.__array_namespace__()) or x, 1.0)
    assert spaces == [xp]


FUNCTIONS = """arange array asarray linspace zeros_like add subtract multiply divide maximum where sum prod mean var std max min any all argmax argmin
cumulative_sum sort argsort searchsorted take_along_axis reshape permute_dims matrix_transpose broadcast_to broadcast_arrays broadcast_shapes
expand_dims squeeze concat stack unstack split tile repeat flip roll moveaxis pad eye tril triu diag meshgrid count_nonzero diff astype result_type
can_cast isdtype finfo iinfo clip round matmul""".split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_namespace_has(name):
    assert callable(getattr(xp, name))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sum", (1,)), ("prod", ()), ("max", (0,)), ("mean", (1,)), ("std", ()), ("argmax", (1,)), ("any", ()), ("cumsum", (0,)), ("cumprod", (1,)),
        ("sort", ()), ("argsort", (0,)), ("median", ()), ("reshape", ((5, 4),)), ("ravel", ()), ("flip", ()), ("roll", (1,)), ("tile", (2,)),
        ("repeat", (2,)), ("pad", (1,)), ("tril", ()), ("diagonal", ()), ("trace", ()), ("diff", ()), ("squeeze", ()), ("expand_dims", (0,)),
        ("transpose", ()), ("average", ()), ("ptp", ()), ("count_nonzero", ()), ("gradient", ()), ("cov", ()), ("rot90", ()), ("quantile", (0.3,)),
    ],
)  # fmt: skip
def test_on_numpy_arrays(name, args):
    x = data(4, 5)
    wanted, got = getattr(np, name)(x, *args), getattr(xp, name)(x, *args)
    for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, wanted)), strict=True):
        assert type(a) is np.ndarray
        assert a.dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-12)
