"""resize: spatial axes sampled at other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dims import Dim, exact_div, same_dim
from ...stage.dtypes import INT64
from ...stage.errors import ShapeError
from ...stage.narrowing import is_sequence
from ...stage.spec import DimLike
from ...stage.trace import bind
from ..arithmetic import add, floating, multiply, subtract, true_divide
from ..creation import arange
from ..division import floor_divide
from ..extremum import clip, minimum
from ..formulas import half_as_single
from ..gather import gather_p
from ..operands import cast, dtype_of, operand, shape_of
from ..structure import broadcast, dim_or_int, reshape_p
from .windows import spatial_axes

METHODS = ("nearest", "linear")


def resize(x: Any, size: Any, *, method: str = "linear") -> Any:
    """x: [N, C, *spatial] sampled at `size` points an axis: an int or dim, or one for each spatial axis.

    Point i stands at (i + 0.5) * n / size - 0.5 among the n elements of its axis: pixels are areas whose centres are the samples
    (ONNX's half_pixel, PyTorch's align_corners=False). "nearest" takes the element whose area holds the point (any dtype); "linear" weighs
    the two around it, along each axis, the outermost elements continued, without smoothing where there are fewer points than elements.
    float16 and bfloat16 are computed in float32. Raises ValueError for another method and for an empty axis.
    """
    if method not in METHODS:
        raise ValueError(f"resize: the method is one of {', '.join(METHODS)}; got {method!r}")
    x = floating(x) if method == "linear" else operand(x, "resize")
    dtype = dtype_of(x)[0]
    x = cast(x, dtype)
    shape = shape_of(x)
    count = spatial_axes("resize", len(shape))
    sizes = tuple(dim_or_int(s) for s in size) if is_sequence(size) else (dim_or_int(size),) * count
    if len(sizes) != count:
        raise ShapeError(f"resize: {len(sizes)} sizes, {list(sizes)}, for {count} spatial axes")
    for n, o in zip(shape[2:], sizes, strict=True):
        if (not isinstance(n, Dim) and n == 0) or (not isinstance(o, Dim) and o < 1):
            raise ShapeError(f"resize: sizes are at least 1, before and after; x has shape {list(shape)}, size is {size}")
    if method == "nearest":
        for i, (n, o) in enumerate(zip(shape[2:], sizes, strict=True)):
            x = _nearest(x, 2 + i, n, o)
        return x
    x = cast(x, half_as_single(dtype))
    for i, (n, o) in enumerate(zip(shape[2:], sizes, strict=True)):
        x = _linear(x, 2 + i, n, o)
    return cast(x, dtype)


def _nearest(x: Any, axis: int, n: DimLike, o: DimLike) -> Any:
    if same_dim(n, o):
        return x
    shape = shape_of(x)
    times = exact_div(o, n)
    if times is not None:
        # Each element stands for itself several times: the gradient is then a sum
        x = bind(reshape_p, x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
        x = broadcast(x, (*shape[: axis + 1], times, *shape[axis + 1 :]))
        return bind(reshape_p, x, shape=(*shape[:axis], o, *shape[axis + 1 :]))
    return bind(gather_p, x, cast(floor_divide(_doubled(n, o), _operand(o, 2)), INT64), axis=axis, unique=False)


def _doubled(n: DimLike, o: DimLike) -> Any:
    """(2 i + 1) * n for the points i: 2 * size times where they stand, plus a half."""
    points = cast(arange(o), INT64)
    return multiply(add(multiply(points, 2), 1), _operand(n, 1))


def _operand(d: DimLike, times: int) -> Any:
    return cast(operand(d * times), INT64) if isinstance(d, Dim) else np.asarray(d * times, INT64)


def _linear(x: Any, axis: int, n: DimLike, o: DimLike) -> Any:
    if same_dim(n, o):
        return x
    dtype = dtype_of(x)[0]
    # In integers: where a point stands is a multiple of 1 / (2 size)
    last = _operand(n - 1, 1)
    places = clip(subtract(_doubled(n, o), _operand(o, 1)), np.asarray(0, INT64), multiply(last, _operand(o, 2)))
    before = cast(floor_divide(places, _operand(o, 2)), INT64)
    rest = subtract(places, multiply(before, _operand(o, 2)))
    share = cast(true_divide(cast(rest, np.dtype(np.float64)), cast(_operand(o, 2), np.dtype(np.float64))), dtype)
    share = bind(reshape_p, share, shape=(o, *(1,) * (len(shape_of(x)) - axis - 1)))
    after = cast(minimum(add(before, 1), last), INT64)
    a, b = (bind(gather_p, x, places, axis=axis, unique=False) for places in (before, after))
    return add(multiply(a, subtract(np.ones((), dtype), share)), multiply(b, share))
