"""The kernel table against the installed ONNX Runtime: what it calls native loads, what it calls missing does not."""

import itertools
import json
import random
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onstage.export.kernels import (
    CPU,
    CUDA,
    has_function,
    has_kernel,
    kernel_types,
    runtime_version,
    since_version,
)

DTYPES = (
    "float32",
    "float64",
    "bfloat16",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
ONNX_NAMES = {"float32": "float", "float64": "double"}

# op -> (number of inputs, attributes), for the constraint T
Signature = tuple[int, dict[str, Any]]
UNARY = (
    "Abs Neg Sign Exp Log Sqrt Reciprocal Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf"
    " Sigmoid Relu LeakyRelu Elu Selu Softplus Softsign HardSigmoid HardSwish Mish Gelu Softmax LogSoftmax BitwiseNot Not"
    " Identity Flatten Transpose Squeeze Size NonZero Trilu"
)
BINARY = (
    "Add Sub Mul Div Pow Max Min Mod Equal Greater Less GreaterOrEqual LessOrEqual And Or Xor BitwiseAnd BitwiseOr BitwiseXor MatMul Gemm"
)
REDUCTIONS = "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
SIGNATURES: dict[str, Signature] = {
    **{op: (1, {}) for op in UNARY.split()},
    **{op: (2, {}) for op in BINARY.split()},
    **{op: (1, {}) for op in REDUCTIONS.split()},
    "ArgMax": (1, {}),
    "ArgMin": (1, {}),
    "BitShift": (2, {"direction": "LEFT"}),
    "CumSum": (2, {}),
    "Clip": (3, {}),
    "Concat": (2, {"axis": 0}),
    "Einsum": (2, {"equation": "ij,jk->ik"}),
    "Expand": (2, {}),
    "Gather": (2, {}),
    "GatherElements": (2, {}),
    "GatherND": (2, {}),
    "LayerNormalization": (2, {}),
    "Pad": (2, {}),
    "Range": (3, {}),
    "Reshape": (2, {}),
    "ScatterElements": (3, {}),
    "ScatterND": (3, {}),
    "Slice": (3, {}),
    "Split": (1, {"num_outputs": 1}),
    "Tile": (2, {}),
    "TopK": (2, {}),
    "Unsqueeze": (2, {}),
    "Where": (3, {}),
    "Conv": (2, {}),
    "ConvTranspose": (2, {}),
    "MaxPool": (1, {"kernel_shape": [2, 2]}),
    "AveragePool": (1, {"kernel_shape": [2, 2]}),
    "GlobalAveragePool": (1, {}),
    "GlobalMaxPool": (1, {}),
    "BatchNormalization": (5, {}),
    "RMSNormalization": (2, {}),
    "Sum": (2, {}),
    "Mean": (2, {}),
    "Celu": (1, {}),
    "Swish": (1, {}),
    "Dropout": (1, {}),
    "Compress": (2, {}),
    "ReverseSequence": (2, {}),
    "InstanceNormalization": (3, {}),
}
# The constraint that carries the dtype, where it is not T.
CONSTRAINTS = {"Identity": "V", "IsNaN": "T1", "IsInf": "T1", "Shape": "T", "Cast": "T1"}
SIGNATURES |= {"IsNaN": (1, {}), "IsInf": (1, {}), "Shape": (1, {}), "Cast": (1, {"to": TensorProto.INT32})}
# Constraints that the rule of thumb in one_node_model does not bind as wanted.
FIXED = {"Cast": {"T2": "tensor(int32)"}}


def schema_types(op: str, opset: int) -> dict[str, list[str]]:
    return {c.type_param_str: list(c.allowed_type_strs) for c in onnx.defs.get_schema(op, opset).type_constraints}


def allowed(op: str, opset: int) -> list[str]:
    """The dtypes that the schema allows."""
    types = schema_types(op, opset)[CONSTRAINTS.get(op, "T")]
    return [dtype for dtype in DTYPES if f"tensor({ONNX_NAMES.get(dtype, dtype)})" in types]


def one_node_model(op: str, opset: int, dtype: str) -> bytes:
    """A model of one node whose main type constraint is bound to a dtype, the others to the first that fits."""
    schema = onnx.defs.get_schema(op, opset)
    main = CONSTRAINTS.get(op, "T")
    bound = {main: f"tensor({ONNX_NAMES.get(dtype, dtype)})"}
    bound |= FIXED.get(op, {})
    for name, types in schema_types(op, opset).items():
        if name not in bound:
            same = [bound[main]] if name in ("T1", "T2", "V") else []
            wanted = (*same, "tensor(int64)", "tensor(float)", "tensor(bool)")
            bound[name] = next(t for t in wanted if t in types)

    def value(name: str, type_name: str) -> onnx.ValueInfoProto:
        short = bound.get(type_name, type_name).removeprefix("tensor(").removesuffix(")")
        return helper.make_tensor_value_info(name, TensorProto.DataType.Value(short.upper()), None)

    count, attributes = SIGNATURES[op]
    if op == "Mod" and dtype.endswith(("float32", "float64", "bfloat16")):
        attributes = {"fmod": 1}
    formal = schema.inputs
    inputs = [value(f"x{i}", formal[min(i, len(formal) - 1)].type_str) for i in range(count)]
    outputs = [value(f"y{i}", schema.outputs[i].type_str) for i in range(min(schema.min_output, len(schema.outputs)))]
    node = helper.make_node(op, [i.name for i in inputs], [o.name for o in outputs], **attributes)
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


def loads(model: bytes) -> str | None:
    """None where a session can be made, else the error."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options, providers=[CPU])
    except Exception as error:  # onnxruntime raises many classes, all of them plain Exceptions
        return str(error)
    return None


def disagreement(op: str, opset: int, dtype: str) -> str | None:
    native = has_kernel(op, opset, dtype, constraint=CONSTRAINTS.get(op, "T"))
    if not native and has_function(op, opset):
        return None  # may be expanded
    error = loads(one_node_model(op, opset, dtype))
    if native and error is not None:
        return f"{op}-{opset} {dtype}: native in the table, but: {error}"
    if not native and error is None:
        return f"{op}-{opset} {dtype}: not in the table, but a session can be made"
    # onnx's schema may allow a dtype that the runtime's own, newer one does not
    refused = error is not None and ("NOT_IMPLEMENTED" in error or "Type Error: Type" in error)
    if error is not None and not refused:
        return f"{op}-{opset} {dtype}: fails for another reason: {error}"
    return None


def same_runtime() -> bool:
    return onnxruntime.__version__ == runtime_version()


measured = pytest.mark.skipif(not same_runtime(), reason="the table is of another version of ONNX Runtime")


@measured
@pytest.mark.parametrize("op", sorted(SIGNATURES))
def test_table_agrees_with_runtime(op: str) -> None:
    versions = {since_version(op, opset): opset for opset in (24, 23, 22, 21, 18) if since_version(op, opset)}
    faults = [disagreement(op, opset, dtype) for opset in versions.values() for dtype in allowed(op, opset)]
    assert [fault for fault in faults if fault] == []


@measured
def test_the_comparison_has_teeth(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(op, dtype) for op in sorted(SIGNATURES) if since_version(op, 21) for dtype in allowed(op, 21)]
    sample = random.Random(0).sample([(op, d) for op, d in pairs if not has_function(op, 21)], 40)
    table = has_kernel
    monkeypatch.setitem(globals(), "has_kernel", lambda *args, **kwargs: not table(*args, **kwargs))
    assert all(disagreement(op, 21, dtype) for op, dtype in sample)


@measured
def test_cpu_casts_float16_but_not_bfloat16() -> None:
    assert not has_kernel("Add", 21, "float16")
    assert loads(one_node_model("Add", 21, "float16")) is None
    assert not has_kernel("Add", 21, "bfloat16")
    assert loads(one_node_model("Add", 21, "bfloat16")) is not None


@pytest.mark.parametrize(
    ("op", "provider"),
    [
        *itertools.product(
            ["MaxPool", "Dropout", "Elu", "Selu", "InstanceNormalization", "EyeLike", "ThresholdedRelu"],
            [CUDA],
        ),
        *itertools.product(["GlobalLpPool", "RoiAlign", "MaxRoiPool", "Multinomial"], [CPU]),
    ],
)
def test_open_ended_kernel_does_not_serve_a_newer_op(op: str, provider: str) -> None:
    # EyeLike and Multinomial name their constraints T1 and T2
    constraint = {"EyeLike": "T1", "RoiAlign": "T1", "Multinomial": "T1"}.get(op, "T")
    assert has_kernel(op, 21, "float32", provider=provider, constraint=constraint)
    assert not has_kernel(op, 22, "float32", provider=provider, constraint=constraint)
    assert not has_kernel(op, 24, "float32", provider=provider, constraint=constraint)


def test_since_version() -> None:
    assert [since_version("MaxPool", opset) for opset in (18, 21, 22, 24)] == [12, 12, 22, 22]
    assert [since_version("Attention", opset) for opset in (21, 22, 23, 24)] == [None, None, 23, 24]
    assert not has_kernel("Attention", 22, "float32", constraint="T1")
    for op, opset in itertools.product(SIGNATURES, (18, 21, 24)):
        known = onnx.defs.has(op, max_inclusive_version=opset)
        expected = onnx.defs.get_schema(op, opset).since_version if known else None
        assert since_version(op, opset) == expected, (op, opset)


def test_queries() -> None:
    assert {"float32", "float64", "int8", "uint64"} <= kernel_types("Add", 21)
    assert kernel_types("Erf", 21) == {"float32"}
    assert kernel_types("Where", 21) >= {"float32", "int64"}
    assert not {"bool", "uint64"} & kernel_types("Where", 21)
    assert kernel_types("Where", 21, constraint="B") == {"bool"}
    assert has_kernel("Add", 21, np.dtype(np.int32))
    assert has_kernel("Sign", 21, np.dtype(ml_dtypes.bfloat16))
    assert has_kernel("Add", 21, np.dtype(ml_dtypes.bfloat16), provider=CUDA)
    assert kernel_types("FusedMatMul", 1, domain="com.microsoft") == {"float32", "float64"}
    assert kernel_types("BitwiseAnd", 21, CUDA) == frozenset()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: since_version("Ad", 21), "Ad is no standard ONNX op"),
        (lambda: since_version("Add", 17), "opset 17 is outside"),
        (lambda: has_kernel("Cast", 21, "float32"), "Cast has no type constraint T; it has T1, T2"),
        (lambda: has_kernel("Add", 21, "float32", provider="CPU"), "'CPU'"),
        (lambda: has_kernel("Add", 21, "float32", domain="ai.onnx.ml"), r"'ai\.onnx\.ml'"),
    ],
)
def test_wrong_queries_raise(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()


def test_queries_import_no_onnx() -> None:
    program = (
        "import sys, json; from onstage.export.kernels import has_kernel; assert has_kernel('Add', 21, 'float32');"
        "print(json.dumps([m for m in ('onnx', 'onnxruntime') if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []
