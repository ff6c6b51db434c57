"""Results that NumPy would let share memory with an operand, and those that it would not."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.trace import bind
from ..stage.tracer import Tracer, mark_view
from .structure import broadcast_to_p


def view(result: Any, base: Any) -> Any:
    """`result`, known as a view of `base`: in-place updates of either are errors while the other is in use."""
    if isinstance(result, Tracer) and isinstance(base, Tracer):
        mark_view(result, base)
    return result


def copied(x: Any) -> Any:
    """The same value under a handle of its own, so that rebinding one (`x += 1`) leaves the other as it was."""
    if isinstance(x, Tracer) and x._deferred:
        # A value of its own, with the same elements
        return bind(broadcast_to_p, x, shape=x.shape)
    if isinstance(x, Tracer):
        return Tracer(x._trace, x._atom, x._value)
    return np.array(x, copy=True)
