"""exp, log, tanh, sqrt and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.trace import bind
from .arithmetic import floating
from .families import FLOATS, elementwise, unary_cases
from .registry import implements

exp_p = elementwise(
    "exp", np.exp, dtypes=FLOATS, jvp=lambda output, primals, tangents: tangents[0] * output, onnx="Exp", cases=unary_cases()
)
log_p = elementwise(
    "log", np.log, dtypes=FLOATS, jvp=lambda output, primals, tangents: tangents[0] / primals[0], onnx="Log", cases=unary_cases((0.3, 4))
)
sqrt_p = elementwise(
    "sqrt", np.sqrt, dtypes=FLOATS, exact=True, jvp=lambda output, primals, tangents: tangents[0] * 0.5 / output, onnx="Sqrt", cases=unary_cases((0.2, 4))
)
tanh_p = elementwise(
    "tanh",
    np.tanh,
    dtypes=FLOATS,
    jvp=lambda output, primals, tangents: tangents[0] * (1 - output * output),
    onnx="Tanh",
    cases=unary_cases((-3, 3)),
)


@implements(np.exp)
def exp(x: Any) -> Any:
    return bind(exp_p, floating(x))


@implements(np.log)
def log(x: Any) -> Any:
    return bind(log_p, floating(x))


@implements(np.sqrt)
def sqrt(x: Any) -> Any:
    return bind(sqrt_p, floating(x))


@implements(np.tanh)
def tanh(x: Any) -> Any:
    return bind(tanh_p, floating(x))
