"""The structural hash: equal for programs that compute the same thing in the same way, in every process and on every machine."""

from __future__ import annotations

import hashlib

from .codec import Encoder, canonical_text
from .dims import Dim, as_dim, dim_text, is_name, names_of, substitute
from .passes.dead_code import dead_code
from .program import Program
from .spec import DimLike


def program_hash(program: Program) -> str:
    """SHA-256 over `structural_text`, 64 hex digits."""
    return hashlib.sha256(structural_text(program).encode("ascii")).hexdigest()


def structural_text(program: Program) -> str:
    """The canonical text of a Program after dead-code removal.

    It holds inputs by position (unused ones included), specs (weakness and sharding included), constants by content, params,
    primitive names and versions. It does not hold names of programs, inputs or dims, source lines, or identities.
    """
    numbering = _DimNumbering(program)
    return canonical_text(Encoder({}, dim=numbering.write, anonymous=True).encode(dead_code(program)))


class _DimNumbering:
    """Names of dims as d0, d1, ... in order of first appearance: alone as a dim of an input, then anywhere.

    Those that stand alone come first since the order of names within an expression hangs on the names themselves.
    """

    def __init__(self, program: Program) -> None:
        self.names: dict[str, Dim | int] = {}
        self.texts: dict[str, str] = {}
        dims = [dim for spec in program.in_specs for dim in spec.shape if isinstance(dim, Dim)]
        for dim in [*(d for d in dims if is_name(d)), *dims]:
            self.write(dim)

    def write(self, dim: DimLike) -> int | str:
        if not isinstance(dim, Dim):
            return dim
        text = dim_text(dim)
        known = self.texts.get(text)
        if known is None:
            for name in names_of(dim):
                if name not in self.names:
                    self.names[name] = as_dim(f"d{len(self.names)}")
            known = self.texts[text] = dim_text(substitute(dim, self.names))
        return known
