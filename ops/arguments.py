"""What NumPy's signatures have in common: shapes, sizes, `out=` and `order=`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, product
from ..stage.dtypes import DType
from ..stage.errors import MutationError, UnsupportedError
from ..stage.narrowing import is_sequence
from ..stage.spec import DimLike, Shape
from .operands import cast, dtype_of, operand, shape_of


def no_out(out: Any, what: str) -> None:
    """MutationError for an `out=` array."""
    if out is not None:
        raise MutationError(f"{what}: out= cannot be recorded; use the result: y = {what}(...)")


def array_operand(a: Any, what: str) -> Any:
    """An operand as a strong array: Python numbers are 0-d ones of bool, int64 or float64, as NumPy's functions take them."""
    x = operand(a, what)
    return np.asarray(x) if isinstance(x, bool | int | float) else cast(x, dtype_of(x)[0])


def array_of(a: Any, dtype: DType, what: str = "operand") -> Any:
    """An operand as a strong array of a dtype."""
    return cast(array_operand(a, what), dtype)


def dim_argument(d: Any) -> DimLike:
    """An int or a named dim given as a size; TypeError for what is no integer."""
    return d if isinstance(d, Dim) else d.__index__()


def listed(x: Any) -> list[Any]:
    """The items of a list or tuple; anything else alone in a list."""
    return list(x) if is_sequence(x) else [x]


def shape_argument(shape: Any) -> Shape:
    """A shape as NumPy takes it: an int, a dim, or a sequence of them."""
    if isinstance(shape, Dim | int) or getattr(shape, "ndim", 1) == 0:
        return (dim_argument(shape),)
    return tuple([dim_argument(d) for d in shape])


def require_c_order(order: Any, what: str) -> None:
    """UnsupportedError for column-major order, where it would change the result."""
    if order not in (None, "C", "K", "A"):
        raise UnsupportedError(f"{what}: order={order!r} is not supported on traced arrays; transpose around it")


def size_of(x: Any) -> DimLike:
    """The number of elements of an operand."""
    return product(shape_of(x))
