"""Running the model: as it will be written, and in a copy that shows the value of every equation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...stage.errors import OnstageError, VerificationError
from ...stage.interpreter import concrete_shape, last_uses
from ...stage.primitive import Array
from ...stage.program import Atom, Const, Equation, Program, Var, live_equations
from .._lazy import onnx, onnxruntime
from ..protos import value_type
from ..runtime.binding import Executable
from ..runtime.session import LEVELS, available_threads, libraries_of, register_libraries
from ..signatures import element_type

# Values of equations that are held at once, in bytes at the first sample's sizes; beyond that the copy is made in pieces.
MEMORY: Final = 1 << 30
_SMALL: Final = 1 << 14


class Candidate(NamedTuple):
    """A model that waits to be verified.

    program: what was lowered; values: where its Vars are in the model (`Lowered.values`); constants: the data of initializers
    that the model only names (`Lowered.detached`). threads: of one run; a session without a pool of threads is made faster.
    """

    program: Program
    model: bytes
    in_names: tuple[str, ...]
    out_names: tuple[str, ...]
    values: Mapping[Var, str]
    constants: Mapping[str, Array]
    threads: int


def open_model(candidate: Candidate, model: bytes, level: str) -> Any:
    """A session of the candidate's model or a copy of it, on the CPU at exactly this level; VerificationError where ONNX Runtime refuses it."""
    constants = candidate.constants
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.intra_op_num_threads = candidate.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if constants:
        make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        options.add_external_initializers(list(constants), [make(a, element_type(a.dtype)) for a in constants.values()])
    register_libraries(options, libraries_of(candidate.program))
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        # ONNX Runtime's errors have no base class of their own.
        raise VerificationError(f"ONNX Runtime does not load the model at {LEVELS[level]}: {error}") from error


def run_model(candidate: Candidate, level: str, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array]]:
    """The outputs of the final bytes at a level, sample by sample. VerificationError where a run fails."""
    program = candidate.program
    session = open_model(candidate, candidate.model, level)
    executable = Executable(
        session,
        candidate.in_names,
        candidate.out_names,
        (*program.in_specs, *program.out_specs),
        held=candidate.constants,
    )
    for arrays in samples:
        yield _run(executable, arrays, program.name, level)


def _run(executable: Executable, arrays: Sequence[Array], name: str, level: str) -> list[Array]:
    try:
        return executable(arrays, name)
    except (OnstageError, IndexError) as error:
        raise VerificationError(f"{name}: the model fails at {LEVELS[level]} where the reference does not: {error}") from error


class Piece(NamedTuple):
    """Consecutive equations whose values are looked at together."""

    equations: tuple[Equation, ...]
    reads: tuple[Var, ...]


def pieces(program: Program, sizes: Mapping[str, int], memory: int = MEMORY) -> list[Piece]:
    """The live equations cut so that the values of each piece, and those it reads, fit into `memory`."""
    result: list[Piece] = []
    given = set(program.inputs)
    current: list[Equation] = []
    seen: set[Atom] = set()
    reads: list[Var] = []
    held = 0
    for eqn in live_equations(program):
        fresh = [a for a in dict.fromkeys(eqn.inputs) if isinstance(a, Var) and a not in given and a not in seen]
        cost = sum(_bytes(v, sizes) for v in (*fresh, *eqn.outputs))
        if current and held + cost > memory:
            result.append(Piece(tuple(current), tuple(reads)))
            current, reads, held = [], [], 0
            seen = set()
            fresh = [a for a in dict.fromkeys(eqn.inputs) if isinstance(a, Var) and a not in given]
            cost = sum(_bytes(v, sizes) for v in (*fresh, *eqn.outputs))
        current.append(eqn)
        reads += fresh
        seen.update(fresh)
        seen.update(eqn.outputs)
        held += cost
    if current:
        result.append(Piece(tuple(current), tuple(reads)))
    return result


def threads_for(program: Program, sizes: Mapping[str, int]) -> int:
    """One thread where every value is so small that ONNX Runtime would not share the work."""
    values = (*program.inputs, *(v for eqn in program.equations for v in eqn.outputs))
    return 1 if all(_bytes(v, sizes) <= _SMALL for v in values) else available_threads()


def _bytes(var: Var, sizes: Mapping[str, int]) -> int:
    return math.prod(concrete_shape(var.spec.shape, sizes)) * var.spec.dtype.itemsize


class ExposedPiece:
    """A copy of the model, not optimised, that gives every value of a piece's equations."""

    def __init__(self, candidate: Candidate, piece: Piece) -> None:
        self.piece = piece
        # For each equation the values that no later one of the piece reads.
        self.ends = last_uses(Program(candidate.program.inputs, piece.equations, (), candidate.program.name))
        self._candidate = candidate
        names = candidate.values
        given = set(candidate.in_names)
        wanted: dict[str, Var] = {}
        for var in (*piece.reads, *(v for eqn in piece.equations for v in eqn.outputs)):
            name = names.get(var)
            if name is not None and name not in given:
                wanted.setdefault(name, var)
        model = onnx.ModelProto.FromString(candidate.model)
        present = {o.name for o in model.graph.output}
        for name, var in wanted.items():
            if name not in present:
                model.graph.output.append(value_type(name, var.spec.dtype))
        self._names = list(wanted)
        self._executable: Executable | None = None
        if not wanted:
            return
        specs = (*candidate.program.in_specs, *(v.spec for v in wanted.values()))
        session = open_model(candidate, model.SerializeToString(), "none")
        self._executable = Executable(session, candidate.in_names, self._names, specs, held=candidate.constants)

    def values(self, arrays: Sequence[Array]) -> dict[Atom, Array]:
        """By Var, for inputs of these values: the program's inputs and what the piece reads and makes."""
        by_name = dict(zip(self._candidate.in_names, arrays, strict=True))
        if self._executable is not None:
            by_name.update(
                zip(
                    self._names,
                    _run(self._executable, arrays, self._candidate.program.name, "none"),
                    strict=True,
                )
            )
        env: dict[Atom, Array] = dict(zip(self._candidate.program.inputs, arrays, strict=True))
        for var in (*self.piece.reads, *(v for eqn in self.piece.equations for v in eqn.outputs)):
            name = self._candidate.values.get(var)
            if name is not None:
                env[var] = by_name[name]
        return env


def read(env: Mapping[Atom, Array], atom: Atom) -> Array:
    """The value of an operand."""
    return atom.value if isinstance(atom, Const) else env[atom]
