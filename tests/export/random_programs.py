"""Random honest programs for the tests of verification: expressions, gradients and training steps in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import onstage as ons
from onstage import nn

Array = Any


class Drawn(NamedTuple):
    """A function and arguments for it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


def draw(seed: int) -> Drawn:
    """The random program of a seed."""
    rng = np.random.default_rng(seed)
    kind = ("expression", "expression", "gradient", "mlp", "attention", "integers")[seed % 6]
    dtype = np.dtype(
        rng.choice(["float32", "float32", "float64", "float16"] if kind in ("expression", "gradient") else ["float32", "float64"])
    )
    return {
        "expression": _expression,
        "gradient": _gradient,
        "mlp": _mlp,
        "attention": _attention,
        "integers": _integers,
    }[kind](rng, dtype, seed)


def _choices(rng: np.random.Generator, steps: int) -> list[tuple[int, int, int, int]]:
    return [tuple(int(i) for i in rng.integers(0, 1 << 30, 4)) for _ in range(steps)]  # type: ignore[misc]


UNARY: list[Callable[[Array], Array]] = [
    np.tanh,
    lambda x: np.exp(-np.abs(x)),
    lambda x: np.sqrt(np.abs(x) + 1),
    lambda x: np.sin(x * 2),
    np.negative,
    lambda x: x * x,
    lambda x: np.maximum(x, 0),
    lambda x: nn.sigmoid(x),
    lambda x: nn.gelu(x),
    lambda x: 1 / (1 + x * x),
    lambda x: x.astype(np.float16).astype(x.dtype),
    lambda x: np.log1p(np.abs(x)),
    lambda x: np.clip(x, -1.5, 0.75),
    lambda x: x - np.mean(x, axis=-1, keepdims=True),
    lambda x: nn.softmax(x, axis=-1),
    lambda x: np.cumsum(x, axis=0),
    lambda x: x[::-1],
    lambda x: x[[2, 0, 2, 1]],
    lambda x: np.concatenate([x[1:], x[:1] * 0.5], axis=0),
    lambda x: np.where(x > 0.1, x, 0.3 * x),
    lambda x: x / (np.sum(np.abs(x), axis=0) + 1),
    lambda x: x - np.max(x, axis=1, keepdims=True),
    lambda x: np.reshape(np.transpose(x), x.shape),
    lambda x: np.prod(x[:2], axis=0) + x,
    lambda x: np.stack([x, x + 1], axis=0)[1],
    lambda x: np.pad(x, ((0, 0), (1, 1)))[:, : x.shape[1]],
]
STEPS: list[Callable[[Array], Array]] = [
    lambda x: np.floor(np.exp(x)),
    lambda x: np.sign(x) * x,
    lambda x: np.round(x * 4) / 4,
    lambda x: (x > np.mean(x)).astype(x.dtype) * x,
    lambda x: np.argmax(x, axis=1).astype(x.dtype)[:, None] + x,
    lambda x: np.sort(x, axis=0),
    lambda x: x % 0.7,
    lambda x: (x * 10).astype(np.int32).astype(x.dtype),
]
BINARY: list[Callable[[Array, Array], Array]] = [
    np.add,
    np.subtract,
    np.multiply,
    lambda x, y: x / (np.abs(y) + 1),
    np.maximum,
    np.minimum,
    lambda x, y: np.where(x > y, x, y * 0.5),
    lambda x, y: x @ np.transpose(y) @ x * 0.1,
    lambda x, y: np.einsum("ij,ij->i", x, y)[:, None] + x,
    lambda x, y: np.hypot(x, y),
    lambda x, y: x + y[:, :1],
]


def _body(rng: np.random.Generator, smooth: bool, steps: int) -> Callable[..., Any]:
    choices = _choices(rng, steps)
    unary = UNARY if smooth else UNARY + STEPS * 2

    def function(*xs: Array) -> Array:
        pool = list(xs)
        for a, b, c, d in choices:
            x, y = pool[-1 - a % min(3, len(pool))], pool[b % len(pool)]
            if c % 3 and len(pool) > 1:
                value = BINARY[d % len(BINARY)](x, y)
            else:
                value = unary[d % len(unary)](x)
            pool.append(value if value.shape == xs[0].shape else value[: xs[0].shape[0]])
        return pool[-1], pool[-2]

    return function


def _values(rng: np.random.Generator, dtype: Any, count: int = 2) -> tuple[Any, ...]:
    shape = (4, int(rng.integers(2, 7)))
    return tuple(rng.normal(size=shape).astype(dtype) for _ in range(count))


def _expression(rng: np.random.Generator, dtype: Any, seed: int) -> Drawn:
    return Drawn(f"expression{seed}", _body(rng, False, int(rng.integers(3, 14))), _values(rng, dtype))


def _gradient(rng: np.random.Generator, dtype: Any, seed: int) -> Drawn:
    body = _body(rng, True, int(rng.integers(3, 10)))
    rate = float(rng.choice([1e-1, 1e-4]))

    def step(x: Array, y: Array) -> Any:
        gradient = ons.grad(lambda v: np.mean(body(v, y)[0] ** 2))(x)
        return x - x.dtype.type(rate) * gradient

    return Drawn(f"gradient{seed}", step, _values(rng, dtype))


def _mlp(rng: np.random.Generator, dtype: Any, seed: int) -> Drawn:
    sizes = [int(n) for n in rng.integers(2, 9, 3)]
    batch = int(rng.integers(2, 8))
    activation = [np.tanh, nn.relu, nn.gelu, nn.sigmoid][int(rng.integers(4))]
    rate = float(rng.choice([1e-1, 1e-3, 1e-8]))
    adam = bool(rng.integers(2))
    labels = rng.integers(0, sizes[2], batch)
    params = {
        "w1": rng.normal(size=sizes[:2]).astype(dtype),
        "b1": rng.normal(size=sizes[1]).astype(dtype),
        "w2": rng.normal(size=sizes[1:]).astype(dtype),
        "b2": np.zeros(sizes[2], dtype),
    }
    x = rng.normal(size=(batch, sizes[0])).astype(dtype)

    def loss(p: Any, x: Array, y: Array) -> Array:
        hidden = activation(x @ p["w1"] + p["b1"])
        return nn.cross_entropy(hidden @ p["w2"] + p["b2"], y)

    def sgd(p: Any, x: Array, y: Array) -> Any:
        value, grads = ons.value_and_grad(loss)(p, x, y)
        return {k: p[k] - rate * grads[k] for k in p}, value

    def adam_step(p: Any, m: Any, v: Any, t: Array, x: Array, y: Array) -> Any:
        value, g = ons.value_and_grad(loss)(p, x, y)
        m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
        v = {k: 0.999 * v[k] + 0.001 * g[k] * g[k] for k in p}
        scale = np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        return {k: p[k] - rate * scale * m[k] / (np.sqrt(v[k]) + 1e-8) for k in p}, m, v, t + 1, value

    if not adam:
        return Drawn(f"sgd{seed}", sgd, (params, x, labels))
    m = {k: rng.normal(size=w.shape).astype(dtype) for k, w in params.items()}
    v = {k: np.square(rng.normal(size=w.shape)).astype(dtype) for k, w in params.items()}
    return Drawn(f"adam{seed}", adam_step, (params, m, v, np.asarray(3.0, dtype), x, labels))


def _attention(rng: np.random.Generator, dtype: Any, seed: int) -> Drawn:
    batch, time, width = int(rng.integers(1, 3)), int(rng.integers(2, 6)), int(rng.integers(2, 5))
    weights = {k: rng.normal(size=(width, width)).astype(dtype) for k in "qkvo"}
    x = rng.normal(size=(batch, time, width)).astype(dtype)
    rate = float(rng.choice([1e-1, 1e-6]))

    def loss(w: Any, x: Array) -> Array:
        normal = nn.layer_norm(x)
        q, k, v = normal @ w["q"], normal @ w["k"], normal @ w["v"]
        scores = q @ np.swapaxes(k, -1, -2) / width**0.5
        mask = np.tri(time, dtype=bool)
        scores = np.where(mask, scores, -1e9)
        return np.mean((x + nn.softmax(scores, axis=-1) @ v @ w["o"]) ** 2)

    def step(w: Any, x: Array) -> Any:
        value, grads = ons.value_and_grad(loss)(w, x)
        return {k: w[k] - rate * grads[k] for k in w}, value

    return Drawn(f"attention{seed}", step, (weights, x))


def _integers(rng: np.random.Generator, dtype: Any, seed: int) -> Drawn:
    table = rng.normal(size=(6, 3)).astype(dtype)
    index = rng.integers(-6, 6, (4,))
    count = rng.integers(-9, 9, (4,)).astype(np.int32)
    choice = int(rng.integers(4))

    def function(table: Array, index: Array, count: Array) -> Any:
        rows = table[index]
        whole = [count // 3, count % 4, count * 7 - 2, np.maximum(count, index.astype(np.int32))][choice]
        kept = np.sum(rows * whole.astype(rows.dtype)[:, None], axis=0)
        return (
            kept,
            whole,
            np.argmax(rows, axis=0),
            ons.grad(lambda t: np.sum(np.sin(t[index]) * kept))(table),
        )

    return Drawn(f"integers{seed}", function, (table, index, count))
