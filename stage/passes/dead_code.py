"""Dead-code removal: equations that no output hangs on."""

from __future__ import annotations

from ..nesting import at_every_level
from ..program import Atom, Equation, Program, live_equations


def dead_code(program: Program) -> Program:
    """The Program without equations that no output hangs on, in the Programs of params too; itself where there are none.

    Inputs stay, used or not. Residuals of user primitives that nothing reads are left out.
    """
    return at_every_level(program, _one_level)


def _one_level(program: Program) -> Program:
    kept = live_equations(program)
    bare = _without_unread_residuals(program, kept)
    if len(kept) == len(program.equations) and bare is kept:
        return program
    return Program(program.inputs, bare, program.outputs, program.name)


def _without_unread_residuals(program: Program, equations: list[Equation]) -> list[Equation]:
    with_residuals = [eqn for eqn in equations if eqn.primitive.generation and eqn.primitive.residual_outputs(eqn.params)]
    if not with_residuals:
        return equations
    read: set[Atom] = {a for eqn in equations for a in eqn.inputs} | set(program.outputs)
    new: dict[Equation, Equation] = {}
    for eqn in with_residuals:
        count = eqn.primitive.residual_outputs(eqn.params)
        params = eqn.primitive.without_residuals(eqn.params)
        if params is not None and not any(v in read for v in eqn.outputs[-count:]):
            new[eqn] = Equation(eqn.primitive, eqn.inputs, params, eqn.outputs[:-count], eqn.source)
    return [new.get(eqn, eqn) for eqn in equations] if new else equations
