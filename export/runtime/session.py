"""Making ONNX Runtime sessions: provider, optimisation level, threads, and what to do when the optimiser fails."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...stage.config import Options
from ...stage.errors import OnstageError
from ...stage.nesting import primitives_of
from ...stage.primitive import Array
from ...stage.program import Program
from .._lazy import onnxruntime
from ..signatures import element_type
from .provider import providers

LEVELS: Final = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
# Making a session grows faster than the graph, and the optimiser's part fastest (measured: 22,500 nodes take 2.3 s without it, 20 s
# with all of it), while it gains little at run time.
_ALL_UP_TO: Final = 5_000
_BASIC_UP_TO: Final = 10_000
# A model that is wrong in itself: no other level would help.
_HOPELESS: Final = ("NotImplemented", "InvalidProtobuf", "NoSuchFile", "InvalidGraph", "NoModel")


class OptimizerWarning(RuntimeWarning):
    """ONNX Runtime's optimiser failed on a model, which runs at a lower level."""


def automatic_level(nodes: int) -> str:
    """The level for a graph of that many nodes."""
    return "all" if nodes <= _ALL_UP_TO else "basic" if nodes <= _BASIC_UP_TO else "none"


def available_threads() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_session(
    model: bytes | str,
    options: Options,
    *,
    level: str,
    threads: int | None = None,
    constants: Mapping[str, Array] | None = None,
    profile_prefix: str = "",
    libraries: Sequence[str] = (),
) -> Any:
    """An onnxruntime.InferenceSession of a serialised model or a path.

    level: one of LEVELS; where the optimiser fails at it the session is made at lower ones, with an OptimizerWarning.
    threads: overrides options.threads. constants: the data of initializers that the model only names; the arrays must outlive
    the session. profile_prefix: turns ONNX Runtime's profiler on. libraries: shared objects with custom operators. Raises ProviderError, or OnstageError where the model cannot be loaded at all.
    """
    chosen = providers(options)
    count = threads or options.threads or available_threads()
    attempts = [
        level,
        *[lower for lower in ("basic", "none") if list(LEVELS).index(lower) < list(LEVELS).index(level)],
    ]
    first: Exception | None = None
    for attempt in attempts:
        try:
            session = onnxruntime.InferenceSession(
                model,
                _session_options(attempt, count, constants or {}, profile_prefix, libraries),
                providers=chosen,
                enable_fallback=0,
            )
        except Exception as error:
            # ONNX Runtime's errors have no base class of their own.
            if type(error).__name__ in _HOPELESS:
                raise OnstageError(f"ONNX Runtime cannot load the model: {error}") from error
            first = first or error
            continue
        if first is not None:
            warnings.warn(
                f"ONNX Runtime's optimiser failed at level {level!r} and the model runs at {attempt!r}: {first}",
                OptimizerWarning,
                stacklevel=2,
            )
        session.disable_fallback()
        return session
    raise OnstageError(f"ONNX Runtime cannot load the model: {first}") from first


def _session_options(level: str, threads: int, constants: Mapping[str, Array], profile_prefix: str, libraries: Sequence[str]) -> Any:
    # Sessions have pools of their own: once a process has ONNX Runtime's global pool, every session that other code makes with
    # default options fails (measured on 1.31.1). They stop spinning when a run ends, so that idle ones cost nothing.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if constants:
        make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        values = [make(array, element_type(array.dtype)) for array in constants.values()]
        options.add_external_initializers(list(constants), values)
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    register_libraries(options, libraries)
    return options


def register_libraries(options: Any, libraries: Sequence[str]) -> None:
    """Make shared objects with custom operators known to the sessions of these options. Raises OnstageError naming one that does not load."""
    for path in libraries:
        try:
            options.register_custom_ops_library(path)
        except Exception as error:
            # ONNX Runtime's errors have no base class of their own.
            raise OnstageError(f"ONNX Runtime cannot load the custom-operator library {path}: {error}") from error


def libraries_of(program: Program) -> tuple[str, ...]:
    """The shared objects that the sessions of a Program need."""
    return tuple(dict.fromkeys(p.library for p in primitives_of(program) if p.library is not None))
