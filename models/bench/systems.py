"""The systems that are compared. Each takes the MLP training step apart into phases and gives a function that runs one step."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import onstage as ons

from . import data

Phases = dict[str, float]
Step = Callable[[], float]


class Clock:
    """CPU seconds of the phases of a set-up."""

    def __init__(self) -> None:
        self.phases: Phases = {}
        self._last = time.process_time()

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.phases[name] = now - self._last
        self._last = now


def onstage_mlp(threads: int) -> tuple[Phases, Step]:
    """Plain NumPy source, staged with its gradient and update, run by ONNX Runtime."""
    ons.config.threads = threads
    params, x, y = data.mlp()

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = ons.nn.relu(x @ w + b)
        w, b = params[-1]
        return ons.nn.cross_entropy(x @ w + b, y)

    def step(params: Any, x: Any, y: Any) -> Any:
        value, gradients = ons.value_and_grad(loss)(params, x, y)
        return ons.tree.map(lambda p, g: p - data.LEARNING_RATE * g, params, gradients), value

    clock = Clock()
    ons.stage(loss, params, x, y)
    clock.lap("staging the loss")
    program = ons.stage(step, params, x, y)
    clock.lap("staging with gradient and update")
    program.to_onnx()
    clock.lap("lowering")
    program(params, x, y)
    clock.lap("session and first step")
    state = {"params": params}

    def run() -> float:
        state["params"], value = program(state["params"], x, y)
        return float(value)

    return clock.phases, run


def jax_mlp(threads: int) -> tuple[Phases, Step]:
    """The same in JAX, jitted."""
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    params, x, y = data.mlp()

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        scores = jax.nn.log_softmax(x @ w + b)
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

    def step(params: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - data.LEARNING_RATE * g, params, gradients), value

    placed = jax.device_put((params, x, y))
    clock = Clock()
    jax.make_jaxpr(loss)(*placed)
    clock.lap("staging the loss")
    jitted = jax.jit(step)
    lowered = jitted.lower(*placed)
    clock.lap("staging with gradient and update")
    compiled = lowered.compile()
    clock.lap("lowering")
    jax.block_until_ready(compiled(*placed))
    clock.lap("session and first step")
    state = {"params": placed[0]}

    def run() -> float:
        state["params"], value = compiled(state["params"], placed[1], placed[2])
        jax.block_until_ready(state["params"])
        return float(value)

    return clock.phases, run


def torch_mlp(threads: int) -> tuple[Phases, Step]:
    """The same in eager PyTorch: nothing is staged."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    params, x, y = data.mlp()
    tensors = [[torch.tensor(a, requires_grad=True) for a in layer] for layer in params]
    flat = [t for layer in tensors for t in layer]
    inputs, labels = torch.tensor(x), torch.tensor(y)

    def run() -> float:
        h = inputs
        for w, b in tensors[:-1]:
            h = torch.relu(h @ w + b)
        w, b = tensors[-1]
        value = torch.nn.functional.cross_entropy(h @ w + b, labels)
        gradients = torch.autograd.grad(value, flat)
        with torch.no_grad():
            for t, g in zip(flat, gradients, strict=True):
                t -= data.LEARNING_RATE * g
        return float(value.detach())

    clock = Clock()
    run()
    clock.lap("session and first step")
    return clock.phases, run


def staging_costs() -> dict[str, dict[str, float]]:
    """Microseconds of CPU an equation of the final Program, at growing sizes: staging with gradient, passes and hash, lowering."""
    table: dict[str, dict[str, float]] = {}
    for equations in (100, 1_000, 10_000):

        def chain(x: Any, n: int = equations // 3) -> Any:
            for i in range(n):
                x = x * 0.5 + 1.0 if i % 2 else np.tanh(x)
            return np.sum(x)

        clock = Clock()
        program = ons.stage(ons.grad(chain), np.ones(4, np.float32))
        clock.lap("staging with gradient")
        len(program.hash)
        program.optimized  # noqa: B018, runs the passes
        clock.lap("hash and passes")
        program.to_onnx()
        clock.lap("lowering")
        count = len(program.program.equations)
        table[str(count)] = {name: 1e6 * seconds / count for name, seconds in clock.phases.items()}
    return table


SYSTEMS: dict[str, Callable[[int], tuple[Phases, Step]]] = {"onstage": onstage_mlp, "jax": jax_mlp, "torch": torch_mlp}
