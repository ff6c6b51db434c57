"""The text form of Programs.

    program step(%x: f32[B,784], %w: f32[784,512]) -> (f32[B,512]):
      %2: f32[B,512] = matmul(%x, %w)   # train.py:41
      %3: f32[B,512] = maximum(%2, 0.0~:f32)   # train.py:41
      return %3

A trailing `~` marks a weak value. Programs in params are written once, indented below the equation that first has them, and
named `@name` there and wherever they occur again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .dims import Dim
from .dtypes import FLOAT64, INT64, DType, short_name
from .errors import ProgramError
from .nesting import programs_in
from .program import Atom, Const, Equation, Program, Var

_INLINE_SIZE: Final = 4


def program_text(program: Program, *, names: Sequence[str] | None = None, sources: bool = True) -> str:
    """A readable text of the Program, one line an equation.

    names: what the inputs are called, in order; numbers by default. sources: whether lines end in `# train.py:41`.
    Raises ProgramError if there are more or fewer names than inputs.
    """
    if names is not None and len(names) != len(program.inputs):
        raise ProgramError(f"{program.name}: {len(names)} names for {len(program.inputs)} inputs")
    printer = _Printer(sources)
    printer.program(program, names, "")
    return "\n".join(printer.lines)


class _Printer:
    def __init__(self, sources: bool) -> None:
        self.lines: list[str] = []
        self.sources = sources
        self.labels: dict[Program, str] = {}
        self.taken: set[str] = set()

    def program(self, program: Program, names: Sequence[str] | None, indent: str, label: str | None = None) -> None:
        labels: dict[Atom, str] = {}
        for position, var in enumerate(program.inputs):
            labels[var] = f"%{position if names is None else names[position]}"
        header = ", ".join([f"{labels[v]}: {v.spec!r}" for v in program.inputs])
        results = ", ".join([repr(s) for s in program.out_specs])
        self.lines.append(f"{indent}program {label or program.name}({header}) -> ({results}):")
        inner = indent + "  "
        count = len(program.inputs)
        for eqn in program.equations:
            for var in eqn.outputs:
                labels[var] = f"%{count}"
                count += 1
            self.equation(eqn, labels, inner)
        values = ", ".join([atom_text(a, labels) for a in program.outputs])
        self.lines.append(f"{inner}return {values}".rstrip())

    def equation(self, eqn: Equation, labels: dict[Atom, str], indent: str) -> None:
        fresh = [p for value in eqn.params.values() for p in programs_in(value) if p not in self.labels]
        fresh = list(dict.fromkeys(fresh))
        for program in fresh:
            self.labels[program] = self.label(program.name)
        results = ", ".join([f"{labels[v]}: {v.spec!r}" for v in eqn.outputs])
        operands = ", ".join([atom_text(a, labels) for a in eqn.inputs])
        params = ", ".join([f"{k}={self.value(v)}" for k, v in eqn.params.items()])
        line = f"{indent}{results} = {eqn.primitive.name}({operands})"
        if params:
            line += f"[{params}]"
        if self.sources and eqn.source is not None:
            place = f"{eqn.source.scope}@{eqn.source.label}" if eqn.source.scope else eqn.source.label
            line += f"   # {place}"
        self.lines.append(line)
        # Deep nesting is rare and shallow, unlike long programs: recursion goes over levels only.
        for program in fresh:
            self.program(program, None, indent + "  ", self.labels[program])

    def label(self, name: str) -> str:
        label, number = f"@{name}", 1
        while label in self.taken:
            number += 1
            label = f"@{name}.{number}"
        self.taken.add(label)
        return label

    def value(self, value: Any) -> str:
        if isinstance(value, Program):
            return self.labels[value]
        if isinstance(value, tuple):
            items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
            return f"({', '.join([self.value(v) for v in items])}{',' if len(items) == 1 else ''})"
        if isinstance(value, np.dtype):
            return short_name(value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, Dim):
            return str(value)
        return repr(value)


def atom_text(atom: Atom, labels: dict[Atom, str]) -> str:
    """`%3`, or a constant: `2.0~`, `[1, 2]:i64`, `const[f32[10,10] 1a2b3c4d]` with the beginning of its digest."""
    if isinstance(atom, Var):
        return labels.get(atom, "%?")
    return constant_text(atom)


def constant_text(const: Const) -> str:
    """A small constant in full, a large one by spec and digest."""
    spec = const.spec
    if const.value.size > _INLINE_SIZE or const.value.ndim > 1:
        return f"const[{spec!r} {const.digest[:8]}]"
    text = repr(_plain(const)).replace("'", "")
    weak = "~" if spec.weak else ""
    natural = spec.weak and spec.dtype in (INT64, FLOAT64)
    return f"{text}{weak}" if natural or spec.dtype.kind == "b" else f"{text}{weak}:{_dtype_text(spec.dtype)}"


def _dtype_text(dtype: DType) -> str:
    return short_name(dtype)


def _plain(const: Const) -> Any:
    value = const.value
    # float64 holds every bfloat16, whose items are no Python floats
    return (value.astype(FLOAT64) if value.dtype.kind not in "biuf" else value).tolist()
