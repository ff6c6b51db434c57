"""onstage.nn: values against formulas in float64, kinks, gradients of first and second order, axes, named dims, empty batches, messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import onstage as ons
from onstage import nn

DTYPES = ("float16", "float32", "float64")
RTOL = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-13}
Function = Callable[..., Any]


def softmax_of(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def normalized(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + epsilon)


SELU = (1.6732632423543772, 1.0507009873554805)
ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "relu": (nn.relu, lambda x: np.where(x > 0, x, 0)),
    "relu6": (nn.relu6, lambda x: np.clip(x, 0, 6)),
    "sigmoid": (nn.sigmoid, scipy.special.expit),
    "hard_sigmoid": (nn.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "log_sigmoid": (nn.log_sigmoid, scipy.special.log_expit),
    "softplus": (nn.softplus, lambda x: np.logaddexp(x, 0)),
    "silu": (nn.silu, lambda x: x * scipy.special.expit(x)),
    "hard_silu": (nn.hard_silu, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "mish": (nn.mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "gelu": (nn.gelu, lambda x: x * scipy.special.ndtr(x)),
    "gelu_tanh": (
        lambda x: nn.gelu(x, approximate=True),
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "elu": (nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    "elu_alpha": (lambda x: nn.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "celu": (lambda x: nn.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
    "selu": (nn.selu, lambda x: SELU[1] * np.where(x > 0, x, SELU[0] * np.expm1(x))),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "hard_tanh": (nn.hard_tanh, lambda x: np.clip(x, -1, 1)),
    "soft_sign": (nn.soft_sign, lambda x: x / (1 + np.abs(x))),
    "softmax": (nn.softmax, softmax_of),
    "log_softmax": (nn.log_softmax, scipy.special.log_softmax_last),
    "layer_norm": (nn.layer_norm, normalized),
    "rms_norm": (nn.rms_norm, lambda x: x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)),
} if hasattr(scipy.special, "log_softmax_last") else {}
