"""Activations. Those of one node are primitives; the others are written in simpler functions, which forward and backward then share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...stage.primitive import Array
from ...stage.trace import bind
from ..arithmetic import add, floating, multiply, negative, true_divide, where, where_p
from ..comparison import greater, greater_p
from ..exponential import expit_p, expm1, log1p_formula, tanh
from ..extremum import clip
from ..families import FLOATS, NUMBERS, elementwise, unary_cases
from ..floating_point import absolute
from ..formulas import Mathematics, half_as_single, native
from ..joining import split
from ..operands import dtype_of, operand, promoted
from ..special import erf
from .precision import in_work_dtype

# ---------------------------------------------------------------------------------------------------------------------- relu


def _zero(like: Any) -> Any:
    return np.zeros((), like.dtype)


def _relu_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    # A select and no product with the mask: the tangent of a masked element may be infinite
    return bind(where_p, bind(greater_p, output, _zero(output)), tangents[0], _zero(output))


def _relu_numpy(x: Array) -> Array:
    return np.maximum(x, np.zeros((), x.dtype))


relu_p = elementwise(
    "relu",
    _relu_numpy,
    dtypes=NUMBERS,
    exact=True,
    jvp=_relu_jvp,
    onnx="Relu",
    cases=[*unary_cases(), *unary_cases((-9, 9), "int")],
)


def relu(x: Any) -> Any:
    """max(x, 0), with slope 0 at 0 (np.maximum(x, 0) has slope 1/2 there). NaN stays NaN; integers stay integers."""
    x = operand(x)
    if dtype_of(x)[0].kind == "b":
        raise TypeError("relu: booleans have no negative part; cast to a number first")
    return bind(relu_p, x)


# ------------------------------------------------------------------------------------------------------- sigmoid and softplus


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), accurate for large negative x too; integers are computed in floating point."""
    return bind(expit_p, floating(x))


def _softplus_numpy(x: Array) -> Array:
    wide = x.astype(half_as_single(x.dtype), copy=False)
    return (np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide)))).astype(x.dtype, copy=False)


def _softplus_formula(m: Mathematics, x: Any) -> Any:
    return m.maximum(x, 0.0) + log1p_formula(m, m.exp(-m.abs(x)))


softplus_p = elementwise(
    "softplus",
    _softplus_numpy,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * sigmoid(primals[0]),
    onnx=native("Softplus", _softplus_formula),
    cases=[*unary_cases(), *unary_cases((-40, 40))],
)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow or cancellation; integers are computed in floating point."""
    return bind(softplus_p, floating(x))


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)) without cancellation."""
    return negative(softplus(negative(floating(x))))


# -------------------------------------------------------------------------------------------------- products with a gate of x


def _gelu(x: Any) -> Any:
    return multiply(multiply(x, 0.5), add(erf(multiply(x, math.sqrt(0.5))), 1.0))


def _gelu_tanh(x: Any) -> Any:
    inner = multiply(multiply(x, math.sqrt(2 / math.pi)), add(multiply(multiply(x, x), 0.044715), 1.0))
    return multiply(multiply(x, 0.5), add(tanh(inner), 1.0))


def gelu(x: Any, approximate: bool = False) -> Any:
    """x * P(Z <= x) for a standard normal Z, by erf (Hendrycks and Gimpel, 2016, arXiv 1606.08415).

    approximate: the tanh form of the same paper, within 5e-4 of it.
    """
    return in_work_dtype(_gelu_tanh if approximate else _gelu, x)


def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish."""
    return in_work_dtype(lambda t: multiply(t, sigmoid(t)), x)


def mish(x: Any) -> Any:
    """x * tanh(softplus(x)) (Misra, 2019, arXiv 1908.08681)."""
    return in_work_dtype(lambda t: multiply(t, tanh(softplus(t))), x)


def glu(x: Any, axis: int = -1) -> Any:
    """a * sigmoid(b) for the halves a, b of x along an axis (Dauphin et al., 2016). Raises ValueError for an odd size."""
    a, b = split(floating(x), 2, axis=axis)
    return multiply(a, sigmoid(b))


# ---------------------------------------------------------------------------------------------- one form on each side of zero


def _two_sided(x: Any, positive: Any, otherwise: Any) -> Any:
    """positive(x) where x > 0, else otherwise(x); neither is asked about the other side, so that no inf or NaN leaks into gradients."""
    right = greater(x, 0)
    inert = where(right, 0.0, x)
    return where(right, positive(x), otherwise(inert))


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where x > 0, else alpha * (exp(x) - 1); slope alpha at 0 (Clevert et al., 2015, arXiv 1511.07289)."""
    return in_work_dtype(lambda t: _two_sided(t, lambda u: u, lambda u: multiply(expm1(u), alpha)), x)


def celu(x: Any, alpha: float = 1.0) -> Any:
    """x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron, 2017, arXiv 1704.07483)."""
    return in_work_dtype(lambda t: _two_sided(t, lambda u: u, lambda u: multiply(expm1(true_divide(u, alpha)), alpha)), x)


SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def selu(x: Any) -> Any:
    """A scaled elu with fixed point mean 0 and variance 1 (Klambauer et al., 2017, arXiv 1706.02515)."""
    return in_work_dtype(
        lambda t: _two_sided(t, lambda u: multiply(u, SELU_SCALE), lambda u: multiply(expm1(u), SELU_SCALE * SELU_ALPHA)), x
    )


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    """x where x > 0, else negative_slope * x, which is its slope at 0 too."""
    return in_work_dtype(lambda t: where(greater(t, 0), t, multiply(t, negative_slope)), x)


def prelu(x: Any, slope: Any) -> Any:
    """leaky_relu with a slope that is an array: it broadcasts with x and gets a gradient."""
    x, slope = promoted(floating(x), floating(slope))
    return where(greater(x, 0), x, multiply(x, slope))


# ----------------------------------------------------------------------------------------- piecewise linear: slopes as np.clip


def relu6(x: Any) -> Any:
    """x limited to [0, 6]; slope 1 on the closed interval, as np.clip has."""
    return clip(floating(x), 0, 6)


def hard_tanh(x: Any, minimum: float = -1.0, maximum: float = 1.0) -> Any:
    """x limited to [minimum, maximum]; slope 1 on the closed interval, as np.clip has."""
    return clip(floating(x), minimum, maximum)


def hard_sigmoid(x: Any) -> Any:
    """(x + 3) / 6 limited to [0, 1], as in MobileNetV3 and PyTorch."""
    return in_work_dtype(lambda t: true_divide(clip(add(t, 3.0), 0, 6), 6.0), x)


def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x), also called hard swish (Howard et al., 2019, arXiv 1905.02244)."""
    return in_work_dtype(lambda t: multiply(t, hard_sigmoid(t)), x)


def soft_sign(x: Any) -> Any:
    """x / (1 + abs(x))."""
    return in_work_dtype(lambda t: true_divide(t, add(absolute(t), 1.0)), x)
