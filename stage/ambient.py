"""Ambient randomness is refused while staging: it would be drawn once and become a constant of the program.

For as long as a function is staged, the functions of `numpy.random` are replaced by ones that raise on a thread that is tracing and
pass through on others; and the state of NumPy's global generator must be the same afterwards, whatever name it was reached by.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .errors import TracingError
from .trace import is_tracing

_lock = threading.Lock()
_active = 0
_originals: dict[str, Callable[..., Any]] = {}


def _message(name: str) -> str:
    return (
        f"np.random.{name} while staging: the value would be drawn once and be a constant of the program; "
        "use onstage.random with an explicit key, or draw outside and pass the array as an argument"
    )


def _guard(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            raise TracingError(_message(name))
        return original(*args, **kwargs)

    return guarded


def _functions() -> dict[str, Callable[..., Any]]:
    """default_rng and the functions of the global generator; classes and what only reads the state are left alone."""
    names = [n for n in np.random.__all__ if n not in ("get_state", "set_state")]
    found = {n: getattr(np.random, n) for n in names}
    return {n: f for n, f in found.items() if callable(f) and not isinstance(f, type)}


@contextmanager
def no_ambient_randomness() -> Generator[None]:
    """Raise TracingError where the code inside draws from `numpy.random` while it is traced on this thread."""
    global _active
    with _lock:
        _active += 1
        if _active == 1:
            _originals.update(_functions())
            for name, original in _originals.items():
                setattr(np.random, name, _guard(name, original))
    before = _fingerprint()
    try:
        yield
        if _fingerprint() != before and threading.active_count() == 1:
            raise TracingError(_message("a function of the global generator"))
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                for name, original in _originals.items():
                    setattr(np.random, name, original)
                _originals.clear()


def _fingerprint() -> tuple[Any, ...]:
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002, the legacy generator is what is watched
    if "key" not in state["state"]:
        return (repr(state),)
    return (state["bit_generator"], state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"], state["gauss"])
