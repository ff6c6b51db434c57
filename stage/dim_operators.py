"""The Python face of dims: operators, comparisons, NumPy's dispatch, and the errors of what a size cannot do yet.

A mixin: `Dim` (dim_algebra.py) gives it `exact` arithmetic and `decide`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .errors import ConcretizationError

if TYPE_CHECKING:
    from .dim_algebra import DimLike

ArrayHook: TypeAlias = Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
_array_hook: ArrayHook | None = None


def set_array_hook(hook: ArrayHook | None) -> None:
    """Install arithmetic of dims with arrays and floats, and NumPy's ufuncs on dims; without it they are a TypeError.

    Called as hook(ufunc, method, inputs, kwargs); the tracing layer sets it. None takes it away again.
    """
    global _array_hook
    _array_hook = hook


_EXACT: Final = frozenset({np.add, np.subtract, np.multiply, np.floor_divide, np.remainder})
_COMPARE: Final[dict[Any, str]] = {
    np.equal: "==",
    np.not_equal: "!=",
    np.less: "<",
    np.less_equal: "<=",
    np.greater: ">",
    np.greater_equal: ">=",
}
_MIRROR: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class DimOperators:
    """Arithmetic (+ - * // %) with ints and dims gives dims or ints. Comparisons give a bool where the answer is the
    same for all sizes, else ConcretizationError, as do int(), float(), use as an index, and mostly bool().
    """

    __slots__ = ()
    __array_priority__ = 1000

    def exact(self, ufunc: Any, a: DimLike, b: DimLike) -> DimLike:
        """a ufunc b, for the five ufuncs that keep integers."""
        raise NotImplementedError

    def decide(self, op: str, other: DimLike) -> bool | None:
        """self op other if it is the same for all sizes, else None."""
        raise NotImplementedError

    def negated(self) -> DimLike:
        """-self."""
        raise NotImplementedError

    def __add__(self, other: DimLike) -> DimLike:
        return _binary(np.add, self, other)

    def __radd__(self, other: DimLike) -> DimLike:
        return _binary(np.add, other, self)

    def __sub__(self, other: DimLike) -> DimLike:
        return _binary(np.subtract, self, other)

    def __rsub__(self, other: DimLike) -> DimLike:
        return _binary(np.subtract, other, self)

    def __mul__(self, other: DimLike) -> DimLike:
        return _binary(np.multiply, self, other)

    def __rmul__(self, other: DimLike) -> DimLike:
        return _binary(np.multiply, other, self)

    def __floordiv__(self, other: DimLike) -> DimLike:
        return _binary(np.floor_divide, self, other)

    def __rfloordiv__(self, other: DimLike) -> DimLike:
        return _binary(np.floor_divide, other, self)

    def __mod__(self, other: DimLike) -> DimLike:
        return _binary(np.remainder, self, other)

    def __rmod__(self, other: DimLike) -> DimLike:
        return _binary(np.remainder, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary(np.true_divide, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary(np.true_divide, other, self)

    def __pow__(self, other: Any) -> Any:
        return _binary(np.power, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _binary(np.power, other, self)

    def __neg__(self) -> DimLike:
        return self.negated()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # NumPy's integers do not defer to us in `np.int64(3) + B` and `np.int64(3) < B`: these come in here, the
        # latter as a 0-d array.
        if method == "__call__" and len(inputs) == 2 and not kwargs and inputs[1] is self:
            a = inputs[0]
            if ufunc in _EXACT and isinstance(a, np.integer):
                return _binary(ufunc, a, self)
            if ufunc in _COMPARE and getattr(a, "shape", None) == () and a.dtype.kind in "iu":
                return _compare(_MIRROR[_COMPARE[ufunc]], self, int(a))
        return NotImplemented if _array_hook is None else _array_hook(ufunc, method, inputs, kwargs)

    def __hash__(self) -> int:  # defining == would take it away
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return _compare("==", self, other)

    def __ne__(self, other: object) -> bool:
        return _compare("!=", self, other)

    def __lt__(self, other: DimLike) -> bool:
        return _compare("<", self, other)

    def __le__(self, other: DimLike) -> bool:
        return _compare("<=", self, other)

    def __gt__(self, other: DimLike) -> bool:
        return _compare(">", self, other)

    def __ge__(self, other: DimLike) -> bool:
        return _compare(">=", self, other)

    def __bool__(self) -> bool:
        answer = self.decide("!=", 0)
        if answer is None:
            raise _no_value(self, "a bool")
        return answer

    def __index__(self) -> int:
        raise _no_value(self, "an int")

    def __int__(self) -> int:
        raise _no_value(self, "an int")

    def __float__(self) -> float:
        raise _no_value(self, "a float")


def _no_value(d: DimOperators, what: str) -> ConcretizationError:
    return ConcretizationError(
        f"the dim {d} is symbolic and cannot become {what} while staging. Make arrays of that size with "
        "ons.numpy.arange/zeros/ones/full/eye/linspace or np.arange(n, like=x), use the dim in arithmetic with arrays "
        "as it is, or freeze the size in the spec (an int in place of the name)"
    )


def _operand(x: Any) -> Any:
    """The exact dim that x is, None if it is none."""
    number: Any = x
    if isinstance(x, DimOperators):
        return x
    return int(number) if isinstance(x, int | np.integer) else None


def _binary(ufunc: Any, a: Any, b: Any) -> Any:
    x, y = _operand(a), _operand(b)
    dim, other = (a, b) if isinstance(a, DimOperators) else (b, a)
    if x is not None and y is not None and ufunc in _EXACT:
        return dim.exact(ufunc, x, y)
    if _array_hook is None or not isinstance(other, DimOperators | int | float | complex | np.ndarray | np.generic):
        return NotImplemented
    return _array_hook(ufunc, "__call__", (a, b), {})


def _compare(op: str, a: DimOperators, b: Any) -> bool:
    y = _operand(b)
    # `n == 2.0` must not be plain False, as it would be by NotImplemented.
    if op in ("==", "!=") and isinstance(b, float) and not isinstance(b, np.generic):
        if not b.is_integer():
            return op == "!="
        y = int(b)
    if y is None:
        return NotImplemented
    answer = a.decide(op, y)
    if answer is None:
        raise ConcretizationError(
            f"cannot decide {a} {op} {y} while staging: it is true for some sizes and false for others. "
            "If it always holds, state it in the spec: the same name for equal dims, or a size in place of a name. "
            "Else decide inside the program: compare with np.equal, np.less, ... and use ons.cond or np.where"
        )
    return answer
