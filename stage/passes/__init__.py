"""Passes: Program -> Program, pure, linear and idempotent, keeping inputs, outputs and their specs.

A pass that changes nothing gives back the very Program it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..nesting import count_equations
from ..program import Program
from .algebra import SimplifyContext, algebra
from .constant_folding import constant_folding
from .cse import cse
from .dead_code import dead_code

__all__ = ["PASSES", "PassReport", "PassResult", "SimplifyContext", "algebra", "constant_folding", "cse", "dead_code", "run_passes"]

PASSES: Final[tuple[Callable[[Program], Program], ...]] = (dead_code, algebra, constant_folding, cse)


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass did in one round: equations before and after, those of Programs in params included."""

    name: str
    round: int
    before: int
    after: int
    changed: bool


@dataclass(frozen=True, slots=True)
class PassReport:
    """What the passes did, in order. `str` of it is a table, one line a pass that changed something."""

    before: int
    after: int
    passes: tuple[PassResult, ...]

    @property
    def rounds(self) -> int:
        return max((p.round for p in self.passes), default=0)

    def __str__(self) -> str:
        lines = [f"{self.before} equations, {self.after} after {self.rounds} round{'' if self.rounds == 1 else 's'} of passes"]
        lines += [f"  {p.round}  {p.name:<18}{p.before:>8} -> {p.after}" for p in self.passes if p.changed]
        return "\n".join(lines)


def run_passes(
    program: Program, *, passes: Sequence[Callable[[Program], Program]] = PASSES, max_rounds: int = 4
) -> tuple[Program, PassReport]:
    """The passes in turn, again until a whole round changes nothing or `max_rounds` have run; the Program and a report."""
    before = count = count_equations(program)
    results: list[PassResult] = []
    for number in range(1, max_rounds + 1):
        start = program
        for one_pass in passes:
            simpler = one_pass(program)
            after = count if simpler is program else count_equations(simpler)
            results.append(PassResult(one_pass.__name__, number, count, after, simpler is not program))
            program, count = simpler, after
        if program is start:
            break
    return program, PassReport(before, count, tuple(results))
