"""Deferred arrays: outside staging, operations on an `Array` only record and infer metadata; a value that is asked for evaluates
what is pending, in one program, through the same sessions as staged programs.

A pending graph is looked up by its structure (primitives, params, how they are wired, specs of its leaves), so that a loop that does
the same again builds nothing. Everything that is no Array, Python numbers too, is a leaf: its value is not part of the structure.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .backend import backend
from .dtypes import as_dtype
from .errors import DTypeError
from .interpreter import as_array
from .primitive import Array as NumPyArray
from .primitive import Primitive
from .program import Atom, Const, ProgramBuilder
from .signature import Signature
from .spec import ArraySpec, make_spec, require_plain, spec_of
from .staged import StagedProgram
from .trace import Trace
from .tracer import Tracer
from .tree import structure

# A chain of so many pending operations is evaluated at once: a loop that never asks for a value must not grow.
_DEPTH_LIMIT: Final = 256
_PROGRAM_LIMIT: Final = 256

_programs: OrderedDict[Any, StagedProgram] = OrderedDict()
_lock = threading.RLock()
_NO_TRACE: Final = Trace(False)
_NO_TRACE.live = False


class _Operation:
    """A recorded application of a primitive; its outputs are Nodes."""

    __slots__ = ("depth", "inputs", "nodes", "params", "primitive")

    def __init__(self, primitive: Primitive, inputs: tuple[_Node, ...], params: dict[str, Any]) -> None:
        self.primitive = primitive
        self.inputs = inputs
        self.params = params
        self.depth = 1 + max((n.operation.depth for n in inputs if n.operation is not None), default=0)
        self.nodes: list[_Node] = []


class _Node:
    """A value: pending while `operation` is set, held afterwards."""

    __slots__ = ("__weakref__", "handle", "operation", "spec", "value")

    def __init__(self, spec: ArraySpec, operation: _Operation | None, value: NumPyArray | None) -> None:
        self.spec = spec
        self.operation = operation
        self.value = value
        self.handle: weakref.ref[Any] | None = None


class Array(Tracer):
    """A deferred array, made by `ons.array(x)` and by operations on one.

    `.shape` and `.dtype` are known at once. `.numpy()`, `float(y)`, `bool(y)`, printing and NumPy functions that are not recorded
    evaluate it; the value is computed once and held.
    """

    __slots__ = ()
    _deferred = True

    def __init__(self, node: _Node) -> None:
        super().__init__(_NO_TRACE, node, None)  # type: ignore[arg-type]
        node.handle = weakref.ref(self)

    @property
    def node(self) -> _Node:
        return self._atom  # type: ignore[return-value]

    def _settled(self) -> NumPyArray:
        """The value itself, read-only."""
        node = self.node
        if node.value is None:
            _evaluate(node)
        assert node.value is not None
        return node.value

    def numpy(self) -> NumPyArray:
        """The value as a NumPy array of its own."""
        return self._settled().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("a deferred array is copied when it becomes a NumPy array")
        return self._settled().astype(dtype if dtype is not None else self.dtype, copy=True)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._settled().__dlpack_device__()

    def __bool__(self) -> bool:
        return bool(self._settled())

    def __int__(self) -> int:
        return int(self._settled())

    def __float__(self) -> float:
        return float(self._settled())

    def __index__(self) -> int:
        return self._settled().__index__()

    def item(self, *args: int) -> Any:
        """An element as a Python number."""
        return self._settled().item(*args)

    def tolist(self) -> Any:
        """The value as nested lists."""
        return self._settled().tolist()

    def __repr__(self) -> str:
        prefix = "ons.array("
        text = np.array2string(self._settled(), separator=", ", prefix=prefix, threshold=1000)
        return f"{prefix}{text}, dtype={self.dtype.name})"

    def __str__(self) -> str:
        return str(self._settled())

    def __format__(self, spec: str) -> str:
        return format(self._settled()[()], spec)

    def _replace(self, new: Tracer, how: str, way_out: str, value: Any = None) -> Tracer:
        result = super()._replace(new, how, way_out, value)
        self.node.handle = weakref.ref(self)
        return result

    @staticmethod
    def _record(primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Record an operation whose operands hold an Array."""
        inputs = tuple([_node(x, primitive.name) for x in operands])
        specs, several = primitive.infer(tuple([n.spec for n in inputs]), params)
        operation = _Operation(primitive, inputs, params)
        operation.nodes = [_Node(s, operation, None) for s in specs]
        arrays = tuple([Array(n) for n in operation.nodes])
        if operation.depth >= _DEPTH_LIMIT:
            _evaluate(operation.nodes[0])
        return arrays if several else arrays[0]

    @staticmethod
    def _wrap(values: Sequence[NumPyArray]) -> list[Any]:
        """Arrays that a program has just made, as deferred arrays."""
        return [Array(_held(x)) for x in values]


def _held(value: NumPyArray, weak: bool = False) -> _Node:
    value.flags.writeable = False
    return _Node(make_spec(value.shape, value.dtype, weak), None, value)


def _node(operand: Any, what: str) -> _Node:
    if isinstance(operand, Array):
        return operand.node
    if isinstance(operand, Const):
        return _Node(operand.spec, None, operand.value)
    spec = spec_of(operand, what)
    return _held(np.array(operand, dtype=spec.dtype, copy=True), spec.weak)


def array(x: Any) -> Array:
    """A deferred array holding a copy of x: a NumPy array, number, nested list, or anything NumPy takes."""
    if isinstance(x, Array):
        return Array(_Node(x.spec, None, x.numpy()))
    if isinstance(x, Tracer):
        raise DTypeError("ons.array: a traced array stands for itself while staging; use it as it is")
    require_plain(x, "ons.array")
    values = np.array(x, copy=True)
    as_dtype(values.dtype, "ons.array")
    return Array(_held(np.ascontiguousarray(as_array(values)).reshape(values.shape)))


def _evaluate(root: _Node) -> None:
    """Evaluate a node together with every node below it that somebody still holds."""
    with _lock:
        if root.value is not None:
            return
        operations = _pending(root)
        leaves: dict[int, _Node] = {}
        places: dict[int, int] = {}
        wiring: list[Any] = []
        wanted: list[_Node] = []
        positions: list[tuple[int, int]] = []
        for i, operation in enumerate(operations):
            refs: list[int] = []
            for node in operation.inputs:
                if node.value is None:
                    refs.append(places[id(node)])
                else:
                    if id(node) not in leaves:
                        leaves[id(node)] = node
                        places[id(node)] = -len(leaves)
                    refs.append(places[id(node)])
            wiring.append((operation.primitive, tuple(operation.params.items()), tuple(refs)))
            for k, node in enumerate(operation.nodes):
                # the place of an output: operation and index in one number
                places[id(node)] = i * 1024 + k
                if node is root or (node.handle is not None and node.handle() is not None):
                    wanted.append(node)
                    positions.append((i, k))
        key = (tuple(wiring), tuple([n.spec for n in leaves.values()]), tuple(positions))
        program = _programs.get(key)
        if program is None:
            program = _programs[key] = _build(wiring, list(leaves.values()), positions)
            if len(_programs) > _PROGRAM_LIMIT:
                _programs.popitem(last=False)
        else:
            _programs.move_to_end(key)
        values = [n.value for n in leaves.values() if n.value is not None]
        results = backend().run(program, values)
        for node, value in zip(wanted, results, strict=True):
            value.flags.writeable = False
            node.value = value
        for operation in operations:
            for node in operation.nodes:
                if node.value is not None:
                    node.operation = None


def _pending(root: _Node) -> list[_Operation]:
    """The operations that a node hangs on and that have not run, each after those it needs."""
    order: dict[_Operation, None] = {}
    assert root.operation is not None
    stack: list[tuple[_Operation, int]] = [(root.operation, 0)]
    seen = {root.operation}
    while stack:
        operation, position = stack.pop()
        while position < len(operation.inputs):
            node = operation.inputs[position]
            position += 1
            below = node.operation
            if node.value is None and below is not None and below not in seen:
                seen.add(below)
                stack.append((operation, position))
                stack.append((below, 0))
                break
        else:
            order[operation] = None
    return list(order)


def _build(wiring: Sequence[Any], leaves: Sequence[_Node], positions: Sequence[tuple[int, int]]) -> StagedProgram:
    builder = ProgramBuilder()
    inputs = [builder.add_input(n.spec) for n in leaves]
    made: list[tuple[Atom, ...]] = []
    for primitive, params, refs in wiring:
        operands: list[Atom] = [inputs[-r - 1] if r < 0 else made[r // 1024][r % 1024] for r in refs]
        made.append(builder.emit(primitive, tuple(operands), dict(params), None))
    program = builder.build([made[i][k] for i, k in positions], "deferred")
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f"x{i}", keyword) for i in range(len(inputs))]
    signature = Signature(parameters, [n.spec for n in leaves], "deferred")
    return StagedProgram(program, signature, structure(tuple(range(len(positions)))))
