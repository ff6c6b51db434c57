"""Operands for the laws: every primitive's cases, at every dtype they stand for, with values from their domains."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onstage.stage.dtypes import as_dtype
from onstage.stage.primitive import Case, Primitive, Sample, registered_primitives

FLOATS = ("float32", "float64")
NARROW = ("float16", "bfloat16")
INTS = ("int32", "int64", "uint8")
MORE_INTS = ("int8", "int16", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Example:
    """One primitive at one case and dtype."""

    primitive: Primitive
    case: Case
    index: int
    dtype: str

    @property
    def label(self) -> str:
        return f"{self.primitive.name}-{self.index}-{self.dtype}"

    def arrays(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(zlib.crc32(self.label.encode()) + seed)
        return [draw(s, self.dtype, rng) for s in self.case.samples]

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.case.params)


def draw(sample: Sample, dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values of a sample; floats avoid each other by more than rounding, integers lie within the dtype."""
    kind = dtype if sample.dtype in ("float", "int", "any") else sample.dtype
    target = as_dtype(kind)
    low, high = sample.domain
    if sample.values is not None:
        return np.asarray(sample.values, target).reshape(sample.shape)
    if target.kind == "b":
        return rng.integers(0, 2, sample.shape).astype(bool)
    if target.kind in "iu":
        limits = np.iinfo(target)
        low, high = max(int(low), int(limits.min)), min(int(high), int(limits.max))
        return rng.integers(low, high + 1, sample.shape).astype(target)
    return rng.uniform(low, high, sample.shape).astype(target)


def dtypes_of(case: Case, wide: bool) -> tuple[str, ...]:
    kinds = {s.dtype for s in case.samples}
    result: tuple[str, ...] = ()
    if "float" in kinds or "any" in kinds:
        result += FLOATS + (NARROW if wide else ())
    if "int" in kinds or "any" in kinds:
        result += INTS + (MORE_INTS if wide else ())
    if "any" in kinds:
        result += ("bool",)
    return result or ("fixed",)


def examples(*, wide: bool = False, floats_only: bool = False) -> Iterator[Example]:
    """All examples; `wide` adds the narrow floats and the rarer integers, floats_only keeps float64 ones (for derivatives)."""
    for primitive in registered_primitives().values():
        for index, case in enumerate(primitive.cases):
            for dtype in dtypes_of(case, wide):
                if floats_only and dtype not in ("float64", "fixed"):
                    continue
                yield Example(primitive, case, index, dtype)
