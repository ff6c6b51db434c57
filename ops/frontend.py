"""The Frontend: what operators, methods and NumPy calls on traced arrays mean. Installed by `onstage/__init__.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.errors import DTypeError, MutationError, TracingError, UnsupportedError
from ..stage.spec import ArraySpec
from ..stage.tracer import Tracer
from .operands import cast
from .registry import ATTRIBUTES, METHODS, NUMPY, OPERATORS, UFUNC_METHODS

_MUTATORS = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}


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
                if isinstance(x, list | tuple) and name in ("equal", "not_equal"):
                    continue
                if not hasattr(x, "__array__") and not isinstance(x, list | tuple):
                    return NotImplemented
        return OPERATORS[name](*operands)

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
        if kwargs.pop("out", None) is not None:
            raise MutationError(f"{label}: out= (or an in-place operator on a NumPy array) cannot be recorded; use the result: y = {label}(...)")
        if method == "at":
            raise MutationError(f"{label} changes its operand; use x.at[i].add(v) or its kin")
        if kwargs.pop("where", True) is not True:
            raise UnsupportedError(f"{label}: where= leaves elements without a value; use np.where(condition, {label}(...), other)")
        if method != "__call__":
            function = UFUNC_METHODS.get((ufunc, method))
            if function is None:
                raise UnsupportedError(f"{label} is not supported on traced arrays")
            return function(*inputs, **kwargs)
        function = NUMPY.get(ufunc)
        if function is None:
            raise UnsupportedError(f"{label} is not supported on traced arrays")
        for ignored in ("casting", "order", "subok"):
            kwargs.pop(ignored, None)
        dtype = kwargs.pop("dtype", None)
        if dtype is not None:
            inputs = tuple(cast(x, np.dtype(dtype)) if isinstance(x, Tracer) else np.asarray(x, dtype) for x in inputs)
        if kwargs:
            raise UnsupportedError(f"{label}: {', '.join(kwargs)} is not supported on traced arrays")
        return function(*inputs)

    def function(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A NumPy function with a traced argument."""
        label = f"{getattr(func, '__module__', 'numpy')}.{getattr(func, '__name__', func)}".replace("numpy.", "np.", 1)
        if func in _MUTATORS:
            raise MutationError(f"{label} changes its argument; use x.at[i].set(v), or np.where")
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
