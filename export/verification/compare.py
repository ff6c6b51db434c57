"""Holding an array against a reference within elementwise tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...stage.dtypes import is_float
from ...stage.primitive import Array
from .precision import float_info, widen

_BYTES_AT_ONCE = 1 << 16


class Difference(NamedTuple):
    """Where an array is furthest outside its tolerance (or nearest to leaving it).

    wrong: how many elements are outside; position: of the worst one; error and tolerance there; excess: their ratio.
    """

    wrong: int
    position: tuple[int, ...]
    got: float
    expected: float
    error: float
    tolerance: float


NO_DIFFERENCE = Difference(0, (), 0.0, 0.0, 0.0, 0.0)


def same_bits(a: Array, b: Array) -> bool:
    """Equal dtype, shape and bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.nbytes <= _BYTES_AT_ONCE:
        return a.tobytes() == b.tobytes()
    whole = np.dtype(f"u{a.itemsize}")
    return bool(np.array_equal(np.ascontiguousarray(a).view(whole), np.ascontiguousarray(b).view(whole)))


def difference(got: Array, references: Sequence[Array], tolerance: Array | float) -> Difference:
    """Hold `got` against references of its shape: an element is right if it is within tolerance of one of them, or the same infinity or NaN.

    Floats may be given in float64. An element near the largest number may be infinite if its reference is, within the tolerance.
    """
    if got.size == 0:
        return NO_DIFFERENCE
    limit = float_info(got.dtype).largest if is_float(got.dtype) else 0.0
    value = _real(got)
    best = np.full(got.shape, np.inf)
    expected = np.zeros(got.shape)
    with np.errstate(all="ignore"):
        tol = np.broadcast_to(np.where(np.isnan(tolerance), np.inf, tolerance), got.shape)
        for reference in references:
            other = _real(reference)
            error = np.abs(value - other)
            agree = (got == reference) | (np.isnan(value) & np.isnan(other))
            if limit:
                overflown = np.isinf(value) & (np.sign(value) == np.sign(other)) & (np.abs(other) + tol >= limit)
                agree |= overflown | (np.isinf(other) & (np.sign(value) == np.sign(other)) & (np.abs(value) + tol >= limit))
            error = np.where(agree, 0.0, np.where(np.isnan(error), np.inf, error))
            closer = error < best
            best = np.where(closer, error, best)
            expected = np.where(closer, other, expected)
        # An error of infinity is one of kind (NaN against a number) and no tolerance covers it, but an infinite one.
        wrong = best > tol
        ratio = np.where(best == 0, 0.0, best / tol)
        ratio = np.where(np.isnan(ratio), np.where(wrong, np.inf, 0.0), ratio)
    worst = int(np.argmax(np.where(wrong, np.inf, ratio) if wrong.any() else ratio))
    if wrong.any():
        score = np.where(wrong, ratio, -1.0)
        worst = int(np.argmax(score))
    index = tuple(int(i) for i in np.unravel_index(worst, got.shape))
    if not index and got.ndim:
        index = (0,) * got.ndim
    nearest = float(expected[index]) if np.isfinite(best[index]) else float(_real(references[0])[index])
    return Difference(int(wrong.sum()), index, float(value[index]), nearest, float(best[index]), float(tol[index]))


def _real(array: Array) -> Array:
    """As float64; whole numbers beyond 2**53 lose their last digits, which equality is asked for before."""
    return widen(array) if is_float(array.dtype) else array.astype(np.float64)
