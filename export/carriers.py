"""In which dtype an op is computed: its own where ONNX Runtime has a CPU kernel for it, else a wider one, cast back after.

A carrier holds every value of the dtype, so the op gives what it would have given and the cast back rounds or wraps once. That
is also how float16 is computed: ONNX Runtime would insert the casts itself, but it keeps whole chains in float32 (measured),
which neither rounds nor overflows as float16 does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..stage.dtypes import DType, as_dtype, short_name
from ..stage.errors import ProgramError, UnsupportedError
from . import kernels
from .signatures import Signature, fixed_dtype, signature

# Narrowest first. float64 and int64 have none: a narrower carrier would lose digits in silence.
_CARRIERS: dict[str, tuple[str, ...]] = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "int16", "uint32", "int32", "int64", "uint64"),
    "uint16": ("uint32", "int32", "int64", "uint64"),
    "uint32": ("int64", "uint64"),
    "uint64": ("int64",),
    "bool": ("uint8", "int32", "int64"),
}
_MOVING = frozenset(
    "Concat Compress DepthToSpace Expand Flatten Gather GatherElements GatherND Identity OneHot Pad Reshape "
    "ReverseSequence ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze Where Equal "
    "ConstantOfShape EyeLike".split()
)
# Ops that give the same bits modulo 2**64 whether these are read as signed or unsigned.
_RING = _MOVING | frozenset("Add Sub Mul MatMul Einsum Gemm ReduceSum ReduceProd CumSum CumProd Neg Sum".split())
# Ops that give 0 and 1 from 0 and 1.
_ORDER = _MOVING | frozenset("Max Min ReduceMax ReduceMin ArgMax ArgMin TopK".split())
# Float kernels that are listed and yet fail when they run.
_BROKEN_REDUCTION = frozenset(("float16", "bfloat16", "bool"))


class Plan(NamedTuple):
    """How `Builder.op` emits an op for given operand dtypes: the dtype to cast each input to, and for each output
    its dtype as emitted and the dtype to cast it back to. None stands for "as it is"; an output dtype of None hangs on an
    attribute (is_open).
    """

    casts: tuple[DType | None, ...] | None
    outputs: tuple[tuple[DType | None, DType | None], ...]
    is_open: bool


def carrier(op_type: str, dtype: DType, opset: int, constraint: str, reduction: bool = False) -> DType | None:
    """The dtype to compute in: None where it is `dtype` itself.

    Raises UnsupportedError naming op and dtype where no kernel holds its values exactly.
    """
    name = dtype.name
    broken = reduction and name in _BROKEN_REDUCTION
    if not broken and kernels.has_kernel(op_type, opset, dtype, constraint=constraint):
        return None
    if name == "uint64" and op_type not in _RING:
        candidates: tuple[str, ...] = ()
    elif name == "bool" and op_type not in _ORDER:
        candidates = ()
    else:
        candidates = _CARRIERS.get(name, ())
    for candidate in candidates:
        if kernels.has_kernel(op_type, opset, candidate, constraint=constraint):
            return np.dtype(candidate)
    if kernels.has_function(op_type, opset):
        # The runtime expands the op; in float32 for the half-width dtypes, so that it rounds once.
        return np.dtype(np.float32) if name in ("float16", "bfloat16") else None
    raise UnsupportedError(f"ONNX Runtime has no kernel for {op_type} on {short_name(dtype)}, and no wider dtype to compute it in exactly")


def make_plan(op_type: str, dtypes: tuple[DType | None, ...], outputs: int, opset: int, since: int, reduction: bool) -> Plan:
    """The plan of a standard op for the dtypes of its operands (None for an absent one)."""
    sig = signature(op_type, since)
    bound = _bind(op_type, sig, dtypes)
    carried = {var: carrier(op_type, dtype, opset, var, reduction) for var, dtype in bound.items()}
    casts = tuple(None if d is None else carried.get(sig.input_type(i)) for i, d in enumerate(dtypes))
    results: list[tuple[DType | None, DType | None]] = []
    for i in range(outputs):
        var = sig.output_type(i)
        dtype = fixed_dtype(var) or bound.get(var)
        wide = carried.get(var)
        results.append((dtype, None) if wide is None else (wide, dtype))
    return Plan(
        casts if any(c is not None for c in casts) else None,
        tuple(results),
        any(d is None for d, _ in results),
    )


def _bind(op_type: str, sig: Signature, dtypes: tuple[DType | None, ...]) -> dict[str, DType]:
    """Type variable -> dtype; ProgramError where operands disagree with each other or with the schema."""
    bound: dict[str, DType] = {}
    for i, dtype in enumerate(dtypes):
        if dtype is None:
            continue
        var = sig.input_type(i)
        wanted = fixed_dtype(var) if var.startswith("tensor(") else bound.setdefault(var, as_dtype(dtype))
        if wanted != dtype:
            got = ", ".join("-" if d is None else short_name(d) for d in dtypes)
            raise ProgramError(f"ONNX {op_type}: operand {i} is {short_name(dtype)}, needed {wanted} (operands: {got})")
    return bound
