"""Scaled dot-product attention, with masks and grouped heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...stage.dims import Dim, same_dim
from ...stage.dtypes import BOOL, is_float, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.spec import DimLike, Shape
from ...stage.trace import bind
from ..arithmetic import add, floating, multiply, true_divide, where
from ..comparison import greater_equal
from ..creation import diagonal_mask
from ..exponential import sqrt
from ..formulas import half_as_single
from ..matmul import matmul, swap_last
from ..operands import broadcast_shapes, cast, dtype_of, operand, promoted, shape_of
from ..structure import reshape_p
from .softmax import softmax
from .windows import quotient


def attention(q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False, scale: Any = None) -> Any:
    """softmax(scale * q @ k^T) @ v (Vaswani et al., 2017, arXiv 1706.03762): [B, H, T, D], [B, G, S, D], [B, G, S, E] to [B, H, T, E].

    G divides H: head h reads the keys and values of group h // (H / G), which are not copied (Ainslie et al., 2023, arXiv 2305.13245).
    mask: broadcasts to [B, H, T, S]; booleans say what is attended to, numbers are added to the scores. causal: query i attends to keys
    0 to i. scale: 1 / sqrt(D) by default. A query that a boolean mask leaves nothing gives zeros. float16 and bfloat16 are computed in
    float32. Raises ValueError for shapes that do not fit.
    """
    q, k, v = promoted(floating(q), floating(k), floating(v), strong=True)
    dtype = dtype_of(q)[0]
    b, h, t, d = _shape("q", q)
    groups, s = _check(shape_of(q), _shape("k", k), _shape("v", v))
    each = quotient(h, groups)
    wide = half_as_single(dtype)
    q, k, v = cast(q, wide), cast(k, wide), cast(v, wide)
    # The queries of a group's heads are the rows of one matrix
    q = bind(reshape_p, multiply(q, _scale(scale, d, wide)), shape=(b, groups, each * t, d))
    scores = bind(reshape_p, matmul(q, swap_last(k)), shape=(b, h, t, s))
    scores, allowed = _masked(scores, mask, causal, wide)
    weights = softmax(scores)
    if allowed is not None:
        weights = where(allowed, weights, np.zeros((), wide))
    y = matmul(bind(reshape_p, weights, shape=(b, groups, each * t, s)), v)
    return cast(bind(reshape_p, y, shape=(b, h, t, shape_of(v)[3])), dtype)


def _scale(scale: Any, d: DimLike, dtype: Any) -> Any:
    if scale is not None:
        return cast(operand(scale, "attention: scale"), dtype)
    if isinstance(d, Dim):
        return true_divide(np.ones((), dtype), sqrt(cast(operand(d), dtype)))
    return np.asarray(1 / math.sqrt(d) if d else 1.0, dtype)


def _masked(scores: Any, mask: Any, causal: bool, dtype: Any) -> tuple[Any, Any]:
    """The scores with what is not attended to far below the others, and the mask where it may leave a query nothing."""
    shape = shape_of(scores)
    allowed: Any = None
    if mask is not None:
        mask = operand(mask, "attention: mask")
        given = shape_of(mask)
        try:
            fits = len(given) <= 4 and all(map(same_dim, broadcast_shapes(given, shape), shape))
        except ShapeError:
            fits = False
        if not fits:
            raise ShapeError(f"attention: the mask has shape {list(given)}, which does not broadcast to the scores' {list(shape)}")
        kind = dtype_of(mask)[0]
        if kind == BOOL:
            allowed = mask
        elif is_float(kind):
            scores = add(scores, cast(mask, dtype))
        else:
            raise DTypeError(f"attention: a mask is boolean or floating, got {short_name(kind)}")
    visible = allowed
    if causal:
        order = diagonal_mask(shape[2], shape[3], 0, greater_equal)
        visible = order if allowed is None else allowed & order
    if visible is not None:
        # Finite, so that a query without keys has no NaN: its weights are zeroed later
        scores = where(visible, scores, np.asarray(np.finfo(dtype).min, dtype))
    return scores, None if allowed is None else visible


def _shape(name: str, x: Any) -> Shape:
    shape = shape_of(x)
    if len(shape) != 4:
        raise ShapeError(f"attention: {name} is [batch, heads, length, size], got shape {list(shape)}")
    return shape


def _check(q: Shape, k: Shape, v: Shape) -> tuple[DimLike, DimLike]:
    """(heads of k and v, their length); ShapeError where the shapes do not fit."""
    shapes = f"q {list(q)}, k {list(k)}, v {list(v)}"
    for axis, what in ((0, "batch sizes"), (1, "heads of k and v"), (2, "lengths of k and v")):
        if not same_dim(k[axis], v[axis]) or (axis == 0 and not same_dim(q[0], k[0])):
            raise ShapeError(f"attention: the {what} differ: {shapes}")
    if not same_dim(q[3], k[3]):
        raise ShapeError(f"attention: the sizes of q and k differ: {shapes}")
    if not same_dim(q[1], k[1]) and (isinstance(q[1], Dim) or isinstance(k[1], Dim) or not k[1] or q[1] % k[1]):
        raise ShapeError(f"attention: {q[1]} heads of q do not divide into {k[1]} groups: {shapes}")
    return k[1], k[2]
