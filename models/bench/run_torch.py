"""The workloads in PyTorch, eager or with torch.compile; run as a process by the driver, without onstage in it."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

# The optimizers import it when the first is made: imports count in no system's time.
import torch._dynamo  # pyright: ignore[reportMissingImports, reportUnusedImport]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

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

Transform = Callable[[Any], Any]


def leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def parameters(tree: Any) -> Any:
    """The tree with tensors that take gradients; weights of dense layers as PyTorch keeps them, [outputs, inputs]."""
    if isinstance(tree, dict):
        return {k: parameters(v.T.copy() if k in ("w", "head") and getattr(v, "ndim", 0) == 2 else v) for k, v in tree.items()}
    if isinstance(tree, list):
        return [parameters(part) for part in tree]
    return torch.tensor(tree, requires_grad=True)


def dense(params: Any, x: Any) -> Any:
    return functional.linear(x, params["w"], params["b"])


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    *hidden, last = params
    for name in hidden:
        x = functional.relu(dense(params[name], x))
    return functional.cross_entropy(dense(params[last], x), y)


def cnn_loss(params: Any, x: Any, y: Any) -> Any:
    for name in ("conv1", "conv2"):
        x = functional.conv2d(x, params[name]["w"], params[name]["b"], padding=1)
        x = functional.max_pool2d(functional.relu(x), 2)
    x = functional.relu(dense(params["dense1"], x.flatten(1)))
    return functional.cross_entropy(dense(params["dense2"], x), y)


def layer_norm(params: Any, x: Any) -> Any:
    return functional.layer_norm(x, x.shape[-1:], params["scale"], params["bias"], LAYER_NORM_EPSILON)


def attention(params: Any, x: Any, heads: int) -> Any:
    batch, length, features = x.shape
    q, k, v = dense(params["qkv"], x).view(batch, length, 3, heads, features // heads).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return dense(params["project"], mixed.transpose(1, 2).reshape(batch, length, features))


def gpt_loss(heads: int) -> Callable[..., Any]:
    def loss(params: Any, ids: Any, targets: Any) -> Any:
        x = functional.embedding(ids, params["tokens"]) + params["positions"]
        for block in params["blocks"]:
            x = x + attention(block, layer_norm(block["norm1"], x), heads)
            hidden = functional.gelu(dense(block["expand"], layer_norm(block["norm2"], x)), approximate="tanh")
            x = x + dense(block["contract"], hidden)
        scores = functional.linear(layer_norm(params["norm"], x), params["head"])
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    return loss


def normal_cdf(x: Any) -> Any:
    return 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))


def call_price(spot: Any, volatility: Any, strike: Any, rate: Any, years: Any) -> Any:
    deviation = volatility * torch.sqrt(years)
    d1 = (torch.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / deviation
    return spot * normal_cdf(d1) - strike * torch.exp(-rate * years) * normal_cdf(d1 - deviation)


def rosenbrock(x: Any) -> Any:
    return torch.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


class Training:
    """A loss, its gradient, and an optimizer."""

    def __init__(self, transform: Transform, loss: Callable[..., Any], optimizer: Callable[[Any], Any], params: Any, *batch: Any) -> None:
        self.transform, self.function, self.make_optimizer, self.data, self.batch = transform, loss, optimizer, params, batch
        self.loss: Any = None

    def start(self) -> None:
        self.params = parameters(self.data)
        self.batch = tuple(torch.from_numpy(x) for x in self.batch)
        self.optimizer = self.make_optimizer(list(leaves(self.params)))
        self.program = self.transform(self.function)
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss = self.program(self.params, *self.batch)
        self.loss.backward()
        self.optimizer.step()

    def values(self) -> list[float]:
        return [float(self.loss.detach())]


class Options:
    """Prices and their gradients."""

    def __init__(self, transform: Transform, arrays: tuple[Any, ...]) -> None:
        self.transform, self.arrays = transform, arrays
        self.results: Any = ()

    def start(self) -> None:
        self.tensors = [torch.from_numpy(x) for x in self.arrays]
        for tensor in self.tensors[:2]:
            tensor.requires_grad_()
        self.program = self.transform(call_price)
        self.step()

    def step(self) -> None:
        price = self.program(*self.tensors)
        delta, vega = torch.autograd.grad(price.sum(), self.tensors[:2])
        self.results = price.detach(), delta, vega

    def values(self) -> list[float]:
        return [float(np.mean(x.numpy(), dtype=np.float64)) for x in self.results]


class Calls:
    """Rosenbrock's value and gradient, from NumPy arrays to NumPy arrays."""

    def __init__(self, transform: Transform, points: list[Any]) -> None:
        self.transform, self.points = transform, itertools.cycle(points)
        self.results: Any = ()

    def start(self) -> None:
        self.program = self.transform(rosenbrock)
        self.step()

    def step(self) -> None:
        x = torch.from_numpy(next(self.points)).requires_grad_()
        value = self.program(x)
        (gradient,) = torch.autograd.grad(value, x)
        self.results = value.detach().numpy(), gradient.numpy()

    def values(self) -> list[float]:
        value, gradient = self.results
        return [float(value), *map(float, gradient)]


def sgd(tensors: list[Any]) -> Any:
    return torch.optim.SGD(tensors, lr=LEARNING_RATE)


def adam(tensors: list[Any]) -> Any:
    return torch.optim.Adam(tensors, lr=ADAM_RATE, betas=ADAM_BETAS, eps=ADAM_EPSILON)


def make(sizes: Sizes, transform: Transform, workload: str) -> Work:
    if workload == "A":
        return Training(transform, mlp_loss, sgd, *mlp_data(sizes.mlp))
    if workload == "B":
        return Training(transform, cnn_loss, sgd, *cnn_data(sizes.cnn))
    if workload == "C":
        return Training(transform, gpt_loss(sizes.gpt.heads), adam, *gpt_data(sizes.gpt))
    if workload in ("D", "D64"):
        return Options(transform, option_data(sizes.options, np.float32 if workload == "D" else np.float64))
    return Calls(transform, rosenbrock_points(sizes.rosenbrock))


def phases(sizes: Sizes, transform: Transform) -> Answer:
    """Seconds of the first and second step of the MLP; there are no phases before them, and what compiles does so in the first step."""
    work = make(sizes, transform, "A")
    clock = Clock()
    work.start()
    found: Answer = {"first call": clock.read()}
    clock = Clock()
    work.step()
    return {**found, "step": clock.read()}


def main(size: str, transform: Transform) -> None:
    sizes = SIZES[size]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    versions = {"torch": torch.__version__, "numpy": np.__version__}
    serve(versions, lambda workload: make(sizes, transform, workload), {"phases": lambda: phases(sizes, transform)})


if __name__ == "__main__":
    main(sys.argv[1], lambda function: function)
