"""Half-width floats: composites compute them in float32 and round once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...stage.dtypes import FLOAT32, DType, is_float
from ...stage.trace import trace_program
from ..arithmetic import floating
from ..operands import cast, dtype_of


def work_dtype(dtype: DType) -> DType:
    """The dtype to compute in: float32 for float16 and bfloat16, else the dtype itself."""
    return FLOAT32 if is_float(dtype) and dtype.itemsize == 2 else dtype


def in_work_dtype(function: Callable[[Any], Any], x: Any) -> Any:
    """function(x) of a floating operand (integers are converted as NumPy's float functions do), rounded once."""
    x = floating(x)
    dtype = dtype_of(x)[0]
    return cast(function(cast(x, work_dtype(dtype))), dtype)


def lower_function(b: Any, function: Callable[..., Any], *names: str) -> Any:
    """Write a traceable function of arrays in place of a node; gives its output's name, a tuple for several."""

    def leaves(*args: Any) -> tuple[Any, ...]:
        result = function(*args)
        return result if isinstance(result, tuple) else (result,)

    made = b.lower(trace_program(leaves, [b.spec(n) for n in names], sources=False).program, names)
    return made[0] if len(made) == 1 else tuple(made)
