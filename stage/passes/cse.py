"""Common subexpression elimination: what is computed twice in the same way is computed once."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..codec import float_text
from ..dims import Dim
from ..nesting import nested_programs, replace_programs
from ..primitive import Params
from ..program import Atom, Const, Equation, Program, Var
from ..spec import ArraySpec, StaticSpec


def cse(program: Program) -> Program:
    """The Program with equal equations merged, the first one kept; itself where there are none.

    Equal are equations of one primitive on the same values with the same params. Constants are equal by content and become one
    Const; Programs in params are equal by structure and become one Program. Nothing is merged across Programs: the body of a
    loop and what stands around it are apart.
    """
    constants: dict[Any, Const] = {}
    programs: dict[Any, Program] = {}
    new: dict[Program, Program] = {}
    for inner in nested_programs(program):
        merged = _merge(replace_programs(inner, new), constants)
        new[inner] = merged if inner is program else programs.setdefault(_structure(merged), merged)
    return new[program]


def _merge(program: Program, constants: dict[Any, Const]) -> Program:
    known: dict[Atom, Atom] = {}
    seen: dict[Any, tuple[Var, ...]] = {}
    equations: list[Equation] = []
    changed = False
    for eqn in program.equations:
        inputs = tuple([_representative(a, known, constants) for a in eqn.inputs])
        specs = tuple([v.spec for v in eqn.outputs])
        earlier = seen.setdefault((eqn.primitive, inputs, params_key(eqn.params), specs), eqn.outputs)
        if earlier is not eqn.outputs:
            known.update(zip(eqn.outputs, earlier, strict=True))
            changed = True
        elif all(a is b for a, b in zip(inputs, eqn.inputs, strict=True)):
            equations.append(eqn)
        else:
            equations.append(Equation(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))
            changed = True
    outputs = [_representative(a, known, constants) for a in program.outputs]
    if not changed and all(a is b for a, b in zip(outputs, program.outputs, strict=True)):
        return program
    return Program(program.inputs, equations, outputs, program.name)


def _representative(atom: Atom, known: dict[Atom, Atom], constants: dict[Any, Const]) -> Atom:
    if isinstance(atom, Const):
        return constants.setdefault((atom.spec, atom.digest), atom)
    return known.get(atom, atom)


def _structure(program: Program) -> Any:
    """A hashable key, equal for Programs that are the same up to names and sources; Programs in params by identity."""
    numbers: dict[Atom, Any] = {var: i for i, var in enumerate(program.inputs)}
    equations: list[Any] = []
    for eqn in program.equations:
        operands = tuple([numbers.get(a, a) for a in eqn.inputs])
        specs: tuple[ArraySpec, ...] = tuple([v.spec for v in eqn.outputs])
        equations.append((eqn.primitive, operands, params_key(eqn.params), specs))
        for var in eqn.outputs:
            numbers[var] = len(numbers)
    return program.in_specs, tuple(equations), tuple([numbers.get(a, a) for a in program.outputs])


def params_key(params: Params) -> tuple[Any, ...]:
    """A hashable key that tells apart what `==` does not: 1, 1.0 and True, 0.0 and -0.0; a NaN equals itself."""
    if not params:
        return ()
    return tuple([(name, _value_key(params[name])) for name in sorted(params)])


def _value_key(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is tuple:
        return (tuple, *[_value_key(v) for v in value])
    if kind is float:
        return (float, float_text(value))
    if kind is Dim:
        # By text, since == of dims raises where sizes decide
        return (Dim, value.text)
    if kind is StaticSpec:
        return (StaticSpec, _value_key(value.value))
    if isinstance(value, np.dtype):
        return (np.dtype, value.name)
    return (kind, value)
