r"""Names of inputs and outputs in files: pytree paths joined by dots (`params.w1`, `xs.0`, `out.loss`), unique and stable.

`.` and `\` within keys are escaped with `\`. Outputs stand under `out`; an argument of that name is spelled `out_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .tree import Path, path_name

OUTPUT: Final = "out"


def input_roots(arguments: Sequence[str]) -> tuple[str, ...]:
    """The first parts of the arguments' names: `out` is `out_`, with more underscores where other arguments are called so."""
    free = OUTPUT + "_"
    while free in arguments:
        free += "_"
    return tuple(free if name == OUTPUT else name for name in arguments)


def file_names(entries: Sequence[tuple[str, Path]]) -> tuple[str, ...]:
    """The names of leaves, given as (root, path below it).

    Keys of different types may read alike (1 and "1"): the first leaf in order keeps the name, the next are `name~2`, `name~3`.
    """
    names = [f"{root}.{path_name(path)}" if path else root for root, path in entries]
    if len(set(names)) == len(names):
        return tuple(names)
    taken = set(names)
    seen: set[str] = set()
    unique: list[str] = []
    for name in names:
        if name in seen:
            number = 2
            while f"{name}~{number}" in taken:
                number += 1
            name = f"{name}~{number}"
            taken.add(name)
        seen.add(name)
        unique.append(name)
    return tuple(unique)
