"""Operands: how values from user code become what primitives take.

Between the public array functions and the primitives: NEP 50 promotion, casts, broadcasting of shapes, axes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..stage.dims import Dim, broadcast_dim
from ..stage.dtypes import BOOL, DType, as_dtype, is_integer, kind_rank, promote, python_scalar_dtype, short_name
from ..stage.errors import DTypeError, ShapeError
from ..stage.interpreter import as_array
from ..stage.narrowing import is_array, is_numpy, is_sequence
from ..stage.primitive import Array
from ..stage.program import Const
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec, spec_of
from ..stage.trace import bind, scalar_constant
from ..stage.tracer import Tracer
from .structure import cast_p, dim_value_p

Value: TypeAlias = Tracer | Array | Const
"""What the functions of `ops` pass around: a tracer, a NumPy array, or a constant with a known spec."""


def operand(x: Any, what: str = "operand") -> Any:
    """A tracer, NumPy array or Python number from anything that stands for an array; TypeError naming `what` otherwise."""
    if isinstance(x, Tracer):
        return x
    # np.float64 is a Python float too, but no weak one: what is NumPy's comes first.
    if is_numpy(x):
        as_dtype(x.dtype, what)
        return as_array(x)
    if isinstance(x, bool | int | float | Const):
        return x
    if isinstance(x, Dim):
        return bind(dim_value_p, dim=x)
    if is_sequence(x):
        return sequence_operand(x, what)
    if hasattr(x, "__onstage_operand__"):
        return x.__onstage_operand__()
    if isinstance(x, complex):
        python_scalar_dtype(x)
    if x is not None and not isinstance(x, str | bytes) and hasattr(x, "__array__"):
        return operand(np.asarray(x), what)
    raise DTypeError(f"{what}: {type(x).__name__} is no array")


def sequence_operand(items: Sequence[Any], what: str) -> Any:
    """A nested list of numbers as an array; with tracers inside it is recorded as a stack."""
    if not _holds_tracer(items):
        array = np.asarray(items)
        as_dtype(array.dtype, what)
        return array
    raise DTypeError(f"{what}: a list that holds traced arrays is no array; use ons.numpy.stack")


def _holds_tracer(items: Any) -> bool:
    return isinstance(items, Tracer | Dim) or (is_sequence(items) and any(_holds_tracer(i) for i in items))


def dtype_of(x: Any) -> tuple[DType, bool]:
    """(dtype, weak) of an operand."""
    if isinstance(x, Tracer | Const):
        return x.spec.dtype, x.spec.weak
    if is_array(x):
        return x.dtype, False
    return python_scalar_dtype(x), not isinstance(x, bool)


def spec(x: Any) -> ArraySpec:
    """The spec of an operand."""
    return x.spec if isinstance(x, Tracer | Const) else spec_of(x)


def shape_of(x: Any) -> Shape:
    return x.shape if isinstance(x, Tracer) or is_array(x) else spec(x).shape


def cast(x: Any, dtype: DType, *, weak: bool = False) -> Any:
    """The operand in a dtype; nothing is recorded where it has it already.

    A Python integer that the dtype does not hold raises OverflowError, as NumPy's promotion does.
    """
    if isinstance(x, Tracer):
        if x.spec.dtype == dtype and x.spec.weak == weak:
            return x
        return bind(cast_p, x, dtype=dtype, weak=weak)
    if is_array(x) and not weak:
        return x if x.dtype == dtype else bind(cast_p, x, dtype=dtype, weak=False)
    if isinstance(x, Const):
        if x.spec.dtype == dtype and x.spec.weak == weak:
            return x
        return bind(cast_p, x, dtype=dtype, weak=weak)
    if isinstance(x, int) and not isinstance(x, bool) and is_integer(dtype):
        limits = np.iinfo(dtype)
        if not limits.min <= x <= limits.max:
            raise OverflowError(f"Python integer {x} out of bounds for {dtype.name}")
    number: Any = x
    return scalar_constant(number, make_spec((), dtype, weak))


def promoted(*xs: Any, strong: bool = False) -> list[Any]:
    """Operands cast to their common dtype (NEP 50). The result is weak only if all are, and `strong` forbids even that."""
    dtype, weak = promote([dtype_of(x) for x in xs])
    return [cast(x, dtype, weak=weak and not strong) for x in xs]


def broadcast_shapes(*shapes: Shape, what: str = "broadcast") -> Shape:
    """NumPy's broadcasting of shapes, dims compared by canonical form; ShapeError where two differ and neither is 1."""
    ndim = max((len(s) for s in shapes), default=0)
    result: list[DimLike] = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for i, dim in enumerate(shape):
            have = result[offset + i]
            if dim is have:
                continue
            if type(dim) is int and type(have) is int:
                if have == 1:
                    result[offset + i] = dim
                elif dim not in (1, have):
                    texts = ", ".join(str(list(s)) for s in shapes)
                    raise ShapeError(f"{what}: shapes {texts} do not broadcast (axis {i}: {have} and {dim})")
            else:
                try:
                    result[offset + i] = broadcast_dim(have, dim)
                except ShapeError as error:
                    raise ShapeError(f"{what}: {error.message}") from None
    return tuple(result)


def normalize_axis(axis: Any, ndim: int, what: str = "axis") -> int:
    """A non-negative axis; AxisError (an IndexError and ValueError) as NumPy raises it."""
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise np.exceptions.AxisError(index, ndim, what if what != "axis" else None)
    return index % ndim if ndim else index


def normalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes as a sorted tuple of non-negative ints; None means all of them."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis) if is_sequence(axis) else (axis,)
    result = [normalize_axis(a, ndim) for a in axes]
    if len(set(result)) != len(result):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(result))


def require_kind(what: str, x: Any, kinds: str) -> None:
    """DTypeError unless the operand's kind is one of `kinds` ("b", "i", "u", "f"; bfloat16 counts as f)."""
    dtype = dtype_of(x)[0]
    kind = "f" if kind_rank(dtype) == 2 else dtype.kind
    if kind not in kinds:
        raise DTypeError(f"{what}: not supported for {short_name(dtype)}")


def is_bool(x: Any) -> bool:
    return dtype_of(x)[0] == BOOL
