"""Lowering: a Program becomes an ONNX model."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..stage.dims import Dim
from ..stage.errors import MissingRuleError, ProgramError, UnsupportedError
from ..stage.primitive import Array
from ..stage.program import Atom, Const, Equation, Program, Var, live_equations
from ..stage.source import Source
from ..stage.spec import ArraySpec
from ..stage.trace import trace_program
from .builder import Builder, NeedsOpset
from .protos import value_info

OPSETS: Final = (18, 21, 23, 24)
DEFAULT_OPSET: Final = 21
TARGETS: Final = ("onnx", "onnxruntime")
IR_VERSION: Final = 10
# Sizes that a symbolic dim is taken to have where only orders of magnitude matter.
_TYPICAL_SIZE: Final = 256


class Lowered(NamedTuple):
    """A model and where each value of the Program is in it; values inside sub-programs and decompositions are not listed.

    detached: the constants that the model only names (`detach_above`), by initializer name.
    """

    model: Any
    values: dict[Var, str]
    opset: int
    detached: dict[str, Array]


def lower(
    program: Program,
    in_names: Sequence[str],
    out_names: Sequence[str],
    *,
    opset: int | None = None,
    target: str = "onnx",
    name: str | None = None,
    guards: bool = True,
) -> Any:
    """The Program as an onnx.ModelProto with these input and output names.

    opset: 18, 21, 23 or 24; None takes the lowest from 21 on that has every op and dtype used. target: "onnx" writes
    standard ops only, "onnxruntime" may use that runtime's own. guards: make the model fail where the sizes of named dims
    disagree. Equal programs, names and source lines give equal bytes.
    Raises UnsupportedError for what cannot be expressed, naming the op, its dtype and the user's line.
    """
    return lower_program(program, in_names, out_names, opset=opset, target=target, name=name, guards=guards).model


def lower_program(
    program: Program,
    in_names: Sequence[str],
    out_names: Sequence[str],
    *,
    opset: int | None = None,
    target: str = "onnx",
    name: str | None = None,
    guards: bool = True,
    detach_above: int | None = None,
) -> Lowered:
    """As `lower`, with the name of every value.

    detach_above: leave the data of constants of more bytes than this out of the model, for external data or for handing them to
    a session as they are.
    """
    if target not in TARGETS:
        raise UnsupportedError(f"target {target!r} is unknown; the targets are {', '.join(TARGETS)}")
    if opset is not None and opset not in OPSETS:
        raise UnsupportedError(f"opset {opset} is not one that onstage writes; choose one of {', '.join(map(str, OPSETS))}")
    names = (*in_names, *out_names)
    if len(set(names)) != len(names) or "" in names:
        raise ProgramError(f"input and output names must be unique and not empty, got {list(names)}")
    candidates = [opset] if opset is not None else [v for v in OPSETS if v >= DEFAULT_OPSET]
    needed, reason = candidates[0], ""
    for candidate in candidates:
        if candidate < needed:
            continue
        try:
            builder = Builder(candidate, target, names, name or program.name, detach_above)
            return _Lowering(program, in_names, out_names, builder, guards).run()
        except NeedsOpset as error:
            needed = error.opset
            reason = error.message
    raise UnsupportedError(f"{program.name}: {reason}; the opset asked for is {candidates[-1]}")


class _Lowering:
    """One attempt, at one opset."""

    def __init__(
        self,
        program: Program,
        in_names: Sequence[str],
        out_names: Sequence[str],
        builder: Builder,
        guards: bool,
    ) -> None:
        self.program = program
        self.in_names = tuple(in_names)
        self.out_names = tuple(out_names)
        self.guards = guards
        self.builder = builder
        self.builder.set_inliner(_inline)
        self.values: dict[Atom, str] = {}
        # The output name that a Var's node writes directly.
        self.claims: dict[Var, str] = {}

    def run(self) -> Lowered:
        program, b = self.program, self.builder
        for var, name in zip(program.inputs, self.in_names, strict=True):
            b.root.input.append(value_info(name, var.spec))
            b.declare(name, var.spec)
            self.values[var] = name
        b.dims.bind_inputs(self.in_names, program.in_specs)
        guard = b.dims.guard() if self.guards and program.outputs else None
        guarded = self._guarded_output() if guard is not None else None
        for i, (atom, name) in enumerate(zip(program.outputs, self.out_names, strict=True)):
            if isinstance(atom, Var) and i != guarded and atom not in self.values:
                self.claims.setdefault(atom, name)
        _lower_equations(b, live_equations(program), self.values, self.claims)
        for i, (atom, name) in enumerate(zip(program.outputs, self.out_names, strict=True)):
            self._write_output(atom, name, guard if i == guarded else None)
        values = {atom: name for atom, name in self.values.items() if isinstance(atom, Var)}
        return Lowered(self._model(), values, b.opset, b.detached)

    def _guarded_output(self) -> int:
        """The output that a guard costs least on: it is copied."""
        sizes = [_rough_size(spec) for spec in self.program.out_specs]
        return sizes.index(min(sizes))

    def _write_output(self, atom: Atom, name: str, guard: str | None) -> None:
        b = self.builder
        value = b.constant(atom) if isinstance(atom, Const) else self.values[atom]
        if guard is not None:
            b.dims.guarded(value, atom.spec, guard)
            b.rename_last(0, name)
        elif value != name:
            b.begin("output", (atom.spec,), (atom.spec,))
            b.op("Identity", value)
            b.rename_last(0, name)
        b.root.output.append(value_info(name, atom.spec))

    def _model(self) -> Any:
        b = self.builder
        model = b.model
        model.ir_version = IR_VERSION
        model.producer_name = "onstage"
        for domain in sorted(b.domains):
            model.opset_import.add(domain=domain, version=b.domains[domain])
        return model


def _lower_equations(b: Builder, equations: Sequence[Equation], values: dict[Atom, str], claims: dict[Var, str]) -> None:
    """Write equations; `values` gains their outputs. A Var in `claims` is given the name there if its node is the last written."""
    labels: dict[tuple[str, Source | None], str] = {}
    for eqn in equations:
        names = []
        for atom in eqn.inputs:
            name = values.get(atom)
            if name is None:
                if not isinstance(atom, Const):
                    raise ProgramError(f"{eqn.primitive.name}: an operand has no value yet")
                name = values[atom] = b.constant(atom)
            names.append(name)
        key = (eqn.primitive.name, eqn.source)
        label = labels.get(key)
        if label is None:
            label = labels[key] = _label(*key)
        results = _lower_equation(b, eqn, names, label, locate=not any(eqn.subprograms()))
        for i, (var, name) in enumerate(zip(eqn.outputs, results, strict=True)):
            if var in claims:
                name = _claim(b, name, results[:i], claims[var])
            b.declare(name, var.spec)
            values[var] = name


def _lower_equation(b: Builder, eqn: Equation, names: Sequence[str], label: str, *, locate: bool) -> list[str]:
    """The names of the equation's outputs; locate: name its line in errors."""
    primitive, params = eqn.primitive, eqn.params
    b.begin(label, tuple([a.spec for a in eqn.inputs]), tuple([v.spec for v in eqn.outputs]))
    try:
        if primitive.onnx is not None:
            result = primitive.onnx(b, *names, **params)
            results = [result] if isinstance(result, str) else list(result)
        elif primitive.decompose is not None:
            results = b.lower(_decomposed(primitive, b.in_specs, tuple(params.items())), names)
        else:
            raise MissingRuleError(f"{primitive.name}: no onnx rule and no decomposition", source=eqn.source)
    except UnsupportedError as error:
        if not locate:
            raise
        raise UnsupportedError(f"{primitive.name}: {error.message}", source=eqn.source) from error
    if len(results) != len(eqn.outputs):
        raise ProgramError(f"{primitive.name}: the onnx rule gave {len(results)} values for {len(eqn.outputs)} outputs")
    for name, var in zip(results, eqn.outputs, strict=True):
        if b.dtype(name) != var.spec.dtype:
            raise ProgramError(
                f"{primitive.name}: the onnx rule gave {b.dtype(name).name} where {var.spec!r} is due",
                source=eqn.source,
            )
    return results


def _claim(b: Builder, name: str, earlier: Sequence[str], wanted: str) -> str:
    """Give an output the name the file shows, in place where its node is the last one, else through an Identity."""
    last = list(b.last_outputs())
    if name in last and name not in earlier and not b.dims.holds(name):
        b.rename_last(last.index(name), wanted)
        return wanted
    return name


@functools.lru_cache(maxsize=1024)
def _decomposed(primitive: Any, specs: tuple[ArraySpec, ...], params: tuple[tuple[str, Any], ...]) -> Program:
    """The Program that a primitive stands for, at these specs."""

    def function(*operands: Any) -> Sequence[Any]:
        result = primitive.decompose(*operands, **dict(params))
        return result if isinstance(result, tuple | list) else (result,)

    traced = trace_program(function, specs, name=primitive.name)
    if traced.captured:
        raise ProgramError(f"{primitive.name}: its decomposition uses values from outside")
    return traced.program


def _inline(b: Builder, program: Program, names: Sequence[str], own_lines: bool) -> list[str]:
    """A Program's equations in the current graph, named after their own lines or after the equation around them."""
    label, in_specs, out_specs = b.label, b.in_specs, b.out_specs
    values: dict[Atom, str] = dict(zip(program.inputs, names, strict=True))
    for eqn in live_equations(program):
        operands = []
        for atom in eqn.inputs:
            if isinstance(atom, Const):
                operands.append(b.constant(atom))
            else:
                operands.append(values[atom])
        inner = _label(eqn.primitive.name, eqn.source) if own_lines and eqn.source is not None else label
        results = _lower_equation(b, eqn, operands, inner, locate=own_lines and not any(eqn.subprograms()))
        for var, name in zip(eqn.outputs, results, strict=True):
            b.declare(name, var.spec)
            values[var] = name
    b.begin(label, in_specs, out_specs)
    return [b.constant(a) if isinstance(a, Const) else values[a] for a in program.outputs]


def _label(name: str, source: Source | None) -> str:
    """`layer1/matmul@train.py:41`."""
    if source is None:
        return name
    return f"{source.scope}/{name}@{source.label}" if source.scope else f"{name}@{source.label}"


def _rough_size(spec: ArraySpec) -> int:
    sizes = [_TYPICAL_SIZE if isinstance(d, Dim) else d for d in spec.shape]
    return functools.reduce(operator.mul, sizes, 1)
