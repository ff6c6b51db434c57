"""How far rounding may move a program's outputs: the reference run, and runs in higher precision with random rounding errors.

A perturbed run computes each equation in float64, then rounds the result to its own dtype with a random error of a few units of
roundoff, except where the result needs no rounding: what arithmetic leaves exact stays exact, so that ties and masks survive. Runs
come in pairs of opposite errors. They make their own decisions: where one falls differently, the outputs that hang on it lie far
apart, which excuses just those elements. float64 values are perturbed at 46 bits, since no higher precision tells there what is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...stage.dtypes import is_float
from ...stage.interpreter import evaluate_equation, last_uses
from ...stage.primitive import Array
from ...stage.program import Atom, Const, Equation, Program, live_equations
from .compare import Difference, difference
from .precision import (
    Precisions,
    Sizes,
    Tape,
    float_info,
    is_decision,
    is_exact,
    jitter,
    magnitudes,
    on_grid,
    random_round,
    root_mean_square,
    spread_length,
    widen,
)

_EXACT_NOISE: Final = 2.0
_NOISE: Final = 6.0
_JITTER: Final = 2.0
_SUM_NOISE: Final = 0.5
_FACTOR: Final = 8.0
_ULPS: Final = 8.0


class Spread:
    """The outputs of a program at one sample: by the reference, and how far perturbed runs scatter about it."""

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        reference: Sequence[Array],
        sizes: Sizes,
        tools: tuple[Precisions, Tape],
    ) -> None:
        self.program = Program(program.inputs, live_equations(program), program.outputs, program.name)
        self.arrays = arrays
        self.reference = list(reference)
        self.sizes = sizes
        self.precisions, self.tape = tools
        self.pairs = 0
        self._movement: list[Array | float] = [0.0] * len(self.reference)

    def compare(self, i: int, got: Array, slack: Array | float = 0.0) -> Difference:
        """Hold output i against the reference; needs at least one pair of runs."""
        reference = self.reference[i]
        tolerance = np.maximum(slack, self.tolerance(i))
        return difference(got, [reference], tolerance)

    def tolerance(self, i: int) -> Array:
        """Per element of output i."""
        reference = self.reference[i]
        movement = np.asarray(self._movement[i])
        if not is_float(reference.dtype) or not reference.size:
            return _FACTOR * movement
        info = float_info(reference.dtype)
        with np.errstate(all="ignore"):
            size = np.nan_to_num(np.abs(widen(reference)), posinf=0.0)
            # An element may happen to stay where it is in every run; what is usual for the array holds for it too.
            usual = float(np.median(np.where(size > 0, movement / size, 0.0)))
            usual = usual if np.isfinite(usual) else 0.0
            return _FACTOR * (movement + usual * size) + _ULPS * info.roundoff * size + 2.0 * info.smallest

    def uninformative(self, i: int) -> bool:
        """Whether rounding may move most of the output by as much as it is large."""
        reference = self.reference[i]
        if not reference.size or reference.dtype.kind == "b":
            return bool(reference.size) and bool(np.mean(np.asarray(self._movement[i]) > 0) > 0.5)
        with np.errstate(all="ignore"):
            scale = np.abs(reference.astype(np.float64))
            return bool(np.mean(self.tolerance(i) > np.maximum(scale, 1e-300)) > 0.5)

    def run(self, pairs: int) -> None:
        """Add pairs of perturbed runs."""
        for _ in range(pairs):
            for run in self._pair():
                for i, (value, reference) in enumerate(zip(run, self.reference, strict=True)):
                    self._movement[i] = np.maximum(self._movement[i], _distance(value, reference))
            self.pairs += 1

    def _pair(self) -> tuple[list[Array], list[Array]]:
        program, signs = self.program, (1.0, -1.0)
        inputs = [on_grid(x, x.dtype) if is_float(x.dtype) else x for x in self.arrays]
        lanes: list[dict[Atom, Array]] = [dict(zip(program.inputs, inputs, strict=True)) for _ in signs]
        for eqn, dying in zip(program.equations, last_uses(program), strict=True):
            self._step(eqn, lanes, signs)
            for var in dying:
                for lane in lanes:
                    del lane[var]
        first, second = ([_read(lane, a) for a in program.outputs] for lane in lanes)
        return first, second

    def _step(self, eqn: Equation, lanes: Sequence[dict[Atom, Array]], signs: Sequence[float]) -> None:
        operands = [[_read(lane, a) for a in eqn.inputs] for lane in lanes]
        if is_decision(eqn):
            for lane, inputs in zip(lanes, operands, strict=True):
                lane.update(zip(eqn.outputs, evaluate_equation(eqn, inputs, self.sizes), strict=True))
            return
        exact = is_exact(eqn)
        moves = not exact and eqn.primitive.linear is None
        noise_in = [self.tape.read(x.shape) if moves and is_float(x.dtype) else None for x in operands[0]]
        noise_out: list[Array] = []
        for lane, inputs, sign in zip(lanes, operands, signs, strict=True):
            wide = [widen(x) for x in inputs]
            value = self.precisions.moved(eqn).evaluate(eqn, wide, self.sizes)
            if value is None:
                value = [widen(x) for x in evaluate_equation(eqn, inputs, self.sizes)]
            if moves:
                value = self._moved(eqn, inputs, wide, value, noise_in, sign)
            if not noise_out:
                noise_out = [self.tape.read(v.shape) for v in value]
            amplitudes = self._amplitudes(eqn, inputs, wide, value, exact)
            for var, v, amplitude, noise in zip(eqn.outputs, value, amplitudes, noise_out, strict=True):
                dtype = var.spec.dtype
                if not is_float(dtype):
                    lane[var] = v
                    continue
                if noise.shape != v.shape:
                    noise = self.tape.read(v.shape)
                lane[var] = random_round(v, dtype, amplitude, sign * noise)

    def _moved(
        self,
        eqn: Equation,
        inputs: Sequence[Array],
        wide: Sequence[Array],
        value: list[Array],
        noise: Sequence[Array | None],
        sign: float,
    ) -> list[Array]:
        """The result for operands moved a little, where the result is one that gets rounded."""
        rounded = [is_float(v.spec.dtype) and not _is_on_grid(x, v.spec.dtype) for v, x in zip(eqn.outputs, value, strict=True)]
        if not any(rounded):
            return value
        moved = self.precisions.moved(eqn).evaluate(
            eqn,
            [
                w if n is None or n.shape != w.shape else jitter(w, _JITTER * sign * float_info(x.dtype).noise * n)
                for x, w, n in zip(inputs, wide, noise, strict=True)
            ],
            self.sizes,
        )
        if moved is None:
            return value
        return [
            _where_rounded(v, m, var.spec.dtype) if r and m.shape == v.shape else v
            for v, m, r, var in zip(value, moved, rounded, eqn.outputs, strict=True)
        ]

    def _amplitudes(
        self,
        eqn: Equation,
        inputs: Sequence[Array],
        wide: Sequence[Array],
        value: Sequence[Array],
        exact: bool,
    ) -> list[Array | float]:
        sums = value if exact else magnitudes(eqn, wide, value, self.precisions, self.sizes)
        length = 1.0 if exact else spread_length(eqn, inputs, value)
        amplitudes: list[Array | float] = []
        for var, v, total in zip(eqn.outputs, value, sums, strict=True):
            if not is_float(var.spec.dtype):
                amplitudes.append(0.0)
                continue
            info = float_info(var.spec.dtype)
            with np.errstate(all="ignore"):
                amplitude = (_EXACT_NOISE if exact else _NOISE) * info.noise * np.abs(v)
                if length > 1.0 and eqn.primitive.linear is None:
                    # Inside of a composite, elements of one size come from elements of another.
                    amplitude = amplitude + _NOISE * info.roundoff * root_mean_square(v)
                if length > 1.0:
                    # The grid of float64 is coarser than its rounding: sums are not off by more of it, only by more roundoff.
                    amplitude = amplitude + _SUM_NOISE * max(info.roundoff * np.sqrt(length), info.noise) * np.abs(total)
            amplitudes.append(amplitude)
        return amplitudes


def _read(lane: dict[Atom, Array], atom: Atom) -> Array:
    if isinstance(atom, Const):
        return on_grid(atom.value, atom.value.dtype) if is_float(atom.value.dtype) else atom.value
    return lane[atom]


def _is_on_grid(value: Array, dtype: np.dtype) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.array_equal(widen(on_grid(value, dtype)), value, equal_nan=True))


def _where_rounded(value: Array, moved: Array, dtype: np.dtype) -> Array:
    with np.errstate(all="ignore"):
        keep = (widen(on_grid(value, dtype)) == value) | (np.isnan(moved) & ~np.isnan(value))
        return np.where(keep, value, moved)


def _distance(a: Array, b: Array) -> Array:
    """|a - b|; infinite where one of them is not finite and the other is not the same."""
    if a.shape != b.shape:
        return np.full(b.shape, np.inf)
    with np.errstate(all="ignore"):
        x, y = (widen(v) if is_float(v.dtype) else v.astype(np.float64) for v in (a, b))
        distance = np.abs(x - y)
        same = (a == b) | (np.isnan(x) & np.isnan(y))
        return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
