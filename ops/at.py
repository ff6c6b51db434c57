"""x.at[index].set(v) and its kin: functional updates, on traced arrays and, by `ons.at(x)`, on anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, promote, short_name
from ..stage.errors import UnsupportedError
from ..stage.tracer import Tracer
from .arithmetic import add, multiply, negative, true_divide
from .index_plan import make_plan
from .indexing import like_array, put_plan, reshaped, setitem, single_mask, take_plan
from .operands import cast, dtype_of, operand, shape_of
from .registry import NUMPY, implements
from .scatter import SCATTER
from .views import copied


class At:
    """`ons.at(x)`: index it to say what is updated."""

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self._x, index)

    def __repr__(self) -> str:
        return f"at({self._x!r})"


class AtIndex:
    """Part of an array; each method gives the whole array with that part updated, and leaves the array itself as it is.

    Values broadcast to the part. Where the index names an element several times `set` keeps the last value and the others apply all.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any) -> None:
        self._x = x
        self._index = index

    def get(self) -> Any:
        """x[index]."""
        return copied(take_plan(self._x, make_plan(self._index, shape_of(self._x))))

    def set(self, values: Any) -> Any:
        """x with the part replaced; values are cast to x's dtype, as NumPy's assignment does."""
        return setitem(self._x, self._index, values)

    def add(self, values: Any) -> Any:
        """x with values added to the part. Raises TypeError for floats added to integers, as `np.add.at` does."""
        return self._update("add", add, values)

    def subtract(self, values: Any) -> Any:
        """x with values subtracted from the part."""
        values = self._cast("subtract", values)
        return self._update("add", add, negative(values))

    def multiply(self, values: Any) -> Any:
        """x with the part multiplied by values.

        Where elements may be named twice its gradient is defined with respect to x only.
        """
        return self._update("multiply", multiply, values)

    def divide(self, values: Any) -> Any:
        """x with the part divided by values. Raises TypeError for integers."""
        values = self._cast("divide", values, true_divide)
        if not self._may_repeat():
            return self._update("divide", true_divide, values)
        ones = np.ones((), self._x.dtype)
        divisors = AtIndex(NUMPY[np.broadcast_to](ones, shape_of(self._x)), self._index).multiply(values)
        return true_divide(self._x, divisors)

    def min(self, values: Any) -> Any:
        """x with the part's elementwise minimum with values; those that are equal share the gradient."""
        return self._update("min", NUMPY[np.minimum], values)

    def max(self, values: Any) -> Any:
        """x with the part's elementwise maximum with values; those that are equal share the gradient."""
        return self._update("max", NUMPY[np.maximum], values)

    def power(self, values: Any) -> Any:
        """x with the part raised to values. Raises NotImplementedError where an index may name elements twice."""
        values = self._cast("power", values)
        if self._may_repeat():
            raise UnsupportedError(
                "at[].power: the index may name an element twice; use one traced scalar, or constant indices without duplicates"
            )
        return self._update("power", NUMPY[np.power], values)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """x with `function` applied to the part, once for each element."""
        return self.set(function(self.get()))

    def _cast(self, name: str, values: Any, result: Callable[..., Any] | None = None) -> Any:
        """Values in x's dtype; TypeError where NumPy's in-place operators would refuse."""
        values = operand(values, "values")
        dtype = self._x.dtype
        common = promote([(dtype, False), dtype_of(values)])[0]
        if result is true_divide and common.kind in "biu":
            common = np.dtype(np.float64)
        if not np.can_cast(common, dtype, casting="same_kind"):
            raise TypeError(f"at[].{name}: cannot put {short_name(common)} results into an array of {short_name(dtype)}; cast one of them")
        return like_array(cast(values, dtype), self._x)

    def _may_repeat(self) -> bool:
        if single_mask(self._index, shape_of(self._x)) is not None:
            return False
        return not make_plan(self._index, shape_of(self._x)).unique

    def _update(self, name: str, combine: Callable[[Any, Any], Any], values: Any) -> Any:
        x, values = self._x, self._cast(name, values)
        mask = single_mask(self._index, shape_of(x))
        if mask is not None:
            row = len(shape_of(x)) - mask.ndim
            if len(shape_of(values)) <= row:
                return masked_update(x, mask, lambda part: combine(part, values))
        plan = make_plan(self._index, shape_of(x))
        if plan.unique:
            return copied(put_plan(x, plan, combine(take_plan(x, plan), values)))
        if x.dtype != BOOL:
            return put_plan(x, plan, values, SCATTER[name])
        # Booleans: adding is or, multiplying is and.
        narrow = np.dtype(np.uint8)
        kind = {"add": "max", "multiply": "min"}.get(name, name)
        return cast(put_plan(cast(x, narrow), plan, cast(values, narrow), SCATTER[kind]), BOOL)


def masked_update(x: Any, mask: Any, update: Callable[[Any], Any]) -> Any:
    """`update(x)` where a mask over the first axes of x holds, else x."""
    where = NUMPY[np.where]
    mask = reshaped(mask, (*mask.shape, *(1,) * (len(x.shape) - mask.ndim)))
    # A 1 where nothing is updated keeps NaN and infinities of the unused branch out of the gradient.
    return where(mask, update(where(mask, x, np.ones((), x.dtype))), x)


def at(x: Any) -> At:
    """`at(x)[index].set(v)`, `.add`, `.multiply`, `.divide`, `.min`, `.max`, `.power`, `.get()`: x with a part updated, as a new array.

    x: a traced array, a NumPy array (its values may still be traced), or what stands for one. Raises IndexError as indexing does.
    """
    x = operand(x, "at")
    return At(x if isinstance(x, Tracer) else np.asarray(x))


@implements(attribute="at")
def _at_attribute(x: Any) -> At:
    return At(x)
