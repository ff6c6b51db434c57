"""Dead-code removal: equations that no output hangs on."""

from __future__ import annotations

from ..nesting import at_every_level
from ..program import Program, live_equations


def dead_code(program: Program) -> Program:
    """The Program without equations that no output hangs on, in the Programs of params too; itself where there are none.

    Inputs stay, used or not.
    """
    return at_every_level(program, _one_level)


def _one_level(program: Program) -> Program:
    kept = live_equations(program)
    if len(kept) == len(program.equations):
        return program
    return Program(program.inputs, kept, program.outputs, program.name)
