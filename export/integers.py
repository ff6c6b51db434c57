"""Exact integer arithmetic where ONNX Runtime's kernels are not (measured on 1.31.1).

Its ReduceSum, ReduceProd and Pow on integers go through float64: they lose digits beyond 2**53 and saturate instead of wrapping. Its
integer MatMul, Mul and Add are exact modulo 2**n, as NumPy's are, and its MatMul with ones is faster than ReduceSum.

Its Max, Min, Clip, Sign, ReduceMax and ReduceMin on int64 compare the low 32 bits as signed where the high 32 bits are equal: the
greater of 0 and 2**31 is 0 to them, and the sign of 2**31 is -1. Greater, Less, ArgMax and TopK are right, and so is all of int32 and uint32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..stage.dims import Dim, product
from ..stage.spec import ArraySpec, DimLike, make_spec

if TYPE_CHECKING:
    from .builder import Builder

_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)
_INT32 = np.dtype(np.int32)
_UINT32 = np.dtype(np.uint32)

COMPARED_WRONGLY = frozenset((_INT64, _UINT32))
"""int64, and uint32, whose ReduceMax and ReduceMin are computed in int64."""


def _axes(b: Builder, names: Sequence[str], attributes: Mapping[str, Any], rank: int) -> list[int] | None:
    """The axes of a reduction node; None where they are not known while lowering."""
    if len(names) < 2 or not names[1]:
        return [] if attributes.get("noop_with_empty_axes") else list(range(rank))
    array = b.value_of(names[1])
    if array is None:
        return None
    axes = sorted(int(a) % rank for a in array.ravel())
    return axes if axes or attributes.get("noop_with_empty_axes") else list(range(rank))


def _rows(b: Builder, x: str, spec: ArraySpec, axes: Sequence[int]) -> tuple[str, tuple[DimLike, ...], DimLike]:
    """(x with the axes moved last and joined, the other dims, the length of the joined axis)."""
    kept = [i for i in range(spec.ndim) if i not in axes]
    if kept + list(axes) != list(range(spec.ndim)):
        x = b.op("Transpose", x, perm=[*kept, *axes])
    dims = tuple(spec.shape[i] for i in kept)
    length = product(spec.shape[i] for i in axes)
    if len(axes) != 1:
        x = b.op("Reshape", x, b.shape((*dims, length)), allowzero=1)
    return x, dims, length


def _restore(b: Builder, x: str, spec: ArraySpec, axes: Sequence[int], keepdims: bool) -> str:
    if not keepdims:
        return x
    return b.op("Reshape", x, b.shape(tuple(1 if i in axes else d for i, d in enumerate(spec.shape))), allowzero=1)


def reduce_exactly(b: Builder, op_type: str, names: Sequence[str], attributes: Mapping[str, Any]) -> str | None:
    """ReduceSum or ReduceProd on integers; None where the operand's shape or the axes are not known while lowering."""
    spec = b.known_spec(names[0])
    axes = None if spec is None else _axes(b, names, attributes, spec.ndim)
    if spec is None or not axes:
        return None
    rows, dims, length = _rows(b, names[0], spec, axes)
    if op_type == "ReduceSum":
        one = b.const(np.ones(1 if isinstance(length, Dim) else length, dtype=spec.dtype))
        ones = b.op("Expand", one, b.shape((length,))) if isinstance(length, Dim) else one
        result = b.op("MatMul", rows, ones)
    elif isinstance(length, Dim):
        result = _product_by_loop(b, rows, dims, spec)
    else:
        result = _product_by_halves(b, rows, dims, length, spec)
    return _restore(b, result, spec, axes, bool(attributes.get("keepdims", 1)))


def _product_by_halves(b: Builder, rows: str, dims: tuple[DimLike, ...], length: int, spec: ArraySpec) -> str:
    if length == 0:
        return b.op("Expand", b.const(1, spec.dtype), b.shape(dims))
    axis = b.const([len(dims)])
    while length > 1:
        half = length // 2
        low = b.op("Slice", rows, b.const([0]), b.const([half]), axis)
        high = b.op("Slice", rows, b.const([half]), b.const([2 * half]), axis)
        last = b.op("Slice", rows, b.const([2 * half]), b.const([length]), axis) if length % 2 else ""
        rows = b.op("Mul", low, high)
        if last:
            rows = b.op("Concat", rows, last, axis=len(dims))
        length = half + length % 2
    return b.op("Reshape", rows, b.shape(dims), allowzero=1)


def _product_by_loop(b: Builder, rows: str, dims: tuple[DimLike, ...], spec: ArraySpec) -> str:
    state = make_spec(dims, spec.dtype)
    count = b.op("Squeeze", b.op("Shape", rows, start=len(dims), end=len(dims) + 1), b.const([0]))
    with b.graph("product") as body:
        i = body.input(make_spec((), _INT64))
        condition = body.input(make_spec((), _BOOL))
        partial = body.input(state)
        body.output(condition, make_spec((), _BOOL))
        body.output(b.op("Mul", partial, b.op("Gather", rows, i, axis=len(dims))), state)
    return b.op("Loop", count, "", b.op("Expand", b.const(1, spec.dtype), b.shape(dims)), body=body.proto)


def power_exactly(b: Builder, base: str, exponent: str) -> str:
    """Pow on integers of one dtype, by squaring; the exponent must not be negative."""
    dtype = b.dtype(base)
    exponent = b.cast(exponent, dtype)
    known = b.value_of(exponent)
    if known is not None and known.ndim == 0 and int(known) > 0:
        return _constant_power(b, base, int(known))
    one, two = b.const(1, dtype), b.const(2, dtype)
    nothing = b.op("Sub", exponent, exponent)
    start = b.op("Add", b.op("Add", b.op("Sub", base, base), nothing), one)

    def remaining(value: str) -> str:
        count = b.op("ReduceSum", b.cast(b.op("Greater", value, b.const(0, dtype)), _INT64), keepdims=0)
        return b.op("Greater", count, b.const(0))

    with b.graph("power") as body:
        body.input(make_spec((), _INT64))
        body.input(make_spec((), _BOOL))
        left, square, result = (body.input_of(dtype) for _ in range(3))
        odd = b.op("Equal", b.op("Mod", left, two), one)
        halved = b.op("Div", left, two)
        new_result = b.op("Where", odd, b.op("Mul", result, square), result)
        body.output(remaining(halved), make_spec((), _BOOL))
        for name in (halved, b.op("Mul", square, square), new_result):
            body.output_of(name, dtype)
    return b.op("Loop", "", remaining(exponent), exponent, base, start, outputs=3, body=body.proto)[2]


def _constant_power(b: Builder, base: str, exponent: int) -> str:
    result = ""
    while exponent:
        if exponent & 1:
            result = b.op("Mul", result, base) if result else base
        exponent >>= 1
        if exponent:
            base = b.op("Mul", base, base)
    return result


def compare_exactly(b: Builder, op_type: str, names: Sequence[str]) -> str | None:
    """Max, Min, Clip or Sign on int64; None for uint32, whose own kernels are right."""
    x = names[0]
    if b.dtype(x) != _INT64:
        return None
    if op_type == "Sign":
        zero = b.const(0)
        return b.op("Sub", b.cast(b.op("Greater", x, zero), _INT64), b.cast(b.op("Less", x, zero), _INT64))
    if op_type == "Clip":
        low, high = (*names[1:], "", "")[:2]
        x = b.op("Max", x, low) if low else x
        return b.op("Min", x, high) if high else x
    for y in names[1:]:
        x = b.op("Where", b.op("Greater" if op_type == "Max" else "Less", x, y), x, y)
    return x


def extreme_exactly(b: Builder, op_type: str, names: Sequence[str], attributes: Mapping[str, Any]) -> str:
    """ReduceMax or ReduceMin on int64 and uint32: of the high halves, then of the low ones beside that; halves are compared as int32."""
    x, axes = names[0], names[1:]
    dtype, half = b.dtype(x), b.const(1 << 31)
    if dtype == _UINT32:
        shifted = b.cast(b.op("Sub", b.cast(x, _INT64), half), _INT32)
        return b.cast(b.op("Add", b.cast(b.op(op_type, shifted, *axes, **attributes), _INT64), half), dtype)
    base = b.const(1 << 32)
    # Mod has the divisor's sign: low is in [0, 2**32), and high the floor of the quotient.
    low = b.op("Mod", x, base)
    high = b.cast(b.op("Div", b.op("Sub", x, low), base), _INT32)
    low = b.cast(b.op("Sub", low, half), _INT32)
    limits = np.iinfo(_INT32)
    last = b.const(limits.min if op_type == "ReduceMax" else limits.max, _INT32)
    kept: dict[str, Any] = {**attributes, "keepdims": 1}
    beside = b.op("Equal", high, b.op(op_type, high, *axes, **kept))
    low = b.op(op_type, b.op("Where", beside, low, last), *axes, **attributes)
    high = b.op(op_type, high, *axes, **attributes)
    return b.op("Add", b.op("Mul", b.cast(high, _INT64), base), b.op("Add", b.cast(low, _INT64), half))
