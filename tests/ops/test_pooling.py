"""Pools: values against windows written out, ties, NaN and infinities, gradients of both orders, dtypes, named dims, messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onstage as ons
from onstage import nn

F = np.float32


def pooled(x: Any, window: Any, stride: Any, pads: Any, reduce: Callable[..., Any]) -> Any:
    """The definition: `reduce` of the elements of each window that are not padding."""
    sizes = [(n + a + b - w) // s + 1 for n, (a, b), w, s in zip(x.shape[2:], pads, window, stride, strict=True)]
    y = np.zeros((*x.shape[:2], *sizes), np.float64)
    for place in itertools.product(*map(range, sizes)):
        parts = []
        for p, s, (a, _), w, n in zip(place, stride, pads, window, x.shape[2:], strict=True):
            parts.append(slice(max(p * s - a, 0), min(p * s - a + w, n)))
        y[(..., *place)] = reduce(x[(..., *parts)].reshape(*x.shape[:2], -1))
    return y


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


SETTINGS: list[Any] = [
    ((2, 3, 6), 2, {}),
    ((2, 3, 7), 3, {"stride": 2, "padding": 1}),
    ((2, 1, 5, 6), (2, 3), {"stride": (1, 2), "padding": ((1, 0), (2, 1))}),
    ((1, 2, 7, 7), 2, {}),
    ((1, 1, 4, 3, 5), 2, {"stride": 1}),
    ((1, 2, 20), 9, {"stride": 3, "padding": 4}),
    ((1, 2, 7), 3, {"stride": 2, "padding": "SAME"}),
]


def settled(shape: Any, window: Any, stride: Any = None, padding: Any = 0) -> Any:
    count = len(shape) - 2
    window = window if isinstance(window, tuple) else (window,) * count
    stride = window if stride is None else stride if isinstance(stride, tuple) else (stride,) * count
    if padding == "SAME":
        totals = [max((-(-n // s) - 1) * s + w - n, 0) for n, s, w in zip(shape[2:], stride, window, strict=True)]
        return window, stride, [(t // 2, t - t // 2) for t in totals]
    padding = (padding,) * count if isinstance(padding, int) else padding
    return window, stride, [(p, p) if isinstance(p, int) else p for p in padding]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "window", "settings"), SETTINGS)
def test_values(shape: Any, window: Any, settings: Any, dtype: str, agree: Callable[..., Any]) -> None:
    x = random(*shape, dtype=dtype)
    full = settled(shape, window, **settings)
    wanted = pooled(x, *full, lambda t: t.max(-1)).astype(dtype)
    agree(lambda x: nn.max_pool(x, window, **settings), x, wanted=wanted, rtol=0)
    assert np.array_equal(nn.max_pool(x, window, **settings), wanted)
    wanted = pooled(x, *full, lambda t: t.mean(-1)).astype(dtype)
    agree(lambda x: nn.avg_pool(x, window, **settings), x, wanted=wanted)
    count = np.prod(full[0])
    wanted = pooled(x, *full, lambda t: t.sum(-1) / count).astype(dtype)
    agree(lambda x: nn.avg_pool(x, window, **settings, count_include_pad=True), x, wanted=wanted)


@pytest.mark.parametrize(("shape", "window", "settings"), SETTINGS)
def test_gradients(shape: Any, window: Any, settings: Any, slopes: Callable[..., None]) -> None:
    x = random(*shape)
    slopes(lambda x: nn.max_pool(x, window, **settings), x)
    slopes(lambda x: nn.avg_pool(x, window, **settings), x)
    slopes(lambda x: nn.avg_pool(x, window, **settings, count_include_pad=True), x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ties_go_to_the_first(dtype: str) -> None:
    ones = np.ones((1, 1, 2, 2), dtype)
    slope = ons.grad(lambda x: np.sum(nn.max_pool(x, 2)))
    for got in (slope(ones), ons.stage(slope, ones)(ones)):
        assert got.dtype == dtype and got.ravel().tolist() == [1, 0, 0, 0]
    ones = np.ones((1, 1, 3, 3), dtype)
    slope = ons.grad(lambda x: np.sum(nn.max_pool(x, 2, stride=1)))
    for got in (slope(ones), ons.stage(slope, ones)(ones)):
        assert got[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_ties_with_padding_go_to_an_element() -> None:
    x = np.array([[[-np.inf, -np.inf, 0.0, -1.0]]])
    slope = ons.grad(lambda x: np.sum(nn.max_pool(x, 2, padding=1)))
    for got in (slope(x), ons.stage(slope, x)(x)):
        assert got.tolist() == [[[1, 0, 1, 1]]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinities(dtype: str, agree: Callable[..., Any]) -> None:
    x = np.array([[[1, np.nan, np.nan, 2, -np.inf, -np.inf, np.inf, 0]]], dtype)
    agree(lambda x: nn.max_pool(x, 2), x, wanted=np.array([[[np.nan, np.nan, -np.inf, np.inf]]], dtype))
    agree(lambda x: nn.max_pool(x, 2, padding=1), x, wanted=np.array([[[1, np.nan, 2, np.inf, 0]]], dtype))
    slope = ons.grad(lambda x: np.sum(nn.max_pool(x, 4)))
    for got in (slope(x), ons.stage(slope, x)(x)):
        assert got.tolist() == [[[1, 0, 0, 0, 0, 0, 1, 0]]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint16", "uint64", "float16"])
def test_max_pool_keeps_the_dtype(dtype: str, agree: Callable[..., Any]) -> None:
    x = np.arange(24).reshape(1, 2, 3, 4).astype(dtype)
    agree(lambda x: nn.max_pool(x, 2, padding=1), x, wanted=pooled(x, (2, 2), (2, 2), [(1, 1)] * 2, lambda t: t.max(-1)).astype(dtype))
    assert nn.avg_pool(x, 2).dtype == np.sqrt(x).dtype


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_means_of_half_width_floats_are_computed_in_float32(dtype: Any) -> None:
    x = np.full((1, 1, 4096), 3, dtype)
    staged = ons.stage(lambda x: nn.avg_pool(x, 4096), x)(x)
    for got in (staged, nn.avg_pool(x, 4096), nn.global_avg_pool(x)):
        assert got.dtype == dtype and got.astype(float).tolist() == [[[3.0]]]


@pytest.mark.parametrize("pool", [nn.max_pool, nn.avg_pool])
@pytest.mark.parametrize("settings", [{}, {"stride": 1, "padding": 1}, {"stride": 3}])
@pytest.mark.parametrize("shape", [("B", 2, 6, 4), ("B", 2, "H", 4)])
def test_named_dims_at_other_sizes(pool: Any, settings: Any, shape: Any) -> None:
    def loss(x: Any) -> Any:
        return np.sum(pool(x, 2, **settings) ** 2)

    spec = ons.ArraySpec(shape, "float32")
    value = ons.stage(lambda x: pool(x, 2, **settings), specs=(spec,))
    gradient = ons.stage(ons.grad(loss), specs=(spec,))
    for n, height in ((0, 6), (1, 6), (3, 6)) if shape[2] == 6 else ((1, 2), (2, 5), (1, 7)):
        x = random(n, 2, height, 4, dtype=F)
        np.testing.assert_allclose(value(x), pool(x, 2, **settings), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(gradient(x), ons.grad(loss)(x), rtol=1e-6, atol=1e-6)


def test_vmap() -> None:
    x = random(2, 3, 6, 4)
    for pool in (nn.max_pool, nn.avg_pool, nn.adaptive_avg_pool, nn.adaptive_max_pool):
        got = ons.stage(ons.vmap(lambda x, pool=pool: pool(x, 3), in_axes=3), x)(x)
        np.testing.assert_allclose(got, np.stack([pool(x[..., i], 3) for i in range(4)]), rtol=1e-12)


def test_second_order_is_that_of_differences() -> None:
    x, v = random(1, 2, 6, 6), random(1, 2, 6, 6, seed=1)
    for settings in ({}, {"stride": 1, "padding": 1}):

        def loss(x: Any, settings: Any = settings) -> Any:
            return np.sum(np.tanh(nn.max_pool(x, 2, **settings)) * nn.avg_pool(x, 2, **settings) ** 2)

        got = ons.stage(lambda x, v, loss=loss: ons.hvp(loss, (x,), (v,)), x, v)(x, v)
        slope, step = ons.grad(loss), 1e-6
        np.testing.assert_allclose(got, (slope(x + step * v) - slope(x - step * v)) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_adaptive(size: int, agree: Callable[..., Any], slopes: Callable[..., None]) -> None:
    x = random(2, 3, 6, 5)
    sizes = (size, 2)
    spans = [[(i * n // o, -(-(i + 1) * n // o)) for i in range(o)] for n, o in zip((6, 5), sizes, strict=True)]
    for pool, reduce in ((nn.adaptive_avg_pool, np.mean), (nn.adaptive_max_pool, np.max)):
        wanted = np.stack([[reduce(x[:, :, a:b, c:d], axis=(2, 3)) for c, d in spans[1]] for a, b in spans[0]])
        agree(lambda x, pool=pool: pool(x, sizes), x, wanted=np.moveaxis(wanted, (0, 1), (2, 3)), rtol=1e-12)
        slopes(lambda x, pool=pool: pool(x, sizes), x[:1, :1])


def test_adaptive_ties_go_to_the_first() -> None:
    slope = ons.grad(lambda x: np.sum(nn.adaptive_max_pool(x, 2)))
    assert slope(np.ones((1, 1, 5))).tolist() == [[[1, 0, 1, 0, 0]]]


def test_global(agree: Callable[..., Any], slopes: Callable[..., None]) -> None:
    x = random(2, 3, 4, 5)
    agree(nn.global_avg_pool, x, wanted=x.mean(axis=(2, 3), keepdims=True))
    agree(nn.global_max_pool, x, wanted=x.max(axis=(2, 3), keepdims=True))
    agree(nn.global_max_pool, x.astype(F), shapes=[("B", 3, "H", 5)], wanted=x.astype(F).max(axis=(2, 3), keepdims=True))
    slopes(nn.global_avg_pool, x)
    slopes(nn.global_max_pool, x)
    assert ons.grad(lambda x: np.sum(nn.global_max_pool(x)))(np.ones((1, 1, 3))).tolist() == [[[1, 0, 0]]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: nn.max_pool(x[0], 2), ValueError, r"x is \[N, C, \*spatial\], with one spatial axis or more; got 2 axes"),
        (lambda x: nn.max_pool(x, 6), ValueError, "max_pool: a window over 6 elements does not fit an axis of 5 with padding 0 and 0"),
        (lambda x: nn.avg_pool(x, (2, 2)), ValueError, r"avg_pool: window has 2 entries, \[2, 2\], for 1 spatial axes"),
        (lambda x: nn.avg_pool(x, 2, padding=2), ValueError, r"padding \(2, 2\) is not smaller than the window, 2"),
        (lambda x: nn.max_pool(x, 0), ValueError, "window is 0; at least 1 is needed"),
        (lambda x: nn.max_pool(x > 0, 2), TypeError, "booleans have no maximum"),
        (lambda x: nn.adaptive_avg_pool(x, 0), ValueError, "size is 0; at least 1 is needed"),
    ],
)
def test_messages(call: Any, error: Any, message: str) -> None:
    x = np.ones((1, 2, 5), F)
    for run in (lambda: call(x), lambda: ons.stage(call, x)):
        with pytest.raises(error, match=message):
            run()


def test_adaptive_pools_need_known_sizes() -> None:
    with pytest.raises(ons.UnsupportedError, match="spatial sizes are known numbers, got L in shape"):
        ons.stage(lambda x: nn.adaptive_avg_pool(x, 2), specs=(ons.ArraySpec((1, 2, "L"), "float32"),))
