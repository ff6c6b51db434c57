"""Checking one equation: what ONNX Runtime made of operands against what the NumPy rule makes of the very same operands.

Since the operands are those that ONNX Runtime computed, no error of earlier equations is in the comparison: the tolerance is that
of one operation, and a decision (a comparison, floor, argmax) must come out exactly. The tolerance is made of

    the rounding of the result in its dtype,
    what the result moves by when its operands move by a unit of roundoff (conditioning),
    what the NumPy rule itself is off in this dtype: its result against the same rule in float64. For float64 that is the error of
    the rule in float32, scaled by 2**-29, the ratio of their roundoffs,
    for what is summed up, roundoff times the sum of the magnitudes of the terms, growing with the root of their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ...stage.dtypes import FLOAT32, FLOAT64, DType, is_float
from ...stage.primitive import Array
from ...stage.program import Equation
from .compare import Difference, difference, same_bits
from .precision import (
    Precisions,
    Sizes,
    Tape,
    float_info,
    is_decision,
    is_exact,
    jitter,
    magnitudes,
    root_mean_square,
    spread_length,
    widen,
)

# Units of roundoff that an operation may be off, where IEEE arithmetic fixes its bits and where it does not.
_EXACT_ULPS: Final = 4.0
_ULPS: Final = 32.0
# Half-width floats are computed in float32 and rounded once.
_HALF_ULPS: Final = 6.0
_OWN_ERROR: Final = 4.0
_CONDITIONING: Final = 4.0
_SUMMATION: Final = 4.0
_FIRST_PAIRS: Final = 1
_MORE_PAIRS: Final = 8
_SINGLE_TO_DOUBLE: Final = 2.0**-29


class Departure(NamedTuple):
    """An equation whose result is wrong."""

    equation: Equation
    output: int
    problem: str
    difference: Difference | None


class EquationCheck:
    """Checks equations one by one. rtol, atol: slack that the user adds."""

    def __init__(self, precisions: Precisions, tape: Tape, rtol: float, atol: float) -> None:
        self.precisions = precisions
        self.tape = tape
        self.rtol = rtol
        self.atol = atol

    def __call__(self, eqn: Equation, inputs: Sequence[Array], got: Sequence[Array], sizes: Sizes) -> Departure | None:
        """None if `got` is what the equation gives for `inputs`."""
        native = self.precisions.native(eqn, inputs, sizes)
        wrong = [i for i, (a, b) in enumerate(zip(got, native, strict=True)) if not same_bits(a, b)]
        if not wrong:
            return None
        for i in wrong:
            if got[i].dtype != native[i].dtype or got[i].shape != native[i].shape:
                return Departure(eqn, i, f"expected {_kind(native[i])}, got {_kind(got[i])}", None)
        if is_decision(eqn) or is_exact(eqn):
            return self._compare_exact(eqn, inputs, got, native, wrong, sizes)
        return self._compare(eqn, inputs, got, native, wrong, sizes)

    def _compare_exact(
        self,
        eqn: Equation,
        inputs: Sequence[Array],
        got: Sequence[Array],
        native: Sequence[Array],
        wrong: Sequence[int],
        sizes: Sizes,
    ) -> Departure | None:
        for i in wrong:
            reference = native[i]
            if is_float(reference.dtype):
                found = difference(
                    got[i],
                    [reference],
                    self._slack(reference) + _rounding(widen(reference), reference, _EXACT_ULPS),
                )
                if found.wrong and _may_jump(eqn, inputs):
                    moved = [r[i] for r in self._moved(eqn, inputs, sizes, _MORE_PAIRS)]
                    tolerance = self._slack(reference) + _rounding(widen(reference), reference, _ULPS)
                    found = difference(got[i], [reference, *moved], tolerance)
            else:
                found = difference(got[i], [reference], np.where(_undefined(inputs, reference), np.inf, 0.0))
            if found.wrong:
                return Departure(eqn, i, "", found)
        return None

    def _compare(
        self,
        eqn: Equation,
        inputs: Sequence[Array],
        got: Sequence[Array],
        native: Sequence[Array],
        wrong: Sequence[int],
        sizes: Sizes,
    ) -> Departure | None:
        wide = [widen(x) for x in inputs]
        high = self.precisions.high.evaluate(eqn, wide, sizes) or [widen(x) for x in native]
        sums = magnitudes(eqn, wide, high, self.precisions, sizes)
        length = spread_length(eqn, inputs, native)
        own = self._own_errors(eqn, inputs, native, high, sizes)
        for pairs in (_FIRST_PAIRS, _MORE_PAIRS):
            moved = self._moved(eqn, inputs, sizes, pairs)
            departure = None
            for i in wrong:
                reference = native[i]
                if is_float(reference.dtype):
                    ulps = _HALF_ULPS if _in_single(eqn, reference.dtype) else _ULPS
                    tolerance = self._slack(reference) + _rounding(high[i], reference, ulps)
                    tolerance = tolerance + _OWN_ERROR * own[i] + _CONDITIONING * _movement(high[i], [m[i] for m in moved])
                    if length > 1:
                        roundoff = _working_roundoff(eqn, reference.dtype)
                        tolerance = tolerance + _SUMMATION * roundoff * np.sqrt(length) * np.nan_to_num(np.abs(sums[i]))
                    found = difference(got[i], [reference, high[i]], tolerance)
                else:
                    found = difference(got[i], [reference], np.where(_undefined(inputs, reference), np.inf, 0.0))
                if found.wrong:
                    departure = Departure(eqn, i, "", found)
                    break
            if departure is None:
                return None
        return departure

    def _slack(self, reference: Array) -> Array | float:
        if not self.rtol and not self.atol:
            return 0.0
        return self.atol + self.rtol * np.abs(np.nan_to_num(widen(reference)))

    def _moved(self, eqn: Equation, inputs: Sequence[Array], sizes: Sizes, pairs: int) -> list[list[Array]]:
        """Results for operands moved by about two units of roundoff, in both directions."""
        results: list[list[Array]] = []
        for _ in range(pairs):
            noise = [self.tape.read(x.shape) if is_float(x.dtype) else None for x in inputs]
            for sign in (1.0, -1.0):
                operands = [
                    x if n is None else jitter(widen(x), 2.0 * sign * _working_roundoff(eqn, x.dtype) * n)
                    for x, n in zip(inputs, noise, strict=True)
                ]
                result = self.precisions.moved(eqn).evaluate(eqn, operands, sizes)
                if result is not None:
                    results.append(result)
        return results

    def _own_errors(
        self,
        eqn: Equation,
        inputs: Sequence[Array],
        native: Sequence[Array],
        high: Sequence[Array],
        sizes: Sizes,
    ) -> list[Array | float]:
        """What the NumPy rule is off in the equation's own dtypes."""
        errors: list[Array | float] = [
            _error(h, widen(n)) if is_float(n.dtype) and n.dtype != FLOAT64 else 0.0 for n, h in zip(native, high, strict=True)
        ]
        doubles = [i for i, n in enumerate(native) if n.dtype == FLOAT64]
        if doubles:
            with np.errstate(all="ignore"):
                rounded = [x.astype(FLOAT32) if x.dtype == FLOAT64 else x for x in inputs]
            single = self.precisions.single.evaluate(eqn, [_as_single(x) for x in rounded], sizes)
            double = self.precisions.high.evaluate(eqn, [widen(x) for x in rounded], sizes)
            if single is not None and double is not None:
                for i in doubles:
                    errors[i] = _SINGLE_TO_DOUBLE * _error(double[i], widen(single[i]))
        if not eqn.primitive.elementwise:
            # One element may be right by luck: the error of an array is taken as a whole.
            errors = [e + root_mean_square(e) if isinstance(e, np.ndarray) else e for e in errors]
        return errors


def _in_single(eqn: Equation, dtype: DType) -> bool:
    """Whether the operation is lowered to float32 arithmetic; what is lowered in other operations may round after each."""
    return dtype.itemsize == 2 and eqn.primitive.onnx is not None


def _working_roundoff(eqn: Equation, dtype: DType) -> float:
    return float_info(FLOAT32 if _in_single(eqn, dtype) else dtype).roundoff


def _as_single(x: Array) -> Array:
    return x.astype(FLOAT32) if is_float(x.dtype) and x.dtype != FLOAT32 else x


def _rounding(value: Array, like: Array, ulps: float) -> Array:
    info = float_info(like.dtype)
    with np.errstate(all="ignore"):
        return ulps * info.roundoff * np.nan_to_num(np.abs(value), nan=0.0, posinf=0.0) + 2.0 * info.smallest


def _error(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(a - b), nan=0.0, posinf=0.0)


def _movement(center: Array, moved: Sequence[Array]) -> Array | float:
    """How far results lie from the middle one; where one of them is not finite the others tell."""
    movement: Array | float = 0.0
    for other in moved:
        if other.shape == center.shape:
            movement = np.maximum(movement, _error(center, other))
    return movement


def _may_jump(eqn: Equation, inputs: Sequence[Array]) -> bool:
    """Whether rounding inside the operation comes before its decision: floor_divide and mod divide, floor does not."""
    return eqn.primitive.shadow == "decision" and eqn.primitive.elementwise and sum(is_float(x.dtype) for x in inputs) > 1


def _undefined(inputs: Sequence[Array], reference: Array) -> Array | bool:
    """Where floats have no counterpart in an integer result: NumPy leaves their cast open."""
    if reference.dtype.kind not in "iu":
        return False
    limits = np.iinfo(reference.dtype)
    result: Array | bool = False
    for x in inputs:
        if is_float(x.dtype) and x.shape == reference.shape:
            wide = widen(x)
            with np.errstate(all="ignore"):
                result = result | ~((wide > float(limits.min) - 1.0) & (wide < float(limits.max) + 1.0))
    return result


def _kind(array: Array) -> str:
    return f"{array.dtype.name}{list(array.shape)}"
