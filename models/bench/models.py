"""The workloads in plain NumPy with onstage's public API."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import onstage as ons

from ..classifier import mlp_loss
from ..layers import Params, dense, layer_norm
from ..optimizers import adam, sgd
from .data import ADAM_BETAS, ADAM_EPSILON, ADAM_RATE, LEARNING_RATE

SGD = sgd(LEARNING_RATE)
ADAM = adam(ADAM_RATE, *ADAM_BETAS, epsilon=ADAM_EPSILON)


def mlp_step(params: Params, x: Any, y: Any) -> tuple[Params, Any]:
    """(new params, loss) after one step of gradient descent."""
    loss, gradients = ons.value_and_grad(mlp_loss)(params, x, y)
    return SGD.update(params, gradients, {})[0], loss


# ------------------------------------------------------------------------------------------------------------------ CNN


def convolution(params: Params, x: Any) -> Any:
    """3x3, same size, relu, then the maximum over 2x2: [N, C, H, W] to [N, O, H/2, W/2]."""
    x = ons.nn.conv(x, params["w"], padding=1) + params["b"][:, None, None]
    return ons.nn.max_pool(ons.nn.relu(x), 2)


def cnn_loss(params: Params, x: Any, y: Any) -> Any:
    """The mean cross-entropy of labels y: [N] for images x: [N, 1, H, W]."""
    x = convolution(params["conv2"], convolution(params["conv1"], x))
    x = ons.nn.relu(dense(params["dense1"], x.reshape(x.shape[0], -1)))
    return ons.nn.cross_entropy(dense(params["dense2"], x), y)


def cnn_step(params: Params, x: Any, y: Any) -> tuple[Params, Any]:
    """(new params, loss) after one step of gradient descent."""
    loss, gradients = ons.value_and_grad(cnn_loss)(params, x, y)
    return SGD.update(params, gradients, {})[0], loss


# ------------------------------------------------------------------------------------------------------------------ GPT


def attention(params: Params, x: Any, heads: int) -> Any:
    """Causal self-attention: [B, T, D] to [B, T, D]."""
    batch, length, features = x.shape
    size = features // heads
    qkv = dense(params["qkv"], x).reshape(batch, length, 3, heads, size)
    q, k, v = np.transpose(qkv, (2, 0, 3, 1, 4))
    scores = q @ np.swapaxes(k, -1, -2) * (1.0 / math.sqrt(size))
    weights = ons.nn.softmax(np.where(np.tri(length, dtype=bool), scores, -np.inf))
    return dense(params["project"], np.swapaxes(weights @ v, 1, 2).reshape(batch, length, features))


def gpt(params: Params, ids: Any, heads: int) -> Any:
    """Scores of the next token (Radford et al., 2019): [B, T] to [B, T, vocabulary]."""
    x = ons.nn.embedding(params["tokens"], ids) + params["positions"]
    for block in params["blocks"]:
        x = x + attention(block, layer_norm(block["norm1"], x), heads)
        hidden = ons.nn.gelu(dense(block["expand"], layer_norm(block["norm2"], x)), approximate=True)
        x = x + dense(block["contract"], hidden)
    return layer_norm(params["norm"], x) @ params["head"]


def gpt_step(heads: int) -> Any:
    """A function of ((params, state), ids, targets) that gives the new (params, state), and the loss before the step."""

    def loss(params: Params, ids: Any, targets: Any) -> Any:
        return ons.nn.cross_entropy(gpt(params, ids, heads), targets)

    def step(carried: Any, ids: Any, targets: Any) -> tuple[Any, Any]:
        params, state = carried
        value, gradients = ons.value_and_grad(loss)(params, ids, targets)
        return ADAM.update(params, gradients, state), value

    return step


# -------------------------------------------------------------------------------------------------------------- formulas


def normal_cdf(x: Any) -> Any:
    return 0.5 * (1.0 + ons.special.erf(x * math.sqrt(0.5)))


def call_price(spot: Any, volatility: Any, strike: Any, rate: Any, years: Any) -> Any:
    """The price of European calls (Black and Scholes, 1973), elementwise."""
    deviation = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / deviation
    return spot * normal_cdf(d1) - strike * np.exp(-rate * years) * normal_cdf(d1 - deviation)


def price_and_gradient(spot: Any, volatility: Any, strike: Any, rate: Any, years: Any) -> tuple[Any, Any, Any]:
    """(price, its derivative in the spot price, in the volatility)."""

    def total(*arguments: Any) -> tuple[Any, Any]:
        price = call_price(*arguments)
        return np.sum(price), price

    (_, price), (delta, vega) = ons.value_and_grad(total, argnums=(0, 1), has_aux=True)(spot, volatility, strike, rate, years)
    return price, delta, vega


def rosenbrock(x: Any) -> Any:
    """The sum over neighbours of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2: [n] to a scalar."""
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def chain(equations: int) -> Any:
    """A function of x: [n] that makes about that many equations, ending in one number."""

    def function(x: Any) -> Any:
        y = x
        for _ in range(equations // 4):
            y = np.sin(y) * x + np.tanh(y)
        return np.sum(y)

    return function
