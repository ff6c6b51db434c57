"""x[index], and the same part replaced or updated: index plans carried out with slices, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..stage.dims import Dim, product, same_shape
from ..stage.dtypes import BOOL
from ..stage.errors import MutationError, ShapeError
from ..stage.narrowing import is_array, is_tuple
from ..stage.primitive import Primitive
from ..stage.program import Const, constant
from ..stage.spec import DimLike, Shape
from ..stage.trace import bind, lift_constant
from ..stage.tracer import Tracer, mark_view
from .arithmetic import where_p
from .gather import gather_p
from .index_plan import BLOCK, NEW, IndexPlan, Token, make_plan, static_shape
from .joining import join
from .operands import cast, normalize_axes, operand, shape_of
from .registry import NUMPY, implements
from .scatter import gather_nd_p, scatter_p
from .slicing import canonical_slice, slice_axes
from .structure import broadcast, is_traced, reshape_p, transpose_p
from .update_slice import is_whole, update_slice_p
from .views import copied

# ----------------------------------------------------------------------------------------------------------------------- get


@implements(operator="getitem")
def getitem(x: Any, index: Any) -> Any:
    """x[index] with NumPy's meaning; a view, as NumPy's is, for basic indices.

    Raises IndexError for what NumPy refuses, constant indices out of range included; traced ones raise at run time.
    """
    plan = make_plan(index, shape_of(x))
    result = take_plan(x, plan)
    if plan.is_view and isinstance(result, Tracer) and isinstance(x, Tracer):
        mark_view(result, x, index)
    return result


def take_plan(x: Any, plan: IndexPlan) -> Any:
    """The elements that a plan names."""
    x, order = _window(x, plan)
    if plan.arrays:
        x, order = _gathered(x, order, plan)
    elif plan.block is not None:
        x = broadcast(reshaped(x, (*(1,) * len(plan.block), *x.shape)), (*plan.block, *x.shape))
        order = [BLOCK, *order]
    x = _arranged(x, order, [t for t in plan.layout if t != NEW], plan)
    return reshaped(x, _with_new_axes(x.shape, plan))


def reshaped(x: Any, shape: Shape) -> Any:
    """x in a shape; nothing is recorded where it has it."""
    return x if same_shape(x.shape, shape) else bind(reshape_p, x, shape=tuple(shape))


def _window(x: Any, plan: IndexPlan) -> tuple[Any, list[Token]]:
    """x sliced, without the axes that integers take; and the axes that are left."""
    x = slice_axes(x, plan.slices)
    kept = [a for a in range(len(plan.shape)) if a not in plan.dropped]
    return (reshaped(x, tuple(x.shape[a] for a in kept)) if plan.dropped else x), list(kept)


def _tuples(plan: IndexPlan) -> Any:
    """The index arrays as index tuples [*block, k]."""
    block = plan.block or ()
    arrays = [i for _, i in plan.arrays]
    if all(isinstance(i, np.ndarray) for i in arrays) and not any(isinstance(d, Dim) for d in block):
        return np.stack([np.broadcast_to(i, static_shape(block)) for i in arrays], axis=-1)
    columns = [bind(reshape_p, broadcast(i, block), shape=(*block, 1)) for i in arrays]
    return columns[0] if len(columns) == 1 else join(columns, len(block))


def _gathered(x: Any, order: list[Token], plan: IndexPlan) -> tuple[Any, list[Token]]:
    if len(plan.arrays) == 1:
        axis, indices = plan.arrays[0]
        place = order.index(axis)
        indices = broadcast(indices, plan.block or ())
        return bind(gather_p, x, indices, axis=place, unique=plan.unique), [
            *order[:place],
            BLOCK,
            *order[place + 1 :],
        ]
    x, rest = _rows_first(x, order, plan)
    return bind(gather_nd_p, x, _tuples(plan), batch_dims=0, unique=plan.unique), [BLOCK, *rest]


def _rows_first(x: Any, order: Sequence[Token], plan: IndexPlan) -> tuple[Any, list[Token]]:
    """x with the indexed axes in front; and its other axes."""
    indexed = [a for a, _ in plan.arrays]
    rest = [t for t in order if t not in indexed]
    return _permuted(x, [order.index(t) for t in (*indexed, *rest)]), rest


def _permuted(x: Any, permutation: Sequence[int]) -> Any:
    if list(permutation) == list(range(len(permutation))):
        return x
    return bind(transpose_p, x, permutation=tuple(permutation))


def _arranged(x: Any, order: Sequence[Token], wanted: Sequence[Token], plan: IndexPlan) -> Any:
    """The axes put from one order into another; BLOCK stands for all axes of the block."""
    size = len(plan.block or ())
    starts: dict[Token, int] = {}
    position = 0
    for token in order:
        starts[token] = position
        position += size if token == BLOCK else 1
    permutation: list[int] = []
    for token in wanted:
        permutation += range(starts[token], starts[token] + (size if token == BLOCK else 1))
    return _permuted(x, permutation)


def _with_new_axes(shape: Shape, plan: IndexPlan) -> Shape:
    dims = iter(shape)
    result: list[DimLike] = []
    for token in plan.layout:
        result += [next(dims) for _ in plan.block or ()] if token == BLOCK else [1] if token == NEW else [next(dims)]
    return tuple(result)


# ----------------------------------------------------------------------------------------------------------------------- put


def put_plan(x: Any, plan: IndexPlan, values: Any, primitive: Primitive = scatter_p) -> Any:
    """x with values of x's dtype written to the elements that a plan names, or combined with them where they are given by index arrays."""
    window, order = _window(x, plan)
    indexed = [a for a, _ in plan.arrays]
    rest = [t for t in order if t not in indexed]
    values = _fitted(values, _row_shape(window, order, rest, plan), rest, plan)
    if plan.arrays:
        rows, _ = _rows_first(window, order, plan)
        rows = bind(primitive, rows, _tuples(plan), values, batch_dims=0, unique=plan.unique)
        window = _permuted(rows, [[*indexed, *rest].index(t) for t in order])
    elif plan.block is None:
        window = values
    elif not isinstance(size := product(plan.block), Dim) and size:
        window = reshaped(values, window.shape)
    return _put_window(x, window, plan)


def like_array(values: Any, x: Any) -> Any:
    """Values as a traced array where x is one, so that their broadcasting is recorded and does not make large constants."""
    if isinstance(values, Const):
        return lift_constant(values) if is_traced(x) else values.value
    return lift_constant(constant(values)) if is_traced(x) and isinstance(values, np.ndarray) else values


def _row_shape(window: Any, order: Sequence[Token], rest: Sequence[Token], plan: IndexPlan) -> Shape:
    return (*(plan.block or ()), *(window.shape[order.index(t)] for t in rest))


def _fitted(values: Any, shape: Shape, rest: Sequence[Token], plan: IndexPlan) -> Any:
    """Values broadcast to what x[index] gives, as NumPy's assignment does, then in the order block, other axes."""
    order = [*([BLOCK] if plan.block is not None else []), *rest]
    wanted = [t for t in plan.layout if t != NEW]
    size = len(plan.block or ())
    dims: dict[Token, Shape] = {t: (shape[i + size],) for i, t in enumerate(rest)}
    dims[BLOCK] = plan.block or ()
    arranged = tuple(d for t in wanted for d in dims[t])
    full = _with_new_axes(arranged, plan)
    values = broadcast_values(values, full)
    return _arranged(reshaped(values, arranged), wanted, order, plan)


def broadcast_values(values: Any, shape: Shape) -> Any:
    """Values broadcast to the shape of what they are assigned to; axes of size 1 that are too many in front are dropped."""
    have = shape_of(values)
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    try:
        return broadcast(reshaped(values, have), shape)
    except ShapeError as error:
        raise ShapeError(f"could not broadcast input array from shape {tuple(shape_of(values))} into shape {tuple(shape)}") from error


def _put_window(x: Any, window: Any, plan: IndexPlan) -> Any:
    parts = [canonical_slice(plan.slices.get(a, slice(None)), d) for a, d in enumerate(plan.shape)]
    if all(is_whole(*part, d) for part, d in zip(parts, plan.shape, strict=True)):
        return reshaped(window, plan.shape)
    sliced = tuple(1 if a in plan.dropped else d for a, d in _window_sizes(window, plan))
    start, stop, step = (tuple(part[i] for part in parts) for i in range(3))
    return bind(update_slice_p, x, reshaped(window, sliced), start=start, stop=stop, step=step)


def _window_sizes(window: Any, plan: IndexPlan) -> list[tuple[int, DimLike]]:
    dims = iter(window.shape)
    return [(a, 1 if a in plan.dropped else next(dims)) for a in range(len(plan.shape))]


def single_mask(index: Any, shape: Shape) -> Any:
    """The mask of `x[mask]` where it covers the first axes of x; None for any other index."""
    items = [i for i in index if i is not Ellipsis] if is_tuple(index) else [index]
    if len(items) != 1 or (is_tuple(index) and index[0] is Ellipsis):
        return None
    mask = items[0]
    if not (isinstance(mask, Tracer) or is_array(mask)) or mask.dtype != BOOL or not mask.ndim or mask.ndim > len(shape):
        return None
    return mask if same_shape(mask.shape, shape[: mask.ndim]) else None


def masked(x: Any, mask: Any, values: Any) -> Any:
    """x with values where a mask over its first axes holds; None where the values are one for each element that holds."""
    row = len(x.shape) - mask.ndim
    have = shape_of(values)
    while len(have) > row and have[0] == 1:
        have = have[1:]
    if len(have) > row:
        return None
    return bind(where_p, reshaped(mask, (*mask.shape, *(1,) * row)), broadcast_values(values, tuple(x.shape)), x)


@implements(operator="setitem")
def setitem(x: Any, index: Any, value: Any) -> Any:
    """x with x[index] replaced, as a new array: what `x[index] = value` makes of x. The value is cast to x's dtype, as NumPy does.

    A traced boolean mask is fine where the value does not depend on how many elements it takes.
    """
    values = like_array(cast(operand(value, "value"), x.dtype), x)
    mask = single_mask(index, shape_of(x))
    if mask is not None:
        result = masked(x, mask, values)
        if result is not None:
            return result
    result = put_plan(x, make_plan(index, shape_of(x)), values)
    return copied(result) if result is value or result is x else result


@implements(method="fill")
def fill(x: Tracer, value: Any) -> None:
    """x.fill(value): the same as x[...] = value."""
    x[...] = value


@implements(method="sort")
def sort_in_place(x: Tracer, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    """x.sort(): the same as x[...] = np.sort(x, axis)."""
    x[...] = NUMPY[np.sort](x, axis)


@implements(method="put")
def put(x: Tracer, indices: Any, values: Any, mode: str = "raise") -> NoReturn:
    """Refused: it changes x through flat positions."""
    raise MutationError("x.put changes its array; use x = x.reshape(-1).at[indices].set(values).reshape(x.shape)")


@implements(np.ndim)
def ndim(a: Any) -> int:
    """How many axes an array has."""
    return len(shape_of(a))


@implements(np.shape)
def shape(a: Any) -> Shape:
    """The sizes of an array's axes."""
    return shape_of(a)


@implements(np.size)
def size(a: Any, axis: Any = None) -> DimLike:
    """The number of elements, or of those along an axis or axes."""
    dims = shape_of(a)
    return product(dims if axis is None else [dims[i] for i in normalize_axes(axis, len(dims))])
