"""Plausible faults of a lowering, made by editing the ONNX model: what verification has to catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Model = Any
Node = Any

_SWAPPABLE = {"Sub", "Div", "Pow", "MatMul", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Mod", "Gather", "Gemm"}
_REPLACED = {
    "Max": "Min", "Min": "Max", "Less": "LessOrEqual", "LessOrEqual": "Less", "Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater",
    "Tanh": "Erf", "Exp": "Softplus", "Sqrt": "Abs", "ReduceMax": "ReduceMin", "ReduceMin": "ReduceMax", "Floor": "Ceil", "Ceil": "Floor",
    "Round": "Floor", "ReduceSum": "ReduceMean", "Neg": "Identity", "Abs": "Identity", "Relu": "Abs", "Sign": "Identity", "Add": "Sub",
    "Sub": "Add", "Mul": "Div", "Div": "Mul", "ArgMax": "ArgMin", "Equal": "LessOrEqual", "And": "Or", "Or": "And", "Sin": "Cos", "Log": "Sqrt",
}  # fmt: skip
_FLOATS = {"float32", "float64", "float16"}


class Mutant(NamedTuple):
    """A faulty model. kind: the fault; node: where it was made."""

    kind: str
    node: str
    model: Model


def mutants(model: Model, arrays: Sequence[Any], rng: np.random.Generator, dtypes: dict[str, str], sizes: dict[str, int]) -> Iterator[Mutant]:
    """One faulty copy for each place and kind of fault. arrays: of the inputs; dtypes, sizes: of the values that are known."""
    for i, node in enumerate(model.graph.node):
        for kind, edit in _EDITS.items():
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            if edit(copy, i, rng, dtypes, sizes):
                yield Mutant(kind, node.name, copy)
    for i, name in enumerate(x.name for x in model.graph.input):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        copy.graph.initializer.append(numpy_helper.from_array(np.asarray(arrays[i]), "folded_input"))
        for node in copy.graph.node:
            for j, operand in enumerate(node.input):
                if operand == name:
                    node.input[j] = "folded_input"
        yield Mutant("constant-folded input", name, copy)


def _swap(model: Model, i: int, *_: Any) -> bool:
    node = model.graph.node[i]
    if node.op_type == "Where":
        node.input[1], node.input[2] = node.input[2], node.input[1]
        return True
    if node.op_type not in _SWAPPABLE or node.input[0] == node.input[1]:
        return False
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


def _axis(model: Model, i: int, rng: np.random.Generator, *_: Any) -> bool:
    node = model.graph.node[i]
    for attribute in node.attribute:
        if attribute.name == "axis":
            attribute.i = attribute.i - 1 if attribute.i else 1
            return True
        if attribute.name == "perm" and len(attribute.ints) > 1:
            order = list(attribute.ints)
            a, b = rng.choice(len(order), 2, replace=False)
            order[a], order[b] = order[b], order[a]
            del attribute.ints[:]
            attribute.ints.extend(order)
            return True
    if node.op_type in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "CumSum"):
        return _shift(model, node, 1, -1)
    return False


def _slice(model: Model, i: int, rng: np.random.Generator, *_: Any) -> bool:
    node = model.graph.node[i]
    if node.op_type == "Slice":
        return _shift(model, node, 1, 1) and _shift(model, node, 2, 1)
    if node.op_type == "Pad":
        return _roll(model, node, 1)
    if node.op_type in ("Gather", "GatherElements", "GatherND"):
        return _shift(model, node, 1, -1)
    return False


def _shift(model: Model, node: Node, operand: int, step: int) -> bool:
    """Add to an integer constant operand, in a copy of it."""
    value = _constant(model, node.input[operand]) if operand < len(node.input) else None
    if value is None or value.dtype.kind != "i" or (np.abs(value) > 1 << 30).any():
        return False
    _replace(model, node, operand, value + step)
    return True


def _roll(model: Model, node: Node, operand: int) -> bool:
    value = _constant(model, node.input[operand])
    if value is None or value.size < 2 or (value == value[0]).all():
        return False
    _replace(model, node, operand, np.roll(value, value.size // 2))
    return True


def _constant(model: Model, name: str) -> Any:
    return next((numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name), None)


def _replace(model: Model, node: Node, operand: int, value: Any) -> None:
    name = f"mutated_{operand}"
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
    node.input[operand] = name


def _drop(model: Model, i: int, rng: np.random.Generator, dtypes: Any, sizes: dict[str, int]) -> bool:
    """x + y becomes x, with the shape kept."""
    node = model.graph.node[i]
    if node.op_type not in ("Add", "Sub", "Mul", "Max", "Min", "Div"):
        return False
    size = sizes.get(node.output[0])
    fits = [n for n in node.input if size is not None and sizes.get(n) == size]
    if not fits:
        return False
    kept = fits[int(rng.integers(len(fits)))]
    node.op_type = "Identity"
    del node.input[:]
    node.input.append(kept)
    return True


def _factor(model: Model, i: int, rng: np.random.Generator, dtypes: dict[str, str], sizes: dict[str, int]) -> bool:
    node = model.graph.node[i]
    if node.op_type in ("Constant", "Shape") or dtypes.get(node.output[0]) not in _FLOATS:
        return False
    factor = float(rng.choice([2.0, 0.5, 4.0, -1.0, 1.01, 5.0]))
    return _after(model, i, lambda name: [("Mul", [name, _scalar(model, factor, dtypes[name])], {})])


def _precision(model: Model, i: int, rng: np.random.Generator, dtypes: dict[str, str], sizes: Any) -> bool:
    """Through a narrower dtype and back: float64 through float32, float32 through float16, integers through int8."""
    node = model.graph.node[i]
    dtype = dtypes.get(node.output[0])
    narrow = {"float64": onnx.TensorProto.FLOAT, "float32": onnx.TensorProto.FLOAT16, "int64": onnx.TensorProto.UINT8, "int32": onnx.TensorProto.UINT8}
    if dtype not in narrow or node.op_type in ("Constant", "Shape"):
        return False
    back = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return _after(model, i, lambda name: [("Cast", [name], {"to": narrow[dtype]}), ("Cast", ["@"], {"to": back})])


def _lost_cast(model: Model, i: int, rng: np.random.Generator, dtypes: dict[str, str], sizes: Any) -> bool:
    """Cast to a narrower dtype and back: the first is lost."""
    node = model.graph.node[i]
    if node.op_type != "Cast":
        return False
    source = dtypes.get(node.input[0])
    readers = [n for n in model.graph.node if node.output[0] in n.input]
    if not readers or any(n.op_type != "Cast" for n in readers) or source is None:
        return False
    for reader in readers:
        reader.input[0] = node.input[0]
    return True


def _scalar(model: Model, value: float, dtype: str) -> str:
    name = "mutated_factor"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
    return name


def _after(model: Model, i: int, make: Callable[[str], list[tuple[str, list[str], dict[str, Any]]]]) -> bool:
    """Put nodes behind node i, which keep its output's name; "@" is the value before."""
    node = model.graph.node[i]
    name = node.output[0]
    node.output[0] = "mutated_0"
    steps = make(name)
    added = []
    for k, (op, operands, attributes) in enumerate(steps):
        source = f"mutated_{k}"
        target = name if k == len(steps) - 1 else f"mutated_{k + 1}"
        added.append(helper.make_node(op, [source if o in (name, "@") else o for o in operands], [target], **attributes))
    nodes = list(model.graph.node)
    rebuilt = [*nodes[: i + 1], *added, *nodes[i + 1 :]]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in rebuilt]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True


def _other_op(model: Model, i: int, *_: Any) -> bool:
    node = model.graph.node[i]
    other = _REPLACED.get(node.op_type)
    if other is None or (other == "Identity" and len(node.input) != 1):
        return False
    if other == "Identity":
        del node.attribute[:]
    node.op_type = other
    return True


def _other_constant(model: Model, i: int, rng: np.random.Generator, *_: Any) -> bool:
    """A scalar constant of floating type is off by 1 %."""
    node = model.graph.node[i]
    for k, name in enumerate(node.input):
        value = _constant(model, name)
        if value is not None and value.size == 1 and value.dtype.kind == "f" and np.isfinite(value).all():
            _replace(model, node, k, np.asarray(value * 1.01 if value else 0.01).astype(value.dtype))
            return True
    return False


_EDITS: dict[str, Callable[..., bool]] = {
    "swapped operands": _swap,
    "wrong axis": _axis,
    "off-by-one slice": _slice,
    "dropped term": _drop,
    "factor": _factor,
    "lost precision": _precision,
    "lost cast": _lost_cast,
    "another op": _other_op,
    "another constant": _other_constant,
}
