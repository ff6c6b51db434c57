"""Canonical forms of dims: polynomials over atoms, their exact arithmetic, and bounds.

Every rewrite holds for all sizes for which the expression is defined (a divisor of 0 is not), and leaves a form that it
does not change again, so that the text of a dim is parsed back to the same dim.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, Union

import numpy as np

from .dim_atoms import Atom, FloorDiv, Max, Min, Mod, Monomial, Name, poly_text
from .dim_operators import DimOperators

DimLike: TypeAlias = Union[int, "Dim"]
_Bound: TypeAlias = int | float  # an int, or an infinity


Poly: TypeAlias = dict[Monomial, int]
_HASH_MODULUS: Final = (1 << 61) - 1


class Dim(DimOperators):
    """A symbolic size, never constant; made by `as_dim("2*B + 1")` and by arithmetic.

    terms: (coefficient, atoms) in canonical order, the constant last: the sum of coefficient * product of atoms.
    text: the canonical text. Two dims are the same exactly when their texts are.
    """

    __slots__ = ("_hash", "known_bounds", "known_names", "terms", "text")
    terms: tuple[tuple[int, Monomial], ...]
    text: str
    known_bounds: tuple[int | None, int | None] | None  # found when first asked for, as are the names
    known_names: tuple[str, ...] | None
    _hash: int

    def __init__(self, terms: tuple[tuple[int, Monomial], ...]) -> None:
        put = object.__setattr__
        put(self, "terms", terms)
        put(self, "text", poly_text(terms))
        # Of the text, so equal across processes; 61 bits, so that dict lookups compare only equal dims (== may raise).
        digest = hashlib.blake2b(self.text.encode(), digest_size=8).digest()
        put(self, "_hash", int.from_bytes(digest, "little") % _HASH_MODULUS)
        put(self, "known_bounds", None)
        put(self, "known_names", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Dim is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Dim, (self.terms,))

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.text

    def exact(self, ufunc: Any, a: DimLike, b: DimLike) -> DimLike:
        return _EXACT[ufunc](a, b)

    def decide(self, op: str, other: DimLike) -> bool | None:
        same = isinstance(other, Dim) and other.text == self.text
        return _decide(op, 0 if same else subtract(self, other))

    def negated(self) -> DimLike:
        return scale(self, -1)


def dim_text(d: DimLike) -> str:
    """The canonical text, which as_dim parses back: "2*B + 1", "B // 2", "max(A, B)"."""
    return d.text if isinstance(d, Dim) else str(d)


# ---- canonical form


def _poly(d: DimLike) -> Poly:
    if isinstance(d, Dim):
        return {atoms: k for k, atoms in d.terms}
    return {(): d} if d else {}


def _make(poly: Poly) -> DimLike:
    """The dim of a polynomial, an int if it is constant."""
    terms = [(k, m) for m, k in poly.items() if k]
    if not terms:
        return 0
    if len(terms) == 1:
        if not terms[0][1]:
            return terms[0][0]
    else:
        terms.sort(key=_order)
    return Dim(tuple(terms))


def _order(term: tuple[int, Monomial]) -> tuple[int, list[str]]:
    """Graded lexicographic: compatible with products, so that leading terms serve in polynomial division."""
    return -len(term[1]), [a.text for a in term[1]]


def from_atom(atom: Atom) -> Dim:
    return Dim(((1, (atom,)),))


def add(a: DimLike, b: DimLike) -> DimLike:
    poly = _poly(a)
    for m, k in _poly(b).items():
        poly[m] = poly.get(m, 0) + k
    return _make(poly)


def scale(a: DimLike, k: int) -> DimLike:
    return _make({m: c * k for m, c in _poly(a).items()})


def subtract(a: DimLike, b: DimLike) -> DimLike:
    return add(a, scale(b, -1))


def multiply(a: DimLike, b: DimLike) -> DimLike:
    poly: Poly = {}
    right = _poly(b).items()
    for m, k in _poly(a).items():
        for n, c in right:
            both = tuple(sorted(m + n, key=lambda x: x.text)) if m and n else m or n
            poly[both] = poly.get(both, 0) + k * c
    return _make(poly)


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor; None if it does not divide."""
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def is_int(d: DimLike, n: int) -> bool:
    return not isinstance(d, Dim) and d == n


def _lead(d: DimLike) -> tuple[int, Monomial]:
    return d.terms[0] if isinstance(d, Dim) else (d, ())


def divide_poly(a: DimLike, b: DimLike) -> tuple[DimLike, DimLike]:
    """(q, r) with a = q*b + r, no term of r a multiple of the leading term of b."""
    lead, lead_atoms = _lead(b)
    quotient: DimLike = 0
    remainder: Poly = {}
    while not is_int(a, 0):
        k, atoms = _lead(a)
        over = _without(atoms, lead_atoms)
        if over is not None and k % lead == 0:
            part = _make({over: k // lead})
            quotient, a = add(quotient, part), subtract(a, multiply(part, b))
        else:
            remainder[atoms] = k
            a = subtract(a, _make({atoms: k}))
    return quotient, _make(remainder)


def _nonzero(d: DimLike) -> bool:
    low, high = bounds(d)
    return (low is not None and low > 0) or (high is not None and high < 0)


def _common(a: Dim, b: DimLike) -> DimLike:
    """The largest monomial, known to be nonzero, that divides both a and b; 1 if there is none."""
    rest = [*_poly(a), *_poly(b)]
    shared: list[Atom] = []
    for atom in rest[0]:
        smaller = [m for m in (_without(m, (atom,)) for m in rest) if m is not None]
        if len(smaller) == len(rest) and _nonzero(from_atom(atom)):
            shared.append(atom)
            rest = smaller
    return _make({tuple(shared): math.gcd(*_poly(a).values(), *_poly(b).values())})


def _reduce(a: DimLike, b: Dim) -> tuple[DimLike, DimLike, DimLike, DimLike]:
    """(q, r, c, d) with a = q*b + r*c, b = d*c, c nonzero: so a // b = q + r // d and a % b = c * (r % d)."""
    # A quotient is split off only where b is known nonzero: else (A*B) // B would lose its error at B = 0.
    quotient, remainder = divide_poly(a, b) if _nonzero(b) else (0, a)
    shared = _common(b, remainder)
    return quotient, divide_poly(remainder, shared)[0], shared, divide_poly(b, shared)[0]


def _below(a: DimLike, b: DimLike) -> bool:
    """True if 0 <= a < b for all sizes."""
    low, gap = bounds(a)[0], bounds(subtract(b, a))[0]
    return low is not None and low >= 0 and gap is not None and gap >= 1


def floordiv(a: DimLike, b: DimLike) -> DimLike:
    if is_int(b, 0):
        raise ZeroDivisionError(f"{dim_text(a)} // 0")
    if _lead(b)[0] < 0:
        a, b = scale(a, -1), scale(b, -1)
    if not isinstance(b, Dim):
        return _floordiv_int(a, b) if isinstance(a, Dim) else a // b
    quotient, remainder, shared, divisor = _reduce(a, b)
    if (is_int(remainder, 0) and _nonzero(divisor)) or _below(remainder, divisor):
        return quotient
    if is_int(quotient, 0) and is_int(shared, 1):
        return from_atom(FloorDiv(remainder, divisor))
    return add(quotient, floordiv(remainder, divisor))


def mod(a: DimLike, b: DimLike) -> DimLike:
    if is_int(b, 0):
        raise ZeroDivisionError(f"{dim_text(a)} % 0")
    if _lead(b)[0] < 0:
        return scale(mod(scale(a, -1), scale(b, -1)), -1)
    if not isinstance(b, Dim):
        return _mod_int(a, b) if isinstance(a, Dim) else a % b
    quotient, remainder, shared, divisor = _reduce(a, b)
    if is_int(remainder, 0) and _nonzero(divisor):
        return 0
    if _below(remainder, divisor):
        return multiply(shared, remainder)
    if is_int(quotient, 0) and is_int(shared, 1):
        return from_atom(Mod(remainder, divisor))
    return multiply(shared, mod(remainder, divisor))


def _constant_quotient(a: DimLike, c: int) -> int | None:
    low, high = bounds(a)
    return None if low is None or high is None or low // c != high // c else low // c


def _modulo(a: Dim, c: int) -> tuple[DimLike, int, int]:
    """(r, k, g): a with coefficients mod c is r + k, r without constant; g divides c and r's coefficients."""
    poly = {m: k % c for m, k in _poly(a).items()}
    constant = poly.pop((), 0)
    return _make(poly), constant, math.gcd(c, *poly.values())


def _floordiv_int(a: Dim, c: int) -> DimLike:
    known = _constant_quotient(a, c)
    if known is not None:
        return known
    quotient = _make({m: k // c for m, k in _poly(a).items()})
    rest, constant, g = _modulo(a, c)
    if g > 1:  # (g*p + k) // (g*c) = (p + k // g) // c
        return add(quotient, floordiv(add(divide_poly(rest, g)[0], constant // g), c // g))
    if isinstance(rest, Dim) and len(rest.terms) == 1 and rest.terms[0][0] == 1 and len(rest.terms[0][1]) == 1:
        inner = rest.terms[0][1][0]
        if isinstance(inner, FloorDiv) and not isinstance(inner.b, Dim):  # (x // m + k) // c = (x + k*m) // (m*c)
            return add(quotient, floordiv(add(inner.a, constant * inner.b), inner.b * c))
    rest = add(rest, constant)
    known = _constant_quotient(rest, c)
    return add(quotient, from_atom(FloorDiv(rest, c)) if known is None else known)


def _mod_int(a: Dim, c: int) -> DimLike:
    known = _constant_quotient(a, c)
    if known is not None:
        return subtract(a, known * c)
    rest, constant, g = _modulo(a, c)
    for k, atoms in rest.terms if isinstance(rest, Dim) else ():
        for i, atom in enumerate(atoms):
            if isinstance(atom, Mod) and not isinstance(atom.b, Dim) and k * atom.b % c == 0:  # (x % 6) % 3 = x % 3
                others = _make({atoms[:i] + atoms[i + 1 :]: k})
                return mod(add(subtract(a, _make({atoms: k})), multiply(others, atom.a)), c)
    if g > 1:  # (g*p + k) % (g*c) = g * ((p + k // g) % c) + k % g
        inner = mod(add(divide_poly(rest, g)[0], constant // g), c // g)
        return add(scale(inner, g), constant % g)
    rest = add(rest, constant)
    known = _constant_quotient(rest, c)
    return from_atom(Mod(rest, c)) if known is None else subtract(rest, known * c)


def extreme(kind: type[Max] | type[Min], dims: Iterable[DimLike]) -> DimLike:
    found: dict[str, DimLike] = {}
    for d in dims:
        if not isinstance(d, Dim):
            d = operator.index(d)  # NumPy's integers to int; a TypeError for what is no integer
        only = d.terms[0] if isinstance(d, Dim) and len(d.terms) == 1 else (0, ())
        atom = only[1][0] if only[0] == 1 and len(only[1]) == 1 else None
        found.update((dim_text(x), x) for x in (atom.args if isinstance(atom, kind) else (d,)))
    kept = [found[text] for text in sorted(found)]
    for d in tuple(kept):  # drop what another is never behind of
        gaps = (bounds(subtract(e, d) if kind is Max else subtract(d, e))[0] for e in kept if e is not d)
        if any(low is not None and low >= 0 for low in gaps):
            kept = [e for e in kept if e is not d]
    if not kept:
        raise TypeError(f"{kind.__name__.lower()}_dim: at least one dim is needed")
    for d in kept if len(kept) > 1 else ():
        inner = _spread(d, kind)
        if inner:
            return extreme(kind, [*(e for e in kept if e is not d), *inner])
    return kept[0] if len(kept) == 1 else from_atom(kind(tuple(kept)))


def _spread(d: DimLike, kind: type[Max] | type[Min]) -> tuple[DimLike, ...]:
    """The args of max(a, b) + rest as (a + rest, b + rest), so that max(0, max(0, B - 1) - 1) is max(0, B - 2); none where d is no such sum."""
    found = [(k, atoms) for k, atoms in d.terms if any(isinstance(a, Max | Min) for a in atoms)] if isinstance(d, Dim) else []
    if len(found) != 1 or len(found[0][1]) != 1 or found[0][0] != 1:
        return ()
    atom = found[0][1][0]
    if not isinstance(atom, kind):
        return ()
    rest = subtract(d, from_atom(atom))
    return tuple(add(x, rest) for x in atom.args)


# ---- bounds


def bounds(d: DimLike) -> tuple[int | None, int | None]:
    """(lower, upper) over all sizes >= 0, None where there is no bound or none is found."""
    if not isinstance(d, Dim):
        return d, d
    if d.known_bounds is None:
        high = _lower(scale(d, -1), 2)
        object.__setattr__(d, "known_bounds", (_lower(d, 2), None if high is None else -high))
    assert d.known_bounds is not None
    return d.known_bounds


def _lower(d: DimLike, depth: int) -> int | None:
    """A lower bound: intervals, and one or two of the atoms eliminated, so that max(A, B) - A >= 0 is found."""
    if not isinstance(d, Dim):
        return d
    low: _Bound = sum(_term_lower(k, atoms) for k, atoms in d.terms)
    for k, atoms in d.terms if depth else ():
        atom = atoms[0] if len(atoms) == 1 else None
        if isinstance(atom, Max | Min):
            rest = subtract(d, _make({atoms: k}))
            lows = [_lower(add(rest, scale(x, k)), depth - 1) for x in atom.args]
            known = [x for x in lows if x is not None]
            if (k > 0) == isinstance(atom, Max):  # d is the largest of these, else the smallest
                low = max(low, *known, -math.inf)
            elif len(known) == len(lows):
                low = max(low, min(known))
        elif isinstance(atom, FloorDiv) and not isinstance(atom.b, Dim):  # c * (a // c) = a - a % c, 0 <= a % c < c
            rest = scale(subtract(d, _make({atoms: k})), atom.b)
            bound = _lower(add(rest, scale(atom.a, k)), depth - 1)
            if bound is not None:
                low = max(low, -((max(k, 0) * (atom.b - 1) - bound) // atom.b))
    return None if isinstance(low, float) else low


def _term_lower(k: int, atoms: Monomial) -> _Bound:
    low: _Bound = 1
    high: _Bound = 1
    for atom in atoms:
        corners = [_times(x, y) for x in (low, high) for y in _range(atom)]
        low, high = min(corners), max(corners)
    if all(atoms.count(a) % 2 == 0 for a in atoms):  # a square
        low = max(low, 0)
    return _times(k, low if k > 0 else high)


def _times(x: _Bound, y: _Bound) -> _Bound:
    if x == 0 or y == 0:
        return 0
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return math.inf if (x > 0) == (y > 0) else -math.inf


def _ends(d: DimLike) -> tuple[_Bound, _Bound]:
    low, high = bounds(d)
    return -math.inf if low is None else low, math.inf if high is None else high


def _range(atom: Atom) -> tuple[_Bound, _Bound]:
    if isinstance(atom, Name):
        return 0, math.inf
    if isinstance(atom, Max | Min):
        lows, highs = zip(*(_ends(x) for x in atom.args), strict=True)
        pick = max if isinstance(atom, Max) else min
        return pick(lows), pick(highs)
    (low, high), (least, most) = _ends(atom.a), _ends(atom.b)
    if least < 0 or most < 1:
        return -math.inf, math.inf
    least = max(least, 1)  # where the divisor is 0 there is no value
    if isinstance(atom, Mod):
        return 0, min(most - 1, high) if low >= 0 else most - 1
    return _floor(low, most if low >= 0 else least), _floor(high, least if high >= 0 else most)


def _floor(a: _Bound, b: _Bound) -> _Bound:
    """a // b for b >= 1."""
    if isinstance(a, float):
        return a
    return a // b if isinstance(b, int) else -1 if a < 0 else 0


_OPPOSITE: Final = {"!=": "==", ">": "<=", ">=": "<"}


def _decide(op: str, d: DimLike) -> bool | None:
    """`d op 0`, None if it differs between sizes or is not known."""
    if op in _OPPOSITE:
        opposite = _decide(_OPPOSITE[op], d)
        return None if opposite is None else not opposite
    low, high = _ends(d)
    if op == "==":
        if low > 0 or high < 0:
            return False
        poly = _poly(d)
        constant = poly.pop((), 0)
        if poly and constant % math.gcd(*poly.values()):  # 2*B is never 3
            return False
        return True if low == high == 0 else None
    if op == "<":
        return True if high < 0 else False if low >= 0 else None
    return True if high <= 0 else False if low > 0 else None


_EXACT: Final[dict[Any, Callable[[DimLike, DimLike], DimLike]]] = {
    np.add: add,
    np.subtract: subtract,
    np.multiply: multiply,
    np.floor_divide: floordiv,
    np.remainder: mod,
}
