"""Random choices: categories by their logits, permutations, elements with and without replacement."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...stage.dims import Dim, product, same_dim, same_shape
from ...stage.dtypes import FLOAT64, INT64, kind_rank, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Array
from ...stage.spec import DimLike, Shape
from ...stage.trace import bind
from ...stage.tracer import Tracer
from ..arg_reductions import argmax
from ..arguments import size_of
from ..arithmetic import add, divide_p, floating, multiply_p
from ..cumulative import cumsum
from ..formulas import half_as_single
from ..gather import dim_operand, gather_p
from ..operands import broadcast_shapes, cast, dtype_of, normalize_axis, operand, shape_of
from ..sorting import order_p, searchsorted
from ..structure import move_axis, reshape_p
from .bits import stream
from .distributions import exponential, gumbel
from .keys import as_key, sample_shape

_SUM_TOLERANCE: Final = float(np.sqrt(np.finfo(np.float64).eps))


def categorical(key: Any, logits: Any, axis: Any = -1, shape: Any = None) -> Any:
    """Indices (int64) along an axis, drawn with probabilities softmax(logits): those of the largest logit + Gumbel number.

    logits: floating, need not be normalised; -inf is never drawn where another is finite. shape: that of the result, to which the shape of
    the logits without the axis must broadcast, and is by default. The same in every runtime but for numbers that all but tie.
    """
    key, x = as_key("categorical", key), floating(logits)
    if not shape_of(x):
        raise ShapeError("categorical: 0-d logits have no axis to choose along")
    x = move_axis(x, normalize_axis(axis, len(shape_of(x))), len(shape_of(x)) - 1)
    work = half_as_single(dtype_of(x)[0])
    *batch, classes = shape_of(x)
    wanted = tuple(batch) if shape is None else sample_shape("categorical", shape)
    if not same_shape(broadcast_shapes(tuple(batch), wanted, what="categorical"), wanted):
        raise ShapeError(f"categorical: logits for a batch of shape {batch} do not broadcast to the shape {list(wanted)} that is drawn")
    return argmax(add(cast(x, work), gumbel(key, (*wanted, classes), work)), -1)


def permutation(key: Any, x: Any) -> Any:
    """An array shuffled along its first axis, all orders alike; of an integer or a named dim n, 0, ..., n - 1 (int64) in random order.

    The same in every runtime. Gradients follow the elements.
    """
    key = as_key("permutation", key)
    population, n = _population("permutation", x)
    places = _random_order(key, n, n)
    return places if population is None else bind(gather_p, population, places, axis=0, unique=True)


def _population(what: str, a: Any) -> tuple[Any, DimLike]:
    """(array or None, number of elements) of an array, or of a number that stands for as many integers."""
    if isinstance(a, Dim) or (hasattr(a, "__index__") and not isinstance(a, bool) and not getattr(a, "shape", ())):
        n = a if isinstance(a, Dim) else a.__index__()
        if not isinstance(n, Dim) and n < 0:
            raise ShapeError(f"{what}: {n} elements; a number of elements is not negative")
        return None, n
    x = operand(a, what)
    if isinstance(x, bool | int | float) or not shape_of(x):
        raise DTypeError(f"{what}: an integer, a named dim or an array with an axis is needed, got {a!r}")
    return x, shape_of(x)[0]


def _random_order(key: Any, n: DimLike, count: DimLike) -> Any:
    """The first `count` places of a random order of n: where the smallest of n random numbers lie. They are too long to tie."""
    return bind(order_p, stream(key, (n,), 63, INT64), axis=0, count=count, descending=False)


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None) -> Any:
    """Elements of an array along its first axis, or for a number n integers (int64) below n, drawn uniformly or with probabilities p.

    replace: whether an element may be drawn again; without it, all elements together are drawn as one after the other would be. p may be traced, and
    is then normalised. The same in every runtime. Raises ValueError, as NumPy does, for p that is no distribution over the elements, and for
    more draws than there are elements.
    """
    key, shape = as_key("choice", key), sample_shape("choice", shape)
    population, n = _population("choice", a)
    count = product(shape)
    if _is(n, 0) and not _is(count, 0):
        raise ShapeError("choice: a cannot be empty unless no samples are taken")
    if not replace and not isinstance(n, Dim) and not isinstance(count, Dim) and count > n:
        raise ShapeError("choice: cannot take a larger sample than population when replace is False")
    weights = None if p is None else _weights(p, n, None if replace or isinstance(count, Dim) else count)
    if replace:
        places = _with_replacement(key, n, shape, weights)
    elif weights is None:
        places = bind(reshape_p, _random_order(key, n, count), shape=shape)
    else:
        times = bind(divide_p, exponential(key, (n,)), weights)
        places = bind(reshape_p, bind(order_p, times, axis=0, count=count, descending=False), shape=shape)
    return places if population is None else bind(gather_p, population, places, axis=0, unique=not replace)


def _is(d: DimLike, value: int) -> bool:
    return not isinstance(d, Dim) and d == value


def _with_replacement(key: Any, n: DimLike, shape: Shape, weights: Any) -> Any:
    u = bind(multiply_p, cast(stream(key, shape, 53, INT64), FLOAT64), np.asarray(2.0**-53))
    if weights is None:
        # u <= 1 - 2**-53, so that u n rounds to less than n
        return cast(bind(multiply_p, u, cast(dim_operand(n), FLOAT64)), INT64)
    levels = cumsum(weights)
    total = bind(reshape_p, levels[-1:], shape=())
    return searchsorted(levels, bind(multiply_p, u, total), side="right")


def _weights(p: Any, n: DimLike, count: int | None) -> Any:
    """The probabilities as float64; ValueError where they are known to be none."""
    x = operand(p, "choice: p")
    if isinstance(x, bool | int | float) or len(shape_of(x)) != 1:
        raise ShapeError("choice: 'p' must be 1-dimensional")
    if kind_rank(dtype_of(x)[0]) < 1:
        raise DTypeError(f"choice: p are probabilities, got {short_name(dtype_of(x)[0])}")
    if not same_dim(size_of(x), n):
        raise ShapeError(f"choice: 'a' and 'p' must have same size, got {n} and {size_of(x)}")
    weights: Any = cast(x, FLOAT64)
    if not isinstance(weights, Tracer):
        _check_weights(weights, count)
    return weights


def _check_weights(p: Array, count: int | None) -> None:
    total = float(np.sum(p))
    if not np.all(p >= 0):
        raise ValueError(f"choice: probabilities are not non-negative: {p[~(p >= 0)][0]}")
    if p.size and abs(total - 1) > _SUM_TOLERANCE:
        raise ValueError(f"choice: probabilities do not sum to 1, but to {total}")
    if count is not None and np.count_nonzero(p) < count:
        raise ValueError(f"choice: fewer non-zero entries in p than the {count} that are drawn without replacement")
