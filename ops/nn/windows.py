"""Windows over spatial axes: what the arguments of convolutions and pools mean, and how large their results are."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...stage.dims import Dim, exact_div, max_dim
from ...stage.errors import ShapeError
from ...stage.narrowing import is_sequence
from ...stage.spec import DimLike, Shape

Pads = tuple[tuple[DimLike, DimLike], ...]


def per_axis(what: str, value: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """One int for each spatial axis from an int or a sequence of ints. Raises ValueError for a wrong number, or one below `least`."""
    numbers = tuple(operator.index(v) for v in value) if is_sequence(value) else (operator.index(value),) * count
    if len(numbers) != count:
        raise ShapeError(f"{what} has {len(numbers)} entries, {list(numbers)}, for {count} spatial axes")
    if any(n < least for n in numbers):
        raise ShapeError(f"{what} is {value}; at least {least} is needed")
    return numbers


def reach(window: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """How many elements a dilated window spans."""
    return tuple((w - 1) * d + 1 for w, d in zip(window, dilation, strict=True))


def dilated(size: DimLike, gap: int) -> DimLike:
    """The size of an axis with gap - 1 zeros between its elements."""
    if gap == 1:
        return size
    spread = (size - 1) * gap + 1
    return max_dim(spread, 0) if isinstance(spread, Dim) else max(spread, 0)


def quotient(size: DimLike, divisor: DimLike) -> DimLike:
    """size / divisor; ShapeError where that leaves a remainder for some sizes."""
    result = exact_div(size, divisor)
    if result is None:
        raise ShapeError(f"{size} does not divide into {divisor} equal parts")
    return result


def ceil_div(size: DimLike, divisor: int) -> DimLike:
    return (size + (divisor - 1)) // divisor if divisor != 1 else size


def paddings(what: str, padding: Any, spatial: Shape, spans: Sequence[int], strides: Sequence[int]) -> Pads:
    """(before, after) for each spatial axis from an int, ints, pairs, "SAME" or "VALID".

    "SAME" gives ceil(size / stride) windows, the odd element of padding after. Raises ValueError for anything else.
    """
    if isinstance(padding, str):
        if padding == "VALID":
            return ((0, 0),) * len(spatial)
        if padding == "SAME":
            return tuple(_same(*axis) for axis in zip(spatial, spans, strides, strict=True))
        raise ShapeError(f'{what}: padding is an int, ints, (before, after) pairs, "SAME" or "VALID", got {padding!r}')
    if not is_sequence(padding):
        padding = (padding,) * len(spatial)
    if len(padding) != len(spatial):
        raise ShapeError(f"{what}: padding has {len(padding)} entries, {padding}, for {len(spatial)} spatial axes")
    return tuple(_pair(what, p) for p in padding)


def _same(size: DimLike, span: int, stride: int) -> tuple[DimLike, DimLike]:
    if stride == 1:
        return (span - 1) // 2, span // 2
    total = (ceil_div(size, stride) - 1) * stride + span - size
    total = max_dim(total, 0) if isinstance(total, Dim) else max(total, 0)
    return total // 2, total - total // 2


def _pair(what: str, value: Any) -> tuple[int, int]:
    pair = tuple(operator.index(v) for v in value) if is_sequence(value) else (operator.index(value),) * 2
    if len(pair) != 2 or min(pair) < 0:
        raise ShapeError(f"{what}: the padding of an axis is an int or (before, after), not negative, got {value}")
    return pair[0], pair[1]


def window_count(size: DimLike, pads: tuple[DimLike, DimLike], span: int, stride: int) -> DimLike:
    """How many windows fit a padded axis."""
    room = size + pads[0] + pads[1] - span
    return max_dim(0, (room + stride) // stride) if isinstance(room, Dim) else max(room // stride + 1, 0)


def require_room(what: str, spatial: Shape, padding: Pads, spans: Sequence[int]) -> None:
    """ShapeError where an axis that is not empty is known to hold no window."""
    for size, pads, span in zip(spatial, padding, spans, strict=True):
        room = size + pads[0] + pads[1] - span
        if not isinstance(room, Dim) and room < 0 and not (type(size) is int and size == 0):
            raise ShapeError(f"{what}: a window over {span} elements does not fit an axis of {size} with padding {pads[0]} and {pads[1]}")


def spatial_axes(what: str, ndim: int) -> int:
    """The number of spatial axes of [N, C, *spatial]; ShapeError where there is none."""
    if ndim < 3:
        raise ShapeError(f"{what}: x is [N, C, *spatial], with one spatial axis or more; got {ndim} axes")
    return ndim - 2
