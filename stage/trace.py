"""Traces: functions become Programs.

Traces form a stack, one for each thread. An operation is recorded in the innermost live trace. A tracer of an enclosing live
trace that is used inside becomes a captured input, so every Program is closed. A trace given values evaluates each
equation as it records it, wherever all operands have values, so that Python code outside staging may branch on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .dtypes import as_dtype, python_scalar_dtype
from .errors import ConcretizationError, DTypeError, EscapedTracerError, ProgramError, TracingError
from .interpreter import as_array
from .narrowing import is_array
from .primitive import Array, Primitive, has_dims
from .program import Atom, Const, Equation, Program, ProgramBuilder, Var, constant
from .source import user_source
from .spec import ArraySpec, make_spec
from .tracer import Tracer, pending_error


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


_stack = _Stack()
_scalar_constants: dict[tuple[type, Any, str], Const] = {}
_SCALAR_LIMIT: Final = 4096


def current_trace() -> Trace | None:
    """The innermost live trace of this thread."""
    traces = _stack.traces
    return traces[-1] if traces else None


def scalar_constant(value: bool | int | float, spec: ArraySpec | None = None) -> Const:
    """The Const of a Python number, shared: weak unless `spec` says which dtype it takes."""
    if spec is None:
        spec = make_spec((), python_scalar_dtype(value), not isinstance(value, bool))
    # repr tells 0.0 from -0.0
    key = (type(value), repr(value), repr(spec))
    found = _scalar_constants.get(key)
    if found is None:
        if len(_scalar_constants) > _SCALAR_LIMIT:
            _scalar_constants.clear()
        found = _scalar_constants[key] = constant(value, spec)
    return found


class Trace:
    """The recording of one function call; live while the function runs."""

    __slots__ = ("builder", "captures", "captured", "constants", "live", "sources", "values")

    def __init__(self, evaluating: bool, sources: bool = True) -> None:
        self.builder = ProgramBuilder()
        self.live = True
        self.sources = sources
        self.values: dict[Atom, Array] | None = {} if evaluating else None
        self.captures: dict[Atom, Var] = {}
        self.captured: list[Tracer] = []
        self.constants: dict[int, tuple[Array, Const]] = {}

    def atom(self, operand: Any) -> Atom:
        """The atom that stands for an operand in this trace."""
        if isinstance(operand, Tracer):
            if operand._pending is not None:
                raise pending_error()
            if operand._trace is self:
                return operand._atom
            if operand._deferred:
                return self._constant(operand._settled())
            return self._capture(operand)
        if is_array(operand):
            return self._constant(operand)
        if isinstance(operand, np.generic):
            return constant(operand)
        if isinstance(operand, bool | int | float):
            return scalar_constant(operand)
        if isinstance(operand, Const):
            return operand
        raise DTypeError(f"{type(operand).__name__} is no array")

    def _capture(self, tracer: Tracer) -> Atom:
        trace = tracer._trace
        if not trace.live or trace not in _stack.traces:
            raise EscapedTracerError(
                f"a tracer ({tracer.spec!r}) is used after its trace has ended, or on another thread; "
                "return it from the traced function instead of storing it outside"
            )
        if isinstance(tracer._atom, Const):
            return tracer._atom
        var = self.captures.get(tracer._atom)
        if var is None:
            var = self.captures[tracer._atom] = Var(tracer.spec)
            self.captured.append(Tracer(trace, tracer._atom, tracer._value))
            if self.values is not None and tracer._value is not None:
                self.values[var] = tracer._value
        return var

    def _constant(self, array: Array) -> Const:
        # Copied once for each array; the comparison notices an array that was changed between two uses.
        known = self.constants.get(id(array))
        if known is not None and known[0] is array:
            kept = known[1].value
            if kept.dtype == array.dtype and kept.shape == array.shape and kept.tobytes() == array.tobytes():
                return known[1]
        const = constant(array, make_spec(array.shape, as_dtype(array.dtype, "constant")))
        self.constants[id(array)] = (array, const)
        return const

    def record(self, primitive: Primitive, atoms: tuple[Atom, ...], params: dict[str, Any], results: Sequence[Array] | None = None) -> Any:
        """Append an equation; gives its output tracer, or a tuple of them. results: the outputs' values, where they were computed already."""
        specs, several = primitive.infer(tuple([a.spec for a in atoms]), params)
        source = user_source() if self.sources else None
        outputs = tuple([Var(s) for s in specs])
        self.builder.equations.append(Equation(primitive, atoms, params, outputs, source))
        if results is not None and self.values is not None:
            self.values.update(zip(outputs, results, strict=True))
            values: Sequence[Array] | None = results
        else:
            values = self._evaluate(primitive, atoms, params, outputs) if self.values is not None else None
        if not several:
            return Tracer(self, outputs[0], None if values is None else values[0])
        if values is None:
            return tuple([Tracer(self, v) for v in outputs])
        return tuple([Tracer(self, v, x) for v, x in zip(outputs, values, strict=True)])

    def _evaluate(
        self, primitive: Primitive, atoms: tuple[Atom, ...], params: dict[str, Any], outputs: tuple[Var, ...]
    ) -> list[Array] | None:
        if self.values is None or any(has_dims(p) for p in params.values()):
            return None
        arrays = self.known(atoms)
        if arrays is None:
            return None
        results = primitive.evaluate(arrays, params, [v.spec for v in outputs])
        self.values.update(zip(outputs, results, strict=True))
        return results

    def known(self, atoms: Sequence[Atom]) -> list[Array] | None:
        """The values of atoms of this trace; None if one of them has none, or the trace does not evaluate."""
        if self.values is None:
            return None
        arrays: list[Array] = []
        for atom in atoms:
            value = atom.value if isinstance(atom, Const) else self.values.get(atom)
            if value is None:
                return None
            arrays.append(value)
        return arrays

    def inline(self, program: Program, operands: Sequence[Any]) -> list[Tracer]:
        """Record a whole Program on operands; gives its outputs."""
        atoms = [self.atom(x) for x in operands]
        start = len(self.builder.equations)
        outputs = self.builder.inline(program, atoms)
        known = self.values
        if known is not None:
            for eqn in self.builder.equations[start:]:
                self._evaluate(eqn.primitive, eqn.inputs, dict(eqn.params), eqn.outputs)
        result: list[Tracer] = []
        for atom in outputs:
            value = atom.value if isinstance(atom, Const) else None if known is None else known.get(atom)
            result.append(Tracer(self, atom, value if known is not None else None))
        return result


def bind(primitive: Primitive, *operands: Any, **params: Any) -> Any:
    """Apply a primitive: recorded in the innermost trace if an operand is a tracer, else evaluated by its NumPy rule.

    Operands are tracers, NumPy arrays and scalars, or Python numbers (weak). Params must be hashable.
    """
    traced = False
    for operand in operands:
        if isinstance(operand, Tracer):
            traced = True
            break
    if not traced and not any(has_dims(p) for p in params.values()):
        return _evaluate_now(primitive, operands, params)
    traces = _stack.traces
    if not traces:
        if traced:
            held = next(x for x in operands if isinstance(x, Tracer))
            if all(x._deferred for x in operands if isinstance(x, Tracer)):
                return held._record(primitive, operands, params)
            raise EscapedTracerError(
                f"{primitive.name}: a tracer is used after its trace has ended, or on another thread; "
                "return it from the traced function instead of storing it outside"
            )
        raise ConcretizationError(f"{primitive.name}: a symbolic dim has no size outside staging")
    trace = traces[-1]
    return trace.record(primitive, tuple([trace.atom(x) for x in operands]), params)


def _evaluate_now(primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    arrays: list[Array] = []
    specs: list[ArraySpec] = []
    for operand in operands:
        if isinstance(operand, Const):
            arrays.append(operand.value)
            specs.append(operand.spec)
            continue
        array = as_array(operand)
        weak = isinstance(operand, int | float) and not isinstance(operand, bool | np.generic)
        arrays.append(array)
        specs.append(make_spec(array.shape, as_dtype(array.dtype, primitive.name), weak))
    out_specs, several = primitive.infer(tuple(specs), params)
    outputs = primitive.evaluate(arrays, params, out_specs)
    return tuple(outputs) if several else outputs[0]


class Traced(NamedTuple):
    """The outcome of tracing: captured tracers belong to the Program's last inputs, in order."""

    program: Program
    captured: list[Tracer]
    values: dict[Atom, Array] | None


def trace_program(
    function: Callable[..., Sequence[Any]],
    specs: Sequence[ArraySpec],
    *,
    values: Sequence[Array | None] | None = None,
    name: str = "program",
    sources: bool = True,
) -> Traced:
    """Record `function(*tracers) -> leaves` as a Program; leaves are tracers, arrays or Python numbers.

    values: arrays the inputs stand for (None where unknown); then equations are evaluated as they are recorded.
    sources: whether equations carry the user's lines; code derived from a rule gets its line where it is inlined.
    """
    trace = Trace(values is not None, sources)
    tracers: list[Tracer] = []
    for i, spec in enumerate(specs):
        var = trace.builder.add_input(spec)
        value = None if values is None else values[i]
        tracer = Tracer(trace, var, value)
        tracer._is_input = True
        if trace.values is not None and value is not None:
            trace.values[var] = value
        tracers.append(tracer)
    _stack.traces.append(trace)
    try:
        outputs = [trace.atom(leaf) for leaf in function(*tracers)]
    except ValueError as error:
        # NumPy turns what float(tracer) raised into "setting an array element with a sequence".
        if isinstance(error.__cause__, ConcretizationError):
            raise ConcretizationError(
                "buffer[i] = tracer stores a traced array in a NumPy array, which takes values only; use "
                "buffer = ons.at(buffer)[i].set(tracer), or gather the parts with ons.numpy.stack",
                source=error.__cause__.source,
            ) from error
        raise
    finally:
        trace.live = False
        if _stack.traces.pop() is not trace:
            raise ProgramError("traces ended out of order")
    builder = trace.builder
    builder.inputs.extend(trace.captures.values())
    return Traced(builder.build(outputs, name), trace.captured, trace.values)


def inline(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Apply a Program: recorded in the innermost trace, which must be live."""
    trace = current_trace()
    if trace is None:
        raise TracingError("a program can be inlined only while tracing")
    return list(trace.inline(program, operands))


def lift_constant(const: Const) -> Tracer:
    """A constant as a tracer of the innermost trace, for rules that read shapes and dtypes of their operands."""
    trace = current_trace()
    if trace is None:
        raise TracingError("constants are lifted only while tracing")
    return Tracer(trace, const, const.value if trace.values is not None else None)


def is_tracing() -> bool:
    """True while a function is traced on this thread."""
    return bool(_stack.traces)
