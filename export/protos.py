"""Filling the protobufs of ONNX: attributes, tensors, types of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, dim_text
from ..stage.dtypes import DType, as_dtype
from ..stage.errors import ProgramError
from ..stage.primitive import Array
from ..stage.spec import ArraySpec
from ._lazy import onnx
from .signatures import element_type

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 5, 6, 7, 8


def set_attribute(attribute: Any, name: str, value: Any, kind: int | None) -> None:
    """Fill an AttributeProto; kind: the type by the schema, None to go by the value."""
    if kind is None:
        kind = _kind_of(value)
    attribute.name = name
    attribute.type = kind
    if kind == _INT:
        attribute.i = element_type(as_dtype(value)) if isinstance(value, np.dtype | type) else int(value)
    elif kind == _INTS:
        attribute.ints.extend([int(v) for v in value])
    elif kind == _FLOAT:
        attribute.f = float(value)
    elif kind == _FLOATS:
        attribute.floats.extend([float(v) for v in value])
    elif kind == _STRING:
        attribute.s = value.encode() if isinstance(value, str) else value
    elif kind == _STRINGS:
        attribute.strings.extend([v.encode() if isinstance(v, str) else v for v in value])
    elif kind == _TENSOR:
        attribute.t.CopyFrom(tensor_proto("", np.asarray(value)))
    elif kind == _GRAPH:
        attribute.g.CopyFrom(value)
    else:
        raise ProgramError(f"attribute {name}: ONNX attribute type {kind} is not written by onstage")


def _kind_of(value: Any) -> int:
    if isinstance(value, bool | int | np.integer | np.dtype):
        return _INT
    if isinstance(value, float | np.floating):
        return _FLOAT
    if isinstance(value, str | bytes):
        return _STRING
    if isinstance(value, np.ndarray):
        return _TENSOR
    if isinstance(value, list | tuple):
        if all(isinstance(v, str) for v in value) and value:
            return _STRINGS
        return _FLOATS if any(isinstance(v, float) for v in value) else _INTS
    return _GRAPH


def tensor_proto(name: str, array: Array, data: bytes | None = None) -> Any:
    """A TensorProto with raw little-endian data."""
    if data is None:
        data = array.tobytes()
    proto = onnx.TensorProto(name=name, data_type=element_type(array.dtype), raw_data=data)
    proto.dims.extend(array.shape)
    return proto


def detached_proto(name: str, array: Array) -> Any:
    """A TensorProto whose data are elsewhere: handed to the session, or written to a file and located by who writes it."""
    proto = onnx.TensorProto(name=name, data_type=element_type(array.dtype), data_location=onnx.TensorProto.EXTERNAL)
    proto.dims.extend(array.shape)
    return proto


def value_info(name: str, spec: ArraySpec) -> Any:
    """A ValueInfoProto: ints as sizes, names and expressions as text."""
    info = value_type(name, spec.dtype)
    tensor = info.type.tensor_type
    dims = tensor.shape.dim
    # An empty shape must still be present: a scalar, not an unknown rank.
    tensor.shape.SetInParent()
    for d in spec.shape:
        if isinstance(d, Dim):
            dims.add(dim_param=dim_text(d))
        else:
            dims.add(dim_value=d)
    return info


def value_type(name: str, dtype: DType) -> Any:
    """A ValueInfoProto that says the dtype alone."""
    info = onnx.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = element_type(dtype)
    return info
