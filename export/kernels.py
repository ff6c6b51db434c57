"""Which kernels ONNX Runtime has: a look-up in kernels.json, which make_kernels.py writes.

The table says what is native. Beyond it, ONNX Runtime by itself

- runs float16 on the CPU, where few kernels are native, by casting to float32 and back; it does so for no other dtype, so
  bfloat16 without a kernel fails;
- may expand an op that has a function body (`has_function`) into other ops where a kernel is missing. Nothing here tells
  whether it does: Softplus on float64 loads at opset 18 and fails at opset 21. Decompose rather than count on it.

A native kernel may still refuse an attribute when it runs: ScatterElements and ScatterND with reduction "add" on float16 and
bfloat16, Mod with fmod=0 on floats.

Dtypes are NumPy dtypes or their names ("float32", "bfloat16", "float8_e4m3fn"; "string" for strings).
"""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"


@functools.cache
def _table() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("kernels.json").read_text(encoding="utf-8"))


def runtime_version() -> str:
    """The version of ONNX Runtime that the table was taken from."""
    return _table()["onnxruntime"]


@functools.cache
def since_version(op_type: str, opset: int) -> int | None:
    """The opset that last defined a standard op, seen from `opset`; None where the op does not exist yet."""
    table = _table()
    first, last = table["opsets"]
    if not first <= opset <= last:
        raise ValueError(f"opset {opset} is outside the kernel table, which covers {first} to {last}")
    versions = table["since"].get(op_type)
    if versions is None:
        raise ValueError(f"{op_type} is no standard ONNX op of the opsets {first} to {last}")
    return max((v for v in versions if v <= opset), default=None)


def has_function(op_type: str, opset: int) -> bool:
    """Whether the standard defines the op by other ops too, so that a runtime without a kernel may expand it."""
    return since_version(op_type, opset) in _table()["functions"].get(op_type, ())


def kernel_types(op_type: str, opset: int, provider: str = CPU, constraint: str = "T", domain: str = "") -> frozenset[str]:
    """The names of the dtypes that native kernels take for a type constraint of an op; empty where there is no kernel.

    The constraints are those of the ONNX schema ("T", "T1", "Tind", ...). Each is looked up by itself: that two of them
    can be had in every combination is not implied (OneHot has few). In the domain com.microsoft `opset` has no meaning.
    """
    since = 1 if domain else since_version(op_type, opset)
    return _types(op_type, since, provider, constraint, domain)


def has_kernel(
    op_type: str,
    opset: int,
    dtype: np.dtype[Any] | str,
    *,
    provider: str = CPU,
    constraint: str = "T",
    domain: str = "",
) -> bool:
    """Whether a native kernel runs the op, as it stands at `opset`, with this dtype for the type constraint."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return name in kernel_types(op_type, opset, provider, constraint, domain)


@functools.cache
def _types(op_type: str, since: int | None, provider: str, constraint: str, domain: str) -> frozenset[str]:
    table = _table()
    try:
        rows = table["kernels"][provider][domain].get(op_type, {})
    except KeyError as error:
        raise ValueError(f"the kernel table has no provider or domain {error}") from None
    kernel = rows.get(str(since))
    if kernel is None:
        return frozenset()
    if constraint not in kernel:
        raise ValueError(f"{op_type} has no type constraint {constraint}; it has {', '.join(sorted(kernel)) or 'none'}")
    return frozenset(table["types"][kernel[constraint]].split())
