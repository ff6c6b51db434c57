"""The workloads in jitted JAX; run as a process by the driver, without onstage in it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

from .data import (
    ADAM_BETAS,
    ADAM_EPSILON,
    ADAM_RATE,
    LAYER_NORM_EPSILON,
    LEARNING_RATE,
    SIZES,
    Sizes,
    cnn_data,
    gpt_data,
    mlp_data,
    option_data,
    rosenbrock_points,
)
from .worker import Answer, Clock, Work, serve


def cross_entropy(scores: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], -1))


def dense(params: Any, x: Any) -> Any:
    return x @ params["w"] + params["b"]


def sgd_step(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, x: Any, y: Any) -> tuple[Any, Any]:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradients), value

    return step


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    *hidden, last = params
    for name in hidden:
        x = jax.nn.relu(dense(params[name], x))
    return cross_entropy(dense(params[last], x), y)


def channels_last(params: Any, image: int) -> Any:
    """The CNN's parameters for images [N, H, W, C], which XLA's CPU kernels are written for."""
    convolutions = {n: {"w": params[n]["w"].transpose(2, 3, 1, 0), "b": params[n]["b"]} for n in ("conv1", "conv2")}
    w = params["dense1"]["w"]
    side = image // 4
    w = w.reshape(-1, side, side, w.shape[1]).transpose(1, 2, 0, 3).reshape(w.shape)
    return {**params, **convolutions, "dense1": {"w": w, "b": params["dense1"]["b"]}}


def convolution(params: Any, x: Any) -> Any:
    x = jax.lax.conv_general_dilated(x, params["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + params["b"]
    return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn_loss(params: Any, x: Any, y: Any) -> Any:
    x = convolution(params["conv2"], convolution(params["conv1"], x))
    x = jax.nn.relu(dense(params["dense1"], x.reshape(x.shape[0], -1)))
    return cross_entropy(dense(params["dense2"], x), y)


def layer_norm(params: Any, x: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(centred * centred, -1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * params["scale"] + params["bias"]


def attention(params: Any, x: Any, heads: int) -> Any:
    batch, length, features = x.shape
    size = features // heads
    q, k, v = dense(params["qkv"], x).reshape(batch, length, 3, heads, size).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) * (1.0 / math.sqrt(size))
    weights = jax.nn.softmax(jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf))
    return dense(params["project"], (weights @ v).swapaxes(1, 2).reshape(batch, length, features))


def gpt_step(heads: int) -> Callable[..., Any]:
    def loss(params: Any, ids: Any, targets: Any) -> Any:
        x = params["tokens"][ids] + params["positions"]
        for block in params["blocks"]:
            x = x + attention(block, layer_norm(block["norm1"], x), heads)
            hidden = jax.nn.gelu(dense(block["expand"], layer_norm(block["norm2"], x)), approximate=True)
            x = x + dense(block["contract"], hidden)
        return cross_entropy(layer_norm(params["norm"], x) @ params["head"], targets)

    def step(carried: Any, ids: Any, targets: Any) -> tuple[Any, Any]:
        params, count, first, second = carried
        value, gradients = jax.value_and_grad(loss)(params, ids, targets)
        beta1, beta2 = ADAM_BETAS
        count = count + 1
        t = count.astype(jnp.float32)
        correction1 = 1 - beta1**t
        correction2 = jnp.sqrt(1 - beta2**t)
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, gradients)
        rate, floor = ADAM_RATE * correction2 / correction1, ADAM_EPSILON * correction2
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + floor), params, first, second)
        return (params, count, first, second), value

    return step


def normal_cdf(x: Any) -> Any:
    return 0.5 * (1.0 + jax.scipy.special.erf(x * math.sqrt(0.5)))


def price_and_gradient(spot: Any, volatility: Any, strike: Any, rate: Any, years: Any) -> tuple[Any, Any, Any]:
    def total(spot: Any, volatility: Any) -> tuple[Any, Any]:
        deviation = volatility * jnp.sqrt(years)
        d1 = (jnp.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / deviation
        price = spot * normal_cdf(d1) - strike * jnp.exp(-rate * years) * normal_cdf(d1 - deviation)
        return jnp.sum(price), price

    (_, price), (delta, vega) = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(spot, volatility)
    return price, delta, vega


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


class Training:
    """A jitted step of (state, *batch) -> (state, loss) on device arrays."""

    def __init__(self, function: Callable[..., Any], state: Any, *batch: Any) -> None:
        self.function, self.state, self.batch = function, state, batch
        self.loss: Any = None

    def start(self) -> None:
        self.program = jax.jit(self.function)
        self.state, self.batch = jax.device_put((self.state, self.batch))
        self.step()

    def step(self) -> None:
        self.state, self.loss = jax.block_until_ready(self.program(self.state, *self.batch))

    def values(self) -> list[float]:
        return [float(self.loss)]


class Evaluation:
    """A jitted function of the same device arrays at every call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments
        self.results: Any = ()

    def start(self) -> None:
        self.program = jax.jit(self.function)
        self.arguments = jax.device_put(self.arguments)
        self.step()

    def step(self) -> None:
        self.results = jax.block_until_ready(self.program(*self.arguments))

    def values(self) -> list[float]:
        return [float(np.mean(np.asarray(x), dtype=np.float64)) for x in self.results]


class Calls(Evaluation):
    """A jitted function from NumPy arrays to NumPy arrays."""

    def __init__(self, function: Callable[..., Any], points: list[Any]) -> None:
        super().__init__(function, points[0])
        self.points = itertools.cycle(points)

    def start(self) -> None:
        self.program = jax.jit(self.function)
        self.step()

    def step(self) -> None:
        value, gradient = self.program(next(self.points))
        self.results = np.asarray(value), np.asarray(gradient)

    def values(self) -> list[float]:
        value, gradient = self.results
        return [float(value), *map(float, gradient)]


def make(sizes: Sizes, workload: str) -> Work:
    if workload == "A":
        return Training(sgd_step(mlp_loss), *mlp_data(sizes.mlp))
    if workload == "B":
        params, x, y = cnn_data(sizes.cnn)
        return Training(sgd_step(cnn_loss), channels_last(params, sizes.cnn.image), np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y)
    if workload == "C":
        params, ids, targets = gpt_data(sizes.gpt)
        zeros = jax.tree.map(np.zeros_like, params)
        return Training(gpt_step(sizes.gpt.heads), (params, np.int32(0), zeros, zeros), ids, targets)
    if workload == "D64":
        jax.config.update("jax_enable_x64", True)
    if workload in ("D", "D64"):
        return Evaluation(price_and_gradient, *option_data(sizes.options, np.float32 if workload == "D" else np.float64))
    return Calls(jax.value_and_grad(rosenbrock), rosenbrock_points(sizes.rosenbrock))


def phases(sizes: Sizes) -> Answer:
    """Seconds of each phase from the MLP's functions to its second step."""
    params, x, y = mlp_data(sizes.mlp)
    found: Answer = {}
    clock = Clock()
    jax.jit(mlp_loss).trace(params, x, y)
    found["stage forward"] = clock.read()
    clock = Clock()
    traced = jax.jit(sgd_step(mlp_loss)).trace(params, x, y)
    found["stage step"] = clock.read()
    clock = Clock()
    lowered = traced.lower()
    found["lower"] = clock.read()
    clock = Clock()
    program = lowered.compile()
    found["compile"] = clock.read()
    params, x, y = jax.block_until_ready(jax.device_put((params, x, y)))
    clock = Clock()
    params, _ = jax.block_until_ready(program(params, x, y))
    found["first call"] = clock.read()
    clock = Clock()
    jax.block_until_ready(program(params, x, y))
    found["step"] = clock.read()
    return found


def main(size: str) -> None:
    sizes = SIZES[size]
    # Makes the backend, which counts as an import.
    jax.devices()
    versions = {"jax": jax.__version__, "numpy": np.__version__}
    serve(versions, lambda workload: make(sizes, workload), {"phases": lambda: phases(sizes)})


if __name__ == "__main__":
    main(sys.argv[1])
