"""NumPy's functions of complex numbers, which are simple for the real ones that there are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dtypes import FLOAT64, is_float
from .arguments import array_operand
from .arithmetic import multiply
from .operands import cast, dtype_of, operand
from .registry import implements
from .trigonometric import arctan2


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a real number: 0, pi (180 with deg) where its sign bit is set, NaN of NaN."""
    x = array_operand(z, "angle")
    x = x if is_float(dtype_of(x)[0]) else cast(x, FLOAT64)
    result = arctan2(np.zeros((), dtype_of(x)[0]), x)
    return multiply(result, 180 / np.pi) if deg else result


@implements(np.real_if_close)
def real_if_close(a: Any, tol: Any = 100) -> Any:
    """The array itself: it is real."""
    return operand(a)
