"""What NumPy offers and a traced array does not take: each function with the reason, and the way out.

Functions that need a bound on the size of their result (`size=`) are not here: they are registered and ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..stage.errors import ConcretizationError, MutationError, OnstageError, UnsupportedError


@dataclass(frozen=True)
class Exclusion:
    """Why a NumPy function does not take a traced array, what to do instead, and the error that says so."""

    kind: str
    reason: str
    way_out: str
    error: type[OnstageError] = UnsupportedError


def _printing(way_out: str = "print outside of the staged function, or inside it print(x) to see shape and dtype") -> Exclusion:
    return Exclusion("printing", "writes out values, which are known only when the program runs", way_out, ConcretizationError)


def _file(name: str) -> Exclusion:
    return Exclusion(
        "I/O",
        "writes values to a file, but they are known only when the program runs",
        f"return the array from the staged function and call np.{name} with the result",
        ConcretizationError,
    )


_DATETIME = Exclusion(
    "datetime",
    "is about datetime64 and timedelta64, and ONNX has neither",
    "compute with dates outside of the staged function and pass numbers of days or seconds",
)


def _mutation(way_out: str) -> Exclusion:
    return Exclusion("mutation", "changes its argument", way_out, MutationError)


_MEMORY = Exclusion(
    "memory",
    "asks about addresses, and a traced array has no memory",
    "nothing that is staged shares memory: results are always fresh arrays",
)
_COMPLEX_ROOTS = "keep real parts: np.linalg.eigvalsh of a symmetric matrix has real eigenvalues"

EXCLUSIONS: dict[Any, Exclusion] = {
    np.array2string: _printing(),
    np.array_repr: _printing(),
    np.array_str: _printing(),
    np.save: _file("save"),
    np.savetxt: _file("savetxt"),
    np.savez: _file("savez"),
    np.savez_compressed: _file("savez_compressed"),
    np.busday_count: _DATETIME,
    np.busday_offset: _DATETIME,
    np.datetime_as_string: _DATETIME,
    np.is_busday: _DATETIME,
    np.isnat: _DATETIME,
    np.copyto: _mutation("use x.at[i].set(v), or np.where"),
    np.fill_diagonal: _mutation("use x.at[i, i].set(v) with i = np.arange(n), or np.where(np.eye(n, dtype=bool), v, x)"),
    np.place: _mutation("use np.where(mask, values, x), or x.at[mask].set(v)"),
    np.put: _mutation("use x.at[i].set(v), or x.ravel().at[i].set(v).reshape(x.shape) for flat positions"),
    np.put_along_axis: _mutation("use x.at[...].set(v) with the index arrays of every axis"),
    np.putmask: _mutation("use np.where(mask, values, x), or x.at[mask].set(v)"),
    np.may_share_memory: _MEMORY,
    np.shares_memory: _MEMORY,
    np.roots: Exclusion(
        "complex", "gives complex roots, and as many as the data has", "find one real root with ons.while_loop and np.polyval"
    ),
    np.sort_complex: Exclusion("complex", "gives a complex array, a dtype that is not supported", "use np.sort"),
    np.linalg.eig: Exclusion("complex", "gives complex or real results, as the data has it", _COMPLEX_ROOTS),
    np.linalg.eigvals: Exclusion("complex", "gives complex or real results, as the data has it", _COMPLEX_ROOTS),
    np.trim_zeros: Exclusion(
        "data-dependent shape",
        "gives as many elements as the data has between zeros, which is known only when the program runs",
        "keep the shape, or slice at known places; ons.numpy.flatnonzero(x, size=1) finds the first that is not zero",
        ConcretizationError,
    ),
}
"""By NumPy callable."""


def excluded(function: Any, label: str) -> OnstageError | None:
    """The error for calling an excluded function, named by `label`, on a traced array; None for all others."""
    exclusion = EXCLUSIONS.get(function)
    if exclusion is None:
        return None
    return exclusion.error(f"{label} {exclusion.reason}; {exclusion.way_out}")
