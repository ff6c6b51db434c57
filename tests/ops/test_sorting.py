"""sort, argsort, top_k, partition, lexsort, searchsorted, median, quantile, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons
from onstage.ops.sorting import top_k

NAN, INF = np.nan, np.inf


def data(dtype="float64", shape=(3, 5)):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "b":
        return rng.random(shape) < 0.5
    return rng.integers(0 if np.dtype(dtype).kind == "u" else -4, 5, shape).astype(dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        "float64",
        "float32",
        "float16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ],
)
def test_dtypes(agree, dtype):
    x = data(dtype)
    agree(lambda x: np.sort(x, axis=1), x)
    agree(lambda x: np.argsort(x, axis=0, stable=True), x)
    agree(lambda x: np.argsort(x, axis=None, kind="stable"), x)
    agree(lambda x: top_k(x, 2), x, wanted=(np.flip(np.sort(x), 1)[:, :2], _top(x, 2)))


def _top(x, k):
    n = x.shape[1]
    return (n - 1 - np.flip(np.argsort(np.flip(x, 1), axis=1, kind="stable"), 1))[:, :k]


def test_large_unsigned(agree):
    x = np.array([3, 2**63 + 5, 2**64 - 1, 0], np.uint64)
    agree(np.sort, x)
    agree(np.argsort, x)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_nan_last_and_stable(agree, dtype):
    for values in (
        [3, NAN, 1],
        [1, 0, 1, 0, 1],
        [NAN, INF, NAN, INF, -INF, 1, NAN],
        [0.0, -0.0, 0.0, -0.0],
        [NAN] * 3,
    ):
        x = np.array(values, dtype)
        agree(np.sort, x)
        agree(lambda x: np.argsort(x, stable=True), x)
    x = np.array([[INF, NAN, 3, NAN, INF]], dtype)
    for k in (0, 1, 3, 5):
        program = ons.stage(lambda x, k=k: top_k(x, k), x)
        values, indices = program(x)
        np.testing.assert_array_equal(indices, [[1, 3, 0, 4, 2][:k]])
        np.testing.assert_array_equal(values, x[:, [1, 3, 0, 4, 2][:k]])


@pytest.mark.parametrize("n", [0, 1, 3, 100])
def test_named_dims(agree, n):
    x = data(shape=(n, 3))
    agree(lambda x: np.sort(x, axis=0), x, shapes=[("B", 3)])
    agree(lambda x: np.argsort(x, axis=0, stable=True), x, shapes=[("B", 3)])
    if n:
        agree(lambda x: np.median(x, axis=0), x, shapes=[("B", 3)])
        agree(lambda x: np.quantile(x, [0.1, 0.5, 1.0], axis=0), x, shapes=[("B", 3)])
    a = np.sort(x[:, 0])
    agree(np.searchsorted, a, np.array([-9.0, 0, 2, 9]), shapes=[("B",), (4,)])


def test_lexsort_and_partition(agree):
    a, b = data(shape=(40,)), data(shape=(40,))
    agree(lambda a, b: np.lexsort((a, b)), a, b)
    agree(lambda x: np.lexsort(x), np.stack([a, b]))
    program = ons.stage(lambda x: np.partition(x, 7), a)
    assert program(a)[7] == np.sort(a)[7]
    with pytest.raises(ValueError, match="out of bounds"):
        ons.stage(lambda x: np.partition(x, 40), a)


def test_searchsorted(agree):
    a = np.sort(np.random.default_rng(0).integers(0, 9, 20)).astype("float32")
    v = np.array([[-1, 0, 3], [4.5, 8, 99]], "float32")
    for side in ("left", "right"):
        agree(lambda a, v, side=side: np.searchsorted(a, v, side=side), a, v)
        agree(
            lambda a, v, side=side: np.searchsorted(a, v, side=side),
            np.array([1.0, 2, NAN, NAN]),
            np.array([NAN, 1, 3, -INF, INF]),
        )
        agree(lambda v, side=side: np.searchsorted(np.array([1, 2, 2, 3]), v, side), np.array([2, 0, 9]))
    agree(lambda a, v: np.searchsorted(a, v), np.zeros(0), v)
    agree(lambda a, v, s: np.searchsorted(a, v, sorter=s), a[::-1].copy(), v, np.argsort(a[::-1]))


def test_median_and_quantiles(agree):
    x = data(shape=(4, 5, 3))
    for axis in (None, 0, 1, (0, 2)):
        agree(lambda x, axis=axis: np.median(x, axis=axis, keepdims=True), x)
        for method in ("linear", "lower", "higher", "midpoint", "nearest"):
            agree(
                lambda x, axis=axis, m=method: np.quantile(x, np.array([[0.0, 0.3], [0.5, 1.0]]), axis=axis, method=m),
                x,
            )
    agree(lambda x: np.percentile(x, 35.0, axis=1, keepdims=True), x)
    agree(np.median, data("int32", (6,)))
    agree(np.median, np.array([1, NAN, 2]))
    agree(lambda x: np.quantile(x, 0.5), np.array([1, NAN, 2]))
    agree(lambda x, q: np.quantile(x, q, axis=0), x, np.array([0.25, 0.75]))
    agree(np.median, np.zeros(0), wanted=np.float64(NAN))
    with pytest.raises(ValueError, match="range"):
        ons.stage(lambda x: np.quantile(x, 1.5), x)


def test_gradients(slopes):
    x = np.random.default_rng(2).permutation(15).reshape(3, 5) * 0.5
    slopes(lambda x: np.sort(x, axis=1), x)
    slopes(lambda x: np.sort(x, axis=0), x, shapes=[("B", 5)])
    slopes(lambda x: np.median(x, axis=1), x)
    slopes(lambda x: np.quantile(x, [0.2, 0.7], axis=1), x)


def test_sort_and_top_k_gradients():
    x = np.array([3.0, 1.0, 2.0])
    gradient = ons.grad(lambda x: np.sum(np.sort(x) * np.array([1.0, 2.0, 3.0])))
    for f in (gradient, ons.stage(gradient, x)):
        np.testing.assert_array_equal(f(x), [3, 1, 2])
    y = np.array([1.0, 3.0, 2.0, 3.0])
    gradient = ons.grad(lambda x: np.sum(top_k(x, 2)[0] * np.array([10.0, 1.0])))
    for f in (gradient, ons.stage(gradient, y)):
        np.testing.assert_array_equal(f(y), [0, 10, 0, 1])


def test_take_along_axis(agree, slopes):
    x = data("float32", (3, 4))
    i = np.array([[0, 3, -1], [1, 1, 2], [-4, 0, 0]])
    agree(lambda x, i: np.take_along_axis(x, i, 1), x, i)
    agree(lambda x, i: np.take_along_axis(x, i, axis=0), x, i[:1, :1])
    agree(lambda x, i: np.take_along_axis(x, i, None), x, i[0])
    slopes(lambda x: np.take_along_axis(x, i, 1), x)
    with pytest.raises(IndexError, match="integer"):
        ons.stage(lambda x: np.take_along_axis(x, np.ones((3, 1)), 1), x)


def test_top_k_errors():
    with pytest.raises(ons.ShapeError, match=r"top_k: 4 of 3 elements along axis 0"):
        ons.stage(lambda x: top_k(x, 4), np.ones(3))
