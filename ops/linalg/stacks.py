"""Stacks of matrices: what every function here asks of its operands, and small pieces that several use."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dims import Dim, same_dim
from ...stage.dtypes import FLOAT32, FLOAT64, DType, is_float, short_name
from ...stage.errors import DTypeError, ShapeError, UnsupportedError
from ...stage.spec import ArraySpec, Shape
from ...stage.trace import bind
from ..arguments import array_operand
from ..matrices import triangle_p
from ..operands import cast, dtype_of, promoted, shape_of, spec
from ..structure import move_axis, reshape_p


class MatrixError(ShapeError, np.linalg.LinAlgError):
    """A ShapeError where NumPy raises LinAlgError."""


def _computed_dtype(dtype: DType, what: str) -> DType:
    """float32 stays, bool and integers are computed in float64, as NumPy does; DTypeError for half-width floats, which NumPy refuses too."""
    if not is_float(dtype):
        return FLOAT64
    if dtype not in (FLOAT32, FLOAT64):
        raise DTypeError(f"{what}: not supported for {short_name(dtype)}; cast to float32 or float64")
    return dtype


def float_stack(a: Any, what: str) -> Any:
    """An operand of two axes or more in float32 or float64. Raises LinAlgError for fewer axes."""
    x = array_operand(a, what)
    if len(shape_of(x)) < 2:
        raise MatrixError(f"{what}: an array of at least two axes is needed, got {spec(x)!r}")
    return cast(x, _computed_dtype(dtype_of(x)[0], what))


def square_stack(a: Any, what: str) -> Any:
    """The same, of square matrices. Raises LinAlgError for others."""
    x = float_stack(a, what)
    shape = shape_of(x)
    if not same_dim(shape[-1], shape[-2]):
        raise MatrixError(f"{what}: the last two axes must be square, got {spec(x)!r}")
    return x


def promoted_pair(a: Any, b: Any, what: str) -> list[Any]:
    """Two operands in their common dtype, float32 or float64."""
    x, y = promoted(array_operand(a, what), array_operand(b, what), strong=True)
    dtype = _computed_dtype(dtype_of(x)[0], what)
    return [cast(x, dtype), cast(y, dtype)]


def require_floats(what: str, *specs: ArraySpec) -> None:
    """The check of abstract rules: operands of one dtype, float32 or float64."""
    for s in specs:
        if s.dtype not in (FLOAT32, FLOAT64):
            raise DTypeError(f"{what}: not supported for {short_name(s.dtype)}")
        if s.dtype != specs[0].dtype:
            raise DTypeError(f"{what}: operands of {short_name(specs[0].dtype)} and {short_name(s.dtype)}")


def require_square(what: str, s: ArraySpec) -> None:
    if s.ndim < 2 or not same_dim(s.shape[-1], s.shape[-2]):
        raise ShapeError(f"{what}: square matrices are needed, got {s!r}")


def same_batch(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_dim(p, q) for p, q in zip(a, b, strict=True))


def static_sizes(what: str, x: Any) -> tuple[int, int]:
    """Rows and columns; UnsupportedError for named ones: the sequence of rotations hangs on them."""
    rows, columns = shape_of(x)[-2:]
    if isinstance(rows, Dim) or isinstance(columns, Dim):
        raise UnsupportedError(f"{what}: the sizes of the matrices must be known, got {spec(x)!r}; named dims may stand before them")
    return rows, columns


def has_no_rows(x: Any) -> bool:
    """Whether the matrices are known to be empty: there is no first row to start a loop with."""
    size = x.shape[-2]
    return type(size) is int and size == 0


def triangle(x: Any, lower: bool, strict: bool = False) -> Any:
    """One triangle of the matrices; strict leaves the diagonal out."""
    k = (-1 if lower else 1) if strict else 0
    return bind(triangle_p, x, k=k, upper=not lower)


def column(x: Any) -> Any:
    """Vectors as matrices of one column."""
    return bind(reshape_p, x, shape=(*x.shape, 1))


def row(x: Any) -> Any:
    """Vectors as matrices of one row."""
    return bind(reshape_p, x, shape=(*x.shape[:-1], 1, x.shape[-1]))


def flat_column(x: Any) -> Any:
    """Matrices of one column or row as vectors."""
    return bind(reshape_p, x, shape=(*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def first(x: Any, axis: int | None) -> Any:
    """The batch axis in front, for batch rules."""
    return x if axis is None else move_axis(x, axis, 0)
