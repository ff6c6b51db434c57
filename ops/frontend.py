"""The Frontend: what operators, methods and NumPy calls on traced arrays mean. Installed by `onstage/__init__.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.errors import DTypeError, MutationError, TracingError, UnsupportedError
from ..stage.narrowing import is_sequence, is_tuple
from ..stage.spec import ArraySpec
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .exclusions import excluded
from .operands import cast, operand, shape_of
from .registry import ATTRIBUTES, METHODS, NUMPY, OPERATORS, SPECIAL
from .structure import reshape_p
from .ufunc_methods import ufunc_method
from .views import copied


def _scipy_function(ufunc: Any) -> Callable[..., Any] | None:
    """Our function for a ufunc of scipy.special, which is imported if its ufunc is here."""
    scipy_special = sys.modules.get("scipy.special")
    name = ufunc.__name__
    return SPECIAL.get(name) if scipy_special is not None and getattr(scipy_special, name, None) is ufunc else None


def _crossed(x: Any, y: Any) -> tuple[Any, Any]:
    """Operands whose broadcasting pairs every element of x with every one of y."""
    x, y = operand(x), operand(y)
    ones = (1,) * len(shape_of(y))
    return (bind(reshape_p, x, shape=(*shape_of(x), *ones)) if ones else x), y


def _strong(x: Any) -> Any:
    """Operators keep values weak that come of weak ones alone, ufuncs do not."""
    return cast(x, x.dtype) if isinstance(x, Tracer) and x.spec.weak else x


def _own(result: Any, operands: tuple[Any, ...]) -> Any:
    """The result under a handle of its own: `+x` and `np.floor(integers)` are new arrays, which updates of x leave alone."""
    return copied(result) if isinstance(result, Tracer) and any(result is x for x in operands) else result


class OpsFrontend:
    """Looks every operation up in the registry; what is not there is an error that names it."""

    def __init__(self, namespace: Any) -> None:
        self.namespace = namespace

    def operator(self, name: str, *operands: Any) -> Any:
        """NotImplemented for operands that are no arrays, so that Python tries the other side."""
        for x in operands:
            if not isinstance(x, Tracer | np.ndarray | np.generic | bool | int | float | Dim):
                if isinstance(x, complex):
                    raise DTypeError(f"complex numbers ({x!r}) are not supported yet; pass real and imaginary parts")
                if is_sequence(x) and name in ("equal", "not_equal"):
                    continue
                if not hasattr(x, "__array__") and not is_sequence(x):
                    return NotImplemented
        return _own(OPERATORS[name](*operands), operands)

    def cast(self, x: Tracer, spec: ArraySpec) -> Any:
        return cast(x, spec.dtype, weak=spec.weak)

    def getitem(self, x: Tracer, index: Any) -> Any:
        return OPERATORS["getitem"](x, index)

    def setitem(self, x: Tracer, index: Any, value: Any) -> Any:
        return OPERATORS["setitem"](x, index, value)

    def attribute(self, name: str) -> Callable[[Any], Any] | None:
        getter = ATTRIBUTES.get(name)
        if getter is not None:
            return getter
        method = METHODS.get(name)
        return None if method is None else lambda x: partial(method, x)

    def attribute_names(self) -> list[str]:
        return [*ATTRIBUTES, *METHODS]

    def ufunc(self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`np.f(...)` and `np.f.reduce(...)` with a traced operand."""
        label = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        refusal = excluded(ufunc, label)
        if refusal is not None:
            raise refusal
        if kwargs.pop("out", None) is not None:
            raise MutationError(
                f"{label}: out= (or an in-place operator on a NumPy array) cannot be recorded; use the result: y = {label}(...), or ons.at(buffer)[i].add(v) and its kin"
            )
        if method == "at":
            raise MutationError(f"{label} changes its operand; use x.at[i].add(v) or its kin")
        if kwargs.pop("where", True) is not True:
            raise UnsupportedError(f"{label}: where= leaves elements without a value; use np.where(condition, {label}(...), other)")
        if method != "__call__":
            function = ufunc_method(ufunc, method)
            if function is None and method == "outer" and ufunc in NUMPY:
                return NUMPY[ufunc](*_crossed(*inputs), **kwargs)
            if function is None:
                raise UnsupportedError(f"{label} is not supported on traced arrays")
            return function(*inputs, **kwargs)
        function = NUMPY.get(ufunc) or _scipy_function(ufunc)
        if function is None:
            raise UnsupportedError(f"{label} is not supported on traced arrays")
        for ignored in ("casting", "order", "subok"):
            kwargs.pop(ignored, None)
        dtype = kwargs.pop("dtype", None)
        if dtype is not None:
            inputs = tuple(cast(x, np.dtype(dtype)) if isinstance(x, Tracer) else np.asarray(x, dtype) for x in inputs)
        if kwargs:
            raise UnsupportedError(f"{label}: {', '.join(kwargs)} is not supported on traced arrays")
        result = function(*inputs)
        return tuple(_own(_strong(r), inputs) for r in result) if is_tuple(result) else _own(_strong(result), inputs)

    def function(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A NumPy function with a traced argument."""
        label = f"{getattr(func, '__module__', 'numpy')}.{getattr(func, '__name__', func)}".replace("numpy.", "np.", 1)
        refusal = excluded(func, label)
        if refusal is not None:
            raise refusal
        if kwargs.get("out") is not None:
            raise MutationError(f"{label}: out= cannot be recorded; use the result: y = {label}(...)")
        kwargs.pop("out", None)
        function = NUMPY.get(func)
        if function is None:
            raise UnsupportedError(f"{label} is not supported on traced arrays")
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, TracingError | DTypeError) or "unexpected keyword argument" not in str(error):
                raise
            raise UnsupportedError(f"{label}: {error} (on traced arrays)") from error
