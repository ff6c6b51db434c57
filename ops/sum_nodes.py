"""How sums are lowered: accurately, however many elements there are."""

from __future__ import annotations

from typing import Any

from ..stage.dims import Dim, product
from ..stage.dtypes import FLOAT32, FLOAT64, INT64, is_float
from ..stage.spec import DimLike, Shape


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def sum_nodes(b: Any, x: str, shape: Shape, axes: tuple[int, ...], keepdims: bool) -> str:
    """Write the sum of a value of that shape, accurate for floats however many there are."""
    dtype = b.dtype(x)
    if not axes:
        return b.op("Identity", x)
    if not is_float(dtype):
        return b.op("ReduceSum", x, b.const(list(axes), INT64), keepdims=int(keepdims))
    if dtype.itemsize == 2:
        x = b.cast(x, FLOAT32)
    count = product([shape[a] for a in axes])
    if isinstance(count, Dim):
        # How many are summed is not known: float64 keeps the error of ONNX Runtime's plain summation out of float32.
        if dtype.itemsize < 8:
            x = b.cast(x, FLOAT64)
    elif count > _STAGE:
        return b.cast(_sum_in_stages(b, x, shape, axes, keepdims), dtype)
    return b.cast(b.op("ReduceSum", x, b.const(list(axes), INT64), keepdims=int(keepdims)), dtype)


_STAGE, _BLOCK = 1024, 256


def _sum_in_stages(b: Any, x: str, shape: Shape, axes: tuple[int, ...], keepdims: bool) -> str:
    """Blocks of at most _BLOCK elements are summed, then their sums: ONNX Runtime adds up in a few long chains, whose
    error grows with their length (a million normal float32 numbers are off by 0.004 to 0.009).
    """
    runs: list[tuple[DimLike, bool]] = []
    for axis, size in enumerate(shape):
        if runs and runs[-1][1] == (axis in axes):
            runs[-1] = (runs[-1][0] * size, axis in axes)
        else:
            runs.append((size, axis in axes))
    for i in reversed(range(len(runs))):
        size, reduced = runs[i]
        while reduced and isinstance(size, int) and size > _BLOCK:
            block = next((d for d in range(_BLOCK, 15, -1) if size % d == 0), 0)
            if block == 0:
                block = _BLOCK
                filled = -(-size // block) * block
                sizes = tuple(d for d, _ in runs)
                x = b.op("Reshape", x, b.shape(sizes), allowzero=1)
                ends = [0] * len(runs) + [filled - size if j == i else 0 for j in range(len(runs))]
                x = b.op("Pad", x, b.const(ends, INT64))
                size = filled
            blocks = tuple(d for j, (d, _) in enumerate(runs) for d in ((size // block, block) if j == i else (d,)))
            x = b.op(
                "ReduceSum",
                b.op("Reshape", x, b.shape(blocks), allowzero=1),
                b.const([i + 1], INT64),
                keepdims=0,
            )
            size = size // block
            runs[i] = (size, True)
    x = b.op("Reshape", x, b.shape(tuple(d for d, _ in runs)), allowzero=1)
    x = b.op("ReduceSum", x, b.const([i for i, (_, reduced) in enumerate(runs) if reduced], INT64), keepdims=0)
    return b.op("Reshape", x, b.shape(reduced_shape(shape, axes, keepdims)), allowzero=1)
