"""What is supported, as far as declarations tell it: the NumPy callables, our functions for them, and the primitives' rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .exclusions import EXCLUSIONS
from .registry import NUMPY

_MODULES = (("np", np), ("np.linalg", np.linalg), ("np.fft", np.fft))


def numpy_callables() -> Iterator[tuple[str, Any]]:
    """(name, callable) of NumPy's ufuncs and of its functions that hand traced arrays over, each once, under the name it calls itself."""
    for prefix, module in _MODULES:
        for name in sorted(dir(module)):
            value = getattr(module, name)
            is_dispatching = isinstance(value, np.ufunc) or hasattr(value, "_implementation")
            own = getattr(module, getattr(value, "__name__", name), None)
            if not name.startswith("_") and is_dispatching and (own is not value or value.__name__ == name):
                yield f"{prefix}.{name}", value


def is_staged(function: Any) -> bool:
    """Whether a NumPy callable takes traced arrays."""
    return function in NUMPY and function not in EXCLUSIONS
