"""attention and rotary: values in float64 written out, masks, groups, gradients, dtypes, named dims, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onstage as ons
from onstage import nn


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def attended(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: Any = None) -> Any:
    """The definition, one head and query at a time."""
    b, h, t, d = q.shape
    groups, s = k.shape[1:3]
    scale = 1 / np.sqrt(d) if scale is None else scale
    mask = np.broadcast_to(np.ones((), bool) if mask is None else mask, (b, h, t, s))
    y = np.zeros((b, h, t, v.shape[3]))
    for n, head, i in np.ndindex(b, h, t):
        group = head // (h // groups)
        scores = k[n, group] @ q[n, head, i] * scale
        allowed = mask[n, head, i] if mask.dtype == bool else np.ones(s, bool)
        scores = scores if mask.dtype == bool else scores + mask[n, head, i]
        allowed = allowed & (np.arange(s) <= i) if causal else allowed
        if allowed.any():
            e = np.where(allowed, np.exp(scores - scores[allowed].max()), 0)
            y[n, head, i] = e / e.sum() @ v[n, group]
    return y


SHAPES = [
    ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)),
    ((1, 4, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2)),
    ((1, 3, 2, 2), (1, 1, 4, 2), (1, 1, 4, 5)),
]
BOOLEAN = np.array([[True, False, True], [False, False, False], [True, True, True]])
SETTINGS: list[Any] = [{}, {"causal": True}, {"scale": 0.3}]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_values(shapes: Any, settings: Any, dtype: str, agree: Callable[..., Any]) -> None:
    arrays = [random(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes)]
    wanted = attended(*(a.astype(np.float64) for a in arrays), **settings).astype(dtype)
    agree(
        lambda q, k, v: nn.attention(q, k, v, **settings), *arrays, wanted=wanted, rtol={"float16": 2e-3, "float32": 1e-5}.get(dtype, 1e-12)
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [BOOLEAN, BOOLEAN[None, None, :1], random(4, 1, 3, seed=9), np.where(BOOLEAN[2:], 0.0, -np.inf)])
def test_masks(mask: Any, causal: bool, agree: Callable[..., Any], slopes: Callable[..., None]) -> None:
    arrays = [random(*s, seed=i) for i, s in enumerate(SHAPES[1])]
    wanted = attended(*arrays, mask=mask, causal=causal)
    agree(lambda q, k, v, m: nn.attention(q, k, v, mask=m, causal=causal), *arrays, mask, wanted=wanted, rtol=1e-12)
    slopes(lambda q, k, v: nn.attention(q, k, v, mask=mask, causal=causal), *arrays)


def test_a_query_with_nothing_to_attend_to_gives_zeros() -> None:
    arrays = [random(*s, seed=i, dtype=np.float32) for i, s in enumerate(SHAPES[1])]

    def loss(q: Any, k: Any, v: Any) -> Any:
        return np.sum(nn.attention(q, k, v, mask=np.zeros((3, 3), bool)) ** 2)

    program = ons.stage(ons.value_and_grad(loss, argnums=(0, 1, 2)), *arrays)
    value, slopes = program(*arrays)
    assert value == 0 and all(np.array_equal(s, np.zeros_like(s)) for s in slopes)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_gradients(shapes: Any, settings: Any, slopes: Callable[..., None]) -> None:
    slopes(lambda q, k, v: nn.attention(q, k, v, **settings), *(random(*s, seed=i) for i, s in enumerate(shapes)))


def test_additive_masks_and_scales_have_gradients(slopes: Callable[..., None]) -> None:
    q, k, v = (random(*s, seed=i) for i, s in enumerate(SHAPES[0]))
    slopes(lambda m, s: nn.attention(q, k, v, mask=m, scale=s), random(3, 5, seed=5), np.float64(0.7))


def test_bfloat16_is_computed_in_float32() -> None:
    arrays = [random(*s, seed=i, dtype=ml_dtypes.bfloat16) for i, s in enumerate(SHAPES[1])]
    wanted = attended(*(a.astype(np.float64) for a in arrays))
    got = ons.stage(nn.attention, *arrays)(*arrays)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=1e-2, atol=1e-2)


def test_named_dims_at_other_sizes() -> None:
    specs = [ons.ArraySpec(("B", 4, "T", 2), "float32"), *[ons.ArraySpec(("B", 2, "S", 2), "float32")] * 2]
    program = ons.stage(lambda q, k, v: nn.attention(q, k, v, causal=True), specs=tuple(specs))
    slope = ons.stage(ons.grad(lambda q, k, v: np.sum(nn.attention(q, k, v, causal=True) ** 2)), specs=tuple(specs))
    for b, t, s in ((1, 3, 3), (2, 1, 4), (0, 2, 2), (2, 5, 2)):
        q, k, v = (
            random(b, 4, t, 2, dtype=np.float32),
            random(b, 2, s, 2, seed=1, dtype=np.float32),
            random(b, 2, s, 2, seed=2, dtype=np.float32),
        )
        np.testing.assert_allclose(program(q, k, v), attended(q, k, v, causal=True), rtol=1e-5, atol=1e-6)
        assert slope(q, k, v).shape == q.shape


def test_vmap() -> None:
    q, k, v = random(3, *SHAPES[1][0]), random(*SHAPES[1][1], seed=1), random(3, *SHAPES[1][2], seed=2)
    got = ons.stage(ons.vmap(nn.attention, in_axes=(0, None, 0)), q, k, v)(q, k, v)
    np.testing.assert_allclose(got, np.stack([attended(q[i], k, v[i]) for i in range(3)]), rtol=1e-10)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda q, k, v: nn.attention(q[0], k, v), ValueError, r"q is \[batch, heads, length, size\], got shape \[2, 3, 4\]"),
        (lambda q, k, v: nn.attention(q, k[:, :, :4], v), ValueError, "lengths of k and v differ"),
        (lambda q, k, v: nn.attention(q, k[..., :3], v), ValueError, "sizes of q and k differ"),
        (lambda q, k, v: nn.attention(q[:, :1], k, v), ValueError, "1 heads of q do not divide into 2 groups"),
        (lambda q, k, v: nn.attention(q, k, v, mask=np.ones((4, 5), bool)), ValueError, r"\[4, 5\], which does not broadcast"),
        (lambda q, k, v: nn.attention(q, k, v, mask=np.ones((3, 5), int)), TypeError, "boolean or floating, got i64"),
    ],
)
def test_messages(change: Any, error: Any, message: str) -> None:
    arrays = [random(*s, dtype=np.float32) for s in SHAPES[0]]
    for run in (lambda: change(*arrays), lambda: ons.stage(change, *arrays)):
        with pytest.raises(error, match=message):
            run()


def turned(x: Any, positions: Any, base: float, interleaved: bool) -> Any:
    """The definition: pairs of features as complex numbers."""
    size = x.shape[-1]
    angles = np.asarray(positions, np.float64)[..., None] * base ** (-np.arange(0, size, 2) / size)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., : size // 2], x[..., size // 2 :])
    z = (a + 1j * b) * np.exp(1j * angles)
    if interleaved:
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)
    return np.concatenate([z.real, z.imag], axis=-1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rotary(dtype: str, interleaved: bool, agree: Callable[..., Any]) -> None:
    x, positions = random(2, 3, 4, 6, dtype=dtype), np.array([0, 5, 99999, -2])
    tolerance = {"float16": 2e-3, "float32": 1e-6}.get(dtype, 1e-12)
    for base in (10000, 500.0):
        wanted = turned(x.astype(np.float64), positions, base, interleaved).astype(dtype)
        agree(lambda x, p, base=base: nn.rotary(x, p, base=base, interleaved=interleaved), x, positions, wanted=wanted, rtol=tolerance)
    each = np.arange(8).reshape(2, 4)
    wanted = turned(x.astype(np.float64), each[:, None], 10000, interleaved).astype(dtype)
    agree(lambda x, p: nn.rotary(x, p, interleaved=interleaved), x, each, wanted=wanted, rtol=tolerance)


def test_rotary_gradients_and_named_dims(slopes: Callable[..., None], agree: Callable[..., Any]) -> None:
    slopes(lambda x, p: nn.rotary(x, p), random(2, 3, 4), np.array([0.5, 1.0, 2.0]))
    x, positions = random(2, 3, 5, 4, dtype=np.float32), np.arange(5)
    agree(nn.rotary, x, positions, shapes=[("B", 3, "T", 4), ("T",)], wanted=turned(x, positions, 10000, False).astype(np.float32))


def test_scores_of_rotated_vectors_hang_on_the_distance_alone() -> None:
    q, k = random(1, 8), random(1, 8, seed=1)
    scores = [(nn.rotary(q, [i]) @ nn.rotary(k, [i + 3]).T).item() for i in (0, 7, 100)]
    np.testing.assert_allclose(scores, scores[0], rtol=1e-10)


def test_rotary_messages() -> None:
    with pytest.raises(ValueError, match=r"with an even size, got shape \[2, 3\]"):
        nn.rotary(np.ones((2, 3)), np.arange(2))
    with pytest.raises(ValueError, match=r"positions have shape \[3\], x has \[2, 4\]"):
        nn.rotary(np.ones((2, 4)), np.arange(3))
    with pytest.raises(ValueError, match=r"\[length\] or \[batch, length\] is needed"):
        nn.rotary(np.ones((2, 4)), np.ones((2, 2)))
