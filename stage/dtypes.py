"""Dtypes that onstage computes with, their short names, and NEP 50 promotion."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from .errors import DTypeError

DType: TypeAlias = np.dtype[Any]

BOOL: DType = np.dtype(np.bool_)
INT32: DType = np.dtype(np.int32)
INT64: DType = np.dtype(np.int64)
FLOAT16: DType = np.dtype(np.float16)
FLOAT32: DType = np.dtype(np.float32)
FLOAT64: DType = np.dtype(np.float64)

_SHORT = {
    "bool": "bool",
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}
_LONG = {short: name for name, short in _SHORT.items()}
_cache: dict[Any, DType] = {}


def bfloat16() -> DType:
    """The bfloat16 dtype; loads ml_dtypes, which onnx brings along, at first use."""
    return np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def as_dtype(dtype: Any, what: str = "dtype") -> DType:
    """The NumPy dtype meant by a dtype, scalar type, name or short name (`f32`), in native byte order.

    Raises DTypeError (a TypeError) for complex, strings, objects and dates, naming `what`.
    """
    try:
        return _cache[dtype]
    except (KeyError, TypeError):
        pass
    given = dtype
    if isinstance(dtype, str):
        dtype = _LONG.get(dtype, dtype)
        if dtype == "bfloat16":
            dtype = bfloat16()
    try:
        if dtype is None:
            raise TypeError("None is no dtype")
        result = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise DTypeError(f"{what}: {given!r} is not a dtype") from error
    if result.name not in _SHORT:
        if result.kind == "c":
            raise DTypeError(f"{what}: complex numbers ({result.name}) are not supported yet; pass real and imaginary parts")
        kind = {"O": "objects", "U": "strings", "S": "bytes", "M": "dates", "m": "time spans", "V": "records"}.get(
            result.kind, "this dtype"
        )
        raise DTypeError(f"{what}: {kind} ({result.name}) cannot be staged; arrays of real numbers or booleans can")
    result = np.dtype(result.name) if result.name != "bfloat16" else result
    with suppress(TypeError):  # what cannot be hashed is not kept
        _cache[given] = result
    return result


def short_name(dtype: DType) -> str:
    """`f32` for float32."""
    return _SHORT.get(dtype.name, dtype.name)


def is_float(dtype: DType) -> bool:
    """True for float16, bfloat16, float32, float64: the dtypes that carry tangents."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def is_integer(dtype: DType) -> bool:
    return dtype.kind in "iu"


def kind_rank(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats: the kinds that NEP 50 compares weak scalars by."""
    return 0 if dtype.kind == "b" else 1 if dtype.kind in "iu" else 2


def is_bfloat16(dtype: DType) -> bool:
    return dtype.name == "bfloat16"


def python_scalar_dtype(value: object) -> DType:
    """The dtype of a Python number: bool, int64 or float64."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT64
    if isinstance(value, float):
        return FLOAT64
    if isinstance(value, complex):
        raise DTypeError(f"complex numbers ({value!r}) are not supported yet; pass real and imaginary parts")
    raise DTypeError(f"{type(value).__name__} is no number")


_promotions: dict[tuple[tuple[DType, bool], ...], tuple[DType, bool]] = {}


def promote(types: Iterable[tuple[DType, bool]]) -> tuple[DType, bool]:
    """NEP 50: the common (dtype, weak) of operands given as (dtype, weak) pairs.

    Weak operands are Python numbers: they take the dtype of the others unless their kind is higher.
    The result is weak only if all operands are.
    """
    key = tuple(types)
    found = _promotions.get(key)
    if found is None:
        found = _promotions[key] = _promote(key)
    return found


def _promote(types: tuple[tuple[DType, bool], ...]) -> tuple[DType, bool]:
    strong = [dtype for dtype, weak in types if not weak]
    weak = [dtype for dtype, is_weak in types if is_weak]
    if not strong:
        return max(weak, key=kind_rank), True
    result = strong[0]
    for dtype in strong[1:]:
        try:
            result = np.promote_types(result, dtype)
        except TypeError as error:
            raise DTypeError(f"no common dtype for {short_name(result)} and {short_name(dtype)}; cast one of them") from error
    for dtype in weak:
        if kind_rank(dtype) > kind_rank(result):
            result = dtype
    return as_dtype(result), False


def to_floating(dtype: DType) -> DType:
    """The float dtype in which NumPy's unary float ufuncs compute an operand: float16 for (u)int8 and bool, ..."""
    if is_float(dtype):
        return dtype
    if dtype.itemsize == 1:
        return FLOAT16
    if dtype.itemsize == 2:
        return FLOAT32
    return FLOAT64
