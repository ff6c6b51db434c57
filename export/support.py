"""The support catalogue: for each callable, what it was seen to do.

A row comes from runs of one small call: it is traced with each dtype, differentiated, mapped, traced with a named dim and lowered, and the
operators it is lowered to are looked up in the table of CUDA kernels. What is excluded says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..autodiff.batching import BatchContext, batch_program, put_axis
from ..autodiff.forward import has_tangent, vjp_transform
from ..ops.exclusions import EXCLUSIONS
from ..ops.registry import NUMPY
from ..ops.support import is_staged, numpy_callables
from ..stage import tree
from ..stage.errors import ConcretizationError, OnstageError, UnsupportedError
from ..stage.program import Program
from ..stage.spec import ArraySpec
from ..stage.trace import trace_program
from ..stage.tracer import Tracer
from . import kernels
from ._lazy import onnx
from .lower import lower
from .signatures import dtype_of, signature
from .support_examples import EXAMPLES, GENERIC, WITH_SIZE, Call

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
# The dtype a call is chosen and examined with: the first of these that it takes.
_LEADING = ("float32", "int32", "bool", "uint8")
_STATIC = (3, 3)
_NAMED: tuple[tuple[Any, ...], ...] = (("N", 3), ("N", 3, 3), ("N",), ("N", "N"))
# How a call fails that does not fit a function, or that onstage refuses.
_REFUSALS = (OnstageError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


@dataclass(frozen=True)
class SupportRow:
    """What one callable does.

    stages: it takes traced arrays. gradient: "yes", "no", or "-" where no result is floating. vmap, named_dims: the same of ons.vmap and
    of sizes with names. dtypes: those of the operand with which it stages and lowers for the CPU. cuda: every operator it is lowered to,
    with `leading` as dtype, has a CUDA kernel; `without_cuda` names those that have none. note: why it is excluded, or what it asks for.
    """

    name: str
    stages: bool
    gradient: str = "-"
    vmap: bool = False
    named_dims: bool = False
    dtypes: frozenset[str] = frozenset()
    leading: str = ""
    cuda: bool = False
    without_cuda: tuple[str, ...] = ()
    note: str = ""

    @property
    def integers(self) -> bool:
        """Every integer dtype is taken."""
        return set(INTEGERS) <= self.dtypes

    @property
    def cpu(self) -> bool:
        """It runs on ONNX Runtime's CPU provider, with one dtype at least."""
        return bool(self.dtypes)


_SIZE_NOTE = "asks for a bound on the result's size: `size=` or `length=` in `ons.numpy`"
_namespaces: dict[str, Any] = {}
_rows: dict[str, SupportRow] = {}


def install_namespaces(namespaces: dict[str, Any]) -> None:
    """Modules of functions that the catalogue lists beside NumPy's, by the name they go under ("ons.nn")."""
    _namespaces.update(namespaces)


def support(names: Iterable[str] | None = None) -> list[SupportRow]:
    """The rows of the support catalogue: of all callables, or of those named ("np.add", "np.linalg.inv", "ons.nn.relu").

    A row is found out when it is first asked for, in some hundredths of a second, and kept. Raises KeyError for an unknown name.
    """
    functions = dict(callables())
    wanted = list(functions if names is None else names)
    for name in wanted:
        if name not in _rows:
            _rows[name] = _examine(name, functions[name])
    return [_rows[name] for name in wanted]


def callables() -> Iterator[tuple[str, Any]]:
    """(name, callable) of all that the catalogue has a row for."""
    yield from numpy_callables()
    for prefix, module in _namespaces.items():
        for name in sorted(vars(module)):
            value = getattr(module, name)
            if not name.startswith("_") and callable(value) and not isinstance(value, type):
                yield f"{prefix}.{name}", value


def _examine(name: str, function: Any) -> SupportRow:
    exclusion = EXCLUSIONS.get(function)
    if exclusion is not None:
        return SupportRow(name, stages=False, note=f"{exclusion.kind}: {exclusion.reason}; {exclusion.way_out}")
    if name.startswith("np.") and not is_staged(function):
        return SupportRow(name, stages=False, note="is not supported on traced arrays")
    found = fitting_call(name, function)
    if found is None:
        return SupportRow(name, stages=False, note="no call of the catalogue fits it")
    call, leading, note = found
    program = traced(call, leading, _STATIC)
    without = tuple(sorted(_without_cuda(lowered(program))))
    return SupportRow(
        name,
        stages=True,
        gradient=_gradient(program),
        vmap=_is_mapped(program),
        named_dims=any(_succeeds(call, leading, shape) for shape in _NAMED),
        dtypes=frozenset(dtype for dtype in DTYPES if _succeeds(call, dtype, _STATIC)),
        leading=leading,
        cuda=not without,
        without_cuda=without,
        note=note,
    )


def fitting_call(name: str, function: Any) -> tuple[Call, str, str] | None:
    """The first call, and leading dtype, that stages and lowers; with a bound on the result's size where the function asks for one."""
    note = ""
    own = EXAMPLES.get(name)
    calls: list[Call] = [own] if own is not None else list(GENERIC)
    if own is None and function in NUMPY and _asks_for_size(function):
        calls, note = list(WITH_SIZE), _SIZE_NOTE
        function = NUMPY[function]
    for call in calls:
        bound = _bound(call, function)
        for dtype in _LEADING:
            if _succeeds(bound, dtype, _STATIC):
                return bound, dtype, note
    return None


def _bound(call: Call, function: Any) -> Call:
    def bound(_: Any, x: Any) -> Any:
        return call(function, x)

    return bound


def _asks_for_size(function: Any) -> bool:
    for call in GENERIC[1:3]:
        try:
            traced(_bound(call, function), "int64", (3,))
        except ConcretizationError as error:
            return "size=" in error.message or "length=" in error.message
        except _REFUSALS:
            continue
    return False


def traced(call: Call, dtype: str, shape: tuple[Any, ...]) -> Program:
    def function(x: Any) -> list[Any]:
        found = [leaf for leaf in tree.leaves(call(None, x)) if isinstance(leaf, Tracer)]
        return found or [x]

    return trace_program(function, [ArraySpec(shape, dtype)], sources=False).program


def lowered(program: Program) -> Any:
    return lower(program, ["x"], [f"out.{i}" for i in range(len(program.outputs))])


def _succeeds(call: Call, dtype: str, shape: tuple[Any, ...]) -> bool:
    try:
        lowered(traced(call, dtype, shape))
    except _REFUSALS:
        return False
    return True


def _gradient(program: Program) -> str:
    active = [has_tangent(v) for v in program.inputs]
    given = [has_tangent(atom) for atom in program.outputs]
    if not any(active) or not any(given):
        return "-"
    try:
        vjp_transform(program, active, given)
    except OnstageError:
        return "no"
    return "yes"


def _is_mapped(program: Program) -> bool:
    spec = program.inputs[0].spec

    def function(x: Any) -> list[Any]:
        outputs, axes = batch_program(BatchContext(2), program, [x], [0])
        return [put_axis(y, axis, 0, 2) for y, axis in zip(outputs, axes, strict=True)]

    try:
        trace_program(function, [ArraySpec((2, *spec.shape), spec.dtype)], sources=False)
    except OnstageError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- CUDA kernels


def _without_cuda(model: Any) -> set[str]:
    """The operators of a model that have no CUDA kernel for the dtypes they get in it."""
    inferred = onnx.shape_inference.infer_shapes(model)
    opset = next(o.version for o in inferred.opset_import if o.domain == "")
    return _graph_without_cuda(inferred.graph, opset, {})


def _graph_without_cuda(graph: Any, opset: int, outer: dict[str, int]) -> set[str]:
    types = dict(outer)
    types.update((v.name, v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output, *graph.value_info))
    types.update((v.name, v.data_type) for v in graph.initializer)
    missing: set[str] = set()
    for node in graph.node:
        bodies = [a.g for a in node.attribute if a.HasField("g")]
        for body in bodies:
            missing |= _graph_without_cuda(body, opset, types)
        # The body's values decide, and a constant is no kernel.
        if not bodies and node.op_type != "Constant" and not _has_cuda(node, opset, types):
            missing.add(node.op_type)
    return missing


def _has_cuda(node: Any, opset: int, types: dict[str, int]) -> bool:
    since = kernels.since_version(node.op_type, opset)
    if since is None:
        raise UnsupportedError(f"{node.op_type} does not exist at opset {opset}")
    declared = signature(node.op_type, since)
    variables = [(declared.input_type(i), n) for i, n in enumerate(node.input) if n]
    variables += [(declared.output_type(i), n) for i, n in enumerate(node.output) if n]
    bound = {v: types[n] for v, n in variables if not v.startswith("tensor(") and types.get(n)}
    if not bound:
        return True
    return all(kernels.has_kernel(node.op_type, opset, dtype_of(t), provider=kernels.CUDA, constraint=v) for v, t in bound.items())
