"""The inputs that a model is verified on: the example, and others that are made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from ...stage.dims import Dim
from ...stage.dtypes import is_float
from ...stage.errors import OnstageError
from ...stage.interpreter import bind_dims, concrete_shape, evaluate
from ...stage.primitive import Array
from ...stage.program import Program
from ...stage.spec import ArraySpec

Recipe: TypeAlias = "Callable[[np.random.Generator], list[Array]]"

# What the reference raises for values that a program does not take, such as an index out of bounds.
_REFUSALS: Final = (OnstageError, IndexError, ValueError, TypeError, ArithmeticError)
_PRIMES: Final = (5, 7, 3, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_SMALL: Final = 1e-3


@dataclass(frozen=True)
class Sample:
    """Values of the program's inputs, what they are, and the outputs that the reference interpreter gives for them."""

    label: str
    arrays: tuple[Array, ...]
    reference: tuple[Array, ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def description(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{self.label} ({sizes})" if sizes else self.label


class NoSample(Exception):
    """None of the values tried for a sample suit the program; the message says what the last of them met."""


class Sampler:
    """Makes the samples of a program. The reference decides whether values suit it: it must not raise, nor turn more outputs into NaN or
    infinity than the example does.
    """

    def __init__(self, program: Program, seed: int) -> None:
        self.program = program
        self.seed = seed
        self.skipped: list[str] = []

    def all(self, example: Sequence[Array] | None, samples: Sequence[Sequence[Array]] | None, *, few: bool) -> list[Sample]:
        """The samples in the order they are checked. samples: the user's own, which replace those made by noise. few: as few as will do."""
        result: list[Sample] = []
        if example is not None:
            result.append(self._given("example", example))
        for i, arrays in enumerate(samples or ()):
            result.append(self._given(f"samples[{i}]", arrays))
        if not result:
            result += self._first()
            if not result:
                return []
        base = result[0]
        if self.program.inputs and len(result) < 2:
            for label, low, high in (("noise", 0.5, 1.0),) if few else (("noise", 0.5, 1.0), ("growing noise", 1.0, 1.5)):
                result += self._other(label, base, low, high)
        result += self._other_sizes(base, few=few)
        return result

    def _given(self, label: str, arrays: Sequence[Array]) -> Sample:
        return self._evaluated(label, arrays)

    def _evaluated(self, label: str, arrays: Sequence[Array]) -> Sample:
        sizes = bind_dims(self.program.in_specs, [a.shape for a in arrays]) if self.program.symbolic else {}
        outputs = evaluate(self.program, arrays, sizes=sizes or None)
        return Sample(label, tuple(arrays), tuple(outputs), sizes)

    def _first(self) -> list[Sample]:
        """Without an example: normal floats, zeros and ones as integers."""
        sizes = dict(zip(self.program.dim_names, _primes(), strict=False))
        specs = self.program.in_specs
        recipes: list[tuple[str, Recipe]] = [
            ("normal values", lambda rng: [_drawn(s, sizes, rng, ones=True) for s in specs]),
            ("positive values", lambda rng: [_positive(_drawn(s, sizes, rng, ones=True)) for s in specs]),
            ("normal values, zeros", lambda rng: [_drawn(s, sizes, rng, ones=False) for s in specs]),
            (
                "positive values, zeros",
                lambda rng: [_positive(_drawn(s, sizes, rng, ones=False)) for s in specs],
            ),
        ]
        return self._first_that_suits("generated", recipes, None)

    def _other(self, label: str, base: Sample, low: float, high: float) -> list[Sample]:
        """Other values of the same shapes."""
        arrays = base.arrays
        recipes: list[tuple[str, Recipe]] = [
            (label, lambda rng: [_varied(a, rng, low, high, step=1) for a in arrays]),
            (label, lambda rng: [_varied(a, rng, low, high, step=-1) for a in arrays]),
            (
                f"{label}, single integers kept",
                lambda rng: [_varied(a, rng, low, high, step=0) for a in arrays],
            ),
            (f"little {label}", lambda rng: [_varied(a, rng, *_closer(low, high), step=1) for a in arrays]),
            (
                f"little {label}, single integers kept",
                lambda rng: [_varied(a, rng, *_closer(low, high), step=0) for a in arrays],
            ),
            (
                f"little {label}, integers kept",
                lambda rng: [_varied(a, rng, *_closer(low, high), step=0) if is_float(a.dtype) else a for a in arrays],
            ),
        ]
        return self._first_that_suits(label, recipes, base)

    def _other_sizes(self, base: Sample, *, few: bool) -> list[Sample]:
        names = self.program.dim_names
        if not names:
            return []
        primes = (p for p in _primes() if p not in base.sizes.values())
        choices: list[tuple[str, dict[str, int]]] = [("prime sizes", dict(zip(names, primes, strict=False)))]
        if not few:
            choices += [("sizes of 1", dict.fromkeys(names, 1)), ("sizes of 0", dict.fromkeys(names, 0))]
        result: list[Sample] = []
        for label, sizes in choices:
            if sizes == dict(base.sizes):
                continue
            problem = self._misfit(sizes)
            if problem:
                self.skipped.append(f"{label}: {problem}")
                continue
            recipes: list[tuple[str, Recipe]] = [
                (label, lambda rng, sizes=sizes: self._resized(base, sizes, rng, keep_integers=True)),
                (
                    f"{label}, integers zero",
                    lambda rng, sizes=sizes: self._resized(base, sizes, rng, keep_integers=False),
                ),
            ]
            result += self._first_that_suits(label, recipes, None)
        return result

    def _first_that_suits(self, label: str, recipes: Sequence[tuple[str, Recipe]], base: Sample | None) -> list[Sample]:
        problem = ""
        for number, (name, recipe) in enumerate(recipes):
            rng = np.random.default_rng([self.seed, number, *label.encode()])
            arrays = recipe(rng)
            try:
                sample = self._evaluated(name, arrays)
            except _REFUSALS as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if base is not None and _non_finite(sample.reference) > _non_finite(base.reference):
                problem = "outputs that are finite for the example become NaN or infinite"
                continue
            if base is None and number + 1 < len(recipes) and _wholly_lost(sample.reference):
                problem = "every floating output is NaN or infinite"
                continue
            return [sample]
        self.skipped.append(f"{label}: {problem}")
        return []

    def _misfit(self, sizes: Mapping[str, int]) -> str:
        """Why inputs cannot have these sizes; empty if they can."""
        for spec in self.program.in_specs:
            try:
                shape = concrete_shape(spec.shape, sizes)
            except ZeroDivisionError:
                return f"{spec!r} divides by zero"
            if any(d < 0 for d in shape):
                return f"{spec!r} would be {list(shape)}"
        return ""

    def _resized(self, base: Sample, sizes: Mapping[str, int], rng: np.random.Generator, *, keep_integers: bool) -> list[Array]:
        """The base's values, repeated and mixed to other shapes."""
        arrays: list[Array] = []
        for spec, array in zip(self.program.in_specs, base.arrays, strict=True):
            shape = concrete_shape(spec.shape, sizes)
            if all(not isinstance(d, Dim) for d in spec.shape):
                arrays.append(array)
            elif not array.size:
                arrays.append(_drawn(spec, sizes, rng, ones=keep_integers))
            else:
                picked = array.reshape(-1)[rng.integers(0, array.size, shape)]
                if is_float(array.dtype):
                    picked = _varied(picked, rng, 0.5, 1.0, step=0)
                elif not keep_integers:
                    picked = np.zeros_like(picked)
                arrays.append(np.asarray(picked).reshape(shape))
        return arrays


def _primes() -> Iterator[int]:
    yield from _PRIMES
    candidate = _PRIMES[-1]
    while True:
        candidate += 2
        if all(candidate % d for d in range(3, int(candidate**0.5) + 1, 2)):
            yield candidate


def _drawn(spec: ArraySpec, sizes: Mapping[str, int], rng: np.random.Generator, *, ones: bool) -> Array:
    shape = concrete_shape(spec.shape, sizes)
    if is_float(spec.dtype):
        return rng.standard_normal(shape).astype(spec.dtype)
    return rng.integers(0, 2 if ones or spec.dtype.kind == "b" else 1, shape).astype(spec.dtype)


def _positive(array: Array) -> Array:
    return np.abs(array) if is_float(array.dtype) else array


def _closer(low: float, high: float) -> tuple[float, float]:
    return 1.0 + (low - 1.0) / 20.0, 1.0 + (high - 1.0) / 20.0


def _varied(array: Array, rng: np.random.Generator, low: float, high: float, *, step: int) -> Array:
    """Floats times a factor in [low, high), which keeps signs; zeros become small positive numbers; integers and booleans change places,
    and single integers move by `step`.
    """
    if is_float(array.dtype):
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            nonzero = np.abs(wide[np.isfinite(wide) & (wide != 0)])
            small = _SMALL * float(nonzero.mean()) if nonzero.size else _SMALL
            factors = rng.uniform(low, high, array.shape)
            moved = np.where(wide == 0, small * rng.uniform(0.5, 1.0, array.shape), wide * factors)
            return np.asarray(moved).astype(array.dtype)
    if array.size > 1:
        return rng.permutation(array.reshape(-1)).reshape(array.shape)
    if not array.size or not step:
        return array
    if array.dtype.kind == "b":
        return np.asarray(np.logical_not(array))
    limits = np.iinfo(array.dtype)
    value = int(array.reshape(())) + step
    return np.full_like(array, value) if limits.min <= value <= limits.max else array


def _non_finite(outputs: Sequence[Array]) -> int:
    return sum(int((~np.isfinite(x.astype(np.float64))).sum()) for x in outputs if is_float(x.dtype))


def _wholly_lost(outputs: Sequence[Array]) -> bool:
    floats = [x for x in outputs if is_float(x.dtype) and x.size]
    return bool(floats) and all(not np.isfinite(x.astype(np.float64)).any() for x in floats)
