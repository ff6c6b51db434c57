"""Questions about dtypes and about what onstage can do, in the Array API's terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import BOOL, DType, as_dtype, is_integer, promote
from ..stage.errors import ConcretizationError
from ..stage.spec import DimLike
from ..stage.tracer import Tracer
from .arguments import listed
from .operands import broadcast_shapes as _broadcast
from .operands import dtype_of, operand
from .registry import implements

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": (),
}
_UNIONS: dict[str, tuple[str, ...]] = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating"),
}


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, Python numbers and dtypes have in common by NumPy's rules of promotion."""
    if not arrays_and_dtypes:
        raise ValueError("at least one array or dtype is required")
    return promote([_dtype_and_weakness(x) for x in arrays_and_dtypes])[0]


def _dtype_and_weakness(x: Any) -> tuple[DType, bool]:
    if isinstance(x, np.dtype | type | str):
        return as_dtype(x), False
    return dtype_of(operand(x, "result_type"))


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether a dtype, or that of an array, may be cast to another by the rule `casting`."""
    source = from_.dtype if isinstance(from_, Tracer) else from_
    return bool(np.can_cast(source, as_dtype(to), casting))


@implements(np.common_type)
def common_type(*arrays: Any) -> Any:
    """The floating type that arrays have in common, float64 for integers. Raises TypeError for booleans."""
    dtypes = [dtype_of(operand(x, "common_type"))[0] for x in arrays]
    if any(d == BOOL for d in dtypes):
        raise TypeError("can't get common type for non-numeric array")
    return promote([(np.dtype(np.float64) if is_integer(d) else d, False) for d in dtypes])[0].type


@implements(np.min_scalar_type)
def min_scalar_type(a: Any) -> DType:
    """The dtype of an array; of a scalar the smallest that holds its value, which must be no traced one."""
    if isinstance(a, Tracer) and not a.shape:
        raise ConcretizationError(
            "min_scalar_type: hangs on the value of a traced scalar, which is known only when the program runs; its dtype is x.dtype"
        )
    return a.dtype if isinstance(a, Tracer) else np.min_scalar_type(a)


def broadcast_shapes(*shapes: Any) -> tuple[DimLike, ...]:
    """The shape that shapes broadcast to; sizes may be named dims."""
    return _broadcast(*((s,) if isinstance(s, int | Dim) else tuple(s) for s in shapes), what="broadcast_shapes")


class NamespaceInfo:
    """What `__array_namespace_info__()` gives: see the Array API standard."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks may index where the result's shape is static; no result's shape hangs on data."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> list[str]:
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """float64 and int64, as NumPy; there is no complex dtype."""
        return {
            "real floating": np.dtype(np.float64),
            "integral": np.dtype(np.int64),
            "indexing": np.dtype(np.int64),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Names and dtypes of a kind ("integral", "real floating", ...), a tuple of kinds, or all. Raises ValueError for others."""
        kinds: list[str] = []
        wanted: list[str] = list(_KINDS) if kind is None else listed(kind)
        for k in wanted:
            if k not in _KINDS and k not in _UNIONS:
                raise ValueError(f"unsupported kind: {k!r}")
            kinds.extend(_UNIONS.get(k, (k,)))
        return {name: np.dtype(name) for k in dict.fromkeys(kinds) for name in _KINDS[k]}


def namespace_info() -> NamespaceInfo:
    """Devices, dtypes and capabilities, as the Array API asks for them."""
    return NamespaceInfo()
