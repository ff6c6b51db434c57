"""Plausible faults of a lowering, made by editing the ONNX model: what verification has to catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from onstage.stage.errors import DTypeError, ShapeError
from onstage.stage.primitive import registered_primitives
from onstage.stage.program import Const, Equation, Program, constant

Model = Any
Node = Any

_SWAPPABLE = {
    "Sub",
    "Div",
    "Pow",
    "MatMul",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "Mod",
    "Gather",
    "Gemm",
}
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


def mutants(
    model: Model,
    arrays: Sequence[Any],
    rng: np.random.Generator,
    dtypes: dict[str, str],
    sizes: dict[str, Any],
) -> Iterator[Mutant]:
    """One faulty copy for each place and kind of fault. arrays: of the inputs; dtypes, sizes: dtype and shape of the values that are known."""
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
    narrow = {
        "float64": onnx.TensorProto.FLOAT,
        "float32": onnx.TensorProto.FLOAT16,
        "int64": onnx.TensorProto.UINT8,
        "int32": onnx.TensorProto.UINT8,
    }
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


# Whether a mutant is a fault at all ------------------------------------------------------------------------------------------


class Probe:
    """Runs models on fixed inputs and looks at every value that the honest model shows; knows nothing of verification."""

    def __init__(self, model: Model, names: Sequence[str], in_names: Sequence[str], arrays: Sequence[Any], seed: int) -> None:
        self.names = [*names]
        self.in_names = tuple(in_names)
        rng = np.random.default_rng(seed)
        inputs = [list(arrays), *([_moved(a, rng) for a in arrays] for _ in range(3))]
        self.inputs: list[Any] = []
        self.honest: list[list[Any]] = []
        session = self._session(model)
        for arrays in inputs:
            try:
                self.honest.append(self._run(session, arrays))
            except onnxruntime_errors():
                continue
            self.inputs.append(arrays)
        found = self.honest[0]
        self.dtypes = {n: str(x.dtype) for n, x in zip(self.names, found, strict=True)}
        self.shapes = {n: x.shape for n, x in zip(self.names, found, strict=True)}
        self.dtypes.update({n: str(a.dtype) for n, a in zip(in_names, self.inputs[0], strict=True)})
        self.shapes.update({n: a.shape for n, a in zip(in_names, self.inputs[0], strict=True)})

    def is_fault(self, model: Model) -> bool | None:
        """Whether some value differs by more than rounding; None for a model that does not load or run."""
        try:
            session = self._session(model)
            return any(
                _differs(a, b)
                for arrays, honest in zip(self.inputs, self.honest, strict=True)
                for a, b in zip(self._run(session, arrays), honest, strict=True)
            )
        except onnxruntime_errors():
            return None

    def _session(self, model: Model) -> Any:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        present = {o.name for o in copy.graph.output}
        copy.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self.names if n not in present)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        return ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def _run(self, session: Any, arrays: Sequence[Any]) -> list[Any]:
        return session.run(self.names, dict(zip(self.in_names, arrays, strict=True)))


def onnxruntime_errors() -> tuple[type[Exception], ...]:
    """ONNX Runtime's errors derive from Exception alone."""
    names = (
        "Fail",
        "InvalidArgument",
        "InvalidGraph",
        "RuntimeException",
        "NotImplemented",
        "NoSuchFile",
        "InvalidProtobuf",
    )
    return (*(getattr(ort.capi.onnxruntime_pybind11_state, n) for n in names), RuntimeError)


def _moved(array: Any, rng: np.random.Generator) -> Any:
    if array.dtype.kind == "f":
        return (array * rng.uniform(0.3, 1.7, array.shape) + (array == 0) * 0.01).astype(array.dtype)
    return rng.permutation(array.reshape(-1)).reshape(array.shape)


def _differs(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype.kind != "f":
        return not np.array_equal(a, b)
    rtol = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-8}[str(a.dtype)]
    a, b = a.astype(np.float64), b.astype(np.float64)
    return not np.allclose(a, b, rtol=rtol, atol=0.0, equal_nan=True)


# Faults made in the Program before it is lowered --------------------------------------------------------------------------------

_OTHER_PRIMITIVE = {"add": "subtract", "subtract": "add", "multiply": "divide", "divide": "multiply", "maximum": "minimum",
                    "minimum": "maximum", "tanh": "sin", "sin": "cos", "exp": "tanh", "greater": "less", "less": "greater_equal"}  # fmt: skip


def program_mutants(program: Program, rng: np.random.Generator) -> Iterator[tuple[str, Equation, Program]]:
    """Programs with the same Vars and one equation that is wrong."""
    for i, eqn in enumerate(program.equations):
        for kind, wrong in _wrong_equations(eqn):
            try:
                specs, _ = wrong.primitive.infer(tuple(a.spec for a in wrong.inputs), wrong.params)
            except (DTypeError, ShapeError):
                continue
            if tuple(specs) == tuple(v.spec for v in eqn.outputs):
                equations = (*program.equations[:i], wrong, *program.equations[i + 1 :])
                yield kind, eqn, Program(program.inputs, equations, program.outputs, program.name)


def _wrong_equations(eqn: Equation) -> Iterator[tuple[str, Equation]]:
    def changed(primitive: Any = eqn.primitive, inputs: Any = eqn.inputs, params: Any = eqn.params) -> Equation:
        return Equation(primitive, tuple(inputs), params, eqn.outputs, eqn.source)

    name = eqn.primitive.name
    if len(eqn.inputs) == 2 and eqn.inputs[0].spec == eqn.inputs[1].spec:
        yield "swapped operands", changed(inputs=eqn.inputs[::-1])
    if name in _OTHER_PRIMITIVE and _OTHER_PRIMITIVE[name] in registered_primitives():
        yield "another op", changed(primitive=registered_primitives()[_OTHER_PRIMITIVE[name]])
    axes = eqn.params.get("axes")
    if isinstance(axes, tuple) and axes:
        other = tuple(sorted({(a + 1) % max(1, eqn.inputs[0].spec.ndim) for a in axes}))
        yield "wrong axis", changed(params={**eqn.params, "axes": other})
    for k, atom in enumerate(eqn.inputs):
        if isinstance(atom, Const) and atom.value.size == 1 and atom.value.dtype.kind == "f":
            wrong = constant(np.asarray(atom.value * 2 + 1, atom.value.dtype), atom.spec)
            yield "another constant", changed(inputs=(*eqn.inputs[:k], wrong, *eqn.inputs[k + 1 :]))
