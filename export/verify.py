"""Verification: does a model compute what its Program means?

Three things are held against the reference interpreter, on the example and on other inputs:

    every equation by itself, in a copy of the model that shows all values: its operands as ONNX Runtime computed them, its result
    against the NumPy rule of the same operands. A gradient times a tiny learning rate is seen before it is added to anything.
    every output of the final bytes with ONNX Runtime's optimiser off, against the Program as it was before the passes.
    every output of the final bytes with the optimiser at its highest level.

Tolerances are computed: of single equations in verification/equations.py, of whole programs in verification/spread.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ..stage.dtypes import is_float
from ..stage.errors import VerificationError
from ..stage.primitive import Array
from ..stage.program import Atom, Equation, Program, Var, live_equations
from ..stage.staged import StagedProgram
from .lower import Lowered
from .runtime.session import LEVELS
from .verification.bodies import BodyModels, calls, has_bodies
from .verification.compare import Difference, same_bits
from .verification.equations import Departure, EquationCheck
from .verification.exposure import Candidate, ExposedPiece, pieces, read, run_model, threads_for
from .verification.precision import Precisions, Tape, widen
from .verification.report import OutputCheck, VerificationReport
from .verification.samples import Sample, Sampler
from .verification.spread import Spread

__all__ = ["OutputCheck", "VerificationError", "VerificationReport", "verify", "verify_staged"]

_LEVELS: Final = ("none", "all")
# Above so many equations every sample takes seconds.
_MANY_EQUATIONS: Final = 4_000
_MORE_PAIRS: Final = 8


def verify_staged(
    staged: StagedProgram,
    lowered: Lowered,
    model: bytes | None = None,
    *,
    example: Sequence[Array] | None = None,
    samples: Sequence[Sequence[Array]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> VerificationReport:
    """`verify` for a StagedProgram and what `lower_program(staged.optimized[0], staged.in_names, staged.out_names)` made of it.

    model: the final bytes; by default those of `lowered.model`.
    """
    return verify(
        staged.optimized[0],
        lowered.model.SerializeToString() if model is None else model,
        reference=staged.program,
        values=lowered.values,
        in_names=staged.in_names,
        out_names=staged.out_names,
        constants=lowered.detached,
        example=example,
        samples=samples,
        rtol=rtol,
        atol=atol,
        seed=seed,
        name=staged.name or "program",
    )


def verify(
    program: Program,
    model: bytes,
    *,
    values: Mapping[Var, str],
    in_names: Sequence[str],
    out_names: Sequence[str],
    reference: Program | None = None,
    constants: Mapping[str, Array] | None = None,
    example: Sequence[Array] | None = None,
    samples: Sequence[Sequence[Array]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    name: str = "program",
) -> VerificationReport:
    """Hold a model against its Program.

    program, values: what was lowered, and the name of each of its Vars in the model (`Lowered.values`). reference: the Program before
    the passes, with the same inputs and outputs. constants: the data of initializers that the model only names. example: inputs
    that the program was staged with; samples: more of them, instead of inputs made by noise. Both are flat, in the order of the
    inputs. rtol, atol: what results may be off in addition to the computed tolerances, relative to the reference and absolute.
    Raises VerificationError naming the output, the first equation that departs and its source line.
    """
    start = time.perf_counter()
    before = program if reference is None else reference
    sampler = Sampler(before, seed)
    chosen = sampler.all(example, samples, few=len(program.equations) > _MANY_EQUATIONS)
    threads = threads_for(program, chosen[0].sizes) if chosen else 1
    candidate = Candidate(program, model, tuple(in_names), tuple(out_names), values, constants or {}, threads)
    run = _Verification(candidate, before, rtol or 0.0, atol or 0.0, seed, name)
    if program.outputs:
        run.check_equations(chosen)
        for level in _LEVELS:
            run.check_outputs(chosen, level)
    checks = tuple(run.output_check(i, chosen, sampler.skipped) for i in range(len(program.outputs)))
    return VerificationReport(
        name,
        checks,
        tuple(s.description for s in chosen),
        tuple(LEVELS[level] for level in _LEVELS),
        len(live_equations(program)),
        time.perf_counter() - start,
        seed,
        rtol,
        atol,
        run.notes(chosen, sampler.skipped),
    )


class _Verification:
    """One verification: what is found along the way."""

    def __init__(self, candidate: Candidate, reference: Program, rtol: float, atol: float, seed: int, name: str) -> None:
        self.candidate = candidate
        self.reference = reference
        self.rtol = rtol
        self.atol = atol
        self.name = name
        self.tape = Tape(seed)
        self.precisions = Precisions(self.tape)
        self.worst: list[Difference | None] = [None] * len(reference.outputs)
        # Outputs by whether some sample's whole result could tell right from wrong
        self.uncertain: set[int] = set()
        self.unseen: set[str] = set()
        self.check = EquationCheck(self.precisions, self.tape, rtol, atol)
        self.bodies = BodyModels()
        self.certain: set[int] = set()
        self._spreads: dict[int, Spread] = {}

    # every equation

    def check_equations(self, samples: Sequence[Sample]) -> None:
        """In the copy that shows all values. Raises VerificationError at the first equation that departs."""
        for piece in pieces(self.candidate.program, samples[0].sizes if samples else {}):
            exposed = ExposedPiece(self.candidate, piece)
            for sample in samples:
                for eqn, departure in self._departures(exposed, sample.arrays, sample.sizes):
                    raise self._departed(eqn, departure, sample)

    def _departures(self, exposed: ExposedPiece, arrays: Sequence[Array], sizes: Mapping[str, int]) -> Iterator[tuple[Equation, Departure]]:
        """The equations of a piece that depart, each with what is wrong in it or in a body inside it."""
        env = exposed.values(arrays)
        for eqn, dying in zip(exposed.piece.equations, exposed.ends, strict=True):
            if all(v in env for v in (*(a for a in eqn.inputs if isinstance(a, Var)), *eqn.outputs)):
                inputs = [read(env, a) for a in eqn.inputs]
                if has_bodies(eqn):
                    for call in calls(eqn, inputs, sizes):
                        for piece in self.bodies.pieces(call.body):
                            for _, departure in self._departures(piece, call.arrays, {}):
                                yield eqn, departure
                departure = self.check(eqn, inputs, [env[v] for v in eqn.outputs], sizes)
                if departure is not None:
                    yield eqn, departure
            else:
                self.unseen.add(eqn.primitive.name)
            for var in dying:
                env.pop(var, None)

    def _departed(self, outer: Equation, departure: Departure, sample: Sample) -> VerificationError:
        """The error of an equation that departs; outer: the one in the model, which may hold it in a body."""
        eqn = departure.equation
        where = f"output {departure.output} of {eqn.primitive.name}" if len(eqn.outputs) > 1 else eqn.primitive.name
        what = departure.problem or _describe(departure.difference)
        outputs = self._outputs_of(outer)
        inside = "" if outer is eqn else f" inside of {outer.primitive.name}"
        return VerificationError(
            f"{self.name}: {_listed(outputs)} wrong in the ONNX model; the first equation that departs from the reference is {where}{inside} "
            f"({eqn.outputs[departure.output].spec!r}), on {sample.description}: {what}. No file was written; this is a fault of the "
            f"lowering of {eqn.primitive.name} or of ONNX Runtime, or its NumPy rule means something else",
            source=eqn.source,
        )

    def _outputs_of(self, eqn: Equation) -> list[str]:
        """Names of the outputs that hang on an equation."""
        touched: set[Atom] = set(eqn.outputs)
        for other in self.candidate.program.equations:
            if any(a in touched for a in other.inputs):
                touched.update(other.outputs)
        return [n for n, a in zip(self.candidate.out_names, self.candidate.program.outputs, strict=True) if a in touched]

    # every output

    def check_outputs(self, samples: Sequence[Sample], level: str) -> None:
        """Of the final bytes at a level. Raises VerificationError naming the output."""
        for number, (sample, outputs) in enumerate(
            zip(samples, run_model(self.candidate, level, [s.arrays for s in samples]), strict=True)
        ):
            for i, (got, reference) in enumerate(zip(outputs, sample.reference, strict=True)):
                if got.dtype != reference.dtype or got.shape != reference.shape:
                    raise self._wrong(
                        i,
                        sample,
                        level,
                        f"expected {reference.dtype.name}{list(reference.shape)}, got {got.dtype.name}{list(got.shape)}",
                    )
                if not same_bits(got, reference):
                    self._compare(number, i, got, sample, level)

    def _compare(self, number: int, i: int, got: Array, sample: Sample, level: str) -> None:
        spread = self._spreads.get(number)
        if spread is None:
            tools = (self.precisions, self.tape)
            spread = self._spreads[number] = Spread(self.reference, sample.arrays, sample.reference, sample.sizes, tools)
            spread.run(1)
        slack = self._slack(sample.reference[i])
        found = spread.compare(i, got, slack)
        if found.wrong and spread.pairs == 1:
            spread.run(_MORE_PAIRS)
            found = spread.compare(i, got, slack)
        if found.wrong:
            raise self._wrong(i, sample, level, _describe(found))
        (self.uncertain if spread.uninformative(i) else self.certain).add(i)
        known = self.worst[i]
        if known is None or _ratio(found) > _ratio(known):
            self.worst[i] = found

    def _slack(self, reference: Array) -> Array | float:
        if not self.rtol and not self.atol:
            return 0.0
        return self.atol + self.rtol * np.nan_to_num(np.abs(widen(reference).astype(np.float64)))

    def _wrong(self, i: int, sample: Sample, level: str, what: str) -> VerificationError:
        blame = (
            "with the optimiser off each equation of the lowered Program is right, so a pass before the lowering, or the wiring of the outputs, is at fault"
            if level == "none"
            else "it is right with the optimiser off, so ONNX Runtime's optimiser changes its meaning"
        )
        eqn = self._maker_of(i)
        return VerificationError(
            f"{self.name}: output {self.candidate.out_names[i]!r} is wrong at {LEVELS[level]} on {sample.description}: {what}; {blame}"
            f"{f' (the output is made by {eqn.primitive.name})' if eqn else ''}. No file was written",
            source=eqn.source if eqn else None,
        )

    def _maker_of(self, i: int) -> Equation | None:
        atom = self.candidate.program.outputs[i]
        return next((e for e in reversed(self.candidate.program.equations) if atom in e.outputs), None)

    # the report

    def output_check(self, i: int, samples: Sequence[Sample], skipped: Sequence[str]) -> OutputCheck:
        found = self.worst[i]
        note = (
            "rounding may move most of it by its own size, so that only its equations were checked"
            if i in self.uncertain - self.certain
            else ""
        )
        return OutputCheck(
            self.candidate.out_names[i],
            found.error if found else 0.0,
            found.tolerance if found else 0.0,
            self._doubt(i, samples, skipped),
            note,
        )

    def _doubt(self, i: int, samples: Sequence[Sample], skipped: Sequence[str]) -> str:
        """Why output i counts as not verified; empty if it does not."""
        values = [s.reference[i] for s in samples]
        if not samples:
            return f"no inputs could be made for the reference ({'; '.join(skipped)}); give samples="
        depends = self._depends(self.reference.outputs[i])
        if depends and len(samples) < 2:
            return f"no second input could be made ({'; '.join(skipped)}); give samples="
        if all(v.size == 0 for v in values):
            return "" if self.reference.outputs[i].spec.is_static else "it is empty on every sample"
        if is_float(values[0].dtype) and not any(np.isfinite(v.astype(np.float64)).any() for v in values):
            return "it is wholly NaN or infinite on every sample"
        if depends and all(same_bits(v, values[0]) for v in values[1:]):
            return "it does not change when the inputs do; give samples= that move it"
        return ""

    def _depends(self, output: Atom) -> bool:
        """Whether an output hangs on the values of inputs."""
        needed: set[Atom] = {output}
        for eqn in reversed(self.reference.equations):
            if any(v in needed for v in eqn.outputs):
                needed.update(eqn.inputs)
        return any(v in needed for v in self.reference.inputs)

    def notes(self, samples: Sequence[Sample], skipped: Sequence[str]) -> tuple[str, ...]:
        notes = [f"not tried: {text}" for text in skipped]
        if len(samples) > 1:
            still = [
                n
                for k, n in enumerate(self.candidate.in_names)
                if samples[0].arrays[k].size and all(same_bits(s.arrays[k], samples[0].arrays[k]) for s in samples[1:])
            ]
            if still:
                notes.append(f"inputs with the same value on every sample: {', '.join(still)}")
        if self.unseen:
            notes.append(f"not checked one by one, since their values have no name in the model: {', '.join(sorted(self.unseen))}")
        if self.precisions.refused:
            notes.append(f"checked in their own precision only: {', '.join(self.precisions.refused)}")
        return tuple(notes)


def _ratio(found: Difference) -> float:
    return found.error / found.tolerance if found.tolerance else float(found.error > 0)


def _describe(found: Difference | None) -> str:
    if found is None:
        return "it differs"
    place = f" at {list(found.position)}" if found.position else ""
    count = f"{found.wrong} elements are off, the worst" if found.wrong > 1 else "it is off"
    return f"{count}{place}: got {found.got:.9g}, expected {found.expected:.9g} within {found.tolerance:.3g}"


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "an unused value is"
    shown = ", ".join(repr(n) for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"output {shown} is" if len(names) == 1 else f"outputs {shown} are"
