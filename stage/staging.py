"""stage(): a Python function and examples or specs of its arguments become a StagedProgram."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, overload

import numpy as np

from . import tree
from .ambient import no_ambient_randomness
from .dims import Dim
from .errors import TracingError, UnsupportedError
from .narrowing import is_numpy
from .signature import Signature, check_names, leaf_spec, python_signature
from .spec import ArraySpec
from .staged import StagedProgram
from .trace import trace_program
from .tracer import Tracer

_EXAMPLE_BYTES: Final = 16 << 20


@overload
def stage(
    function: Callable[..., Any], *examples: Any, specs: Sequence[Any] | None = None, kw_specs: Mapping[str, Any] | None = None,
    mesh: Any = None, donate_argnames: Sequence[str] = (), name: str | None = None,
) -> StagedProgram: ...  # fmt: skip
@overload
def stage(
    function: None = None, *, specs: Sequence[Any] | None = None, kw_specs: Mapping[str, Any] | None = None,
    mesh: Any = None, donate_argnames: Sequence[str] = (), name: str | None = None,
) -> Callable[[Callable[..., Any]], StagedProgram]: ...  # fmt: skip
def stage(
    function: Callable[..., Any] | None = None,
    *examples: Any,
    specs: Sequence[Any] | None = None,
    kw_specs: Mapping[str, Any] | None = None,
    mesh: Any = None,
    donate_argnames: Sequence[str] = (),
    name: str | None = None,
) -> StagedProgram | Callable[[Callable[..., Any]], StagedProgram]:
    """Trace a function once and give it back as a StagedProgram.

    examples: arguments of the shapes and dtypes to stage for (their values do not matter), or `specs`, a tuple of trees of ArraySpec
    for the positional arguments, and `kw_specs` for those given by keyword. StaticSpec leaves are compile-time values. A parameter
    with a default that is not given keeps it as a constant. Used as a decorator when no function is given:
    `@ons.stage(specs=(ons.ArraySpec(("B", 784), "f32"),))`.

    donate_argnames: arguments whose memory the program may reuse when they are device arrays.
    Raises TypeError naming the argument for what cannot be staged, TracingError and its kinds for code that cannot be recorded.
    """
    if function is None:
        if examples:
            raise TypeError("stage: examples need a function before them")

        def decorator(f: Callable[..., Any]) -> StagedProgram:
            return _stage(f, (), specs, kw_specs, mesh, donate_argnames, name)

        return decorator
    if not callable(function):
        raise TypeError(f"stage: {type(function).__name__} is not callable; the function comes first, its example arguments after it")
    return _stage(function, examples, specs, kw_specs, mesh, donate_argnames, name)


def _stage(
    function: Callable[..., Any],
    examples: tuple[Any, ...],
    specs: Sequence[Any] | None,
    kw_specs: Mapping[str, Any] | None,
    mesh: Any,
    donate: Sequence[str],
    name: str | None,
) -> StagedProgram:
    if mesh is not None:
        raise UnsupportedError("stage: sharding over a mesh is not supported yet")
    if examples and specs is not None:
        raise TypeError("stage: give example arguments or specs, not both")
    if isinstance(specs, Mapping) or (specs is not None and not isinstance(specs, tuple | list)):
        raise TypeError("stage: specs is a tuple with one tree of specs a positional argument; keywords go to kw_specs")
    label = name or getattr(function, "__name__", None) or type(function).__name__
    signature = bind_specs(function, examples if specs is None else tuple(specs), kw_specs or {}, label)
    check_names(signature)
    for argument in donate:
        if argument not in signature.argument_names:
            raise TypeError(f"stage: donate_argnames names {argument!r}, which is no argument of {label}")
    out_trees: list[tree.TreeDef] = []

    def flat(*leaves: Any) -> Sequence[Any]:
        outputs, out_tree = flatten_result(signature.call(function, leaves), label)
        out_trees.append(out_tree)
        return outputs

    example = Example.of(signature, examples, kw_specs) if specs is None else None
    with no_ambient_randomness():
        traced = trace_program(flat, signature.specs, name=label)
    if traced.captured:
        raise TracingError(f"stage: {label} uses an array that is being traced outside it; pass it as an argument")
    return StagedProgram(traced.program, signature, out_trees[0], donate=donate, example=example)


class Example:
    """The example a program was staged with, which verification runs on; large arrays are not kept alive for it."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        small = sum(x.nbytes for x in leaves) <= _EXAMPLE_BYTES
        self._leaves: list[Any] = [x.copy() if small else weakref.ref(x) for x in leaves]

    @staticmethod
    def of(signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Example | None:
        """None where the program was staged from specs."""
        if not args and not kwargs:
            return None
        leaves = signature.flatten(args, kwargs or {})
        if any(isinstance(leaf, ArraySpec | Tracer) for leaf in leaves):
            return None
        return Example(signature.arrays(leaves))

    def arrays(self) -> list[Any] | None:
        """The arrays, None if one of them is gone."""
        found: list[Any] = [x() if isinstance(x, weakref.ref) else x for x in self._leaves]
        return None if any(x is None for x in found) else found


def bind_specs(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], label: str) -> Signature:
    """The Signature for examples or specs of the arguments that are given."""
    python = python_signature(function)
    try:
        bound = python.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"stage: {label}: {error}; give an example or spec for each argument without a default") from None
    parameters: list[inspect.Parameter] = []
    values: list[Any] = []
    for name, value in bound.arguments.items():
        parameters.append(python.parameters[name])
        values.append(specs_of_tree(value, name))
    return Signature(parameters, values, label)


def specs_of_tree(value: Any, root: str) -> Any:
    """A tree of examples or specs as a tree of ArraySpec and StaticSpec."""
    entries, treedef = tree.flatten_with_paths(value)
    return tree.unflatten(treedef, [leaf_spec(leaf, tree.path_text(path, root)) for path, leaf in entries])


def flatten_result(result: Any, label: str) -> tuple[list[Any], tree.TreeDef]:
    """The result's leaves, each something a trace has an atom for; TracingError naming the path of one that is no array."""
    entries, treedef = tree.flatten_with_paths(result)
    return [result_leaf(leaf, tree.path_text(path, "out"), label) for path, leaf in entries], treedef


def result_leaf(leaf: Any, path: str, label: str) -> Any:
    if is_numpy(leaf):
        leaf_spec(leaf, f"{label}: {path}")
        return leaf
    if isinstance(leaf, Tracer | bool | int | float):
        return leaf
    if isinstance(leaf, Dim):
        return leaf + np.asarray(0)
    if hasattr(leaf, "__array__") and not isinstance(leaf, type):
        return np.asarray(leaf)
    raise TracingError(f"{label}: {path} is {type(leaf).__name__}, which is no array; return arrays, numbers, or trees of them")


def eval_shape(function: Callable[..., Any], *specs: Any, **kw_specs: Any) -> Any:
    """The specs of a function's result for arguments of these specs (or examples), without computing anything."""
    label = getattr(function, "__name__", type(function).__name__)
    signature = bind_specs(function, specs, kw_specs, label)
    out_trees: list[tree.TreeDef] = []

    def flat(*leaves: Any) -> Sequence[Any]:
        outputs, out_tree = flatten_result(signature.call(function, leaves), label)
        out_trees.append(out_tree)
        return outputs

    program = trace_program(flat, signature.specs, name=label).program
    return tree.unflatten(out_trees[0], list(program.out_specs))


__all__ = ["eval_shape", "stage"]
