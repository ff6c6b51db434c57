"""Static values as JSON-able objects and back. What a file cannot hold is noted by its type."""

from __future__ import annotations

import base64
import enum
import sys
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from .codec import float_text, float_value
from .dtypes import as_dtype
from .errors import ArtifactError


@dataclass(frozen=True, slots=True)
class UnknownStatic:
    """Stands for a static value that a file does not hold; `label` is `module:qualname` of it or of its type."""

    label: str


def encode_static(value: Any) -> Any:
    """None, bool, int and str stand for themselves; all others are ["kind", ...].

    Floats, bytes, tuples, dtypes and enum members are held by value; functions and classes by `module:qualname`, where that leads
    back to them; of anything else, ["unknown", label].
    """
    kind = cast("type[Any]", type(value))
    if value is None or kind is int or kind is bool or kind is str:
        return value
    if kind is float:
        return ["float", float_text(value)]
    if kind is bytes:
        return ["bytes", base64.b64encode(value).decode("ascii")]
    if kind is tuple:
        return ["tuple", *[encode_static(v) for v in value]]
    if isinstance(value, np.dtype):
        return ["dtype", as_dtype(value, "static value").name]
    if isinstance(value, enum.Enum) and _find(_label(kind)) is kind:
        return ["enum", _label(kind), value.name]
    label = _label(value)
    if label and _find(label) is value:
        return ["name", label]
    return ["unknown", label or _label(kind)]


def decode_static(obj: Any) -> Any:
    """The value of `encode_static`; an UnknownStatic for what was not held or is not imported here.

    Nothing is imported: reading a file must not run code that the file names. Raises ArtifactError for anything else.
    """
    if obj is None or isinstance(obj, bool | int | str):
        return obj
    match obj:
        case ["float", str(text)]:
            return float_value(text)
        case ["bytes", str(text)]:
            return base64.b64decode(text, validate=True)
        case ["tuple", *items]:
            return tuple([decode_static(v) for v in items])
        case ["dtype", str(text)]:
            return as_dtype(text)
        case ["enum", str(label), str(name)]:
            cls = _find(label)
            if isinstance(cls, type) and issubclass(cls, enum.Enum) and name in cls.__members__:
                return cls.__members__[name]
            return UnknownStatic(f"{label}.{name}")
        case ["name", str(label)]:
            found = _find(label)
            return UnknownStatic(label) if found is None else found
        case ["unknown", str(label)]:
            return UnknownStatic(label)
        case _:
            raise ArtifactError(f"{obj!r} is no static value")


def unknown_in(value: Any) -> UnknownStatic | None:
    """The first UnknownStatic in a decoded value."""
    if isinstance(value, tuple):
        return next((u for item in cast("tuple[Any, ...]", value) if (u := unknown_in(item)) is not None), None)
    return value if isinstance(value, UnknownStatic) else None


def _label(value: Any) -> str:
    """`module:qualname` of a function or class, "" for what has none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc):
        module, name = "numpy", value.__name__
    return f"{module}:{name}" if isinstance(module, str) and isinstance(name, str) else ""


def _find(label: str) -> Any:
    """What `module:qualname` leads to among the modules that are imported already, else None."""
    module, _, qualname = label.partition(":")
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found
