"""Half-width floats: composites compute them in float32 and round once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...stage.narrowing import is_tuple
from ...stage.trace import trace_program
from ..arithmetic import floating
from ..formulas import half_as_single
from ..operands import cast, dtype_of


def in_work_dtype(function: Callable[[Any], Any], x: Any) -> Any:
    """function(x) of a floating operand (integers are converted as NumPy's float functions do), rounded once."""
    x = floating(x)
    dtype = dtype_of(x)[0]
    return cast(function(cast(x, half_as_single(dtype))), dtype)


def lower_function(b: Any, function: Callable[[Any], Any] | Callable[[Any, Any], Any], *names: str) -> Any:
    """Write a traceable function of arrays in place of a node; gives its output's name, a tuple for several."""

    def leaves(*args: Any) -> Any:
        result: Any = function(*args)
        return result if is_tuple(result) else (result,)

    made = b.lower(trace_program(leaves, [b.spec(n) for n in names], sources=False).program, names)
    return made[0] if len(made) == 1 else tuple(made)
