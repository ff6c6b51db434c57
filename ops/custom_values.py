"""What user primitives pass around: results with residuals, abstract values, static arguments."""

from __future__ import annotations

import json
import uuid
from collections.abc import Hashable
from typing import Any, Final, NamedTuple, cast

import numpy as np

from ..stage.codec import register_value
from ..stage.dtypes import DType
from ..stage.errors import ArtifactError, SignatureTypeError
from ..stage.spec import ArraySpec, DimLike, Shape
from ..stage.statics import UnknownStatic, decode_static, encode_static


class PrimitiveResult(NamedTuple):
    """What an implementation declared with residual=True returns: the output that callers see, and a tree of arrays for the transpose rule.

    An abstract rule returns it with specs in place of arrays.
    """

    output: Any
    residual: Any


class AbstractValue:
    """An array without its values, as abstract rules get it: `shape` (which may hold symbolic dims), `dtype`, `spec`.

    AbstractValue(spec), or AbstractValue(shape, dtype).
    """

    __slots__ = ("spec",)
    spec: ArraySpec

    def __init__(self, shape: Any, dtype: Any = None) -> None:
        self.spec = shape if isinstance(shape, ArraySpec) else ArraySpec(shape, dtype)

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        return self.spec.ndim

    @property
    def size(self) -> DimLike:
        return self.spec.size

    def __repr__(self) -> str:
        return f"AbstractValue({self.spec!r})"


# Static arguments stand in params as (name, value, text): the text keeps apart what Python finds equal, such as 1, 1.0 and True.

StaticEntry = tuple[str, Any, str]
_PLAIN: Final = (bool, int, float, str)
# Objects that no file can hold are told apart by identity, and from those of other processes.
_process: Final = uuid.uuid4().hex
_numbers: dict[Any, int] = {}


class StaticObject:
    """A static argument that is no number, string, dtype or tuple of them."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticObject) and type(self.value) is type(other.value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


def _to_plain(static: StaticObject) -> str:
    encoded = encode_static(static.value)
    if "unknown" in json.dumps(encoded):
        encoded = ["unknown", f"{_process}:{_numbers.setdefault(static, len(_numbers))}"]
    return json.dumps(encoded)


def _from_plain(text: str) -> StaticObject:
    value = decode_static(json.loads(text))
    if isinstance(value, UnknownStatic):
        raise ArtifactError(
            f"a static argument of a custom primitive ({value.label}) is an object that a file cannot hold, or is not imported here"
        )
    return StaticObject(value)


register_value("static_object", StaticObject, _to_plain, _from_plain)


def static_entry(name: str, value: Any, what: str) -> StaticEntry:
    """A static argument as it stands in params; TypeError naming it if it is not hashable."""
    try:
        hash(value)
    except TypeError:
        raise SignatureTypeError(
            f"{what}: the static argument {name!r} is not hashable ({type(value).__name__}); give a tuple or another hashable value"
        ) from None
    return (name, value, _text(value)) if _is_plain(value) else (name, StaticObject(value), "")


def static_value(entry: StaticEntry) -> Any:
    return entry[1].value if isinstance(entry[1], StaticObject) else entry[1]


def _is_plain(value: Hashable) -> bool:
    if type(value) is tuple:
        return all(_is_plain(v) for v in cast("tuple[Any, ...]", value))
    return value is None or type(value) in _PLAIN or isinstance(value, np.dtype)


def _text(value: Any) -> str:
    # A dtype has no text: verification replaces dtypes in params to compute in another precision.
    if type(value) is tuple:
        return f"({','.join(_text(v) for v in cast('tuple[Any, ...]', value))})"
    return "" if isinstance(value, np.dtype) else repr(value)
