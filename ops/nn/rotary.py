"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dims import Dim
from ...stage.dtypes import FLOAT64
from ...stage.errors import ShapeError
from ...stage.trace import bind
from ..arithmetic import add, floating, multiply, subtract
from ..formulas import half_as_single
from ..joining import join
from ..operands import broadcast_shapes, cast, dtype_of, operand, shape_of
from ..slicing import slice_axis
from ..structure import reshape_p
from ..trigonometric import cos, sin


def rotary(x: Any, positions: Any, *, base: float = 10000, interleaved: bool = False) -> Any:
    """x: [..., T, D] with its pairs of features turned by angles position * base**(-2 i / D) (Su et al., 2021, arXiv 2104.09864).

    positions: [T], or [B..., T] for the first axes of x. Pair i is features i and i + D / 2, or 2 i and 2 i + 1 if interleaved. Angles are
    computed in float64, float16 and bfloat16 turned in float32. Raises ValueError for an odd or named D, and for shapes that do not fit.
    """
    x = floating(x)
    dtype, shape = dtype_of(x)[0], shape_of(x)
    size = shape[-1] if len(shape) > 1 else None
    if size is None or isinstance(size, Dim) or size % 2:
        raise ShapeError(f"rotary: x is [..., length, size] with an even size, got shape {list(shape)}")
    wide = half_as_single(dtype)
    angles = multiply(_aligned(positions, shape), np.float64(base) ** (-np.arange(0, size, 2, dtype=FLOAT64) / max(size, 1)))
    turn, slide = cast(cos(angles), wide), cast(sin(angles), wide)
    x = cast(x, wide)
    if interleaved:
        pairs = bind(reshape_p, x, shape=(*shape[:-1], size // 2, 2))
        a, b = (bind(reshape_p, slice_axis(pairs, len(shape), i, i + 1), shape=(*shape[:-1], size // 2)) for i in (0, 1))
    else:
        a, b = slice_axis(x, len(shape) - 1, 0, size // 2), slice_axis(x, len(shape) - 1, size // 2, size)
    turned = [subtract(multiply(a, turn), multiply(b, slide)), add(multiply(b, turn), multiply(a, slide))]
    if interleaved:
        columns = [bind(reshape_p, t, shape=(*shape[:-1], size // 2, 1)) for t in turned]
        return cast(bind(reshape_p, join(columns, len(shape)), shape=shape), dtype)
    return cast(join(turned, len(shape) - 1), dtype)


def _aligned(positions: Any, shape: Any) -> Any:
    """Positions in float64, as [..., T, 1] that broadcasts with x: given axes before the last are x's first ones."""
    positions = cast(operand(positions, "rotary: positions"), FLOAT64)
    given = shape_of(positions)
    if not 1 <= len(given) < len(shape):
        raise ShapeError(f"rotary: positions have shape {list(given)}, x has {list(shape)}; [length] or [batch, length] is needed")
    missing = len(shape) - 1 - len(given)
    full = (*given[:-1], *(1,) * missing, given[-1], 1)
    try:
        broadcast_shapes(full, (*shape[:-1], 1), what="rotary: positions and x")
    except ShapeError as error:
        raise ShapeError(f"{error.message}; positions have shape {list(given)}, x has {list(shape)}") from None
    return bind(reshape_p, positions, shape=full)
