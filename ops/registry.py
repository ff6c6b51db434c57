"""Which function of ours answers which NumPy callable, operator, method or attribute of a traced array.

Each function is registered where it is defined; `frontend` only looks it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

NUMPY: dict[Any, Callable[..., Any]] = {}
OPERATORS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
ATTRIBUTES: dict[str, Callable[[Any], Any]] = {}
SPECIAL: dict[str, Callable[..., Any]] = {}
"""By the names of scipy.special's ufuncs; scipy itself is not imported."""
UFUNC_METHODS: dict[tuple[Any, str], Callable[..., Any]] = {}


def implements(
    *numpy_callables: Any,
    operator: str | None = None,
    method: str | None = None,
    attribute: str | None = None,
) -> Callable[[F], F]:
    """Register a function for NumPy callables (ufuncs included), an operator (`"add"`), a method (`"sum"`) or an attribute (`"T"`)."""

    def register(function: F) -> F:
        for numpy_callable in numpy_callables:
            _once(NUMPY, numpy_callable, function)
        if operator is not None:
            _once(OPERATORS, operator, function)
        if method is not None:
            _once(METHODS, method, function)
        if attribute is not None:
            _once(ATTRIBUTES, attribute, function)
        return function

    return register


def implements_ufunc_method(ufunc: Any, method: str) -> Callable[[F], F]:
    """Register a function for `ufunc.reduce`, `ufunc.accumulate`, `ufunc.outer`, ..."""

    def register(function: F) -> F:
        _once(UFUNC_METHODS, (ufunc, method), function)
        return function

    return register


def implements_special(name: str) -> Callable[[F], F]:
    """Register a function for the ufunc of that name in scipy.special."""

    def register(function: F) -> F:
        _once(SPECIAL, name, function)
        return function

    return register


def _once(table: dict[Any, Any], key: Any, function: Any) -> None:
    if key in table and table[key] is not function:
        raise ValueError(f"{key!r} is registered twice")
    table[key] = function
