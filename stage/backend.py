"""The protocol between StagedPrograms and what runs, lowers and writes them.

`export` installs the ONNX Runtime backend; without one, programs run on the reference interpreter and cannot be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .dtypes import DType
from .errors import UnsupportedError
from .interpreter import evaluate
from .primitive import Array

if TYPE_CHECKING:
    from .staged import StagedProgram


class Operator(NamedTuple):
    """An ONNX operator: its domain ("" for the standard one), type, the domain's opset, attributes, and the shared object that has its kernel."""

    domain: str
    op_type: str
    version: int
    attributes: tuple[tuple[str, Any], ...] = ()
    library: str | None = None


class Backend(Protocol):
    """Executes and writes StagedPrograms. Arrays fit the program's flattened inputs (dtype, rank and sizes are checked before)."""

    def run(self, staged: StagedProgram, arrays: Sequence[Array]) -> list[Array]:
        """Outputs as fresh, writable arrays that share memory with nothing."""
        ...

    def to_onnx(self, staged: StagedProgram, *, opset: int | None, target: str) -> Any: ...

    def save(self, staged: StagedProgram, path: Any, **options: Any) -> Any: ...

    def load(self, path: Any) -> StagedProgram: ...

    def profile(self, staged: StagedProgram, arrays: Sequence[Array]) -> Any: ...

    def run_operator(self, operator: Operator, arrays: Sequence[Array | None], dtypes: Sequence[DType]) -> list[Array]:
        """The outputs, of these dtypes, of one ONNX operator; None stands for an absent optional operand."""
        ...


class ReferenceBackend:
    """Runs programs on the NumPy interpreter."""

    def run(self, staged: StagedProgram, arrays: Sequence[Array]) -> list[Array]:
        outputs = evaluate(staged.program, arrays)
        return [x.copy() for x in outputs]

    def _missing(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{what} needs the ONNX backend, which `import onstage` installs")

    def to_onnx(self, staged: StagedProgram, *, opset: int | None, target: str) -> Any:
        raise self._missing("to_onnx")

    def save(self, staged: StagedProgram, path: Any, **options: Any) -> Any:
        raise self._missing("save")

    def load(self, path: Any) -> StagedProgram:
        raise self._missing("load")

    def profile(self, staged: StagedProgram, arrays: Sequence[Array]) -> Any:
        raise self._missing("profile")

    def run_operator(self, operator: Operator, arrays: Sequence[Array | None], dtypes: Sequence[DType]) -> list[Array]:
        raise self._missing(f"the operator {operator.op_type}")


_backend: Backend = ReferenceBackend()


def install_backend(backend: Backend) -> None:
    """Called once by `onstage/__init__.py`."""
    global _backend
    _backend = backend


def backend() -> Backend:
    return _backend
