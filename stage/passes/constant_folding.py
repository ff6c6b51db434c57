"""Constant folding: equations on constants become constants, by the NumPy rules.

A file must have the same bytes on every machine, and NumPy's exp, matmul or float sum have not. So an equation is folded only
where its primitive's `exact` says that the bits of the result are the same everywhere (by default: integers and booleans only),
and never where the result holds a NaN, whose sign is the processor's choice.
"""

from __future__ import annotations

from typing import Final

from ..errors import ProgramError
from ..nesting import at_every_level, programs_in
from ..primitive import Array, has_dims
from ..program import Atom, Const, Equation, Program, constant

SIZE_LIMIT: Final = 1 << 16
"""Bytes an equation's outputs may have if they are larger than its operands."""


def constant_folding(program: Program) -> Program:
    """The Program with equations on small constants evaluated; itself where nothing is folded. Specs are kept.

    Equations whose NumPy rule raises stay: what fails must fail when it runs, and only if it runs.
    """
    return at_every_level(program, _one_level)


def _one_level(program: Program) -> Program:
    known: dict[Atom, Atom] = {}
    equations: list[Equation] = []
    for eqn in program.equations:
        current = _renewed(eqn, known)
        folded = _fold(current)
        if folded is None:
            equations.append(current)
        else:
            known.update(zip(eqn.outputs, folded, strict=True))
    if not known:
        return program
    return Program(program.inputs, equations, [known.get(a, a) for a in program.outputs], program.name)


def _renewed(eqn: Equation, known: dict[Atom, Atom]) -> Equation:
    if not any(a in known for a in eqn.inputs):
        return eqn
    return Equation(eqn.primitive, tuple([known.get(a, a) for a in eqn.inputs]), eqn.params, eqn.outputs, eqn.source)


def _fold(eqn: Equation) -> list[Const] | None:
    operands = [a for a in eqn.inputs if isinstance(a, Const)]
    if len(operands) != len(eqn.inputs) or not is_reproducible(eqn) or not _is_small(eqn, operands):
        return None
    specs = [v.spec for v in eqn.outputs]
    try:
        values = eqn.primitive.evaluate([c.value for c in operands], eqn.params, specs)
    except ProgramError:
        raise
    except (ArithmeticError, ValueError, IndexError):
        return None
    if any(_has_nan(value) for value in values):
        return None
    return [constant(value, spec) for value, spec in zip(values, specs, strict=True)]


def is_reproducible(eqn: Equation) -> bool:
    """True if the NumPy rule gives the same bits on every machine; False for symbolic sizes and Programs in params.

    The latter may not even end: a loop on constants in a branch that is never taken.
    """
    for value in eqn.params.values():
        if has_dims(value) or any(True for _ in programs_in(value)):
            return False
    specs = [a.spec for a in eqn.inputs]
    exact = eqn.primitive.exact
    if exact is None:
        return all(s.dtype.kind in "biu" for s in [*specs, *[v.spec for v in eqn.outputs]])
    return exact if isinstance(exact, bool) else bool(exact(*specs, **eqn.params))


def _is_small(eqn: Equation, operands: list[Const]) -> bool:
    size = 0
    for var in eqn.outputs:
        if not var.spec.is_static:
            return False
        count = var.spec.size
        size += var.spec.dtype.itemsize * (count if isinstance(count, int) else 0)
    return size <= max(SIZE_LIMIT, sum(c.value.nbytes for c in operands))


def _has_nan(value: Array) -> bool:
    return value.dtype.kind not in "biu" and bool((value != value).any())
