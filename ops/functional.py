"""NumPy's functions that call functions of the user: apply_along_axis, apply_over_axes, piecewise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim, product
from ..stage.dtypes import BOOL
from ..stage.narrowing import is_sequence
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .arguments import array_operand, listed
from .arithmetic import where
from .comparison import logical_not, logical_or
from .control.scan import map as map_
from .joining import stack
from .operands import cast, dtype_of, normalize_axis, operand, shape_of
from .registry import implements
from .shape import expand_dims
from .structure import move_axis, reshape_p, transpose_p


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """func1d of every 1-d slice along an axis, whose place the axes of the results take.

    The function is called once for each slice, or traced once where their number is a named dim; `ons.vmap` batches instead. Raises
    ValueError where there are no slices.
    """
    x = array_operand(arr, "apply_along_axis")
    shape = shape_of(x)
    place = normalize_axis(axis, len(shape))
    others = (*shape[:place], *shape[place + 1 :])
    count = product(others)
    if not isinstance(count, Dim) and count == 0:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    rows = bind(reshape_p, move_axis(x, place, len(shape) - 1), shape=(count, shape[place]))

    def one(row: Any) -> Any:
        return array_operand(func1d(row, *args, **kwargs), "apply_along_axis: the function's result")

    results = map_(one, rows) if isinstance(count, Dim) else stack([one(rows[i]) for i in range(count)])
    inner = shape_of(results)[1:]
    results = bind(reshape_p, results, shape=(*others, *inner))
    if not inner:
        return results
    outer, ndim = len(others), len(others) + len(inner)
    order = (*range(place), *range(outer, ndim), *range(place, outer))
    return bind(transpose_p, results, permutation=order)


@implements(np.apply_over_axes)
def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Any:
    """func(a, axis) applied over one axis after the other; an axis that it takes away is put back with size 1.

    Raises ValueError for a result with other axes.
    """
    result = array_operand(a, "apply_over_axes")
    ndim = len(shape_of(result))
    for axis in listed(axes):
        place = normalize_axis(axis, ndim)
        found = array_operand(func(result, place), "apply_over_axes: the function's result")
        if len(shape_of(found)) != ndim:
            found = expand_dims(found, place)
            if len(shape_of(found)) != ndim:
                raise ValueError("function is not returning an array of the correct shape")
        result = found
    return result


def _conditions(x: Any, condlist: Any) -> list[Any]:
    """One boolean array a condition: a list of bools alone is a single condition of a 1-d x."""
    if not is_sequence(condlist):
        is_stack = len(getattr(condlist, "shape", ())) > len(shape_of(x))
        given = [condlist[i] for i in range(condlist.shape[0])] if is_stack else [condlist]
    elif len(condlist) and not isinstance(condlist[0], list | np.ndarray | Tracer) and len(shape_of(x)):
        given = [condlist]
    else:
        given = listed(condlist)
    return [cast(array_operand(c, "piecewise: condition"), BOOL) for c in given]


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """For each element the function, or the number, of the last condition that holds there, in the dtype of x; else 0.

    One function more than conditions is for where none holds. Each function is called with all of x, not with the elements chosen, and
    must be elementwise. Raises ValueError for another number of functions.
    """
    values = array_operand(x, "piecewise")
    conditions = _conditions(values, condlist)
    if len(funclist) == len(conditions) + 1:
        some = conditions[0]
        for condition in conditions[1:]:
            some = logical_or(some, condition)
        conditions.append(logical_not(some))
    elif len(funclist) != len(conditions):
        n = len(conditions)
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected")
    dtype = dtype_of(values)[0]
    result: Any = np.zeros((), dtype)
    for condition, function in zip(conditions, funclist, strict=True):
        piece = function(values, *args, **kw) if callable(function) else function
        result = where(condition, cast(operand(piece, "piecewise: value"), dtype), result)
    return result
