"""Where in the user's code an equation or an error comes from."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import NamedTuple

import numpy as np

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODELS = os.path.join(_PACKAGE, "models")
_COMMANDS = os.path.join(_PACKAGE, "export", "cli")
_NUMPY = os.path.dirname(os.path.abspath(np.__file__))


class Source(NamedTuple):
    """A line of user code: `file` as Python knows it, `line` from 1, `scope` the `ons.scope` names around it."""

    file: str
    line: int
    scope: str = ""

    @property
    def label(self) -> str:
        """`train.py:41`, free of directories, so that files do not depend on where the user keeps his code."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def describe(self) -> str:
        """`train.py:41: h = x @ w`, with the text of the line where it can be read."""
        text = linecache.getline(self.file, self.line).strip()
        return f"{self.label}: {text}" if text else self.label


_scope: ContextVar[str] = ContextVar("onstage_scope", default="")
# Of a file on the stack: the user's, ours or NumPy's, or of the command line. The frames around the last are those of its libraries.
_USER, _INTERNAL, _OUTERMOST = 0, 1, 2
_kinds: dict[str, int] = {}
_sources: dict[tuple[str, int, str], Source] = {}


def _kind_of(file: str) -> int:
    known = _kinds.get(file)
    if known is None:
        path = os.path.abspath(file)
        ours = path.startswith(_PACKAGE + os.sep) and not path.startswith(_MODELS + os.sep)
        known = _INTERNAL if ours or path.startswith(_NUMPY + os.sep) or file.startswith("<frozen ") else _USER
        if path.startswith(_COMMANDS + os.sep):
            known = _OUTERMOST
        _kinds[file] = known
    return known


def is_user_code(file: str) -> bool:
    """Whether a file is neither onstage's nor NumPy's; `file` as Python's frames have it."""
    return _kind_of(file) == _USER


def user_source() -> Source | None:
    """The innermost line on this thread's stack that is neither onstage's nor NumPy's; None above a verb of the command line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kinds.get(file)
        if kind is None:
            kind = _kind_of(file)
        if kind == _OUTERMOST:
            return None
        if kind == _USER:
            key = (file, frame.f_lineno, _scope.get())
            source = _sources.get(key)
            if source is None:
                source = _sources[key] = Source(*key)
            return source
        frame = frame.f_back
    return None


@contextmanager
def scope(name: str) -> Generator[None]:
    """Name the nodes that are made inside: `with ons.scope("layer1"): ...` gives `layer1/matmul@train.py:41`."""
    if not isinstance(name, str) or not name or "/" in name or "@" in name:
        raise ValueError(f"scope: a name without '/' and '@' is needed, got {name!r}")
    outer = _scope.get()
    token = _scope.set(f"{outer}/{name}" if outer else name)
    try:
        yield
    finally:
        _scope.reset(token)
