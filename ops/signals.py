"""Discrete convolution and correlation of sequences: np.convolve and np.correlate.

The products of every pair are laid out as rows, each shifted by one against the one before, and added up: no element meets a padding
zero, so that infinities and NaN reach just the sums they belong to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, bounds, max_dim, min_dim
from ..stage.dtypes import BOOL, FLOAT32, INT64, is_float
from ..stage.errors import ShapeError
from ..stage.spec import DimLike
from ..stage.trace import bind
from .arguments import array_operand
from .arithmetic import add, multiply
from .comparison import not_equal
from .operands import cast, dtype_of, promoted, shape_of
from .registry import implements
from .slicing import pad, reverse, slice_axis
from .structure import reduce_sum_p, reshape_p

# Of so many products at most are laid out at once, where the sizes are known.
_MAX_PRODUCTS = 1 << 22
_MODES = {"valid": "valid", "same": "same", "full": "full", 0: "valid", 1: "same", 2: "full"}


def _sequence(x: Any, what: str) -> Any:
    values = array_operand(x, what)
    if len(shape_of(values)) == 0:
        return bind(reshape_p, values, shape=(1,))
    if len(shape_of(values)) > 1:
        raise ValueError("object too deep for desired array")
    return values


def _size(x: Any) -> DimLike:
    return shape_of(x)[0]


def _is_empty(x: Any) -> bool:
    size = _size(x)
    return not isinstance(size, Dim) and size == 0


def _mode(mode: Any) -> str:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    return _MODES[mode]


def _at_least(n: DimLike, m: DimLike) -> bool | None:
    """Whether n >= m; None where it hangs on sizes that are known only at run time."""
    low, high = bounds(n - m)
    if low is not None and low >= 0:
        return True
    return False if high is not None and high < 0 else None


def _shifted_sums(short: Any, long: Any) -> Any:
    """The full convolution, [m + n - 1], of sequences of m and n elements."""
    m, n = _size(short), _size(long)
    products = multiply(bind(reshape_p, short, shape=(m, 1)), bind(reshape_p, long, shape=(1, n)))
    # A row of m + n elements read at the stride m + n - 1 moves on by one from row to row.
    flat = bind(reshape_p, pad(products, [0, 0], [0, m]), shape=(m * (m + n),))
    rows = bind(reshape_p, pad(flat, [0], [-m]), shape=(m, m + n - 1))
    return bind(reduce_sum_p, rows, axes=(0,), keepdims=False)


def _convolve_full(a: Any, v: Any) -> Any:
    short, long = (a, v) if _at_least(_size(v), _size(a)) else (v, a)
    m, n = _size(short), _size(long)
    if isinstance(m, Dim) or isinstance(n, Dim) or m * (m + n) <= _MAX_PRODUCTS:
        return _shifted_sums(short, long)
    step = max(1, _MAX_PRODUCTS // (m + n))
    total: Any = None
    for start in range(0, m, step):
        stop = min(start + step, m)
        part = pad(_shifted_sums(slice_axis(short, 0, start, stop), long), [start], [m - stop])
        total = part if total is None else add(total, part)
    return total


def _crop(full: Any, start: DimLike, length: DimLike) -> Any:
    return pad(full, [-start], [start + length - _size(full)])


def _convolved(a: Any, v: Any, mode: str, start_of_same: DimLike) -> Any:
    x, y = promoted(a, v, strong=True)
    dtype = dtype_of(x)[0]
    work = INT64 if dtype == BOOL else FLOAT32 if is_float(dtype) and dtype.itemsize == 2 else dtype
    full = _convolve_full(cast(x, work), cast(y, work))
    n, m = _size(x), _size(y)
    if mode == "valid":
        full = _crop(full, min_dim(n, m) - 1, max_dim(n, m) - min_dim(n, m) + 1)
    elif mode == "same":
        full = _crop(full, start_of_same, max_dim(n, m))
    return not_equal(full, np.zeros((), INT64)) if dtype == BOOL else cast(full, dtype)


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """The convolution of two 1-d sequences: [n + m - 1], the max(n, m) in the middle ("same"), or where they overlap whole ("valid").

    Half-width floats are summed in float32. Raises ValueError for empty sequences, more axes, or another mode.
    """
    x, y = _sequence(a, "convolve: a"), _sequence(v, "convolve: v")
    if _is_empty(x):
        raise ValueError("a cannot be empty")
    if _is_empty(y):
        raise ValueError("v cannot be empty")
    return _convolved(x, y, _mode(mode), (min_dim(_size(x), _size(y)) - 1) // 2)


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """sum_i a[i + k] v[i] of two 1-d sequences, for each shift k at which they overlap ("full"), overlap whole ("valid"), or "same".

    Half-width floats are summed in float32. Raises ValueError for empty sequences, more axes, or another mode; ShapeError for "same"
    of sequences of which it is not known which is the longer one.
    """
    x, y = _sequence(a, "correlate: a"), _sequence(v, "correlate: v")
    if _is_empty(x):
        raise ValueError("first array argument cannot be empty")
    if _is_empty(y):
        raise ValueError("second array argument cannot be empty")
    chosen = _mode(mode)
    longer = _at_least(_size(x), _size(y))
    if longer is None and chosen == "same":
        raise ShapeError(
            f"correlate: mode='same' needs to know which sequence is longer, got {_size(x)} and {_size(y)} elements; "
            "use mode='full' and slice"
        )
    start = (_size(y) - 1) // 2 if longer else _size(x) // 2
    return _convolved(x, reverse(y, (0,)), chosen, start)
