"""Holding the outputs of two runs against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...stage.dtypes import is_float, short_name
from ...stage.primitive import Array
from ..verification.compare import difference

# What two ways to sum the same numbers are commonly apart, relative to the largest of them.
_RTOL: Final = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True)
class OutputRow:
    """One output: the largest error, where it is relative to its tolerance, and why the two differ; empty where they agree."""

    name: str
    error: float
    tolerance: float
    problem: str

    @property
    def agrees(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}" if self.problem else f"{self.name}: error {self.error:.3g} within {self.tolerance:.3g}"


def compare_outputs(got: Mapping[str, Array], reference: Mapping[str, Array], *, rtol: float | None, atol: float | None) -> list[OutputRow]:
    """For each output of both: |got - reference| <= atol + rtol * |reference|.

    By default rtol is 1e-4 for float32, 1e-9 for float64, 1e-2 for float16 and 5e-2 for bfloat16, and atol is rtol times the largest
    finite element of the reference; integers and booleans must be equal.
    """
    return [_compare(name, got[name], reference[name], rtol, atol) for name in reference if name in got]


def _compare(name: str, got: Array, reference: Array, rtol: float | None, atol: float | None) -> OutputRow:
    if got.dtype != reference.dtype or got.shape != reference.shape:
        return OutputRow(name, float("inf"), 0.0, f"{_spec(got)} against {_spec(reference)}")
    if not is_float(got.dtype):
        tolerance: Array | float = (
            0.0 if rtol is None and atol is None else (atol or 0.0) + (rtol or 0.0) * np.abs(reference.astype(np.float64))
        )
    else:
        magnitude = np.abs(reference.astype(np.float64))
        finite = magnitude[np.isfinite(magnitude)]
        relative = _RTOL[got.dtype.name] if rtol is None else rtol
        absolute = (relative * float(finite.max()) if finite.size else 0.0) if atol is None else atol
        with np.errstate(invalid="ignore"):
            tolerance = absolute + relative * magnitude
    found = difference(got, [reference], tolerance)
    problem = ""
    if found.wrong:
        problem = (
            f"{found.wrong} of {got.size} elements differ, the worst at {list(found.position)}: "
            f"{found.got:.9g} against {found.expected:.9g}, tolerance {found.tolerance:.3g}"
        )
    return OutputRow(name, found.error, found.tolerance, problem)


def _spec(array: Array) -> str:
    return f"{short_name(array.dtype)}[{','.join(map(str, array.shape))}]"
