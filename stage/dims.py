"""Dims: sizes of arrays that are known only when a program runs.

A dim is a plain int, or a `Dim`: an integer expression over names, each an unknown integer >= 0. A Dim is kept in
canonical form, a polynomial with integer coefficients over atoms (`Name`, `FloorDiv`, `Mod`, `Max`, `Min`), and is
never constant: every operation that gives a constant gives an int. Two dims are the same exactly when their canonical
forms are.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from .dim_algebra import (
    Dim,
    DimLike,
    add,
    bounds,
    dim_text,
    divide_poly,
    extreme,
    floordiv,
    from_atom,
    is_int,
    mod,
    multiply,
    scale,
    subtract,
)
from .dim_atoms import Atom, FloorDiv, Max, Min, Mod, Name
from .dim_operators import set_array_hook
from .errors import ShapeError

__all__ = [
    "Atom",
    "Dim",
    "DimLike",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Name",
    "as_dim",
    "bounds",
    "broadcast_dim",
    "dim_text",
    "evaluate",
    "exact_div",
    "is_name",
    "max_dim",
    "min_dim",
    "names_of",
    "product",
    "same_dim",
    "same_shape",
    "set_array_hook",
    "substitute",
]


def as_dim(x: int | str | Dim | np.integer[Any]) -> DimLike:
    """The canonical dim of an int, a name ("B"), an integer expression of names ("(H + 1) // 2"), or a dim.

    Raises ShapeError for text that is no such expression and for a negative int, TypeError for other types.
    """
    if isinstance(x, Dim):
        return x
    number: Any = x
    if isinstance(x, str):
        result = _parse(x)
    elif isinstance(number, int | np.integer) and not isinstance(number, bool):
        result = int(x)
    else:
        raise TypeError(f"a dim is an int or the text of an integer expression of names, not {type(x).__name__} {x!r}")
    if not isinstance(result, Dim) and result < 0:
        raise ShapeError(f"a dim cannot be negative: {x}")
    return result


_OPERATORS: Final[dict[type[ast.operator], Callable[[DimLike, DimLike], DimLike]]] = {
    ast.Add: add,
    ast.Sub: subtract,
    ast.Mult: multiply,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> DimLike:
    if text.isascii() and text.isidentifier() and not keyword.iskeyword(text):
        return from_atom(Name(text))
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ShapeError(
            f"{text!r} is no dim: a name, or an integer expression of names with + - * // % max(...) min(...) is needed"
        ) from error


def _from_ast(node: ast.expr) -> DimLike:
    match node:
        case ast.Name(id=name):
            return from_atom(Name(name))
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return scale(_from_ast(operand), -1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_from_ast(left), _from_ast(right))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=args, keywords=[]) if args:
            return extreme(Max if name == "max" else Min, (_from_ast(a) for a in args))
        case _:
            raise ValueError(ast.unparse(node))


def max_dim(*dims: DimLike) -> DimLike:
    """The largest of one or more dims; TypeError for anything else."""
    return extreme(Max, dims)


def min_dim(*dims: DimLike) -> DimLike:
    """The smallest of one or more dims; TypeError for anything else."""
    return extreme(Min, dims)


def same_dim(a: DimLike, b: DimLike) -> bool:
    """Equal canonical forms; never raises."""
    if isinstance(a, Dim) and isinstance(b, Dim):
        return a is b or a.text == b.text
    return not isinstance(a, Dim) and not isinstance(b, Dim) and a == b


def same_shape(s: Sequence[DimLike], t: Sequence[DimLike]) -> bool:
    """Same length and the same dims; never raises."""
    return len(s) == len(t) and all(same_dim(a, b) for a, b in zip(s, t, strict=True))


def exact_div(a: DimLike, b: DimLike) -> DimLike | None:
    """a / b where it leaves no remainder for all sizes with b != 0, else None: (B*784) / 784 is B."""
    if is_int(b, 0):
        raise ZeroDivisionError(f"{dim_text(a)} / 0")
    quotient, remainder = divide_poly(a, b)
    return quotient if is_int(remainder, 0) else None


def product(dims: Iterable[DimLike]) -> DimLike:
    """The number of elements of a shape; 1 for ()."""
    symbolic: DimLike = 1
    constant = 1
    for d in dims:
        if isinstance(d, Dim):
            symbolic = multiply(symbolic, d)
        else:
            constant *= int(d)
    return scale(symbolic, constant)


def broadcast_dim(a: DimLike, b: DimLike) -> DimLike:
    """The dim that a and b broadcast to: equal dims, or one of them the int 1. Raises ShapeError for others."""
    if same_dim(a, b) or is_int(b, 1):
        return a
    if is_int(a, 1):
        return b
    message = f"cannot broadcast dims {dim_text(a)} and {dim_text(b)}"
    if isinstance(a, Dim) or isinstance(b, Dim):
        message += (
            ", which are equal for some sizes only. If they are always equal, say so in the spec: give both the same "
            "name or the same int. A dim to be stretched must be the int 1 in the spec"
        )
    raise ShapeError(message)


def _operands(atom: Atom) -> tuple[DimLike, ...]:
    if isinstance(atom, Name):
        return ()
    return atom.args if isinstance(atom, Max | Min) else (atom.a, atom.b)


def _walk_names(d: DimLike) -> Iterator[str]:
    for _, atoms in d.terms if isinstance(d, Dim) else ():
        for atom in atoms:
            if isinstance(atom, Name):
                yield atom.name
            for operand in _operands(atom):
                yield from _walk_names(operand)


def names_of(d: DimLike) -> tuple[str, ...]:
    """The names in a dim, in order of first appearance in its text."""
    if not isinstance(d, Dim):
        return ()
    if d.known_names is None:
        object.__setattr__(d, "known_names", tuple(dict.fromkeys(_walk_names(d))))
    assert d.known_names is not None
    return d.known_names


def substitute(d: DimLike, mapping: Mapping[str, DimLike]) -> DimLike:
    """The dim with names replaced by ints or dims, all at once; names that are not in mapping stay."""
    if not isinstance(d, Dim) or not any(name in mapping for name in names_of(d)):
        return d
    total: DimLike = 0
    for k, atoms in d.terms:
        total = add(total, scale(product(_substitute_atom(a, mapping) for a in atoms), k))
    return total


def _substitute_atom(atom: Atom, mapping: Mapping[str, DimLike]) -> DimLike:
    if isinstance(atom, Name):
        size = mapping.get(atom.name)
        return from_atom(atom) if size is None else size if isinstance(size, Dim) else int(size)
    operands = [substitute(x, mapping) for x in _operands(atom)]
    if isinstance(atom, Max | Min):
        return extreme(type(atom), operands)
    return (floordiv if isinstance(atom, FloorDiv) else mod)(operands[0], operands[1])


def evaluate(d: DimLike, sizes: Mapping[str, int]) -> int:
    """The value for given sizes. Raises ShapeError for a name without a size, ZeroDivisionError for a divisor of 0."""
    if not isinstance(d, Dim):
        return d
    return sum(k * math.prod(_evaluate_atom(a, sizes) for a in atoms) for k, atoms in d.terms)


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Name):
        if atom.name not in sizes:
            raise ShapeError(f"the size of dim {atom.name} is not given; given: {', '.join(sizes) or 'none'}")
        return int(sizes[atom.name])
    values = [evaluate(x, sizes) for x in _operands(atom)]
    if isinstance(atom, Max | Min):
        return max(values) if isinstance(atom, Max) else min(values)
    return values[0] // values[1] if isinstance(atom, FloorDiv) else values[0] % values[1]


def is_name(d: DimLike) -> bool:
    """True for a dim that is one name standing alone."""
    return (
        isinstance(d, Dim) and len(d.terms) == 1 and d.terms[0][0] == 1 and len(d.terms[0][1]) == 1 and isinstance(d.terms[0][1][0], Name)
    )
