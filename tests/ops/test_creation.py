"""arange, linspace, zeros, eye, tri, diag and their kin: of known sizes, of named ones, and from traced arrays."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons

xp = ons.numpy
SIZES = [0, 1, 3]


def data(*shape, dtype="float32"):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(dtype)


def namespace(x):
    return xp if hasattr(x, "spec") else np


@pytest.mark.parametrize("n", SIZES)
def test_named_dims(agree, n):
    x = data(n, 2)
    for f in (
        lambda xp, n, x: xp.arange(n),
        lambda xp, n, x: xp.arange(1, n),
        lambda xp, n, x: xp.arange(n, -2, -3),
        lambda xp, n, x: xp.arange(2 * n, dtype=np.float32),
        lambda xp, n, x: xp.arange(0, n + 4, 2),
        lambda xp, n, x: xp.linspace(0.0, 1.0, n),
        lambda xp, n, x: xp.linspace(0, 5, n, endpoint=False),
        lambda xp, n, x: xp.zeros((n, 3)),
        lambda xp, n, x: xp.ones(n, dtype=np.int32),
        lambda xp, n, x: xp.full((2, n), 7),
        lambda xp, n, x: xp.eye(n),
        lambda xp, n, x: xp.eye(n, 4, k=1, dtype=np.float32),
        lambda xp, n, x: xp.eye(2, n, k=-1),
        lambda xp, n, x: xp.tri(n, 3, 1),
        lambda xp, n, x: xp.identity(n),
        lambda xp, n, x: xp.indices((n, 2)),
        lambda xp, n, x: xp.tril(x),
        lambda xp, n, x: xp.triu(x, 1),
        lambda xp, n, x: xp.diagonal(x),
        lambda xp, n, x: xp.diagonal(x, -1),
        lambda xp, n, x: xp.diagonal(x, 1),
        lambda xp, n, x: xp.trace(x),
        lambda xp, n, x: xp.diag(x[:, 0]),
        lambda xp, n, x: xp.diag(x[:, 0], 2),
        lambda xp, n, x: xp.diag(x[:, 0], -1),
        lambda xp, n, x: np.zeros_like(x),
        lambda xp, n, x: np.ones_like(x, dtype=np.int8),
        lambda xp, n, x: np.full_like(x, 3),
        lambda xp, n, x: x.sum(1) + xp.arange(n),
    ):
        agree(lambda x, f=f: f(namespace(x), x.shape[0], x), x, shapes=[("B", 2)])


@pytest.mark.parametrize("n", SIZES)
def test_numpy_like(agree, n):
    for f in (
        lambda x, n: np.arange(n, like=x),
        lambda x, n: np.ones(n, dtype=np.int8, like=x),
        lambda x, n: np.full((n,), 2.5, like=x),
        lambda x, n: np.eye(n, like=x),
        lambda x, n: np.identity(n, like=x),
        lambda x, n: np.tri(n, like=x),
    ):
        traced = ons.stage(lambda x, f=f: f(x, x.shape[0]), specs=(ons.ArraySpec(("B",), "float64"),))
        x = np.zeros(n)
        wanted = f(x, n)
        got = traced(x)
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype


def test_known_sizes_give_numpy_arrays():
    for made in (
        xp.arange(3), xp.arange(0.0, 1.0, 0.25), xp.linspace(0, 1, 5), xp.zeros((2, 3)), xp.ones(2, "float32"), xp.full(3, 7), xp.eye(3),
        xp.tri(3), xp.identity(2), xp.empty(4), xp.zeros_like(np.ones(3)), xp.full_like(np.ones(3, "int8"), 4), xp.indices((2, 3)),
        xp.logspace(0, 2, 3), xp.asarray([1, 2]),
    ):  # fmt: skip
        assert type(made) is np.ndarray
    np.testing.assert_array_equal(xp.indices((2, 3)), np.indices((2, 3)))
    np.testing.assert_array_equal(xp.eye(3, 4, k=1), np.eye(3, 4, 1))
    np.testing.assert_array_equal(xp.tri(3, k=-1), np.tri(3, k=-1))
    assert xp.arange(5).dtype == np.int64
    assert xp.arange(5, dtype="f4").dtype == np.float32
    assert xp.empty(3).dtype == np.float64


def test_traced_values(agree, slopes):
    x, y = np.float64(1.5), np.float64(-2.0)
    agree(lambda x, y: np.linspace(x, y, 7), x, y)
    agree(lambda x, y: np.linspace(x, y, 7, endpoint=False), x, y)
    agree(lambda x, y: np.linspace(x, y, 4, retstep=True), x, y)
    agree(lambda x, y: np.linspace(x, y, 1), x, y)
    agree(lambda x, y: np.linspace(x, y, 5, axis=1), data(2, 3, dtype="float64"), data(3, dtype="float64"))
    agree(lambda x: np.logspace(x, 2, 4), x)
    agree(lambda x: xp.full((2, 2), x), x, wanted=np.full((2, 2), 1.5))
    slopes(lambda x, y: np.linspace(x, y, 5), x, y)
    slopes(lambda x: xp.full((2, 2), x) if hasattr(x, "spec") else np.full((2, 2), x), x)
    for dtype in ("float32", "int32"):
        agree(lambda x: np.linspace(x, 9, 4), np.asarray(2, dtype))


def test_like_of_a_traced_array_may_be_updated():
    def f(x):
        y = np.zeros_like(x)
        y[0] = x[1] * 2
        return y

    np.testing.assert_array_equal(ons.stage(f, np.ones(3))(np.array([1.0, 5.0, 2.0])), [10, 0, 0])


@pytest.mark.parametrize(
    "f",
    [
        np.tril,
        lambda x: np.triu(x, 1),
        lambda x: np.tril(x, -1),
        np.diagonal,
        lambda x: np.diagonal(x, 1),
        lambda x: x.diagonal(-2),
        lambda x: np.diagonal(x, 7),
        lambda x: np.trace(x),
        lambda x: x.trace(1),
        lambda x: np.diag(x),
        lambda x: np.diag(x, -1),
        lambda x: np.diag(x[0], 1),
        lambda x: np.diag(x[0], -2),
        lambda x: np.diagflat(x[:2, :2], 1),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "uint64"])
def test_matrices(agree, f, dtype):
    agree(f, data(3, 4, dtype=dtype))


def test_stacks_of_matrices(agree, slopes):
    x = data(2, 3, 4, dtype="float64")
    agree(lambda x: np.diagonal(x, 1, 1, 2), x)
    agree(lambda x: np.diagonal(x, axis1=2, axis2=0), x)
    agree(np.tril, x)
    agree(lambda x: np.linalg.diagonal(x, offset=-1), x)
    agree(lambda x: np.trace(x, axis1=1, axis2=2), x)
    agree(lambda x: np.triu(x), np.array([[1.0, np.nan], [np.nan, np.inf]]))
    for f in (
        np.tril,
        lambda x: np.diagonal(x, 1, 1, 2),
        lambda x: np.trace(x),
        lambda x: np.diag(x[0, 0], 1),
    ):
        slopes(f, x)
    slopes(lambda x: np.diagonal(x), data(3, 4, dtype="float64"), shapes=[("B", 4)])


def test_asarray():
    table = np.arange(5.0)
    f = ons.stage(lambda i: ons.asarray(table)[i], np.int64(1))
    assert f(np.int64(3)) == 3
    assert ons.is_traced(np.ones(3)) is False
    seen = []
    ons.stage(lambda x: seen.append(ons.is_traced(x)) or x, 1.0)
    assert seen == [True]
    with pytest.raises(TypeError, match="objects"):
        ons.asarray(np.array([None]))
    with pytest.raises(TypeError, match="no array"):
        ons.asarray(object())


def test_errors():
    with pytest.raises(ValueError, match="negative"):
        xp.zeros(-1)
    with pytest.raises(ons.UnsupportedError, match="step that is an integer"):
        ons.stage(lambda x: xp.arange(0, x.shape[0], 0.5), specs=(ons.ArraySpec("B", "f4"),))
    with pytest.raises(ons.ConcretizationError):
        ons.stage(lambda x: xp.zeros(x), np.int64(3))
