"""Programs inside Programs: the bodies of loops and branches, which stand in the params of equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .narrowing import is_tuple
from .primitive import Params, Primitive
from .program import Equation, Program


def programs_in(value: Any) -> Iterator[Program]:
    """The Programs that a param holds, in tuples too, in order; not those inside of them."""
    if isinstance(value, Program):
        yield value
    elif is_tuple(value):
        for item in value:
            yield from programs_in(item)


def direct_programs(program: Program) -> Iterator[Program]:
    """The Programs in the params of a Program's equations, in order of appearance, params by name."""
    for eqn in program.equations:
        for name in sorted(eqn.params):
            yield from programs_in(eqn.params[name])


def nested_programs(program: Program) -> list[Program]:
    """Every distinct Program inside, by identity, each after those in its own params; `program` comes last."""
    order: dict[Program, None] = {}
    stack = [(program, direct_programs(program))]
    while stack:
        current, pending = stack[-1]
        inner = next((p for p in pending if p not in order), None)
        if inner is not None:
            stack.append((inner, direct_programs(inner)))
        else:
            order[current] = None
            stack.pop()
    return list(order)


def count_equations(program: Program) -> int:
    """The equations of a Program and of every distinct Program inside it."""
    return sum(len(p.equations) for p in nested_programs(program))


def replace_programs(program: Program, new: Mapping[Program, Program]) -> Program:
    """The Program with the Programs in its params replaced; itself where none changes."""
    if all(new.get(p, p) is p for p in direct_programs(program)):
        return program
    equations = [Equation(e.primitive, e.inputs, _replaced_params(e.params, new), e.outputs, e.source) for e in program.equations]
    return Program(program.inputs, equations, program.outputs, program.name)


def _replaced_params(params: Params, new: Mapping[Program, Program]) -> Params:
    if not any(True for value in params.values() for _ in programs_in(value)):
        return params
    return {name: _replaced(value, new) for name, value in params.items()}


def _replaced(value: Any, new: Mapping[Program, Program]) -> Any:
    if isinstance(value, Program):
        return new.get(value, value)
    if isinstance(value, tuple):
        return tuple([_replaced(item, new) for item in value])  # pyright: ignore[reportUnknownVariableType]
    return value


def at_every_level(program: Program, transform: Callable[[Program], Program]) -> Program:
    """Apply a transform that keeps a Program's signature to each Program inside, innermost first, then to the whole.

    A Program that stands in several params is transformed once and stays shared.
    """
    new: dict[Program, Program] = {}
    for inner in nested_programs(program):
        new[inner] = transform(replace_programs(inner, new))
    return new[program]


def primitives_of(program: Program) -> dict[Primitive, None]:
    """The primitives of a Program, of the Programs inside it, and those that stand in params; in order of appearance."""
    found: dict[Primitive, None] = {}
    for inner in nested_programs(program):
        for eqn in inner.equations:
            found[eqn.primitive] = None
            found.update(dict.fromkeys(_primitives_in(tuple(eqn.params.values()))))
    return found


def _primitives_in(value: Any) -> Iterator[Primitive]:
    if isinstance(value, Primitive):
        yield value
    elif is_tuple(value):
        for item in value:
            yield from _primitives_in(item)
