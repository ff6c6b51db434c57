"""Algebra: equations replaced by simpler ones, by the `simplify` rules of their primitives.

A rule `simplify(ctx, *operands, **params)` gives the atom that stands for the equation's output (a tuple of atoms for several),
or None to leave the equation as it is. It reads its surroundings and makes new equations through `ctx`, a `SimplifyContext`:

    def simplify_transpose(ctx, x, *, permutation):
        inner = ctx.producer(x)
        if inner is None or inner.primitive is not transpose_p:
            return None
        first = inner.params["permutation"]
        return ctx.emit(transpose_p, inner.inputs[0], permutation=tuple(first[p] for p in permutation))

A rule must be right to the bit for every operand: NaN, infinities, -0.0 (x + 0 is not x for x = -0.0; x * 0 is not 0),
integers that wrap, sizes 0 and 1, dims that are symbolic. The replacement has the shape, dtype and weakness of what it
replaces, or ProgramError is raised. Rules should make Programs smaller or cheaper, so that repeating them ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..check import same_type
from ..errors import ProgramError
from ..nesting import at_every_level
from ..primitive import Array, Primitive
from ..program import Atom, Const, Equation, Program, ProgramBuilder, Var, constant, live_equations
from ..source import Source
from ..spec import ArraySpec

_MAX_DEPTH: Final = 8
_MAX_ROUNDS: Final = 8


def algebra(program: Program) -> Program:
    """The Program simplified by its primitives' `simplify` rules until none applies; itself where none does.

    Runs to a fix-point (at most 8 rounds, each linear). Equations that lose their last reader are left out. New equations
    carry the source line of the one they replace. Raises ProgramError for a replacement of another type.
    """
    return at_every_level(program, _one_level)


def _one_level(program: Program) -> Program:
    if not any(e.primitive.simplify is not None for e in program.equations):
        return program
    for _ in range(_MAX_ROUNDS):
        simpler = SimplifyContext(program)._run()
        if simpler is program:
            break
        program = simpler
    return program


class SimplifyContext:
    """What a `simplify` rule sees of the Program, and how it makes equations. Atoms are Vars and Consts."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._equations: list[Equation] = []
        self._producers: dict[Atom, Equation] = {}
        self._uses: dict[Atom, int] = {}
        self._new: dict[Atom, Atom] = {}
        self._source: Source | None = None
        self._depth = 0

    def spec(self, atom: Atom) -> ArraySpec:
        """The atom's spec."""
        return atom.spec

    def producer(self, atom: Atom) -> Equation | None:
        """The equation that computes the atom, already simplified; None for inputs and constants."""
        return self._producers.get(atom)

    def constant(self, atom: Atom) -> Array | None:
        """The read-only array of a constant; None for what is not one."""
        return atom.value if isinstance(atom, Const) else None

    def uses(self, atom: Atom) -> int:
        """How many operands and outputs read the atom, the equation at hand included: 1 means that nothing else does."""
        return self._uses.get(atom, 0)

    def const(self, value: Any, spec: ArraySpec | None = None) -> Const:
        """A new constant: an array, or a number with a spec that gives dtype and weakness."""
        return constant(value, spec)

    def infer(self, primitive: Primitive, *atoms: Atom, **params: Any) -> ArraySpec | tuple[ArraySpec, ...]:
        """The spec that `emit` would give, a tuple for several outputs; raises what the abstract rule raises."""
        specs, several = primitive.infer(tuple([a.spec for a in atoms]), params)
        return specs if several else specs[0]

    def emit(self, primitive: Primitive, *atoms: Atom, **params: Any) -> Any:
        """A new equation's output, a tuple of atoms for several. It is simplified itself first.

        What is emitted by a rule that then gives None is dropped.
        """
        if primitive.simplify is not None and self._depth < _MAX_DEPTH:
            self._depth += 1
            simpler = self._apply(primitive, atoms, params)
            self._depth -= 1
            if simpler is not None:
                return simpler
        specs, several = primitive.infer(tuple([a.spec for a in atoms]), params)
        outputs = tuple([Var(s) for s in specs])
        self._append(Equation(primitive, atoms, params, outputs, self._source))
        return outputs if several else outputs[0]

    def inline(self, program: Program, *atoms: Atom) -> tuple[Atom, ...]:
        """A whole Program's equations on the atoms; gives its outputs. For a branch whose condition is known."""
        builder = ProgramBuilder()
        outputs = builder.inline(program, atoms, self._source)
        for eqn in builder.equations:
            self._append(eqn)
        return tuple(outputs)

    def _apply(self, primitive: Primitive, atoms: tuple[Atom, ...], params: Mapping[str, Any]) -> Any:
        """What the rule gives; what it emitted before giving None is taken back."""
        start = len(self._equations)
        assert primitive.simplify is not None
        result = primitive.simplify(self, *atoms, **params)
        if result is None:
            while len(self._equations) > start:
                self._remove(self._equations.pop())
        return result

    def _append(self, eqn: Equation) -> None:
        self._equations.append(eqn)
        for var in eqn.outputs:
            self._producers[var] = eqn
        for atom in eqn.inputs:
            self._uses[atom] = self._uses.get(atom, 0) + 1

    def _remove(self, eqn: Equation) -> None:
        for var in eqn.outputs:
            del self._producers[var]
        for atom in eqn.inputs:
            self._uses[atom] -= 1

    def _run(self) -> Program:
        """One round over the equations, in order; the Program itself if no rule applied."""
        program = self._program
        live = live_equations(program)
        for atom in [*(a for e in live for a in e.inputs), *program.outputs]:
            self._uses[atom] = self._uses.get(atom, 0) + 1
        for eqn in live:
            self._visit(eqn)
        if not self._new:
            return program
        outputs = [self._new.get(a, a) for a in program.outputs]
        changed = Program(program.inputs, self._equations, outputs, program.name)
        return Program(program.inputs, live_equations(changed), outputs, program.name)

    def _visit(self, eqn: Equation) -> None:
        inputs = tuple([self._new.get(a, a) for a in eqn.inputs])
        if any(a is not b for a, b in zip(inputs, eqn.inputs, strict=True)):
            eqn = Equation(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source)
        if eqn.primitive.simplify is not None:
            self._source = eqn.source
            result = self._apply(eqn.primitive, inputs, eqn.params)
            if result is not None:
                atoms = cast("tuple[Atom, ...]", result if isinstance(result, tuple) else (result,))
                if self._is_replacement(eqn, atoms):
                    self._replace(eqn, atoms)
                    return
        # Its operands are counted already
        self._equations.append(eqn)
        for var in eqn.outputs:
            self._producers[var] = eqn

    def _is_replacement(self, eqn: Equation, atoms: tuple[Atom, ...]) -> bool:
        """False where only the shardings differ: an annotation must not move to another value."""
        if len(atoms) != len(eqn.outputs):
            raise ProgramError(
                f"{eqn.primitive.name}: the simplify rule gave {len(atoms)} atoms for {len(eqn.outputs)} outputs", source=eqn.source
            )
        same = True
        for var, atom in zip(eqn.outputs, atoms, strict=True):
            if not same_type(var.spec, atom.spec):
                raise ProgramError(
                    f"{eqn.primitive.name}: the simplify rule gave {atom.spec!r} for an output {var.spec!r}", source=eqn.source
                )
            same = same and var.spec.sharding == atom.spec.sharding
        return same

    def _replace(self, eqn: Equation, atoms: tuple[Atom, ...]) -> None:
        for var, atom in zip(eqn.outputs, atoms, strict=True):
            self._new[var] = atom
            self._uses[atom] = self._uses.get(atom, 0) + self._uses.pop(var, 0)
        for atom in eqn.inputs:
            self._uses[atom] -= 1
