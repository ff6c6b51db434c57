"""Central differences, the judge of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def numeric_gradient(f: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    """The gradient of a scalar f at x: float64[...], by central differences."""
    x = np.asarray(x, np.float64)
    result = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        shift = np.zeros_like(x)
        shift[index] = step
        result[index] = (float(f(x + shift)) - float(f(x - shift))) / (2 * step)
    return result
