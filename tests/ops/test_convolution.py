"""conv and conv_transpose: values against sums written out, both gradients, dtypes, named dims, vmap, messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import onstage as ons
from onstage import nn


def convolved(x: Any, w: Any, stride: Any, pads: Any, dilation: Any, groups: int) -> Any:
    """The definition, one output element at a time."""
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    kernel = w.shape[2:]
    sizes = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], kernel, dilation, stride, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // outputs * inputs
        for place in itertools.product(*map(range, sizes)):
            window = tuple(slice(p * s, p * s + (k - 1) * d + 1, d) for p, s, k, d in zip(place, stride, kernel, dilation, strict=True))
            part = x[(slice(None), slice(first, first + inputs), *window)]
            y[(slice(None), o, *place)] = (part * w[o]).reshape(x.shape[0], -1).sum(1)
    return y


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


SETTINGS: list[Any] = [
    ((2, 3, 6), (4, 3, 3), {}),
    ((2, 3, 6), (4, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 4, 7, 8), (6, 2, 3, 3), {"stride": (2, 3), "padding": ((1, 2), (0, 1)), "dilation": (2, 1), "groups": 2}),
    ((2, 4, 5, 5), (4, 1, 3, 3), {"padding": (1, 0), "groups": 4}),
    ((1, 2, 4, 3, 5), (3, 2, 2, 2, 3), {"stride": (1, 2, 2), "padding": 1}),
    ((2, 2, 4, 4), (3, 2, 4, 4), {}),
    ((1, 2, 9), (2, 1, 6), {"groups": 2}),
]


def as_pairs(padding: Any, count: int) -> Any:
    padding = (padding,) * count if isinstance(padding, int) else padding
    return [(p, p) if isinstance(p, int) else p for p in padding]


def settled(count: int, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
    full = [v if isinstance(v, tuple) else (v,) * count for v in (stride, dilation)]
    return full[0], as_pairs(padding, count), full[1], groups


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("x", "w", "settings"), SETTINGS)
def test_values(x: Any, w: Any, settings: Any, dtype: str, agree: Callable[..., Any]) -> None:
    x, w = random(*x, dtype=dtype), random(*w, seed=1, dtype=dtype)
    stride, pads, dilation, groups = settled(x.ndim - 2, **settings)
    wanted = convolved(x.astype(np.float64), w.astype(np.float64), stride, pads, dilation, groups).astype(dtype)
    agree(lambda x, w: nn.conv(x, w, **settings), x, w, wanted=wanted, rtol=1e-5 if dtype == "float32" else 1e-12)
    eager = nn.conv(x, w, **settings)
    assert isinstance(eager, np.ndarray) and eager.dtype == dtype
    np.testing.assert_allclose(eager, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("x", "w", "settings"), SETTINGS)
def test_gradients(x: Any, w: Any, settings: Any, slopes: Callable[..., None]) -> None:
    slopes(lambda x, w: nn.conv(x, w, **settings), random(*x), random(*w, seed=1))


@pytest.mark.parametrize(("x", "w", "settings"), SETTINGS)
def test_float32_gradients_are_those_of_float64(x: Any, w: Any, settings: Any) -> None:
    """Their lowerings differ: nodes for float32, matrix products for float64."""

    def loss(x: Any, w: Any) -> Any:
        return np.sum(nn.conv(x, w, **settings) ** 2)

    arrays = random(*x), random(*w, seed=1)
    wanted = ons.grad(loss, argnums=(0, 1))(*arrays)
    singles = [a.astype(np.float32) for a in arrays]
    program = ons.stage(ons.grad(loss, argnums=(0, 1)), *singles)
    for level in ("none", "all"):
        with ons.config(optimization=level):
            for got, want in zip(program(*singles), wanted, strict=True):
                assert got.dtype == np.float32
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


TRANSPOSED: list[Any] = [
    ((2, 3, 4), (3, 2, 3), {}),
    ((2, 4, 3), (4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    ((1, 4, 3, 2), (4, 1, 2, 3), {"stride": (2, 3), "padding": ((1, 0), (0, 2)), "dilation": (2, 1), "groups": 4}),
    ((1, 2, 2, 2, 2), (2, 3, 2, 2, 2), {"stride": 2}),
    ((1, 2, 3), (2, 1, 1), {"stride": 3, "output_padding": 2}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("x", "w", "settings"), TRANSPOSED)
def test_conv_transpose_is_the_transpose_of_conv(x: Any, w: Any, settings: Any, dtype: str, agree: Callable[..., Any]) -> None:
    x, w = random(*x), random(*w, seed=1)
    size = nn.conv_transpose(x, w, **settings).shape
    plain = {k: v for k, v in settings.items() if k != "output_padding"}
    wanted = ons.grad(lambda z: np.sum(nn.conv(z, w, **plain) * x))(np.zeros(size))
    agree(lambda x, w: nn.conv_transpose(x, w, **settings), x.astype(dtype), w.astype(dtype), wanted=wanted.astype(dtype), rtol=1e-5)


@pytest.mark.parametrize(("x", "w", "settings"), TRANSPOSED)
def test_gradients_of_conv_transpose(x: Any, w: Any, settings: Any, slopes: Callable[..., None]) -> None:
    slopes(lambda x, w: nn.conv_transpose(x, w, **settings), random(*x), random(*w, seed=1))


def test_conv_transpose_by_hand() -> None:
    x, w = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0, 100.0]]])
    assert nn.conv_transpose(x, w).tolist() == [[[1, 12, 120, 200]]]
    assert nn.conv_transpose(x, w, stride=2, padding=1, output_padding=1).tolist() == [[[10, 102, 20, 200]]]
    assert nn.conv_transpose(x, w, stride=2, padding="SAME").shape == (1, 1, 4)
    assert nn.conv_transpose(x, w, stride=4, padding="SAME").tolist() == [[[1, 10, 100, 0, 2, 20, 200, 0]]]


@pytest.mark.parametrize(("stride", "kernel", "size"), [(1, 2, 5), (2, 3, 5), (2, 3, 6), (3, 2, 7), (4, 1, 6)])
def test_same_padding(stride: int, kernel: int, size: int, agree: Callable[..., Any]) -> None:
    x, w = random(1, 2, size, dtype=np.float32), random(3, 2, kernel, seed=1, dtype=np.float32)
    count = -(-size // stride)
    total = max((count - 1) * stride + kernel - size, 0)
    pads = (total // 2, total - total // 2)
    program = agree(
        lambda x, w: nn.conv(x, w, stride=stride, padding="SAME"),
        x,
        w,
        wanted=convolved(x, w, (stride,), (pads,), (1,), 1),
        rtol=1e-5,
    )
    assert program(x, w).shape == (1, 3, count)
    assert nn.conv(x, w, padding="VALID").shape == (1, 3, size - kernel + 1)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_width_floats_are_summed_in_float32(dtype: Any) -> None:
    x, w = random(2, 8, 6, dtype=dtype), random(3, 8, 3, seed=1, dtype=dtype)
    wanted = convolved(x.astype(np.float64), w.astype(np.float64), (1,), ((1, 1),), (1,), 1)
    for got in (ons.stage(lambda x, w: nn.conv(x, w, padding=1), x, w)(x, w), nn.conv(x, w, padding=1)):
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2e-3 if dtype == np.float16 else 1e-2, atol=4e-3)


def test_dtypes_are_promoted() -> None:
    assert nn.conv(np.ones((1, 1, 3), np.int32), np.ones((1, 1, 2), np.float32)).dtype == np.float64
    assert nn.conv(np.ones((1, 1, 3), np.float32), np.ones((1, 1, 2), np.float64)).dtype == np.float64


def test_float64_is_exact_to_its_own_precision() -> None:
    x, w = random(1, 3, 8, 8), random(2, 3, 3, 3, seed=1)
    wanted = convolved(x, w, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    np.testing.assert_allclose(ons.stage(nn.conv, x, w)(x, w), wanted, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [("B", 2, 6, 5), ("B", 2, "H", "W")])
def test_named_dims_at_other_sizes(shape: Any, dtype: str) -> None:
    settings: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 0), (2, 1))}
    w = random(3, 2, 3, 2, seed=1, dtype=dtype)

    def loss(x: Any, w: Any) -> Any:
        return np.sum(nn.conv(x, w, **settings) ** 2)

    specs = (ons.ArraySpec(shape, dtype), ons.ArraySpec(w.shape, dtype))
    value = ons.stage(lambda x, w: nn.conv(x, w, **settings), specs=specs)
    gradient = ons.stage(ons.grad(loss, argnums=(0, 1)), specs=specs)
    sizes = [(0, 6, 5), (1, 6, 5), (3, 6, 5)] if shape[2] == 6 else [(1, 3, 4), (2, 4, 2), (0, 5, 5)]
    for n, height, width in sizes:
        x = random(n, 2, height, width, seed=2, dtype=dtype)
        np.testing.assert_allclose(value(x, w), nn.conv(x, w, **settings), rtol=1e-4, atol=1e-5)
        for got, want in zip(gradient(x, w), ons.grad(loss, argnums=(0, 1))(x, w), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_same_padding_of_named_sizes() -> None:
    w = random(3, 2, 3, seed=1, dtype=np.float32)
    program = ons.stage(lambda x: nn.conv(x, w, stride=2, padding="SAME"), specs=(ons.ArraySpec((1, 2, "L"), "float32"),))
    for size in (1, 4, 5):
        x = random(1, 2, size, dtype=np.float32)
        np.testing.assert_allclose(program(x), nn.conv(x, w, stride=2, padding="SAME"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("axes", [(0, None), (None, 1), (2, 0)])
def test_vmap(axes: Any, groups: int) -> None:
    x, w = random(3, 2, 4, 6), random(3, 4, 4 // groups, 3, seed=1)
    single = [a if axis is not None else a[0] for a, axis in zip((x, w), axes, strict=True)]
    moved = [a if axis is None else np.moveaxis(a, 0, axis) for a, axis in zip(single, axes, strict=True)]
    mapped = ons.vmap(lambda x, w: nn.conv(x, w, padding=1, groups=groups), in_axes=axes)
    got = ons.stage(mapped, *moved)(*moved)
    for i in range(3):
        row = [a if axis is None else a[i] for a, axis in zip(single, axes, strict=True)]
        np.testing.assert_allclose(got[i], nn.conv(*row, padding=1, groups=groups), rtol=1e-10, atol=1e-12)


def test_gradients_of_single_examples() -> None:
    x, w = random(3, 2, 6, dtype=np.float32), random(2, 2, 3, seed=1, dtype=np.float32)

    def loss(x: Any, w: Any) -> Any:
        return np.sum(nn.conv(x[None], w) ** 2)

    each = ons.vmap(ons.grad(loss, argnums=1), in_axes=(0, None))
    specs = (ons.ArraySpec(("B", 2, 6), "float32"), ons.ArraySpec(w.shape, "float32"))
    got = ons.stage(each, specs=specs)(x, w)
    for i in range(3):
        np.testing.assert_allclose(got[i], ons.grad(loss, argnums=1)(x[i], w), rtol=1e-4, atol=1e-5)


def test_second_order_is_that_of_differences() -> None:
    x, w, v = random(1, 2, 5), random(2, 2, 3, seed=1), random(1, 2, 5, seed=2)

    def loss(x: Any) -> Any:
        return np.sum(np.tanh(nn.conv(x, w, stride=2, padding=1)))

    got = ons.stage(lambda x, v: ons.hvp(loss, (x,), (v,)), x, v)(x, v)
    slope, step = ons.grad(loss), 1e-6
    np.testing.assert_allclose(got, (slope(x + step * v) - slope(x - step * v)) / (2 * step), rtol=1e-6, atol=1e-8)


def test_nodes() -> None:
    """float32 keeps the native nodes; the gradient by x needs no weights moved about."""
    x, w = random(2, 3, 8, 8, dtype=np.float32), random(4, 3, 3, 3, seed=1, dtype=np.float32)
    forward = ons.stage(lambda x, w: nn.conv(x, w, stride=2, padding=1), x, w).to_onnx()
    assert [n.op_type for n in forward.graph.node] == ["Conv"]
    backward = ons.stage(
        lambda x, w, ct: ons.vjp(lambda x: nn.conv(x, w, stride=2, padding=1), x)[1](ct)[0], x, w, np.ones((2, 4, 4, 4), "f4")
    )
    kinds = [n.op_type for n in backward.to_onnx().graph.node]
    assert kinds == ["ConvTranspose"]
    onnx.checker.check_model(forward, full_check=True)


@pytest.mark.parametrize("shapes", [((0, 2, 5), (3, 2, 2)), ((2, 0, 5), (3, 0, 2)), ((2, 2, 5), (0, 2, 2))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_empty(shapes: Any, dtype: str, agree: Callable[..., Any]) -> None:
    x, w = (np.ones(s, dtype) for s in shapes)
    agree(nn.conv, x, w, wanted=np.zeros((shapes[0][0], shapes[1][0], 4), dtype))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, w: nn.conv(x[0], w), ValueError, r"x is \[N, C, \*spatial\], with one spatial axis or more; got 2 axes"),
        (lambda x, w: nn.conv(x, w[..., None]), ValueError, "both have as many spatial axes"),
        (lambda x, w: nn.conv(x[:, :1], w), ValueError, "x has 1 channels .* with groups=1 is for 2"),
        (lambda x, w: nn.conv(x, w[:, :1], groups=2), ValueError, "the first axis of w, 3, does not divide into 2 groups"),
        (lambda x, w: nn.conv(x, w, stride=0), ValueError, "stride is 0; at least 1 is needed"),
        (lambda x, w: nn.conv(x, w, stride=(1, 2)), ValueError, r"stride has 2 entries, \[1, 2\], for 1 spatial axes"),
        (lambda x, w: nn.conv(x, w, padding=-1), ValueError, "not negative, got -1"),
        (lambda x, w: nn.conv(x, w, padding="full"), ValueError, "got 'full'"),
        (lambda x, w: nn.conv(x, w, dilation=9), ValueError, "a window over 10 elements does not fit an axis of 5 with padding 0 and 0"),
        (lambda x, w: nn.conv(x, w, stride=1.5), TypeError, "float"),
        (lambda x, w: nn.conv_transpose(x, w[:2], output_padding=1), ValueError, "output_padding 1 is not smaller"),
    ],
)
def test_messages(call: Any, error: Any, message: str) -> None:
    x, w = np.ones((1, 2, 5), np.float32), np.ones((3, 2, 2), np.float32)
    for run in (lambda: call(x, w), lambda: ons.stage(call, x, w)):
        with pytest.raises(error, match=message):
            run()
