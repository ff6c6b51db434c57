"""What is measured: the workloads, their sizes, and the NumPy parameters and batches that every system starts from."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

Tree = Any


class Workload(NamedTuple):
    """calls, quick_calls: how many calls one round times."""

    title: str
    calls: int
    quick_calls: int


# The workloads whose time per call is measured, by the name that --workloads takes.
WORKLOADS: Final = {
    "A": Workload("MLP 784-512-512-10, batch 128, SGD step", 100, 5),
    "B": Workload("CNN 28x28, batch 64, SGD step", 30, 2),
    "C": Workload("GPT 4 x 256, 4 heads, batch 8 x 128, Adam step", 10, 1),
    "D": Workload("Black-Scholes price and gradient, 1e6 options, f32", 20, 2),
    "D64": Workload("Black-Scholes price and gradient, 1e6 options, f64", 20, 2),
    "E": Workload("Rosenbrock, 10 dimensions, value and gradient, NumPy in and out", 10_000, 200),
}

LEARNING_RATE: Final = 0.1
# Adam's, as PyTorch has them.
ADAM_RATE: Final = 1e-3
ADAM_BETAS: Final = (0.9, 0.999)
ADAM_EPSILON: Final = 1e-8
LAYER_NORM_EPSILON: Final = 1e-5
ROSENBROCK_POINTS: Final = 16


class MlpSize(NamedTuple):
    layers: tuple[int, ...]
    batch: int


class CnnSize(NamedTuple):
    """image: height and width; channels of the two convolutions; hidden: of the dense layer."""

    image: int
    channels: tuple[int, int]
    hidden: int
    batch: int


class GptSize(NamedTuple):
    blocks: int
    features: int
    heads: int
    length: int
    batch: int
    vocabulary: int


class Sizes(NamedTuple):
    mlp: MlpSize
    cnn: CnnSize
    gpt: GptSize
    options: int
    rosenbrock: int
    growth: tuple[int, ...]


SIZES: Final = {
    "full": Sizes(
        MlpSize((784, 512, 512, 10), 128),
        CnnSize(28, (32, 64), 128, 64),
        GptSize(4, 256, 4, 128, 8, 512),
        1_000_000,
        10,
        (100, 1_000, 10_000),
    ),
    "tiny": Sizes(MlpSize((6, 5, 3), 4), CnnSize(8, (2, 3), 4, 2), GptSize(1, 8, 2, 4, 2, 7), 50, 3, (10, 20)),
}


def normal(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Any:
    return rng.normal(0.0, deviation, shape).astype(np.float32)


def dense(rng: np.random.Generator, inputs: int, outputs: int) -> Tree:
    """w: [inputs, outputs], b: [outputs]."""
    return {"w": normal(rng, (inputs, outputs), (2.0 / inputs) ** 0.5), "b": np.zeros(outputs, np.float32)}


def mlp_data(size: MlpSize) -> tuple[Tree, Any, Any]:
    """(params, x: [batch, features] f32, y: [batch] int64)."""
    rng = np.random.default_rng(0)
    layers = size.layers
    params = {f"layer{i + 1}": dense(rng, layers[i], layers[i + 1]) for i in range(len(layers) - 1)}
    return params, normal(rng, (size.batch, layers[0]), 1.0), rng.integers(0, layers[-1], size.batch)


def cnn_data(size: CnnSize) -> tuple[Tree, Any, Any]:
    """(params, images: [batch, 1, height, width] f32, y: [batch] int64 below 10). Convolutions have w: [out, in, 3, 3]."""
    rng = np.random.default_rng(1)
    first, second = size.channels
    flat = second * (size.image // 4) ** 2
    params = {
        "conv1": {"w": normal(rng, (first, 1, 3, 3), (2 / 9) ** 0.5), "b": np.zeros(first, np.float32)},
        "conv2": {"w": normal(rng, (second, first, 3, 3), (2 / (9 * first)) ** 0.5), "b": np.zeros(second, np.float32)},
        "dense1": dense(rng, flat, size.hidden),
        "dense2": dense(rng, size.hidden, 10),
    }
    return params, normal(rng, (size.batch, 1, size.image, size.image), 1.0), rng.integers(0, 10, size.batch)


def gpt_data(size: GptSize) -> tuple[Tree, Any, Any]:
    """(params, ids: [batch, length] int64, targets: [batch, length] int64)."""
    rng = np.random.default_rng(2)
    d = size.features

    def norm() -> Tree:
        return {"scale": np.ones(d, np.float32), "bias": np.zeros(d, np.float32)}

    def linear(inputs: int, outputs: int) -> Tree:
        return {"w": normal(rng, (inputs, outputs), 0.02), "b": np.zeros(outputs, np.float32)}

    def block() -> Tree:
        return {
            "norm1": norm(),
            "qkv": linear(d, 3 * d),
            "project": linear(d, d),
            "norm2": norm(),
            "expand": linear(d, 4 * d),
            "contract": linear(4 * d, d),
        }

    params = {
        "tokens": normal(rng, (size.vocabulary, d), 0.02),
        "positions": normal(rng, (size.length, d), 0.02),
        "blocks": [block() for _ in range(size.blocks)],
        "norm": norm(),
        "head": normal(rng, (d, size.vocabulary), 0.02),
    }
    ids = rng.integers(0, size.vocabulary, (size.batch, size.length + 1))
    return params, np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])


def option_data(count: int, dtype: Any) -> tuple[Any, ...]:
    """(spot, volatility, strike, rate, years), all [count]."""
    rng = np.random.default_rng(3)
    ranges = ((60, 140), (0.1, 0.6), (80, 120), (0.0, 0.08), (0.2, 3.0))
    return tuple(rng.uniform(low, high, count).astype(dtype) for low, high in ranges)


def rosenbrock_points(dimensions: int) -> list[Any]:
    rng = np.random.default_rng(4)
    return [normal(rng, (dimensions,), 1.0) for _ in range(ROSENBROCK_POINTS)]
