"""The bodies of loops and branches: their values cannot be made outputs of the model, so each body is lowered and looked at by itself, on
operands that it meets when the reference runs the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...stage.nesting import programs_in
from ...stage.primitive import Array, Primitive, has_dims
from ...stage.program import Equation, Program, ProgramBuilder, substitute_params
from ..lower import lower_program
from .exposure import Candidate, ExposedPiece, pieces, threads_for
from .precision import Sizes, never_lowered


class Call(NamedTuple):
    """A body, without symbolic dims, and operands that it was run on."""

    body: Program
    arrays: tuple[Array, ...]


def has_bodies(eqn: Equation) -> bool:
    """Whether an equation has sub-programs."""
    return any(True for _ in eqn.subprograms())


def calls(eqn: Equation, inputs: Sequence[Array], sizes: Sizes) -> list[Call]:
    """The first and the last run of each body while the equation's NumPy rule runs on these operands."""
    params = eqn.params
    if sizes and any(has_dims(p) for p in params.values()):
        params = substitute_params(params, sizes)
    recorders: dict[Program, _Recorder] = {}
    with np.errstate(all="ignore"):
        eqn.primitive.numpy(*inputs, **{name: _recording(value, recorders) for name, value in params.items()})
    return [Call(body, arrays) for body, recorder in recorders.items() for arrays in recorder.runs()]


class BodyModels:
    """Bodies lowered as models of their own, each once."""

    def __init__(self) -> None:
        self._models: dict[Program, list[ExposedPiece]] = {}

    def pieces(self, body: Program) -> Iterator[ExposedPiece]:
        """Copies of the model that show the values of the body's equations."""
        known = self._models.get(body)
        if known is None:
            in_names = tuple(f"i{k}" for k in range(len(body.inputs)))
            out_names = tuple(f"o{k}" for k in range(len(body.outputs)))
            lowered = lower_program(body, in_names, out_names, guards=False)
            model = lowered.model.SerializeToString()
            candidate = Candidate(body, model, in_names, out_names, lowered.values, {}, threads_for(body, {}))
            known = self._models[body] = [ExposedPiece(candidate, piece) for piece in pieces(body, {})]
        yield from known


class _Recorder:
    """Keeps the operands of the first and the last run of a body."""

    def __init__(self, body: Program) -> None:
        self.body = body
        self._first: dict[int, Array] = {}
        self._last: dict[int, Array] = {}
        self.count = 0

    def program(self) -> Program:
        """The body, recording its operands when it runs."""
        builder = ProgramBuilder()
        operands = [builder.emit(self._primitive(k), (builder.add_input(v.spec),), {}, None)[0] for k, v in enumerate(self.body.inputs)]
        return builder.build(builder.inline(self.body, operands), self.body.name)

    def runs(self) -> list[tuple[Array, ...]]:
        """The operands of each run that was kept."""
        if not self.count:
            return []
        kept = [self._first] if self.count == 1 else [self._first, self._last]
        return [tuple(run[k] for k in range(len(self.body.inputs))) for run in kept]

    def _primitive(self, k: int) -> Primitive:
        def record(x: Array) -> Array:
            if k == 0:
                self.count += 1
            self._last[k] = x
            self._first.setdefault(k, x)
            return x

        return Primitive(
            "record",
            abstract=lambda x: x,
            numpy=record,
            onnx=never_lowered,
            batch=never_lowered,
            nondifferentiable="it is run by verification only",
            register=False,
        )


def _recording(value: Any, recorders: dict[Program, _Recorder]) -> Any:
    if isinstance(value, Program):
        recorder = recorders.setdefault(value, _Recorder(value))
        return recorder.program()
    if isinstance(value, tuple):
        return tuple(_recording(v, recorders) for v in value) if any(True for _ in programs_in(value)) else value
    return value
