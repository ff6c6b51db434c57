"""Program: the IR. Immutable, typed, in A-normal form.

    inputs      Vars, one for each leaf of the flattened arguments
    equations   outputs = primitive(operands, params), with the user's source line
    outputs     atoms: Vars or constants

A sub-program (the body of a loop, a branch) is a Program in an equation's params; it is closed: what it uses from outside
are inputs of its own and operands of the equation. Every transform takes Programs and gives Programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from .dims import Dim, names_of, substitute
from .errors import ProgramError
from .narrowing import is_tuple
from .primitive import Array, Params, Primitive, has_dims
from .source import Source
from .spec import ArraySpec, make_spec


class Var:
    """A value of a Program, by identity."""

    __slots__ = ("spec",)

    def __init__(self, spec: ArraySpec) -> None:
        self.spec = spec

    def __repr__(self) -> str:
        return f"Var({self.spec!r})"


class Const:
    """A constant operand. The array is a private copy and read-only."""

    __slots__ = ("_digest", "spec", "value")

    def __init__(self, value: Array, spec: ArraySpec) -> None:
        self.value = value
        self.spec = spec
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes: constants are told apart by content."""
        if self._digest is None:
            self._digest = hashlib.sha256(np.ascontiguousarray(self.value).tobytes()).hexdigest()
        return self._digest

    def __repr__(self) -> str:
        return f"Const({self.spec!r})"


Atom: TypeAlias = Var | Const


def constant(value: Any, spec: ArraySpec | None = None) -> Const:
    """A Const holding a read-only copy of `value`."""
    array = np.array(value, dtype=None if spec is None else spec.dtype, copy=True, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array.flags.writeable = False
    return Const(array, make_spec(array.shape, array.dtype) if spec is None else spec)


def scalar_one(spec: ArraySpec) -> Const:
    """A strong 1 of a spec's dtype."""
    return constant(1, make_spec((), spec.dtype))


class Equation:
    """outputs = primitive(inputs, params); `source` is the user's line, None for what no line caused."""

    __slots__ = ("inputs", "outputs", "params", "primitive", "source")

    def __init__(
        self, primitive: Primitive, inputs: tuple[Atom, ...], params: Params, outputs: tuple[Var, ...], source: Source | None
    ) -> None:
        self.primitive = primitive
        self.inputs = inputs
        self.params = params
        self.outputs = outputs
        self.source = source

    def subprograms(self) -> Iterator[Program]:
        for value in self.params.values():
            if isinstance(value, Program):
                yield value
            elif is_tuple(value):
                yield from (v for v in value if isinstance(v, Program))

    def __repr__(self) -> str:
        return f"Equation({self.primitive.name}, {self.inputs}, {dict(self.params)}, {self.outputs})"


class Program:
    """A typed straight-line program over primitives. Treat it as immutable; transforms build new ones."""

    def __init__(self, inputs: Sequence[Var], equations: Sequence[Equation], outputs: Sequence[Atom], name: str = "program") -> None:
        self.inputs = tuple(inputs)
        self.equations = tuple(equations)
        self.outputs = tuple(outputs)
        self.name = name

    @property
    def in_specs(self) -> tuple[ArraySpec, ...]:
        return tuple(v.spec for v in self.inputs)

    @property
    def out_specs(self) -> tuple[ArraySpec, ...]:
        return tuple(a.spec for a in self.outputs)

    @cached_property
    def dim_names(self) -> tuple[str, ...]:
        """Names of the inputs' symbolic dims, in order of appearance."""
        names: dict[str, None] = {}
        for spec in self.in_specs:
            for dim in spec.shape:
                if isinstance(dim, Dim):
                    names.update(dict.fromkeys(names_of(dim)))
        return tuple(names)

    @cached_property
    def symbolic(self) -> bool:
        """True if any spec or param inside holds a symbolic dim."""
        if any(not s.is_static for s in (*self.in_specs, *self.out_specs)):
            return True
        return any(any(not v.spec.is_static for v in e.outputs) or any(has_dims(p) for p in e.params.values()) for e in self.equations)

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.inputs)} inputs, {len(self.equations)} equations, {len(self.outputs)} outputs>"


class ProgramBuilder:
    """Appends equations; the one place where Programs are made."""

    __slots__ = ("equations", "inputs")

    def __init__(self) -> None:
        self.inputs: list[Var] = []
        self.equations: list[Equation] = []

    def add_input(self, spec: ArraySpec) -> Var:
        var = Var(spec)
        self.inputs.append(var)
        return var

    def emit(self, primitive: Primitive, inputs: tuple[Atom, ...], params: Params, source: Source | None) -> tuple[Var, ...]:
        """Append one equation, its output specs inferred."""
        specs, _ = primitive.infer(tuple([a.spec for a in inputs]), params)
        outputs = tuple([Var(s) for s in specs])
        self.equations.append(Equation(primitive, inputs, params, outputs, source))
        return outputs

    def inline(self, program: Program, args: Sequence[Atom], source: Source | None = None) -> list[Atom]:
        """Append a Program's equations with its inputs replaced by `args`; gives its outputs.

        `source` replaces the lines of the equations, for code derived from one equation; None keeps theirs.
        Specs are inferred anew where an argument's spec is not the input's.
        """
        if len(args) != len(program.inputs):
            raise ProgramError(f"inline {program.name}: {len(args)} arguments for {len(program.inputs)} inputs")
        env: dict[Atom, Atom] = {}
        same = True
        for var, arg in zip(program.inputs, args, strict=True):
            env[var] = arg
            same = same and (var.spec is arg.spec or var.spec == arg.spec)
        get = env.get
        append = self.equations.append
        for eqn in program.equations:
            inputs = tuple([get(a, a) for a in eqn.inputs])
            line = eqn.source if source is None else source
            if same:
                outputs = tuple([Var(v.spec) for v in eqn.outputs])
                append(Equation(eqn.primitive, inputs, eqn.params, outputs, line))
            else:
                outputs = self.emit(eqn.primitive, inputs, eqn.params, line)
            for old, new in zip(eqn.outputs, outputs, strict=True):
                env[old] = new
        return [get(a, a) for a in program.outputs]

    def build(self, outputs: Sequence[Atom], name: str = "program") -> Program:
        return Program(self.inputs, self.equations, outputs, name)


def substitute_params(params: Params, sizes: Mapping[str, int | Dim]) -> dict[str, Any]:
    """Params with symbolic dims replaced, inside tuples and sub-programs too."""
    return {k: _substitute_value(v, sizes) for k, v in params.items()}


def _substitute_value(value: Any, sizes: Mapping[str, int | Dim]) -> Any:
    if isinstance(value, Dim):
        return substitute(value, sizes)
    if is_tuple(value):
        return tuple(_substitute_value(v, sizes) for v in value)
    if isinstance(value, Program):
        return substitute_dims(value, sizes)
    return value


def substitute_spec(spec: ArraySpec, sizes: Mapping[str, int | Dim]) -> ArraySpec:
    """A spec with names replaced by sizes or other dims."""
    if spec.is_static:
        return spec
    return ArraySpec(
        tuple(substitute(d, sizes) if isinstance(d, Dim) else d for d in spec.shape), spec.dtype, weak=spec.weak, sharding=spec.sharding
    )


def substitute_dims(program: Program, sizes: Mapping[str, int | Dim]) -> Program:
    """The Program with names of dims replaced throughout; itself when there is nothing to replace."""
    if not program.symbolic or not sizes:
        return program
    builder = ProgramBuilder()
    env: dict[Atom, Atom] = {v: builder.add_input(substitute_spec(v.spec, sizes)) for v in program.inputs}
    for eqn in program.equations:
        inputs = tuple(env.get(a, a) for a in eqn.inputs)
        outputs = builder.emit(eqn.primitive, inputs, substitute_params(eqn.params, sizes), eqn.source)
        env.update(zip(eqn.outputs, outputs, strict=True))
    return builder.build([env.get(a, a) for a in program.outputs], program.name)


def live_equations(program: Program, outputs: Iterable[Atom] | None = None) -> list[Equation]:
    """The equations that the outputs hang on, in order: dead code left out."""
    needed: set[Atom] = set(program.outputs if outputs is None else outputs)
    kept: list[Equation] = []
    for eqn in reversed(program.equations):
        if any(v in needed for v in eqn.outputs):
            needed.update(eqn.inputs)
            kept.append(eqn)
    kept.reverse()
    return kept
