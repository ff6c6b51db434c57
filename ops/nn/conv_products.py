"""Convolutions as matrix products: where ONNX Runtime has no kernel (float64), or a slow one (weight gradients)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...stage.dims import Dim, product
from ...stage.dtypes import INT64
from ...stage.spec import DimLike, Shape
from ...stage.trace import bind
from ..arithmetic import add, multiply
from ..creation import arange
from ..gather import gather_p
from ..joining import join
from ..matmul import gemm_p, matmul_p
from ..operands import cast, shape_of
from ..slicing import slice_axes
from ..structure import reshape_p, transpose_p
from .windows import quotient

Ints = tuple[int, ...]


def window_indices(size: DimLike, window: DimLike, stride: int, dilation: int) -> Any:
    """The positions of an axis that each window reads: int64 [size, window]."""
    if isinstance(size, Dim) or isinstance(window, Dim):
        first = bind(reshape_p, multiply(cast(arange(size), INT64), stride), shape=(size, 1))
        return cast(add(first, multiply(cast(arange(window), INT64), dilation)), INT64)
    return np.arange(size, dtype=INT64)[:, None] * stride + np.arange(window, dtype=INT64) * dilation


def gathered_windows(x: Any, w: Any, *, strides: Ints, size: Shape, rhs_dilation: Ints, groups: DimLike, **params: Any) -> Any:
    """The convolution of x, padded already, with plain weights: its windows are gathered, then there is one matrix product a group."""
    n, channels = shape_of(x)[:2]
    kernel = shape_of(w)[2:]
    count = len(kernel)
    each, outputs = quotient(channels, groups), quotient(shape_of(w)[0], groups)
    x = bind(transpose_p, x, permutation=(0, *range(2, 2 + count), 1))
    for i in reversed(range(count)):
        x = bind(gather_p, x, window_indices(size[i], kernel[i], strides[i], rhs_dilation[i]), axis=1 + i, unique=False)
    # [N, o1, k1, o2, k2, ..., C]
    interleaved = [d for pair in zip(size, kernel, strict=True) for d in pair]
    x = bind(reshape_p, x, shape=(n, *interleaved, groups, each))
    last = 1 + 2 * count
    x = bind(transpose_p, x, permutation=(last, 0, *range(1, last, 2), *range(2, last, 2), last + 1))
    x = bind(reshape_p, x, shape=(groups, n * product(size), product(kernel) * each))
    w = bind(reshape_p, w, shape=(groups, outputs, each, *kernel))
    w = bind(transpose_p, w, permutation=(0, *range(3, 3 + count), 2, 1))
    w = bind(reshape_p, w, shape=(groups, product(kernel) * each, outputs))
    y = bind(reshape_p, bind(matmul_p, x, w), shape=(groups, n, *size, outputs))
    y = bind(transpose_p, y, permutation=(1, 0, 2 + count, *range(2, 2 + count)))
    return bind(reshape_p, y, shape=(n, groups * outputs, *size))


def by_windows(x: Any, w: Any, *, strides: Ints, size: Ints, rhs_dilation: Ints, groups: int, **params: Any) -> Any:
    """The convolution of x, padded already, with plain weights: one slice of x and one matrix product for each output position."""
    n, channels = shape_of(x)[:2]
    kernel = shape_of(w)[2:]
    each, outputs = quotient(channels, groups), quotient(shape_of(w)[0], groups)
    inner = product((each, *kernel))
    rows = bind(reshape_p, w, shape=(outputs, inner) if groups == 1 else (groups, outputs, inner))
    columns = rows if groups == 1 else bind(transpose_p, rows, permutation=(0, 2, 1))
    results: list[Any] = []
    for place in itertools.product(*map(range, size)):
        starts = [p * s for p, s in zip(place, strides, strict=True)]
        parts = {2 + i: slice(a, a + (k - 1) * d + 1, d) for i, (a, k, d) in enumerate(zip(starts, kernel, rhs_dilation, strict=True))}
        window = slice_axes(x, parts)
        if groups == 1:
            y = bind(gemm_p, bind(reshape_p, window, shape=(n, inner)), columns, transpose_x=False, transpose_y=True)
        else:
            window = bind(transpose_p, bind(reshape_p, window, shape=(n, groups, inner)), permutation=(1, 0, 2))
            y = bind(transpose_p, bind(matmul_p, window, columns), permutation=(1, 0, 2))
        results.append(bind(reshape_p, y, shape=(1, n, groups * outputs)))
    y = bind(transpose_p, join(results, 0), permutation=(1, 2, 0))
    return bind(reshape_p, y, shape=(n, groups * outputs, *size))
