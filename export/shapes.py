"""Symbolic dims in ONNX: sizes read from the inputs' shapes, and guards that make a file fail when sizes disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..stage.dims import Atom, Dim, FloorDiv, Max, Min, Mod, Name, bounds, dim_text, is_name
from ..stage.errors import ProgramError, ShapeError
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec

if TYPE_CHECKING:
    from .builder import Builder

_INT64 = np.dtype(np.int64)
_ONE = make_spec((1,), _INT64)
_SCALAR = make_spec((), _INT64)


class DimLowering:
    """The sizes of one graph: each dim and sub-expression is computed once, in the main graph, as an int64 tensor of one element."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._sites: dict[str, tuple[str, int]] = {}
        self._inputs: list[tuple[str, ArraySpec]] = []
        self._known: dict[str, str] = {}
        self._scalars: dict[str, str] = {}
        self._vectors: dict[tuple[int | str, ...], str] = {}
        self._held: set[str] = set()

    def bind_inputs(self, names: Sequence[str], specs: Sequence[ArraySpec]) -> None:
        """Say where the names of dims are found."""
        self._inputs = list(zip(names, specs, strict=True))
        for name, spec in self._inputs:
            for axis, d in enumerate(spec.shape):
                if is_name(d):
                    self._sites.setdefault(dim_text(d), (name, axis))

    def scalar(self, d: DimLike) -> str:
        """A 0-d tensor holding the size."""
        if not isinstance(d, Dim):
            return self._builder.const(d, _INT64)
        text = dim_text(d)
        if text not in self._scalars:
            with self._builder.in_root():
                name = self._builder.op("Squeeze", self.element(d), self._builder.const([0], _INT64))
            self._builder.declare(name, _SCALAR)
            self._scalars[text] = name
            self._held.add(name)
        return self._scalars[text]

    def vector(self, dims: Shape) -> str:
        """A 1-d tensor of sizes."""
        if all(not isinstance(d, Dim) for d in dims):
            return self._builder.const(np.array(dims, dtype=_INT64))
        key = tuple(dim_text(d) if isinstance(d, Dim) else d for d in dims)
        if key not in self._vectors:
            with self._builder.in_root():
                pieces = list(self._pieces(dims))
                name = pieces[0] if len(pieces) == 1 else self._builder.op("Concat", *pieces, axis=0)
            self._builder.declare(name, make_spec((len(dims),), _INT64))
            self._vectors[key] = name
            self._held.add(name)
        return self._vectors[key]

    def holds(self, name: str) -> bool:
        """Whether the value is kept for reuse, so that it may not be renamed."""
        return name in self._held

    def _pieces(self, dims: Shape) -> Iterator[str]:
        """One tensor for each dim, runs of ints together."""
        run: list[int] = []
        for d in dims:
            if isinstance(d, Dim):
                if run:
                    yield self._builder.const(np.array(run, dtype=_INT64))
                    run = []
                yield self.element(d)
            else:
                run.append(d)
        if run:
            yield self._builder.const(np.array(run, dtype=_INT64))

    def element(self, d: DimLike) -> str:
        """A tensor of shape (1,) holding the size."""
        if not isinstance(d, Dim):
            return self._builder.const(np.array([d], dtype=_INT64))
        text = dim_text(d)
        if text not in self._known:
            with self._builder.in_root():
                name = self._polynomial(d)
            self._builder.declare(name, _ONE)
            self._known[text] = name
            self._held.add(name)
        return self._known[text]

    def _polynomial(self, d: Dim) -> str:
        b = self._builder
        total: str | None = None
        for coefficient, atoms in d.terms:
            factors = [self._atom(atom) for atom in atoms]
            if coefficient != 1 or not factors:
                factors.append(self.element(coefficient))
            term = factors[0]
            for factor in factors[1:]:
                term = b.op("Mul", term, factor)
            total = term if total is None else b.op("Add", total, term)
        if total is None:
            raise ProgramError("a Dim without terms")
        return total

    def _atom(self, atom: Atom) -> str:
        text = atom.text
        if text not in self._known:
            name = self._known[text] = self._make_atom(atom)
            self._builder.declare(name, _ONE)
            self._held.add(name)
        return self._known[text]

    def _make_atom(self, atom: Atom) -> str:
        b = self._builder
        if isinstance(atom, Name):
            site = self._sites.get(atom.name)
            if site is None:
                raise ShapeError(
                    f"dim {atom.name!r} stands alone in no input, so a file cannot know its size; "
                    "give an input that has it as a dim of its own"
                )
            return b.op("Shape", site[0], start=site[1], end=site[1] + 1)
        if isinstance(atom, FloorDiv):
            dividend, divisor = self.element(atom.a), self.element(atom.b)
            low, divisor_low = bounds(atom.a)[0], bounds(atom.b)[0]
            if low is None or low < 0 or divisor_low is None or divisor_low < 0:
                # Div truncates, Mod has the sign of the divisor as in Python.
                dividend = b.op("Sub", dividend, b.op("Mod", dividend, divisor))
            return b.op("Div", dividend, divisor)
        if isinstance(atom, Mod):
            return b.op("Mod", self.element(atom.a), self.element(atom.b))
        if isinstance(atom, Max | Min):
            return b.op(type(atom).__name__, *[self.element(d) for d in atom.args])
        raise ProgramError(f"{type(atom).__name__} is no atom of a dim")

    def guard(self) -> str | None:
        """An int64 tensor (1,) of 0, whose computation fails where an input's size is not what its dim says; None if none could.

        A comparison gives 1 or 0, and a tensor of one element is reshaped to that size. ONNX Runtime does not fold it,
        since its sizes are known only at run time, and checks the sizes of a Reshape on the host.
        """
        b = self._builder
        result: str | None = None
        for name, spec in self._inputs:
            for axis, d in enumerate(spec.shape):
                if not isinstance(d, Dim) or (is_name(d) and self._sites[dim_text(d)] == (name, axis)):
                    continue
                origin = f" as in {self._sites[dim_text(d)][0]}" if is_name(d) else ""
                b.begin("guard", (), ())
                actual = b.op("Shape", name, start=axis, end=axis + 1)
                equal = b.op("Cast", b.op("Equal", actual, self.element(d)), to=_INT64)
                zero = b.const(np.zeros(1, _INT64)) if result is None else result
                # ONNX Runtime's message shows the name of the node that fails.
                b.begin(f"guard: axis {axis} of {name} must have size {dim_text(d)}{origin}", (), ())
                result = b.op("Reshape", zero, equal, allowzero=1)
        return result

    def guarded(self, name: str, spec: ArraySpec, guard: str) -> str:
        """A value tied to a guard: the same, but it cannot be had without the guard being computed."""
        b = self._builder
        b.begin("guard", (spec,), (spec,))
        sizes = b.op("Add", b.op("Shape", name) if not spec.is_static else self.vector(spec.shape), guard)
        return b.op("Reshape", name, sizes, allowzero=1)
