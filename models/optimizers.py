"""Optimisers as pure functions on trees of arrays.

optimizer = adam(1e-3)
state = optimizer.init(params)
params, state = optimizer.update(params, gradients, state)      # inside a staged step
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import onstage as ons


class Optimizer(NamedTuple):
    """init: params -> state; update: (params, gradients, state) -> (params, state). All are trees of arrays."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


def sgd(learning_rate: float, momentum: float = 0.0, nesterov: bool = False) -> Optimizer:
    """Gradient descent; with momentum the velocity decays by that factor and the gradient is added to it (Sutskever et al., 2013)."""
    if not 0 <= momentum < 1:
        raise ValueError(f"sgd: momentum lies in [0, 1), got {momentum}")

    def init(params: Any) -> Any:
        return {"velocity": ons.tree.map(np.zeros_like, params)} if momentum else {}

    def update(params: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
        if not momentum:
            return ons.tree.map(lambda p, g: p - learning_rate * g, params, gradients), state
        velocity = ons.tree.map(lambda v, g: momentum * v + g, state["velocity"], gradients)
        direction = ons.tree.map(lambda v, g: g + momentum * v, velocity, gradients) if nesterov else velocity
        return ons.tree.map(lambda p, d: p - learning_rate * d, params, direction), {"velocity": velocity}

    return Optimizer(init, update)


def adam(
    learning_rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.0
) -> Optimizer:
    """Adam (Kingma and Ba, 2015, arXiv 1412.6980), with decoupled weight decay (Loshchilov and Hutter, 2019, arXiv 1711.05101).

    state: the step count, an int32 scalar, and the two moments, trees like params.
    """
    if not (0 < beta1 < 1 and 0 < beta2 < 1):
        raise ValueError(f"adam: beta1 and beta2 lie in (0, 1), got {beta1} and {beta2}")

    def init(params: Any) -> Any:
        zeros = ons.tree.map(np.zeros_like, params)
        return {"step": np.int32(0), "first": zeros, "second": ons.tree.map(np.zeros_like, params)}

    def update(params: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
        step = state["step"] + 1
        t = step.astype(np.float32)
        # 1 - beta**t without cancellation; both corrections go into scalars, so that each parameter is passed over once
        correction1 = -np.expm1(t * math.log(beta1))
        correction2 = np.sqrt(-np.expm1(t * math.log(beta2)))
        rate = learning_rate * correction2 / correction1
        floor = epsilon * correction2
        first = ons.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["first"], gradients)
        second = ons.tree.map(lambda v, g: beta2 * v + (1 - beta2) * (g * g), state["second"], gradients)

        def moved(p: Any, m: Any, v: Any) -> Any:
            kept = p * (1 - learning_rate * weight_decay) if weight_decay else p
            return kept - rate.astype(p.dtype) * m / (np.sqrt(v) + floor.astype(p.dtype))

        new = ons.tree.map(moved, params, first, second)
        return new, {"step": step, "first": first, "second": second}

    return Optimizer(init, update)
