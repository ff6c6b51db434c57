"""Estimates of a graph at given sizes: floating-point operations, parameters, peak memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ...stage.dtypes import DType
from .._lazy import onnx

Shapes: TypeAlias = Mapping[str, tuple[DType, tuple[int, ...]]]

# One operation an element of the result.
_ELEMENTWISE: Final = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh Div Elu "
    "Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish "
    "Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh "
    "ThresholdedRelu Where Xor".split()
)
# One operation an element of the first operand.
_REDUCTIONS: Final = frozenset(
    "ArgMax ArgMin CumSum CumProd GlobalAveragePool GlobalMaxPool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    "ReduceMin ReduceProd ReduceSum ReduceSumSquare".split()
)
# Operations an element of the first operand.
_NORMALISATIONS: Final = {
    "Softmax": 5, "LogSoftmax": 5, "LayerNormalization": 8, "RMSNormalization": 5, "BatchNormalization": 4,
    "InstanceNormalization": 8, "GroupNormalization": 8, "LpNormalization": 3,
}  # fmt: skip
# They move data.
_FREE: Final = frozenset(
    "Cast CastLike Compress Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten Gather GatherElements GatherND Identity "
    "NonZero OneHot Pad Range Reshape ReverseSequence Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Tile "
    "TopK Transpose Trilu Unique Unsqueeze BitCast".split()
)
_CONTROL: Final = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass
class Cost:
    """flops: of the nodes that could be counted, bodies of loops once. uncounted: op types that could not. peak: bytes, the parameters included."""

    flops: int = 0
    flops_by_node: dict[int, int] = field(default_factory=dict[int, int])
    uncounted: Counter[str] = field(default_factory=Counter[str])
    unknown_shapes: int = 0
    bodies: int = 0
    peak: int = 0


def all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the graphs inside, outer ones first."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                for inner in attribute.graphs:
                    yield from all_nodes(inner)


def estimate(graph: Any, shapes: Shapes, parameters: int) -> Cost:
    """parameters: bytes of the initializers."""
    cost = Cost()
    for i, node in enumerate(graph.node):
        count = _flops(node, shapes)
        if node.op_type in _CONTROL:
            cost.bodies += 1
        elif count is None:
            cost.uncounted[node.op_type] += 1
        else:
            cost.flops += count
            cost.flops_by_node[i] = count
    cost.peak = parameters + _peak(graph, shapes, cost)
    return cost


def _flops(node: Any, shapes: Shapes) -> int | None:
    """None where it is not known."""
    op = node.op_type
    if node.domain not in ("", "ai.onnx"):
        return None
    if op in _FREE:
        return 0
    ins = [shapes[n][1] if n in shapes else None for n in node.input]
    out = shapes[node.output[0]][1] if node.output and node.output[0] in shapes else None
    first = ins[0] if ins else None
    if op in _ELEMENTWISE:
        return None if out is None else math.prod(out)
    if op in _REDUCTIONS:
        return None if first is None else math.prod(first)
    if op in _NORMALISATIONS:
        return None if first is None else _NORMALISATIONS[op] * math.prod(first)
    if out is None or first is None:
        return None
    if op == "MatMul":
        return 2 * math.prod(out) * first[-1]
    if op == "Gemm":
        attributes = {a.name: a for a in node.attribute}
        inner = first[0] if "transA" in attributes and attributes["transA"].i else first[1]
        return 2 * math.prod(out) * inner
    kernel = ins[1] if len(ins) > 1 else None
    if op == "Conv" and kernel is not None:
        return 2 * math.prod(out) * math.prod(kernel[1:])
    if op == "ConvTranspose" and kernel is not None:
        return 2 * math.prod(first) * math.prod(kernel[1:])
    if op in ("MaxPool", "AveragePool"):
        window = next((a.ints for a in node.attribute if a.name == "kernel_shape"), ())
        return math.prod(out) * math.prod(window)
    return None


def _peak(graph: Any, shapes: Shapes, cost: Cost) -> int:
    """The most bytes of inputs, outputs and values between them that are alive at once, when nodes run in order and nothing is reused."""
    sizes = {name: math.prod(shape) * dtype.itemsize for name, (dtype, shape) in shapes.items()}
    weights = {t.name for t in graph.initializer}
    kept = {v.name for v in (*graph.input, *graph.output)}
    last: dict[str, int] = {}
    for i, node in enumerate(graph.node):
        for name in _reads(node):
            last[name] = i
    dying: dict[int, list[str]] = {}
    for name, i in last.items():
        if name not in kept and name not in weights:
            dying.setdefault(i, []).append(name)
    held = sum(sizes.get(v.name, 0) for v in graph.input if v.name not in weights)
    peak = held
    for i, node in enumerate(graph.node):
        for name in node.output:
            if name and name not in sizes:
                cost.unknown_shapes += 1
            held += sizes.get(name, 0)
        peak = max(peak, held)
        held -= sum(sizes.get(name, 0) for name in dying.get(i, ()))
        held -= sum(sizes.get(name, 0) for name in node.output if name not in last and name not in kept)
    return peak


def _reads(node: Any) -> Iterator[str]:
    """The operands, and what the graphs inside read."""
    yield from node.input
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
        for inner in graphs:
            for other in all_nodes(inner):
                yield from other.input
