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
