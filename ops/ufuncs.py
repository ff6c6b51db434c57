"""From NumPy ufuncs to primitives: operands cast as the ufunc's own loops would have them, and functions of one primitive."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, INT64, DType, promote
from ..stage.errors import DTypeError
from ..stage.primitive import Primitive
from ..stage.trace import bind
from .operands import cast, dtype_of, operand
from .registry import implements


def ufunc_operands(ufunc: Any, *xs: Any, keep_weak: bool = False) -> list[Any]:
    """The operands in the dtypes that the ufunc computes them in (NEP 50); TypeError where it has no loop for them.

    keep_weak: the operands stay weak where all of them are, as Python's operators want it.
    """
    operands = [operand(x) for x in xs]
    types = tuple([dtype_of(x) for x in operands])
    dtypes = _loop(ufunc, types)
    weak = keep_weak and all(w for _, w in types)
    return [cast(x, d, weak=weak) for x, d in zip(operands, dtypes, strict=True)]


@functools.cache
def _loop(ufunc: Any, types: tuple[tuple[DType, bool], ...]) -> tuple[DType, ...]:
    given = [(int if d == INT64 else float) if weak else d for d, weak in types]
    try:
        found = ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout))[: len(types)]
    except TypeError as error:
        raise DTypeError(f"{ufunc.__name__}: {error}") from error
    if any(d == BOOL for d in found) or all(d.kind in "biuf" for d in found):
        return found
    # NumPy resolves bfloat16 by itself where ml_dtypes has registered a loop
    return tuple(d if d.name == "bfloat16" else promote(types)[0] for d in found)


def unary_function(primitive: Primitive, *ufuncs: Any, doc: str, operator: str | None = None) -> Callable[[Any], Any]:
    """The public function of an elementwise primitive, registered for NumPy's ufuncs (the first one says the dtypes)."""

    def function(x: Any) -> Any:
        return bind(primitive, *ufunc_operands(ufuncs[0], x, keep_weak=operator is not None))

    return named(function, ufuncs[0].__name__, doc, ufuncs, operator)


def binary_function(primitive: Primitive, *ufuncs: Any, doc: str, operator: str | None = None) -> Callable[[Any, Any], Any]:
    """As `unary_function`, of two operands."""

    def function(x: Any, y: Any) -> Any:
        return bind(primitive, *ufunc_operands(ufuncs[0], x, y, keep_weak=operator is not None))

    return named(function, ufuncs[0].__name__, doc, ufuncs, operator)


def named(function: Any, name: str, doc: str, ufuncs: tuple[Any, ...], operator: str | None) -> Any:
    """The function with its name and docstring, registered."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return implements(*ufuncs, operator=operator)(function)


def zero_tangent(output: Any, primals: Any, tangents: Any, **params: Any) -> None:
    """The jvp rule of step functions: their slope is 0 wherever they have one."""


def like(x: Any, value: Any) -> Any:
    """A 0-d array of the dtype of x: constants in rules, which must not be promoted."""
    return np.asarray(value, x.dtype)
