"""Calling a session on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...stage.dtypes import DType
from ...stage.errors import OnstageError
from ...stage.primitive import Array
from ...stage.spec import ArraySpec
from .._lazy import onnxruntime
from ..signatures import element_type

# What ONNX Runtime says of an index that NumPy would raise IndexError for.
_INDEX_ERRORS: Final = ("out of data bounds", "out of bounds", "indices element", "invalid index found", "invalid indice found")


class Executable:
    """A session with the names and dtypes of its program: call it with arrays in order, on any thread.

    Results are ONNX Runtime's own memory, which it allocates for each run and hands over: they are writable and shared with nothing.
    """

    def __init__(
        self,
        session: Any,
        in_names: Sequence[str],
        out_names: Sequence[str],
        specs: Sequence[ArraySpec],
        held: object = None,
    ) -> None:
        """specs: of the inputs, then of the outputs; held: what must live as long as the session."""
        self.session = session
        self._held = held
        self._in_names = tuple(in_names)
        self._out_names = list(out_names)
        self._dtypes = tuple(s.dtype for s in specs)
        self._run: Callable[..., Any] = session._sess.run
        half = any(s.dtype.name == "bfloat16" for s in specs)
        self._through_ort_values = half

    def __call__(self, arrays: Sequence[Array], name: str) -> list[Array]:
        """The outputs; name: of the program, for messages. Inputs may have any strides; foreign byte order is converted.

        Raises IndexError for an index out of bounds, else OnstageError; the text names the node, and with it the user's line.
        """
        arrays = [a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("=")) for a in arrays]
        try:
            if self._through_ort_values:
                return self._run_ort_values(arrays)
            return self._run(self._out_names, dict(zip(self._in_names, arrays, strict=True)), None)
        except Exception as error:
            # ONNX Runtime's errors have no base class of their own.
            raise _translated(name, error) from error

    def _run_ort_values(self, arrays: Sequence[Array]) -> list[Array]:
        """For programs with bfloat16 inputs or outputs, which `run` does not take."""
        make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        # ONNX Runtime reads the arrays' memory: they must be contiguous, and live until the run has ended.
        held = [np.require(a, requirements="C").reshape(a.shape) for a in arrays]
        feed = {n: make(a, element_type(a.dtype))._ortvalue for n, a in zip(self._in_names, held, strict=True)}
        results = self.session._sess.run_with_ort_values(feed, self._out_names, None)
        outputs = self._dtypes[len(arrays) :]
        return [_read(results[i], dtype) for i, dtype in enumerate(outputs)]


def _read(value: Any, dtype: DType) -> Array:
    """A copy of an OrtValue on the CPU."""
    array: Array = np.empty(tuple(value.shape()), dtype=dtype)
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
    return array


def _translated(name: str, error: Exception) -> Exception:
    text = str(error)
    if any(phrase in text for phrase in _INDEX_ERRORS):
        return IndexError(f"{name}: an index is out of bounds: {text}")
    return OnstageError(f"{name}: ONNX Runtime failed: {text}")
