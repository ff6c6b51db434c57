"""The atoms of dims, and the text of polynomials over them, which is what identifies a dim."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .dim_algebra import DimLike


class _Atom:
    """Base of the atoms: equal when their canonical texts are, since comparing the dims inside may raise."""

    __slots__ = ()
    text: str

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Atom) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Name(_Atom):
    """An unknown size, >= 0."""

    name: str
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.name)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class FloorDiv(_Atom):
    """a // b, floored; b is an int > 0 or a Dim."""

    a: DimLike
    b: DimLike
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"{_operand_text(self.a, left=True)} // {_operand_text(self.b, left=False)}")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Mod(_Atom):
    """a % b, with the sign of b as in Python; b is an int > 0 or a Dim."""

    a: DimLike
    b: DimLike
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"{_operand_text(self.a, left=True)} % {_operand_text(self.b, left=False)}")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Max(_Atom):
    """The largest of two or more args, in canonical order."""

    args: tuple[DimLike, ...]
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"max({', '.join(str(x) for x in self.args)})")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Min(_Atom):
    """The smallest of two or more args, in canonical order."""

    args: tuple[DimLike, ...]
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"min({', '.join(str(x) for x in self.args)})")


Atom: TypeAlias = Name | FloorDiv | Mod | Max | Min
Monomial: TypeAlias = tuple[Atom, ...]  # sorted, with repetition for powers; () is the constant


def poly_text(terms: tuple[tuple[int, Monomial], ...]) -> str:
    parts: list[str] = []
    for k, atoms in terms:
        # The sign binds tighter than // and %, as does *: these atoms stand bare only after a binary + or -.
        bare = len(atoms) == 1 and (k == 1 or (k == -1 and parts))
        texts = [f"({a.text})" if isinstance(a, FloorDiv | Mod) and not bare else a.text for a in atoms]
        body = "*".join(texts if atoms and abs(k) == 1 else [str(abs(k)), *texts])
        parts += [("- " if k < 0 else "+ ") if parts else "-" if k < 0 else "", body, " "]
    return "".join(parts[:-1])


def _operand_text(d: DimLike, *, left: bool) -> str:
    if isinstance(d, int):
        return str(d)
    plain = len(d.terms) == 1 and not any(isinstance(a, FloorDiv | Mod) for a in d.terms[0][1])
    if plain and (left or (d.terms[0][0] == 1 and len(d.terms[0][1]) == 1)):
        return d.text
    return f"({d.text})"
