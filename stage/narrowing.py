"""Type guards: isinstance checks of untyped values, after which a type checker knows in full what they are."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np


def is_tuple(x: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(x, tuple)


def is_sequence(x: Any) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    return isinstance(x, tuple | list)


def is_array(x: Any) -> TypeGuard[np.ndarray[Any, np.dtype[Any]]]:
    return isinstance(x, np.ndarray)


def is_numpy(x: Any) -> TypeGuard[np.ndarray[Any, np.dtype[Any]] | np.generic[Any]]:
    """An array or a scalar of NumPy's."""
    return isinstance(x, np.ndarray | np.generic)


def is_list(x: Any) -> TypeGuard[list[Any]]:
    return isinstance(x, list)


def is_slice(x: Any) -> TypeGuard[slice[Any, Any, Any]]:
    return isinstance(x, slice)


def is_bool_scalar(x: Any) -> TypeGuard[bool | np.bool[Any]]:
    """A bool of Python's or NumPy's."""
    return isinstance(x, bool | np.bool_)


def is_integer_scalar(x: Any) -> TypeGuard[int | np.integer[Any]]:
    """An integer, of Python's (bools too) or NumPy's."""
    return isinstance(x, int | np.integer)
