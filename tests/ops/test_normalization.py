"""batch_norm, group_norm, instance_norm: values, gradients, dtypes, named dims, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage import nn

RTOL = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def standard(x: Any, axes: Any, epsilon: float = 1e-5) -> Any:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def grouped(x: Any, groups: int) -> Any:
    return standard(x.reshape(x.shape[0], groups, -1), 2).reshape(x.shape)


def column(v: Any) -> Any:
    return v.astype(np.float64)[:, None, None]


@pytest.mark.parametrize("dtype", RTOL)
def test_values(dtype: str, agree: Callable[..., Any]) -> None:
    x, scale, bias = random(2, 6, 3, 4, dtype=dtype), random(6, seed=1, dtype=dtype), random(6, seed=2, dtype=dtype)
    for groups in (1, 2, 3, 6):
        wanted = (grouped(x, groups) * column(scale) + column(bias)).astype(dtype)
        agree(lambda x, s, b, g=groups: nn.group_norm(x, g, s, b), x, scale, bias, wanted=wanted, rtol=RTOL[dtype])
    agree(lambda x: nn.group_norm(x, 2), x, wanted=grouped(x, 2).astype(dtype), rtol=RTOL[dtype])
    wanted = (standard(x, (2, 3)) * column(scale) + column(bias)).astype(dtype)
    agree(nn.instance_norm, x, scale, bias, wanted=wanted, rtol=RTOL[dtype])
    agree(lambda x: nn.instance_norm(x, epsilon=0.5), x, wanted=standard(x, (2, 3), 0.5).astype(dtype), rtol=RTOL[dtype])
    mean, var = random(6, seed=3, dtype=dtype), np.abs(random(6, seed=4, dtype=dtype)) + 1
    plain = (x.astype(np.float64) - column(mean)) / np.sqrt(column(var) + 1e-5)
    agree(nn.batch_norm, x, mean, var, wanted=plain.astype(dtype), rtol=RTOL[dtype])
    agree(nn.batch_norm, x, mean, var, scale, bias, wanted=(plain * column(scale) + column(bias)).astype(dtype), rtol=RTOL[dtype])
    last = np.moveaxis(x, 1, -1)
    agree(
        lambda x, m, v: nn.batch_norm(x, m, v, axis=-1), last, mean, var, wanted=np.moveaxis(plain, 1, -1).astype(dtype), rtol=RTOL[dtype]
    )


def test_gradients(slopes: Callable[..., None]) -> None:
    x, scale, bias = random(2, 4, 3), random(4, seed=1), random(4, seed=2)
    slopes(lambda x, s, b: nn.group_norm(x, 2, s, b), x, scale, bias)
    slopes(nn.instance_norm, x, scale, bias)
    slopes(nn.batch_norm, x, random(4, seed=3), np.array([0.5, 1, 2, 3]), scale, bias)


def test_batch_statistics_carry_gradients(slopes: Callable[..., None]) -> None:
    def trained(x: Any, scale: Any, bias: Any) -> Any:
        return nn.batch_norm(x, np.mean(x, axis=(0, 2)), np.var(x, axis=(0, 2)), scale, bias)

    slopes(trained, random(3, 2, 4), random(2, seed=1), random(2, seed=2))


def test_named_dims(agree: Callable[..., Any]) -> None:
    x, v = random(3, 4, 5, dtype=np.float32), np.ones(4, np.float32)
    agree(lambda x: nn.group_norm(x, 2), x, shapes=[("B", 4, "L")], wanted=grouped(x, 2).astype(np.float32), rtol=1e-5)
    agree(nn.instance_norm, x, shapes=[("B", 4, "L")], wanted=standard(x, 2).astype(np.float32), rtol=1e-5)
    wanted = ((x - 1) / np.sqrt(1 + 1e-5)).astype(np.float32)
    agree(nn.batch_norm, x, v, v, shapes=[("B", 4, "L"), (4,), (4,)], wanted=wanted, rtol=1e-5)
    empty = ons.stage(lambda x: nn.group_norm(x, 2), specs=(ons.ArraySpec(("B", 4, 5), "float32"),))
    assert empty(np.zeros((0, 4, 5), np.float32)).shape == (0, 4, 5)


def test_vmap() -> None:
    x = random(3, 2, 4, 5)
    got = ons.stage(ons.vmap(lambda x: nn.group_norm(x, 2)), x)(x)
    np.testing.assert_allclose(got, np.stack([grouped(r, 2) for r in x]), rtol=1e-10, atol=1e-12)


def test_messages() -> None:
    x = np.ones((2, 4, 3), np.float32)
    with pytest.raises(ValueError, match=r"4 channels do not divide into 3 groups \(x has shape \[2, 4, 3\]\)"):
        nn.group_norm(x, 3)
    with pytest.raises(ValueError, match=r"batch_norm: mean has shape \[3\]; one value for each of x's 4 channels is needed"):
        nn.batch_norm(x, np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match=r"instance_norm: x is \[N, C, ...\], got shape \[2, 4\]"):
        nn.instance_norm(x[..., 0])
    with pytest.raises(np.exceptions.AxisError):
        nn.batch_norm(x, np.ones(4), np.ones(4), axis=3)
    with pytest.raises(ValueError, match="groups is 0; at least 1 is needed"):
        nn.group_norm(x, 0)
