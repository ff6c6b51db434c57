"""What the ONNX schemas say of an op, as plain data: type constraints of operands and results, attribute types."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ..stage.dtypes import DType, as_dtype, bfloat16
from ..stage.errors import ProgramError, UnsupportedError
from ._lazy import onnx_defs

# ONNX's numbers of the element types (TensorProto.DataType), by NumPy's names.
ELEMENT_TYPES: dict[str, int] = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}
_TENSORS = {"tensor(float)": "float32", "tensor(double)": "float64"}


@functools.cache
def element_type(dtype: DType) -> int:
    """The number of a dtype in ONNX."""
    try:
        return ELEMENT_TYPES[dtype.name]
    except KeyError:
        raise UnsupportedError(f"{dtype.name} has no counterpart that onstage lowers to ONNX") from None


@functools.cache
def dtype_of(number: int) -> DType:
    """The dtype of an ONNX element type."""
    name = _NAMES.get(number)
    if name is None:
        raise UnsupportedError(f"ONNX element type {number} is not one that onstage computes with")
    return bfloat16() if name == "bfloat16" else np.dtype(name)


def fixed_dtype(type_text: str) -> DType | None:
    """The dtype of a schema's `tensor(int64)`; None for a type variable."""
    if not type_text.startswith("tensor("):
        return None
    return as_dtype(_TENSORS.get(type_text, type_text[7:-1]))


class Signature(NamedTuple):
    """An op of the standard at one version.

    inputs, outputs: type variables ("T") or fixed types ("tensor(int64)"); the last repeats where variadic_*.
    attributes: name -> number of its type (AttributeProto.AttributeType).
    """

    inputs: tuple[str, ...]
    variadic_input: bool
    outputs: tuple[str, ...]
    variadic_output: bool
    attributes: dict[str, int]

    def input_type(self, i: int) -> str:
        if i >= len(self.inputs):
            if not self.variadic_input:
                raise ProgramError(f"an ONNX op takes {len(self.inputs)} inputs, got more")
            return self.inputs[-1]
        return self.inputs[i]

    def output_type(self, i: int) -> str:
        if i >= len(self.outputs):
            if not self.variadic_output:
                raise ProgramError(f"an ONNX op has {len(self.outputs)} outputs, more were asked for")
            return self.outputs[-1]
        return self.outputs[i]


@functools.cache
def signature(op_type: str, since: int) -> Signature:
    """The schema of a standard op at the version it had at opset `since`."""
    schema = onnx_defs.get_schema(op_type, since)
    variadic = onnx_defs.OpSchema.FormalParameterOption.Variadic
    inputs, outputs = list(schema.inputs), list(schema.outputs)
    # A variable that admits one type is that type.
    only = {c.type_param_str: c.allowed_type_strs[0] for c in schema.type_constraints if len(c.allowed_type_strs) == 1}
    return Signature(
        tuple(only.get(p.type_str, str(p.type_str)) for p in inputs),
        bool(inputs) and inputs[-1].option == variadic,
        tuple(only.get(p.type_str, str(p.type_str)) for p in outputs),
        bool(outputs) and outputs[-1].option == variadic,
        {name: int(attribute.type.value) for name, attribute in schema.attributes.items()},
    )
