"""Reductions: sum, mean and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dtypes import FLOAT32, FLOAT64, INT64, DType, as_dtype, kind_rank
from ..stage.dims import product
from ..stage.trace import bind
from .arithmetic import true_divide
from .operands import cast, dtype_of, normalize_axes, operand
from .registry import implements
from .structure import reduce_sum_p


def _sum_dtype(dtype: DType) -> DType:
    """NumPy sums booleans and small integers in the 64-bit integer of their signedness."""
    if kind_rank(dtype) == 2:
        return dtype
    return np.dtype(np.uint64) if dtype.kind == "u" else INT64


@implements(np.sum, method="sum")
def sum(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """The sum over axes (all by default); integers and booleans are summed in 64 bits, as NumPy does."""
    x = operand(x)
    x = cast(x, _sum_dtype(dtype_of(x)[0]) if dtype is None else as_dtype(dtype))
    return bind(reduce_sum_p, x, axes=normalize_axes(axis, len(x.shape)), keepdims=bool(keepdims))


@implements(np.mean, method="mean")
def mean(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """The mean over axes; of integers in float64; float16 is summed in float32."""
    x = operand(x)
    given = dtype_of(x)[0]
    result = as_dtype(dtype) if dtype is not None else given if kind_rank(given) == 2 else FLOAT64
    work = FLOAT32 if result.itemsize == 2 else result
    axes = normalize_axes(axis, len(x.shape))
    total = bind(reduce_sum_p, cast(x, work), axes=axes, keepdims=bool(keepdims))
    count = product([x.shape[a] for a in axes])
    return cast(true_divide(total, cast(operand(count), work)), result)
