"""Builder: what `onnx` rules of primitives write nodes with. It fills protobufs directly; helpers would cost more than the lowering."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..stage.dtypes import DType, as_dtype
from ..stage.errors import ProgramError, UnsupportedError
from ..stage.primitive import Array
from ..stage.program import Const, Program
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from . import foreign, kernels, quirks
from ._lazy import onnx
from .carriers import Plan, carrier, make_plan
from .protos import detached_proto, set_attribute, tensor_proto, value_info, value_type
from .shapes import DimLowering
from .signatures import dtype_of, signature

# The attributes that say an output's dtype where no operand does.
_DTYPE_ATTRIBUTES = ("to", "dtype", "value", "output_datatype")
_CONTROL_FLOW = frozenset(("If", "Loop", "Scan"))
_INLINE_BYTES = 256

_plans: dict[Any, Plan] = {}


class NeedsOpset(Exception):
    """The program needs an opset of at least `opset`; `lower` starts again with it."""

    def __init__(self, opset: int, message: str) -> None:
        super().__init__(message)
        self.opset = opset
        self.message = message


class Builder:
    """Writes one ONNX graph, and the graphs nested in it, at one opset.

    Values are names. Constants and sizes stand in the main graph, so that nested graphs see them. opset, target: what is
    being lowered to; `in_specs`, `out_specs`: those of the equation being lowered.
    """

    def __init__(
        self,
        opset: int,
        target: str,
        reserved: Sequence[str],
        graph_name: str,
        detach_above: int | None = None,
    ) -> None:
        self.opset = opset
        self.target = target
        self.in_specs: tuple[ArraySpec, ...] = ()
        self.out_specs: tuple[ArraySpec, ...] = ()
        self.domains: dict[str, int] = {"": opset}
        # Constants of more bytes than `detach_above`, by name: their initializers say "external" and hold no data.
        self.detached: dict[str, Array] = {}
        self._detach_above = detach_above
        self.model: Any = onnx.ModelProto()
        self.root: Any = self.model.graph
        self.root.name = graph_name
        self.dims = DimLowering(self)
        self._graph = self.root
        self._add_node: Callable[..., Any] = self.root.node.add
        self._prefix = _free_prefix(reserved)
        self._count = 0
        self._node_names: dict[str, int] = {}
        self.label = "node"
        self._dtypes: dict[str, DType | None] = {"": None}
        self._specs: dict[str, ArraySpec] = {}
        self._constants: dict[Any, str] = {}
        self._arrays: dict[str, Array] = {}
        self._folding: set[str] = set()  # values that hang on constants alone: ONNX Runtime folds them
        self._casts: list[dict[tuple[str, DType], str]] = [{}]
        self._inline: Callable[[Builder, Program, Sequence[str], bool], list[str]] | None = None
        self.quirks = quirks.Quirks(self)

    # what is known of a value

    def dtype(self, name: str) -> DType:
        """The dtype of a value."""
        dtype = self._dtypes.get(name)
        if dtype is None:
            raise ProgramError(f"ONNX lowering: the value {name!r} is unknown, or its dtype is")
        return dtype

    def spec(self, name: str) -> ArraySpec:
        """The spec of an operand, an output of an earlier equation, or a constant."""
        spec = self._specs.get(name)
        if spec is None:
            raise ProgramError(f"ONNX lowering: the shape of the intermediate value {name!r} is not known")
        return spec

    def known_spec(self, name: str) -> ArraySpec | None:
        """The spec, None where only the dtype is known."""
        return self._specs.get(name)

    def value_of(self, name: str) -> Array | None:
        """The array of a constant; None for what is computed."""
        return self._arrays.get(name)

    def folds(self, name: str) -> bool:
        """Whether ONNX Runtime can compute the value when it loads the file."""
        return name in self._folding

    def declare(self, name: str, spec: ArraySpec) -> None:
        """State a value's spec: of graph inputs and of what equations gave."""
        self._specs.setdefault(name, spec)
        self._dtypes[name] = spec.dtype

    def declare_dtype(self, name: str, dtype: DType) -> None:
        """State a value's dtype where its shape is unknown."""
        self._dtypes[name] = dtype

    # nodes

    def op(self, op_type: str, *names: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; gives its output's name, or a tuple of names where outputs > 1.

        An absent optional input is "". Attributes are ints, floats, strings, dtypes, lists, arrays (tensors) and graphs; None
        leaves one out. Where ONNX Runtime has no kernel for the operands' dtype the op is computed in a wider one.
        Raises UnsupportedError where there is none; ProgramError for a call that breaks the op's schema.
        """
        if domain:
            return self._foreign_op(op_type, names, outputs, domain, attributes)
        names = tuple(names)
        rewritten = self.quirks.rewrite(op_type, names, attributes) if op_type in quirks.WATCHED else None
        if rewritten is not None:
            if isinstance(rewritten, str):
                return rewritten
            op_type, names = rewritten
        since = self._since(op_type)
        if op_type in _CONTROL_FLOW:
            return self._control_flow(op_type, names, outputs, attributes, since)
        dtypes = self._dtypes
        try:
            operand_dtypes = tuple([dtypes[n] for n in names])
        except KeyError as error:
            raise ProgramError(f"ONNX {op_type}: the operand {error} is no value of this graph") from None
        reduction = attributes.get("reduction", "none") != "none"
        key = (op_type, operand_dtypes, outputs, since, reduction)
        plan = _plans.get(key)
        if plan is None:
            plan = self._make_plan(op_type, operand_dtypes, outputs, since, reduction)
            _plans[key] = plan
        if plan.casts is not None:
            names = tuple([n if c is None else self.cast(n, c) for n, c in zip(names, plan.casts, strict=True)])
        wide: DType | None = None
        results = plan.outputs
        if plan.is_open:
            dtype, wide, attributes = self._dtype_by_attribute(op_type, attributes, operand_dtypes, since)
            results = tuple([((dtype, None) if r[0] is None else r) for r in results])
        made = self._emit(op_type, names, outputs, attributes, signature(op_type, since).attributes)
        for name, (dtype, _) in zip(made, results, strict=True):
            dtypes[name] = dtype
        if wide is not None:
            narrow = dtypes[made[0]] or wide
            dtypes[made[0]] = wide
            made[0] = self.cast(made[0], narrow)
        made = [n if back is None else self.cast(n, back) for n, (_, back) in zip(made, results, strict=True)]
        if op_type in quirks.WATCHED:
            self.quirks.note(op_type, names, made[0])
        if names and names[0] in self._folding and all(n in self._folding or not n for n in names):
            self._folding.update(made)
        return made[0] if outputs == 1 else tuple(made)

    def cast(self, name: str, dtype: DType) -> str:
        """`name` as `dtype`: no node where it is that already, a new constant for a constant."""
        dtype = as_dtype(dtype)
        if self.dtype(name) == dtype:
            return name
        key = (name, dtype)
        for known in self._casts:
            if key in known:
                return known[key]
        array = self._arrays.get(name)
        if array is not None:
            with np.errstate(all="ignore"):
                result = self.const(array.astype(dtype))
        else:
            since = self._since("Cast")
            result = self._emit("Cast", (name,), 1, {"to": dtype}, signature("Cast", since).attributes)[0]
            self._dtypes[result] = dtype
            spec = self._specs.get(name)
            if spec is not None:
                self._specs[result] = make_spec(spec.shape, dtype)
        self._casts[-1][key] = result
        return result

    def const(self, value: Any, dtype: Any = None) -> str:
        """A constant from an array, list or number; equal ones are one initializer. Numbers are int64, float64 or bool by default."""
        array = np.asarray(value, dtype=None if dtype is None else as_dtype(dtype))
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        data = array.tobytes()
        content = data if len(data) <= _INLINE_BYTES else hashlib.sha256(data).digest()
        return self._constant((array.dtype.name, array.shape, content), array, data)

    def constant(self, const: Const) -> str:
        """A constant of the Program."""
        array = const.value
        if array.nbytes <= _INLINE_BYTES:
            return self.const(array)
        return self._constant((array.dtype.name, array.shape, bytes.fromhex(const.digest)), array, None)

    def dim(self, d: DimLike) -> str:
        """An int64 scalar holding a size."""
        return self.dims.scalar(d)

    def shape(self, dims: Shape) -> str:
        """An int64 1-d tensor of sizes."""
        return self.dims.vector(dims)

    def require(self, opset: int) -> None:
        """Say that what follows needs at least this opset."""
        if self.opset < opset:
            raise NeedsOpset(opset, f"opset {opset} is needed")

    def require_operator(self, op_type: str, version: int) -> None:
        """Say that a standard operator is meant as the opset of that version has it; UnsupportedError where it has changed since."""
        foreign.require_operator(self, op_type, version)

    def call_function(self, function: Any, *names: str, outputs: int = 1, **attributes: Any) -> Any:
        """A call of a FunctionProto, which the model then holds; gives its output's name, or a tuple of names where outputs > 1."""
        foreign.add_function(self, function, len(names), outputs, attributes)
        return self._foreign_op(function.name, names, outputs, function.domain, attributes)

    # programs inside

    def lower(self, program: Program, names: Sequence[str], *, own_lines: bool = False) -> list[str]:
        """Write a Program's equations into the current graph; gives the names of its outputs.

        own_lines: name the nodes after the program's own source lines, not after the equation being lowered.
        """
        if self._inline is None:
            raise ProgramError("this builder was not made by lower()")
        return self._inline(self, program, names, own_lines)

    @contextmanager
    def graph(self, name: str) -> Generator[Graph]:
        """A nested graph: what is written inside the `with` goes into it, and may use every value of the graphs around it."""
        outer, outer_add = self._graph, self._add_node
        inner = Graph(self, name)
        self._graph, self._add_node = inner.proto, inner.proto.node.add
        self._casts.append({})
        try:
            yield inner
        finally:
            self._graph, self._add_node = outer, outer_add
            self._casts.pop()

    @property
    def nested(self) -> bool:
        """True while a graph inside a control-flow node is written, which may run many times."""
        return self._graph is not self.root

    @contextmanager
    def in_root(self) -> Generator[None]:
        """What is written inside goes into the main graph, before the node whose nested graph is being written."""
        outer, outer_add, outer_casts = self._graph, self._add_node, self._casts
        self._graph, self._add_node, self._casts = self.root, self.root.node.add, self._casts[:1]
        try:
            yield
        finally:
            self._graph, self._add_node, self._casts = outer, outer_add, outer_casts

    def subgraph(self, program: Program, operands: Sequence[str | ArraySpec], name: str = "") -> Any:
        """A Program as a GraphProto, for If, Loop and Scan.

        operands: per input of the Program a name of the graph around it, which is captured, or a spec, which makes it
        an input of the graph.
        """
        with self.graph(name or program.name) as graph:
            names = [graph.input(x) if isinstance(x, ArraySpec) else x for x in operands]
            for result, spec in zip(self.lower(program, names, own_lines=True), program.out_specs, strict=True):
                graph.output(result, spec)
        return graph.proto

    # for lower()

    def begin(self, label: str, in_specs: tuple[ArraySpec, ...], out_specs: tuple[ArraySpec, ...]) -> None:
        """The equation that the next nodes belong to; label: the provenance in their names."""
        self.label = label
        self.in_specs = in_specs
        self.out_specs = out_specs

    def fresh(self) -> str:
        """A value name that nothing else has."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def last_outputs(self) -> Any:
        """The outputs of the node that was written last into the current graph; they may be renamed while nothing reads them."""
        nodes = self._graph.node
        return nodes[-1].output if nodes else ()

    def rename_last(self, i: int, new: str) -> None:
        """Give output i of the last node another name."""
        outputs = self._graph.node[-1].output
        old = outputs[i]
        outputs[i] = new
        self._dtypes[new] = self._dtypes.pop(old)
        if old in self._specs:
            self._specs[new] = self._specs.pop(old)
        self.quirks.rename(old, new)
        for key, value in list(self._casts[-1].items()):
            if value == old:
                self._casts[-1][key] = new

    def set_inliner(self, inline: Callable[[Builder, Program, Sequence[str], bool], list[str]]) -> None:
        self._inline = inline

    # inside

    def _since(self, op_type: str) -> int:
        since = kernels.since_version(op_type, self.opset)
        if since is None:
            for opset in range(self.opset + 1, 25):
                if kernels.since_version(op_type, opset) is not None:
                    raise NeedsOpset(opset, f"ONNX {op_type} exists from opset {opset} on")
            raise UnsupportedError(f"ONNX {op_type} is not in the opsets that onstage writes")
        return since

    def _make_plan(self, op_type: str, dtypes: tuple[DType | None, ...], outputs: int, since: int, reduction: bool) -> Plan:
        try:
            return make_plan(op_type, dtypes, outputs, self.opset, since, reduction)
        except UnsupportedError as error:
            # A later opset may admit the dtype.
            for opset in (23, 24):
                if opset <= self.opset:
                    continue
                later = kernels.since_version(op_type, opset)
                if later is None or later == since:
                    continue
                try:
                    make_plan(op_type, dtypes, outputs, opset, later, reduction)
                except UnsupportedError:
                    continue
                raise NeedsOpset(opset, error.message) from None
            raise

    def _dtype_by_attribute(
        self, op_type: str, attributes: dict[str, Any], operands: tuple[DType | None, ...], since: int
    ) -> tuple[DType, DType | None, dict[str, Any]]:
        """(dtype, carrier, attributes) of an op whose attribute says its output's dtype, such as Cast."""
        if op_type == "LayerNormalization":
            return np.dtype(np.float32), None, attributes
        for key in _DTYPE_ATTRIBUTES:
            value = attributes.get(key)
            if value is None:
                continue
            dtype = value.dtype if isinstance(value, np.ndarray) else dtype_of(value) if type(value) is int else as_dtype(value)
            wide = None if op_type == "Cast" else carrier(op_type, dtype, self.opset, signature(op_type, since).output_type(0))
            if wide is None:
                return dtype, None, attributes
            return (
                dtype,
                wide,
                {**attributes, key: value.astype(wide) if isinstance(value, np.ndarray) else wide},
            )
        if operands and operands[0] is not None and op_type != "ConstantOfShape":
            return operands[0], None, attributes
        return np.dtype(np.float32), None, attributes

    def _foreign_op(self, op_type: str, names: tuple[str, ...], outputs: int, domain: str, attributes: dict[str, Any]) -> Any:
        """A node of another domain: nothing is known of it but what the rule says; results have the dtypes of `out_specs`."""
        foreign.import_domain(self, op_type, domain, attributes.pop("domain_version", 1))
        made = self._emit(op_type, names, outputs, attributes, None)
        self._graph.node[-1].domain = domain
        for i, name in enumerate(made):
            self._dtypes[name] = self.out_specs[min(i, len(self.out_specs) - 1)].dtype if self.out_specs else None
        return made[0] if outputs == 1 else tuple(made)

    def _control_flow(self, op_type: str, names: tuple[str, ...], outputs: int, attributes: dict[str, Any], since: int) -> Any:
        body = attributes["then_branch"] if op_type == "If" else attributes["body"]
        types = list(body.output)[1:] if op_type == "Loop" else list(body.output)
        made = self._emit(op_type, names, outputs, attributes, signature(op_type, since).attributes)
        for name, info in zip(made, types, strict=True):
            self._dtypes[name] = dtype_of(info.type.tensor_type.elem_type)
        return made[0] if outputs == 1 else tuple(made)

    def _emit(
        self,
        op_type: str,
        names: Sequence[str],
        outputs: int,
        attributes: Mapping[str, Any],
        types: Mapping[str, int] | None,
    ) -> list[str]:
        made: list[str] = []
        for _ in range(outputs):
            self._count += 1
            made.append(f"{self._prefix}{self._count}")
        node = self._add_node(op_type=op_type, name=self._node_name(self.label), input=names, output=made)
        if attributes:
            for key in sorted(attributes):
                if attributes[key] is not None:
                    if types is not None and key not in types:
                        raise ProgramError(f"ONNX {op_type} has no attribute {key!r}")
                    set_attribute(node.attribute.add(), key, attributes[key], None if types is None else types[key])
        return made

    def _node_name(self, label: str) -> str:
        used = self._node_names
        n = used.get(label)
        if n is None:
            used[label] = 1
            return label
        while True:
            n += 1
            name = f"{label}_{n}"
            if name not in used:
                used[label] = n
                used[name] = 1
                return name

    def _constant(self, key: Any, array: Array, data: bytes | None) -> str:
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.fresh()
            if self._detach_above is not None and array.nbytes > self._detach_above:
                self.root.initializer.append(detached_proto(name, array))
                self.detached[name] = array
            else:
                self.root.initializer.append(tensor_proto(name, array, data))
            self._arrays[name] = array
            self._folding.add(name)
            self._dtypes[name] = array.dtype
            self._specs[name] = make_spec(array.shape, array.dtype)
        return name


class Graph:
    """A graph nested in another, while it is written."""

    def __init__(self, builder: Builder, name: str) -> None:
        self.proto: Any = onnx.GraphProto(name=name)
        self._builder = builder

    def input(self, spec: ArraySpec) -> str:
        """Add an input; gives its name."""
        name = self.input_of(spec.dtype)
        self.proto.input[-1].CopyFrom(value_info(name, spec))
        self._builder.declare(name, spec)
        return name

    def input_of(self, dtype: DType) -> str:
        """Add an input of any shape."""
        name = self._builder.fresh()
        self.proto.input.append(value_type(name, dtype))
        self._builder.declare_dtype(name, dtype)
        return name

    def output(self, name: str, spec: ArraySpec) -> None:
        """Make a value an output; one from outside this graph, or an output already, goes through an Identity."""
        self.output_of(name, spec.dtype)
        self.proto.output[-1].CopyFrom(value_info(self.proto.output[-1].name, spec))

    def output_of(self, name: str, dtype: DType) -> None:
        """Make a value of any shape an output."""
        made_here = any(name in node.output for node in reversed(self.proto.node))
        if not made_here or any(o.name == name for o in self.proto.output):
            name = self._builder.op("Identity", name)
        self.proto.output.append(value_type(name, dtype))


def _free_prefix(reserved: Sequence[str]) -> str:
    """A prefix such that prefix + digits is none of the reserved names."""
    prefix = "v"
    while any(name.startswith(prefix) and name[len(prefix) :].isdigit() for name in reserved):
        prefix += "_"
    return prefix
