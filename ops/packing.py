"""Bits packed eight to a byte, and back: np.packbits and np.unpackbits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import BOOL, INT64, is_integer
from ..stage.spec import DimLike
from ..stage.trace import bind
from .arguments import array_operand, size_of
from .arithmetic import multiply
from .bitwise import bitwise_and, right_shift
from .operands import cast, dtype_of, normalize_axis, shape_of
from .registry import implements
from .slicing import pad, slice_axis
from .structure import move_axis, reduce_sum_p, reshape_p

_UINT8 = np.dtype(np.uint8)


def _places(bitorder: str) -> Any:
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    places = np.arange(8, dtype=_UINT8)
    return places[::-1].copy() if bitorder == "big" else places


def _last(x: Any, axis: Any) -> tuple[Any, int]:
    """The array with the axis that is meant as its last one, and where it stood."""
    if axis is None:
        return bind(reshape_p, x, shape=(size_of(x),)), 0
    place = normalize_axis(axis, len(shape_of(x)))
    return move_axis(x, place, len(shape_of(x)) - 1), place


@implements(np.packbits)
def packbits(a: Any, /, axis: Any = None, bitorder: str = "big") -> Any:
    """uint8 with the truth of eight elements each along an axis (of the flattened array for None), filled up with zeros.

    Raises TypeError for what is neither integers nor booleans.
    """
    x = array_operand(a, "packbits")
    places = _places(bitorder)
    if dtype_of(x)[0] != BOOL and not is_integer(dtype_of(x)[0]):
        raise TypeError("Expected an input array of integer or boolean data type")
    x, place = _last(cast(x, BOOL), axis)
    *rest, size = shape_of(x)
    count = (size + 7) // 8
    bits = pad(cast(x, INT64), [0] * len(shape_of(x)), [*(0 for _ in rest), count * 8 - size])
    octets = bind(reshape_p, bits, shape=(*rest, count, 8))
    weighted = multiply(octets, np.left_shift(1, places.astype(INT64)))
    packed = bind(reduce_sum_p, weighted, axes=(len(rest) + 1,), keepdims=False)
    return move_axis(cast(packed, _UINT8), len(rest), place)


@implements(np.unpackbits)
def unpackbits(a: Any, /, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    """The bits of uint8 elements as zeros and ones of uint8, along an axis (of the flattened array for None).

    count: how many bits are given along it, zeros beyond what there are; a negative number is cut off at the end. Raises TypeError for
    other dtypes.
    """
    x = array_operand(a, "unpackbits")
    places = _places(bitorder)
    if dtype_of(x)[0] != _UINT8:
        raise TypeError("Expected an input array of unsigned byte data type")
    x, place = _last(x, axis)
    shape = shape_of(x)
    if not shape:
        x, shape = bind(reshape_p, x, shape=(1,)), (1,)
    *rest, size = shape
    bits = bitwise_and(right_shift(bind(reshape_p, x, shape=(*shape, 1)), places), np.asarray(1, _UINT8))
    bits = bind(reshape_p, bits, shape=(*rest, size * 8))
    if count is not None:
        bits = _counted(bits, count.__index__() if not isinstance(count, Dim) else count, size * 8)
    return move_axis(bits, len(rest), place)


def _counted(bits: Any, count: DimLike, have: DimLike) -> Any:
    axis = len(shape_of(bits)) - 1
    if not isinstance(count, Dim) and count < 0:
        if not isinstance(have, Dim) and -count > have:
            raise ValueError(f"-ve count cannot be less than -{have}")
        return slice_axis(bits, axis, None, count)
    return pad(bits, [0] * (axis + 1), [*(0 for _ in range(axis)), count - have])
