"""astype, copy, conj, real and imag: what ndarrays offer beside arithmetic."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..stage.dtypes import BOOL, as_dtype
from ..stage.trace import bind
from .operands import cast, dtype_of, operand, shape_of
from .registry import implements
from .structure import broadcast_to_p
from .views import copied

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


@implements(np.astype, method="astype")
def astype(
    x: Any,
    dtype: Any,
    order: str = "K",
    casting: Casting = "unsafe",
    subok: bool = True,
    copy: bool = True,
    device: Any = None,
) -> Any:
    """x in another dtype: floats are truncated towards zero to integers, and integers wrap. TypeError where `casting` forbids it."""
    x = operand(x)
    target = as_dtype(dtype, "astype")
    source = dtype_of(x)[0]
    if casting != "unsafe" and not np.can_cast(source, target, casting):
        raise TypeError(f"Cannot cast array data from {source!r} to {target!r} according to the rule '{casting}'")
    result = cast(x, target)
    return copied(result) if copy and result is x else result


@implements(np.copy, method="copy")
def copy(x: Any, order: str = "K", subok: bool = False) -> Any:
    """A copy, which may be updated in place where x may not."""
    return copied(operand(x))


@implements(np.conjugate, method="conjugate")
def conjugate(x: Any) -> Any:
    """x, since it is real; booleans become int8, as in NumPy."""
    x = operand(x)
    return cast(x, np.dtype(np.int8)) if dtype_of(x)[0] == BOOL else copied(x)


@implements(method="conj")
def conj(x: Any) -> Any:
    """As `conjugate`."""
    return conjugate(x)


@implements(np.real, attribute="real")
def real(x: Any) -> Any:
    """x itself."""
    return operand(x)


@implements(np.imag, attribute="imag")
def imag(x: Any) -> Any:
    """Zeros of the shape and dtype of x."""
    x = operand(x)
    return bind(broadcast_to_p, np.zeros((), dtype_of(x)[0]), shape=shape_of(x))


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    """False: complex numbers are not supported."""
    return False


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    """True."""
    return True
