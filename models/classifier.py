"""A multi-layer perceptron that classifies, its training step and its predictor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import onstage as ons

from .layers import Params, dense, dense_init
from .optimizers import Optimizer


def mlp_init(rng: np.random.Generator, sizes: Sequence[int], dtype: Any = np.float32) -> dict[str, Params]:
    """Parameters of dense layers between the given numbers of features: `{"layer1": {"w", "b"}, "layer2": ...}`."""
    if len(sizes) < 2:
        raise ValueError(f"mlp_init: an input and an output size at least are needed, got {list(sizes)}")
    return {f"layer{i + 1}": dense_init(rng, sizes[i], sizes[i + 1], dtype) for i in range(len(sizes) - 1)}


def mlp(params: dict[str, Params], x: Any) -> Any:
    """Class scores of rows of features: [B, features] to [B, classes]; relu between the layers."""
    layers = list(params)
    for name in layers[:-1]:
        with ons.scope(name):
            x = ons.nn.relu(dense(params[name], x))
    with ons.scope(layers[-1]):
        return dense(params[layers[-1]], x)


def mlp_loss(params: dict[str, Params], x: Any, y: Any) -> Any:
    """The mean cross-entropy of integer labels y: [B]."""
    return ons.nn.cross_entropy(mlp(params, x), y)


def training_step(loss: Callable[..., Any], optimizer: Optimizer) -> Callable[..., dict[str, Any]]:
    """A function of (params, state, *batch) that gives the new params and state and the loss before the step."""

    def step(params: Any, state: Any, x: Any, y: Any) -> dict[str, Any]:
        value, gradients = ons.value_and_grad(loss)(params, x, y)
        with ons.scope("optimizer"):
            params, state = optimizer.update(params, gradients, state)
        return {"params": params, "state": state, "loss": value}

    return step


def predict(params: dict[str, Params], x: Any) -> dict[str, Any]:
    """`probability`: [B, classes] and `label`: [B], the most probable class."""
    scores = mlp(params, x)
    return {"probability": ons.nn.softmax(scores), "label": np.argmax(scores, axis=-1)}
