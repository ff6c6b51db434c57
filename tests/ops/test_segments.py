"""segment_sum and its kin: values against loops, ids out of range, gradients, dtypes, named dims, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage import nn

IDS = np.array([2, 0, 2, -1, 5, 0, 2])


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def looped(data: Any, reduce: Callable[..., Any], empty: Any, count: int = 4) -> Any:
    rows = [data[i == IDS] for i in range(count)]
    return np.stack([reduce(r, 0) if len(r) else np.full(data.shape[1:], empty) for r in rows])


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values(shape: Any, dtype: str, agree: Callable[..., Any]) -> None:
    data = random(*shape, dtype=dtype)
    wide = data.astype(np.float64)
    for function, reduce, empty in (
        (nn.segment_sum, np.sum, 0),
        (nn.segment_mean, np.mean, 0),
        (nn.segment_max, np.max, -np.inf),
        (nn.segment_min, np.min, np.inf),
    ):
        wanted = looped(wide, reduce, empty).astype(dtype)
        agree(lambda d, i, f=function: f(d, i, 4), data, IDS, wanted=wanted)
        np.testing.assert_allclose(function(data, IDS, 4), wanted, rtol=2e-3)


def test_integers(agree: Callable[..., Any]) -> None:
    data = np.array([5, -3, 2, 9, 9, 4, -7], np.int32)
    agree(lambda d, i: nn.segment_sum(d, i, 4), data, IDS, wanted=np.array([1, 0, 0, 0], np.int32))
    agree(lambda d, i: nn.segment_max(d, i, 4), data, IDS, wanted=np.array([4, -(2**31), 5, -(2**31)], np.int32))
    agree(lambda d, i: nn.segment_min(d, i, 4), data, IDS, wanted=np.array([-3, 2**31 - 1, -7, 2**31 - 1], np.int32))
    agree(lambda d, i: nn.segment_mean(d, i, 4), data, IDS, wanted=np.array([0.5, 0, 0, 0]))
    agree(lambda d, i: nn.segment_sum(d, i, 4), data > 0, IDS.astype(np.int8), wanted=np.array([1, 0, 2, 0]))


def test_gradients(slopes: Callable[..., None]) -> None:
    data = random(7, 2)
    for function in (nn.segment_sum, nn.segment_mean):
        slopes(lambda d, f=function: f(d, IDS, 4), data)
    for function in (nn.segment_max, nn.segment_min):
        slopes(lambda d, f=function: f(d, IDS, 4)[np.array([0, 2])], data)


def test_named_dims() -> None:
    specs = (ons.ArraySpec(("N", 2), "float32"), ons.ArraySpec(("N",), "int64"), ons.ArraySpec(("K",), "float32"))
    program = ons.stage(lambda d, i, like: nn.segment_sum(d, i, like.shape[0]) + like[:, None], specs=specs)
    for n, k in ((7, 4), (3, 1), (0, 2)):
        data, ids = random(7, 2, dtype=np.float32)[:n], IDS[:n]
        wanted = np.stack([data[ids == j].sum(0) for j in range(k)])
        np.testing.assert_allclose(program(data, ids, np.zeros(k, np.float32)), wanted, rtol=1e-6, atol=1e-6)


def test_vmap() -> None:
    data = random(3, 7, 2)
    got = ons.stage(ons.vmap(lambda d: nn.segment_sum(d, IDS, 4)), data)(data)
    np.testing.assert_allclose(got, np.stack([looped(d, np.sum, 0) for d in data]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: nn.segment_sum(d, IDS * 1.0, 4), TypeError, "ids are integers, got f64"),
        (lambda d: nn.segment_max(d, IDS[:3], 4), ValueError, r"ids have shape \[3\], data has \[7, 2\]"),
        (lambda d: nn.segment_mean(d, IDS, -1), ValueError, "num_segments is -1, which is negative"),
        (lambda d: nn.segment_sum(d[0, 0], IDS, 4), ValueError, "data is 0-d"),
    ],
)
def test_messages(call: Any, error: Any, message: str) -> None:
    data = np.ones((7, 2), np.float32)
    for run in (lambda: call(data), lambda: ons.stage(call, data)):
        with pytest.raises(error, match=message):
            run()
