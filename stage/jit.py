"""jit: a function that is staged for each signature it is called with, and then runs staged."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from . import tree
from .errors import SignatureTypeError
from .narrowing import is_array
from .signature import leaf_spec, python_signature
from .spec import StaticSpec
from .staged import StagedProgram
from .staging import stage
from .trace import is_tracing
from .tracer import Tracer


class JitFunction:
    """What `jit` gives: callable like the function; `programs()` lists what has been staged, the last used last."""

    def __init__(self, function: Callable[..., Any], static: Sequence[str], donate: Sequence[str], limit: int) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._signature = python_signature(function)
        self._static = frozenset(static)
        self._donate = tuple(donate)
        self._limit = limit
        self._programs: OrderedDict[Any, StagedProgram] = OrderedDict()
        self._lock = threading.Lock()
        unknown = self._static - set(self._signature.parameters)
        if unknown:
            raise TypeError(f"jit: static_argnames names {', '.join(sorted(unknown))}, which is no parameter of {self.__name__}")

    __name__: str

    def programs(self) -> list[StagedProgram]:
        """The staged programs, one a signature."""
        with self._lock:
            return list(self._programs.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program of this call's signature; with traced arguments the function is traced as it is."""
        if is_tracing() and any(isinstance(x, Tracer) for x in tree.leaves((args, kwargs))):
            return self._function(*args, **kwargs)
        return self.lower(*args, **kwargs)(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> StagedProgram:
        """The program for these arguments, staged if it is not known yet."""
        key = self._key(args, kwargs)
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                return program
        program = self._stage(args, kwargs)
        with self._lock:
            self._programs[key] = program
            if len(self._programs) > self._limit:
                self._programs.popitem(last=False)
        return program

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        static: list[Any] = []
        if self._static:
            bound = self._signature.bind(*args, **kwargs)
            static = [(n, type(bound.arguments[n]), bound.arguments[n]) for n in sorted(self._static & set(bound.arguments))]
            args, kwargs = (), {n: v for n, v in bound.arguments.items() if n not in self._static}
        leaves, treedef = tree.flatten((args, kwargs))
        try:
            return (treedef, tuple([_leaf_key(x) for x in leaves]), tuple(static), hash(tuple(static)))
        except TypeError as error:
            raise SignatureTypeError(f"jit of {self.__name__}: static arguments must be hashable: {error}") from None

    def _stage(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StagedProgram:
        bound = self._signature.bind(*args, **kwargs)
        for name in self._static & set(bound.arguments):
            bound.arguments[name] = StaticSpec(bound.arguments[name])
        return stage(self._function, specs=bound.args, kw_specs=bound.kwargs, donate_argnames=self._donate, name=self.__name__)


def _leaf_key(leaf: Any) -> Any:
    if is_array(leaf):
        return (leaf.shape, leaf.dtype)
    return leaf_spec(leaf, "argument")


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnames: Sequence[str] | str = (),
    donate_argnames: Sequence[str] = (),
    max_signatures: int = 64,
) -> Any:
    """A function that is staged once for each signature (trees, shapes, dtypes, static values) and then runs staged.

    static_argnames: arguments handed over as plain values; they must be hashable. max_signatures: how many programs are kept, the least
    recently used goes first. Usable as a decorator, with and without arguments.
    """
    static = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if max_signatures < 1:
        raise ValueError(f"jit: max_signatures is at least 1, got {max_signatures}")
    if function is None:

        def decorator(f: Callable[..., Any]) -> JitFunction:
            return JitFunction(f, static, donate_argnames, max_signatures)

        return decorator
    return JitFunction(function, static, donate_argnames, max_signatures)
