"""resize: values against the definition, gradients, dtypes, named sizes, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage import nn


def sampled(x: Any, axis: int, size: int, method: str) -> Any:
    n = x.shape[axis]
    points = (np.arange(size) + 0.5) * n / size
    if method == "nearest":
        return np.take(x, np.floor(points).astype(int), axis)
    points = np.clip(points - 0.5, 0, n - 1)
    before = np.floor(points).astype(int)
    share = (points - before).reshape(-1, *(1,) * (x.ndim - axis - 1))
    return np.take(x, before, axis) * (1 - share) + np.take(x, np.minimum(before + 1, n - 1), axis) * share


def resized(x: Any, sizes: Any, method: str) -> Any:
    for i, size in enumerate(sizes):
        x = sampled(x, 2 + i, size, method)
    return x


SIZES: list[Any] = [((2, 3, 4), (7,)), ((1, 2, 4, 5), (8, 10)), ((1, 2, 4, 5), (3, 2)), ((1, 1, 2, 3, 4), (2, 5, 1)), ((1, 2, 1), (3,))]


@pytest.mark.parametrize("method", ["nearest", "linear"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "sizes"), SIZES)
def test_values(shape: Any, sizes: Any, dtype: str, method: str, agree: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    wanted = resized(x.astype(np.float64), sizes, method).astype(dtype)
    agree(lambda x: nn.resize(x, sizes, method=method), x, wanted=wanted)


@pytest.mark.parametrize("method", ["nearest", "linear"])
@pytest.mark.parametrize(("shape", "sizes"), SIZES)
def test_gradients(shape: Any, sizes: Any, method: str, slopes: Callable[..., None]) -> None:
    slopes(lambda x: nn.resize(x, sizes, method=method), np.random.default_rng(0).normal(size=shape))


def test_nearest_keeps_the_dtype(agree: Callable[..., Any]) -> None:
    for dtype in ("bool", "uint8", "int64"):
        x = np.arange(6).reshape(1, 1, 2, 3).astype(dtype)
        agree(lambda x: nn.resize(x, (4, 5), method="nearest"), x, wanted=resized(x, (4, 5), "nearest"))
    assert nn.resize(x, 2).dtype == np.float64


@pytest.mark.parametrize("method", ["nearest", "linear"])
def test_named_sizes(method: str) -> None:
    specs = (ons.ArraySpec(("B", 2, "L"), "float32"), ons.ArraySpec(("M",), "float32"))
    program = ons.stage(lambda x, like: nn.resize(x, (like.shape[0],), method=method), specs=specs)
    double = ons.stage(lambda x: nn.resize(x, (2 * x.shape[2],), method=method), specs=specs[:1])
    for n, size, wanted in ((1, 4, 7), (2, 5, 3), (0, 3, 3), (1, 1, 4)):
        x = np.random.default_rng(0).normal(size=(n, 2, size)).astype(np.float32)
        np.testing.assert_allclose(program(x, np.zeros(wanted, np.float32)), resized(x, (wanted,), method), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(double(x), resized(x, (2 * size,), method), rtol=1e-5, atol=1e-6)


def test_vmap() -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4))
    got = ons.stage(ons.vmap(lambda x: nn.resize(x, 5), in_axes=3), x)(x)
    np.testing.assert_allclose(got, np.stack([resized(x[..., i], (5,), "linear") for i in range(4)]), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: nn.resize(x, 3, method="cubic"), "the method is one of nearest, linear; got 'cubic'"),
        (lambda x: nn.resize(x, (2, 3)), r"2 sizes, \[2, 3\], for 1 spatial axes"),
        (lambda x: nn.resize(x, 0), "sizes are at least 1, before and after"),
        (lambda x: nn.resize(x[..., :0], 2), "sizes are at least 1, before and after"),
        (lambda x: nn.resize(x[0], 2), "with one spatial axis or more; got 2 axes"),
    ],
)
def test_messages(call: Any, message: str) -> None:
    x = np.ones((1, 2, 3), np.float32)
    for run in (lambda: call(x), lambda: ons.stage(call, x)):
        with pytest.raises(ValueError, match=message):
            run()
