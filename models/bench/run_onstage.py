"""The workloads in onstage; run as a process by the driver."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import onstage as ons

from ...export._lazy import onnx, onnx_numpy_helper, onnxruntime
from ...export.runtime.session import automatic_level, make_session
from ...stage.config import current_options
from ..classifier import mlp_loss
from .data import SIZES, Sizes, cnn_data, gpt_data, mlp_data, option_data, rosenbrock_points
from .models import ADAM, chain, cnn_step, gpt_step, mlp_step, price_and_gradient, rosenbrock
from .worker import Answer, Clock, Work, serve


class Training:
    """A step of (state, *batch) -> (state, loss); the state goes from call to call."""

    def __init__(self, function: Callable[..., Any], state: Any, *batch: Any) -> None:
        self.function, self.state, self.batch = function, state, batch
        self.loss: Any = None

    def start(self) -> None:
        self.program = ons.stage(self.function, self.state, *self.batch)
        self.step()

    def step(self) -> None:
        self.state, self.loss = self.program(self.state, *self.batch)

    def values(self) -> list[float]:
        return [float(self.loss)]


class Evaluation:
    """A function of the same arrays at every call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments
        self.results: Any = ()

    def start(self) -> None:
        self.program = ons.stage(self.function, *self.arguments)
        self.step()

    def step(self) -> None:
        self.results = self.program(*self.arguments)

    def values(self) -> list[float]:
        return [float(np.mean(x, dtype=np.float64)) for x in self.results]


class Calls(Evaluation):
    """A function of one small array, another at every call."""

    def __init__(self, function: Callable[..., Any], points: list[Any]) -> None:
        super().__init__(function, points[0])
        self.points = itertools.cycle(points)

    def step(self) -> None:
        self.results = self.program(next(self.points))

    def values(self) -> list[float]:
        value, gradient = self.results
        return [float(value), *map(float, gradient)]


def make(sizes: Sizes, workload: str) -> Work:
    if workload == "A":
        return Training(mlp_step, *mlp_data(sizes.mlp))
    if workload == "B":
        return Training(cnn_step, *cnn_data(sizes.cnn))
    if workload == "C":
        params, ids, targets = gpt_data(sizes.gpt)
        return Training(gpt_step(sizes.gpt.heads), (params, ADAM.init(params)), ids, targets)
    if workload in ("D", "D64"):
        return Evaluation(price_and_gradient, *option_data(sizes.options, np.float32 if workload == "D" else np.float64))
    return Calls(ons.value_and_grad(rosenbrock), rosenbrock_points(sizes.rosenbrock))


def phases(sizes: Sizes) -> Answer:
    """Seconds of each phase from the MLP's functions to its second step."""
    params, x, y = mlp_data(sizes.mlp)
    found: Answer = {}
    clock = Clock()
    ons.stage(mlp_loss, params, x, y)
    found["stage forward"] = clock.read()
    clock = Clock()
    program = ons.stage(mlp_step, params, x, y)
    found["stage step"] = clock.read()
    _prepare(program, found)
    clock = Clock()
    model = program.to_onnx(target="onnxruntime")
    found["lower"] = clock.read()
    clock = Clock()
    _session(model)
    found["compile"] = clock.read()
    clock = Clock()
    params, _ = program(params, x, y)
    found["first call"] = clock.read()
    clock = Clock()
    program(params, x, y)
    found["step"] = clock.read()
    return found


def _prepare(program: ons.StagedProgram, found: Answer) -> None:
    """What comes between staging and lowering; the program keeps both."""
    clock = Clock()
    len(program.hash)
    found["hash"] = clock.read()
    clock = Clock()
    len(program.optimized)
    found["passes"] = clock.read()


def _session(model: Any) -> Any:
    return make_session(model.SerializeToString(), current_options(), level=automatic_level(len(model.graph.node)))


def growth(equations: int) -> Answer:
    """Seconds of each phase for a chain of about that many equations and its gradient, and what they made."""
    x = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    function = chain(equations)
    clock = Clock()
    forward = ons.stage(function, x)
    found: Answer = {"stage forward": clock.read()}
    clock = Clock()
    program = ons.stage(ons.value_and_grad(function), x)
    found["stage step"] = clock.read()
    _prepare(program, found)
    clock = Clock()
    model = program.to_onnx(target="onnxruntime")
    found["lower"] = clock.read()
    clock = Clock()
    _session(model)
    found["compile"] = clock.read()
    counts = {"forward": len(forward.program.equations), "final": len(program.program.equations), "nodes": len(model.graph.node)}
    return {"seconds": found, "equations": counts}


def main(size: str) -> None:
    sizes = SIZES[size]
    # Imported at their first use otherwise: imports count in no system's time.
    onnx.load()
    onnx_numpy_helper.load()
    onnxruntime.load()
    serve(
        {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__, "numpy": np.__version__},
        lambda workload: make(sizes, workload),
        {"phases": lambda: phases(sizes), "growth": growth},
    )


if __name__ == "__main__":
    main(sys.argv[1])
