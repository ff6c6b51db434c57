"""OnnxBackend: how StagedPrograms run, are lowered, written and read. `import onstage` installs it."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..stage.backend import Operator
from ..stage.config import Options, current_options
from ..stage.dims import Dim
from ..stage.dtypes import DType
from ..stage.nesting import primitives_of
from ..stage.primitive import Array
from ..stage.program import Program
from ..stage.staged import StagedProgram
from .load import load
from .lower import lower, lower_program
from .runtime.binding import Executable
from .runtime.checked import evaluate_checked
from .runtime.operator import run_operator
from .runtime.profile import Profile, profile_session
from .runtime.session import automatic_level, libraries_of, make_session
from .save import save

Run: TypeAlias = Callable[[Sequence[Array], str], list[Array]]

# Up to this many elements in its largest value a program runs on one thread: ONNX Runtime would not split its loops, and a session without
# a pool is made in half the time.
_SMALL = 1 << 14
_DETACH_ABOVE = 1 << 20


class _Entry:
    """A kept session: shared by all programs of one hash, at the options it was made with."""

    __slots__ = ("executable", "key", "last_used", "options")

    def __init__(self, executable: Run, options: Options, key: Any) -> None:
        self.executable = executable
        self.options = options
        self.key = key
        self.last_used = 0


class OnnxBackend:
    """Runs StagedPrograms on ONNX Runtime and writes them as ONNX."""

    def __init__(self) -> None:
        self._bound: weakref.WeakKeyDictionary[Program, _Entry] = weakref.WeakKeyDictionary()
        self._entries: dict[Any, _Entry] = {}
        self._building: dict[Any, threading.Lock] = {}
        self._lock = threading.Lock()
        self._clock = itertools.count(1)

    def run(self, staged: StagedProgram, arrays: Sequence[Array]) -> list[Array]:
        """The outputs, as fresh writable arrays that share memory with nothing."""
        options = current_options()
        entry = self._bound.get(staged.program)
        if entry is None or entry.options is not options:
            if options.check_numerics or options.verify_shapes:
                return evaluate_checked(staged.program, arrays, numerics=options.check_numerics, shapes=options.verify_shapes)
            entry = self._bind(staged, options)
        entry.last_used = next(self._clock)
        return entry.executable(arrays, staged.name)

    def to_onnx(self, staged: StagedProgram, *, opset: int | None = None, target: str = "onnx") -> Any:
        """The program, after its passes, as an onnx.ModelProto with its pytree paths as names."""
        return lower(
            staged.optimized[0],
            staged.in_names,
            staged.out_names,
            opset=opset,
            target=target,
            name=staged.name or "program",
        )

    def profile(self, staged: StagedProgram, arrays: Sequence[Array]) -> Profile:
        """Where the time of a run goes, by operator and by source line."""
        model = _ExecutionModel(staged.optimized[0], current_options())
        feeds = dict(zip(model.in_names, arrays, strict=True))
        return profile_session(model.session, lambda session: session.run(model.out_names, feeds))

    def run_operator(self, operator: Operator, arrays: Sequence[Array | None], dtypes: Sequence[DType]) -> list[Array]:
        """The outputs of one ONNX operator, on the CPU."""
        return run_operator(operator, arrays, dtypes)

    def save(self, staged: StagedProgram, path: Any, **options: Any) -> Any:
        """Verify the program and write it; see `StagedProgram.save`."""
        return save(staged, path, **options)

    def load(self, path: Any) -> StagedProgram:
        """The program that `save` wrote."""
        return load(path)

    def _bind(self, staged: StagedProgram, options: Options) -> _Entry:
        """Find or make the session of a program."""
        key = (
            staged.hash,
            options.provider,
            options.device,
            options.threads,
            options.optimization,
            options.fallback,
            # User primitives may be declared anew under one name and version.
            tuple(p.generation for p in primitives_of(staged.program) if p.generation > 0),
        )
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        # One thread makes the session, the others wait for it.
        with building:
            entry = self._entries.get(key)
            if entry is None:
                entry = _Entry(self._make(staged, options), options, key)
            elif entry.options is not options:
                entry = _Entry(entry.executable, options, key)
            with self._lock:
                entry.last_used = next(self._clock)
                self._entries[key] = entry
                self._bound[staged.program] = entry
                self._building.pop(key, None)
                self._evict(options.sessions)
        return entry

    def _evict(self, limit: int) -> None:
        while len(self._entries) > limit:
            oldest = min(self._entries.values(), key=lambda e: e.last_used)
            del self._entries[oldest.key]
            for program in [p for p, e in self._bound.items() if e.executable is oldest.executable]:
                del self._bound[program]

    def _make(self, staged: StagedProgram, options: Options) -> Run:
        program = staged.optimized[0]
        if not program.outputs:
            return lambda arrays, name: []
        model = _ExecutionModel(program, options)
        return Executable(
            model.session(),
            model.in_names,
            model.out_names,
            (*program.in_specs, *program.out_specs),
            held=model.lowered.detached,
        )


class _ExecutionModel:
    """A program lowered to be run in this process. Names are positions: programs of one hash share it, whatever their arguments are called."""

    def __init__(self, program: Program, options: Options) -> None:
        self.options = options
        self.in_names = [f"i{i}" for i in range(len(program.inputs))]
        self.out_names = [f"o{i}" for i in range(len(program.outputs))]
        # The sizes of named dims are checked by the caller, and large constants are handed over as they are.
        # It stays in this process, so it may hold ONNX Runtime's own operators.
        self.lowered = lower_program(program, self.in_names, self.out_names, target="onnxruntime", guards=False, detach_above=_DETACH_ABOVE)
        self.libraries = libraries_of(program)
        nodes = len(self.lowered.model.graph.node)
        self.level = automatic_level(nodes) if options.optimization == "auto" else options.optimization
        self.threads = 1 if options.threads is None and _is_small(program) else options.threads

    def session(self, profile_prefix: str = "") -> Any:
        return make_session(
            self.lowered.model.SerializeToString(),
            self.options,
            level=self.level,
            threads=self.threads,
            constants=self.lowered.detached,
            profile_prefix=profile_prefix,
            libraries=self.libraries,
        )


def _is_small(program: Program) -> bool:
    values = [*program.inputs, *(v for eqn in program.equations for v in eqn.outputs)]
    return all(not isinstance(v.spec.size, Dim) and v.spec.size <= _SMALL for v in values) and not any(
        True for eqn in program.equations for _ in eqn.subprograms()
    )
