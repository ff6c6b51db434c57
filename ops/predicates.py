"""Questions about whole arrays and their elements: isclose, allclose, array_equal, isin and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import same_shape
from ..stage.dtypes import BOOL, FLOAT64, kind_rank
from ..stage.trace import bind
from .arguments import array_operand, size_of
from .arithmetic import add, multiply, subtract
from .comparison import equal, isfinite, isnan, less_equal, logical_and, logical_not, logical_or
from .floating_point import absolute
from .operands import cast, dtype_of, promoted, shape_of
from .reductions import all as all_
from .reductions import any as any_
from .registry import implements
from .structure import broadcast, reshape_p


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |a - b| <= atol + rtol * |b|, element by element; equal infinities are close, NaN to NaN only with equal_nan."""
    x, y = promoted(array_operand(a, "isclose"), array_operand(b, "isclose"), strong=True)
    if kind_rank(dtype_of(x)[0]) < 2:
        x, y = cast(x, FLOAT64), cast(y, FLOAT64)
    near = logical_and(less_equal(absolute(subtract(x, y)), add(atol, multiply(rtol, absolute(y)))), isfinite(y))
    result = logical_or(near, equal(x, y))
    return logical_or(result, logical_and(isnan(x), isnan(y))) if equal_nan else result


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all elements are close: a traced boolean; see `isclose`."""
    return all_(isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether shapes and elements are equal: a traced boolean, or False where the shapes differ."""
    x, y = array_operand(a1, "array_equal"), array_operand(a2, "array_equal")
    if not same_shape(shape_of(x), shape_of(y)):
        return False
    same = equal(x, y)
    return all_(logical_or(same, logical_and(isnan(x), isnan(y))) if equal_nan else same)


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether arrays are equal after broadcasting: a traced boolean, or False where they do not broadcast."""
    try:
        return all_(equal(a1, a2))
    except ValueError:
        return False


@implements(np.isin)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Any:
    """Whether each element is among `test_elements`: all pairs are compared."""
    x, y = array_operand(element, "isin"), array_operand(test_elements, "isin")
    column = bind(reshape_p, x, shape=(*shape_of(x), 1))
    found = any_(equal(column, bind(reshape_p, y, shape=(size_of(y),))), -1)
    return logical_not(found) if invert else found


@implements(np.isposinf)
def isposinf(x: Any) -> Any:
    """Whether each element is +infinity."""
    return equal(x, np.inf)


@implements(np.isneginf)
def isneginf(x: Any) -> Any:
    """Whether each element is -infinity."""
    return equal(x, -np.inf)


@implements(np.isreal)
def isreal(x: Any) -> Any:
    """True for each element: complex numbers are not supported."""
    return broadcast(np.ones((), BOOL), shape_of(array_operand(x, "isreal")))


@implements(np.iscomplex)
def iscomplex(x: Any) -> Any:
    """False for each element."""
    return broadcast(np.zeros((), BOOL), shape_of(array_operand(x, "iscomplex")))
