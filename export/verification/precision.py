"""One equation in other precisions: the arithmetic under the error estimates of verification."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...stage.dtypes import FLOAT32, FLOAT64, DType, is_float
from ...stage.errors import OnstageError, ProgramError
from ...stage.interpreter import evaluate_equation
from ...stage.primitive import Array, Primitive, has_dims
from ...stage.program import Atom, Const, Equation, Program, ProgramBuilder, Var, constant, substitute_params
from ...stage.spec import ArraySpec, make_spec

Sizes = Mapping[str, int] | None

# float64 values of a perturbed run are kept to this many bits, so that what is exact can be told from what was rounded.
_GRID_BITS: Final = 46
_MANTISSA: Final = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_TAPE_LENGTH: Final = 1 << 15
_LONGEST_CHAIN: Final = 2048
_BODY_NOISE: Final = 4.0


class FloatInfo(NamedTuple):
    """Unit roundoff and largest value of a dtype. smallest: below it kernels may flush to zero, the spacing of subnormals where they
    compute in a wider dtype. noise: the unit roundoff of perturbed runs.
    """

    roundoff: float
    smallest: float
    largest: float
    noise: float


@functools.cache
def float_info(dtype: DType) -> FloatInfo:
    """Of a floating dtype."""
    bits = _MANTISSA[dtype.name]
    exponent = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}[dtype.name]
    top = 1 << (exponent - 1)
    largest = math.ldexp(2.0 - math.ldexp(1.0, 1 - bits), top - 1)
    smallest = math.ldexp(1.0, 2 - top if bits > 11 else 3 - top - bits)
    return FloatInfo(2.0**-bits, smallest, largest, 2.0 ** -min(bits, _GRID_BITS))


def widen(array: Array) -> Array:
    """Floating arrays as float64; others as they are."""
    return array.astype(FLOAT64) if is_float(array.dtype) and array.dtype != FLOAT64 else array


def narrow(array: Array, dtype: DType) -> Array:
    """A float64 array as `dtype`; overflow gives infinities."""
    with np.errstate(all="ignore"):
        return array.astype(dtype, copy=False)


def is_exact(eqn: Equation) -> bool:
    """Whether IEEE arithmetic fixes the bits of the result: data movement, + - * / and sqrt."""
    exact = eqn.primitive.exact
    return bool(exact(*[a.spec for a in eqn.inputs], **eqn.params)) if callable(exact) else exact is True


def is_decision(eqn: Equation) -> bool:
    """Whether the result jumps: what verification takes from arrays in their own dtype."""
    return eqn.primitive.shadow == "decision" or not any(is_float(v.spec.dtype) for v in eqn.outputs)


# Equations in other dtypes -----------------------------------------------------------------------------------------------------


class Retyped:
    """Runs equations with every floating dtype in them replaced by another one."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self._params: dict[Equation, dict[str, Any]] = {}
        self._programs: dict[Program, Program] = {}
        # Primitives whose rules do not take the other dtype: they have no shadow.
        self.refused: set[str] = set()

    def evaluate(self, eqn: Equation, inputs: Sequence[Array], sizes: Sizes) -> list[Array] | None:
        """The outputs in the other dtype, None where the NumPy rule does not take it. Inputs are in the other dtype already."""
        primitive = eqn.primitive
        if callable(primitive.shadow):
            result = primitive.shadow(*inputs, **self._params_at(eqn, sizes))
            return [np.asarray(x) for x in (result if isinstance(result, tuple | list) else (result,))]
        try:
            with np.errstate(all="ignore"):
                result = primitive.numpy(*inputs, **self._params_at(eqn, sizes))
        except (OnstageError, TypeError, ValueError):
            self.refused.add(primitive.name)
            return None
        outputs = [np.asarray(x) for x in (result if isinstance(result, tuple | list) else (result,))]
        fits = len(outputs) == len(eqn.outputs) and all(
            x.ndim == v.spec.ndim and x.dtype == (self.dtype if is_float(v.spec.dtype) else v.spec.dtype)
            for x, v in zip(outputs, eqn.outputs, strict=True)
        )
        if not fits:
            self.refused.add(primitive.name)
        return outputs if fits else None

    def _params_at(self, eqn: Equation, sizes: Sizes) -> Mapping[str, Any]:
        params = eqn.params
        if not params:
            return params
        if sizes and any(has_dims(p) for p in params.values()):
            return {k: self._value(v) for k, v in substitute_params(params, sizes).items()}
        known = self._params.get(eqn)
        if known is None:
            known = self._params[eqn] = {k: self._value(v) for k, v in params.items()}
        return known

    def _value(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return self.dtype if is_float(value) else value
        if isinstance(value, tuple):
            return tuple(self._value(v) for v in value)
        if isinstance(value, Program):
            return self._program(value)
        return value

    def _spec(self, spec: ArraySpec) -> ArraySpec:
        return make_spec(spec.shape, self.dtype, spec.weak) if is_float(spec.dtype) else spec

    def _program(self, program: Program) -> Program:
        known = self._programs.get(program)
        if known is not None:
            return known
        builder = ProgramBuilder()
        env: dict[Atom, Atom] = {v: builder.add_input(self._spec(v.spec)) for v in program.inputs}

        def atom(a: Atom) -> Atom:
            if a not in env and isinstance(a, Const):
                env[a] = constant(self._constant(a.value), self._spec(a.spec)) if is_float(a.spec.dtype) else a
            return env[a]

        for eqn in program.equations:
            params = {k: self._value(v) for k, v in eqn.params.items()}
            outputs = builder.emit(eqn.primitive, tuple(atom(a) for a in eqn.inputs), params, eqn.source)
            env.update(zip(eqn.outputs, self._finish(builder, eqn, outputs), strict=True))
        result = builder.build([atom(a) for a in program.outputs], program.name)
        self._programs[program] = result
        return result

    def _constant(self, value: Array) -> Array:
        return value.astype(self.dtype)

    def _finish(self, builder: ProgramBuilder, eqn: Equation, outputs: tuple[Var, ...]) -> tuple[Var, ...]:
        """What stands for an equation's outputs in a retyped sub-program."""
        return outputs


class Perturbed(Retyped):
    """float64 with a random rounding to the dtype of the original after each equation of a sub-program: of a loop's body, say."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(FLOAT64)
        self._roundings: dict[DType, Primitive] = {}
        self._tape = tape

    def _constant(self, value: Array) -> Array:
        return widen(on_grid(widen(value), value.dtype))

    def _finish(self, builder: ProgramBuilder, eqn: Equation, outputs: tuple[Var, ...]) -> tuple[Var, ...]:
        if is_decision(eqn) or any(True for _ in eqn.subprograms()):
            return outputs
        return tuple(
            builder.emit(self._rounding(old.spec.dtype), (new,), {}, eqn.source)[0] if is_float(old.spec.dtype) else new
            for old, new in zip(eqn.outputs, outputs, strict=True)
        )

    def _rounding(self, dtype: DType) -> Primitive:
        known = self._roundings.get(dtype)
        if known is None:
            amplitude = _BODY_NOISE * float_info(dtype).noise

            def rounded(x: Array) -> Array:
                with np.errstate(all="ignore"):
                    return widen(random_round(x, dtype, amplitude * np.abs(x), self._tape.read(x.shape)))

            known = self._roundings[dtype] = Primitive(
                "random_rounding",
                abstract=lambda x: x,
                numpy=rounded,
                onnx=never_lowered,
                batch=never_lowered,
                nondifferentiable="it is run by verification only",
                register=False,
            )
        return known


def never_lowered(*_: Any) -> Any:
    """Stands for the rules that primitives of verification's own do not need."""
    raise ProgramError("a primitive of verification was lowered or mapped")


class Precisions:
    """Equations in float64, in float32, and in float64 with roundings, with what is remembered of them between calls."""

    def __init__(self, tape: Tape) -> None:
        self.high = Retyped(FLOAT64)
        self.single = Retyped(FLOAT32)
        self._perturbed = Perturbed(tape)

    def moved(self, eqn: Equation) -> Retyped:
        """What computes an equation for operands that were moved: with the roundings inside, where it has sub-programs."""
        return self._perturbed if any(True for _ in eqn.subprograms()) else self.high

    @property
    def refused(self) -> tuple[str, ...]:
        """Primitives that ran in their own precision only."""
        return tuple(sorted(self.high.refused))

    @staticmethod
    def native(eqn: Equation, inputs: Sequence[Array], sizes: Sizes) -> list[Array]:
        return evaluate_equation(eqn, inputs, sizes)


# Perturbations -----------------------------------------------------------------------------------------------------------------


class Tape:
    """Random signs times magnitudes in [1/2, 1], read off a tape that is drawn once."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._tape = rng.uniform(0.5, 1.0, 2 * _TAPE_LENGTH) * rng.choice((-1.0, 1.0), 2 * _TAPE_LENGTH)
        self._offset = 0

    def read(self, shape: tuple[int, ...]) -> Array:
        """The next numbers in this shape; those of a large array repeat."""
        size = math.prod(shape)
        self._offset = (self._offset * 5 + size + 12345) % _TAPE_LENGTH
        if size <= _TAPE_LENGTH:
            return self._tape[self._offset : self._offset + size].reshape(shape)
        # An odd period, so that the noise does not line up with the axes of the array.
        return np.resize(self._tape[self._offset : self._offset + _TAPE_LENGTH - 7], shape)


def jitter(array: Array, noise: Array) -> Array:
    """A float64 array moved by relative noise; whole numbers stay."""
    with np.errstate(all="ignore"):
        return np.where(array == np.rint(array), array, array * (1.0 + noise))


def on_grid(array: Array, dtype: DType) -> Array:
    """A float64 array rounded to the numbers that a perturbed run holds for `dtype`, as `dtype`."""
    if dtype != FLOAT64:
        return narrow(array, dtype)
    with np.errstate(all="ignore"):
        # Veltkamp's splitting: the high part of the product keeps _GRID_BITS bits.
        scaled = array * float((1 << (53 - _GRID_BITS)) + 1)
        high = scaled - (scaled - array)
    return np.where(np.isfinite(scaled), high, array)


def random_round(value: Array, dtype: DType, amplitude: Array | float, noise: Array) -> Array:
    """A float64 result rounded to `dtype`'s grid with an error of up to `amplitude` where it does not lie on the grid."""
    rounded = on_grid(value, dtype)
    with np.errstate(all="ignore"):
        exact = widen(rounded) == value
        if exact.all():
            return rounded
        return np.where(exact, rounded, on_grid(value + noise * amplitude, dtype)).astype(dtype, copy=False)


def spread_length(eqn: Equation, inputs: Sequence[Array], outputs: Sequence[Array]) -> float:
    """How many terms an element of the result may be added up from in one chain, as far as shapes tell; 1 for elementwise ones.

    Longer sums are made in blocks, by the lowering and by matrix products alike.
    """
    if eqn.primitive.elementwise:
        return 1.0
    arrays = [x for x in inputs if is_float(x.dtype)] or list(inputs)
    if not arrays:
        return 1.0
    size = max(1, min((x.size for x in outputs), default=1))
    longest = max((max(x.shape, default=1) for x in arrays), default=1)
    return float(min(_LONGEST_CHAIN, max(1, longest, *(x.size // size for x in arrays))))


def magnitudes(eqn: Equation, inputs: Sequence[Array], outputs: Sequence[Array], precisions: Precisions, sizes: Sizes) -> list[Array]:
    """Per output the sum of the magnitudes of its terms, where the equation is linear; else the result's own magnitude."""
    if eqn.primitive.linear is not None and not eqn.primitive.elementwise:
        absolute = precisions.high.evaluate(eqn, [np.abs(x) if is_float(x.dtype) else x for x in inputs], sizes)
        if absolute is not None:
            return absolute
    with np.errstate(all="ignore"):
        return [np.abs(x) if is_float(x.dtype) else x for x in outputs]


def root_mean_square(array: Array) -> float:
    """Of the finite elements; 0 where there are none."""
    with np.errstate(all="ignore"):
        finite = array[np.isfinite(array)]
        return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
