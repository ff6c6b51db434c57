"""The type checker of Programs. Whatever a transform or a file gives is held against the rules of the IR here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import OnstageError, ProgramError
from .nesting import nested_programs
from .program import Atom, Const, Equation, Program, Var
from .spec import ArraySpec, same_shape_key


def check(program: Program) -> None:
    """Raise ProgramError, naming the equation, unless the Program is well-formed and well-typed.

    Inputs are distinct; every value is defined once and before its use; a Program in params is closed and well-formed
    itself; params are hashable; each equation's output specs are what its primitive infers anew (shardings are
    annotations and not inferred); constants are read-only and fit their specs; outputs are defined.
    Linear in the number of equations, those of Programs in params included once each.
    """
    for inner in nested_programs(program):
        _check_level(inner)


def _check_level(program: Program) -> None:
    defined: set[Atom] = set()
    for position, var in enumerate(program.inputs):
        if not isinstance(var, Var):
            raise ProgramError(f"{program.name}: input {position} is a {type(var).__name__}, not a Var")
        if var in defined:
            raise ProgramError(f"{program.name}: input {position} is an earlier input again; inputs are distinct")
        defined.add(var)
    checked: set[Const] = set()
    for position, eqn in enumerate(program.equations):
        problem = (
            _operand_problem(eqn.inputs, defined, checked)
            or _params_problem(eqn)
            or _inference_problem(eqn)
            or _definition_problem(eqn, defined)
        )
        if problem:
            raise ProgramError(f"{program.name}: equation {position}, {eqn.primitive.name}: {problem}", source=eqn.source)
    problem = _operand_problem(program.outputs, defined, checked)
    if problem:
        raise ProgramError(f"{program.name}: outputs: {problem}")


def _operand_problem(atoms: Sequence[Atom], defined: set[Atom], checked: set[Const]) -> str | None:
    for position, atom in enumerate(atoms):
        if atom in defined:
            continue
        if isinstance(atom, Var):
            return f"operand {position} ({atom.spec!r}) is not defined before it is used"
        if not isinstance(atom, Const):
            return f"operand {position} is a {type(atom).__name__}, not a Var or Const"
        if atom not in checked:
            problem = _constant_problem(atom)
            if problem:
                return f"operand {position}: {problem}"
            checked.add(atom)
    return None


def _constant_problem(const: Const) -> str | None:
    value, spec = const.value, const.spec
    if value.dtype != spec.dtype or not same_shape_key(value.shape, spec.shape):
        return f"a constant {value.dtype.name}{list(value.shape)} has the spec {spec!r}"
    if value.flags.writeable:
        return f"a constant ({spec!r}) is writeable"
    return None


def _params_problem(eqn: Equation) -> str | None:
    for name, value in eqn.params.items():
        try:
            hash(value)
        except TypeError:
            return f"the param {name!r} is not hashable: {_short(value)}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _inference_problem(eqn: Equation) -> str | None:
    try:
        specs, _ = eqn.primitive.infer(tuple([a.spec for a in eqn.inputs]), eqn.params)
    except OnstageError as error:
        return f"its operands are refused: {error.message}"
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        return f"its operands or params are refused: {type(error).__name__}: {error}"
    if len(specs) != len(eqn.outputs):
        return f"{len(eqn.outputs)} outputs, its abstract rule gives {len(specs)}"
    for position, (var, spec) in enumerate(zip(eqn.outputs, specs, strict=True)):
        if not same_type(var.spec, spec):
            return f"output {position} is {var.spec!r}, its abstract rule gives {spec!r}"
    return None


def same_type(a: ArraySpec, b: ArraySpec) -> bool:
    """Equal shape, dtype and weakness; the shardings may differ."""
    return a is b or (a.dtype == b.dtype and a.weak == b.weak and same_shape_key(a.shape, b.shape))


def _definition_problem(eqn: Equation, defined: set[Atom]) -> str | None:
    for position, var in enumerate(eqn.outputs):
        if not isinstance(var, Var):
            return f"output {position} is a {type(var).__name__}, not a Var"
        if var in defined:
            return f"output {position} is defined a second time"
        defined.add(var)
    return None
