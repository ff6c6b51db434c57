"""From the words of `onstage export` to a program: the function, its arguments' specs, its parameters' values."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click
import numpy as np

from ...stage import tree
from ...stage.errors import OnstageError
from ...stage.signature import python_signature
from ...stage.spec import ArraySpec, StaticSpec
from .console import StagingFailed, innermost
from .weights import read_weights

_SPEC: Final = re.compile(r"(?P<dtype>[A-Za-z]\w*)\s*\[(?P<dims>.*)\]")
_WEAK: Final = {"int": 0, "float": 0.0}


def find_function(target: str) -> Callable[..., Any]:
    """What `pkg.mod:fn` or `path/file.py:fn` names; dots after the colon reach into classes and modules.

    Raises UsageError where there is no such module or name, StagingFailed where the module cannot be imported.
    """
    module, colon, name = target.rpartition(":")
    if not colon or not module or not name:
        raise click.UsageError(f"{target!r} names no function; write package.module:function or path/file.py:function")
    found: Any = _from_file(module) if module.endswith(".py") else _from_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            known = sorted(n for n, v in vars(found).items() if callable(v) and not n.startswith("_")) if hasattr(found, "__dict__") else []
            raise click.UsageError(f"{module} has no {name!r}; it has {', '.join(known[:20]) or 'no functions'}")
        found = getattr(found, part)
    if not callable(found):
        raise click.UsageError(f"{target} is {type(found).__name__}, not a function")
    return found


def _from_file(path: str) -> Any:
    file = os.path.abspath(path)
    if not os.path.isfile(file):
        raise click.UsageError(f"there is no file {path}")
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path} cannot be imported as a Python module")
    module = importlib.util.module_from_spec(spec)
    # As Python does for a script, so that it may import what stands beside it.
    sys.path.insert(0, os.path.dirname(file))
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(f"{path} cannot be imported", error) from error
    return module


def _from_module(name: str) -> Any:
    sys.path.insert(0, os.getcwd())
    try:
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(f"there is no module {error.name!r}, from {os.getcwd()} or installed") from None
        raise _failed(f"{name} cannot be imported", error) from error
    except ValueError as error:
        raise click.UsageError(f"{name!r} is no module name") from error
    except Exception as error:
        raise _failed(f"{name} cannot be imported", error) from error


def _failed(what: str, error: Exception) -> Exception:
    if isinstance(error, OnstageError):
        return error
    return StagingFailed(f"{what}: {type(error).__name__}: {error}", innermost(error))


def guarded(what: str, function: Callable[[], Any]) -> Any:
    """Call what runs the user's code; an exception of his own is reported with his line, without a traceback."""
    try:
        return function()
    except (OnstageError, click.ClickException):
        raise
    except Exception as error:
        raise _failed(what, error) from error


# ---- arguments


def read_spec(text: str) -> Any:
    """`f32[B,784]`, `i64[]`, or `int` and `float` for Python numbers."""
    if text in _WEAK:
        return _WEAK[text]
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise click.UsageError(f"{text!r} is no spec; write f32[B,784], i64[] for a scalar, or int or float for a Python number")
    dims = _split_dims(found["dims"])
    try:
        return ArraySpec([int(d) if d.lstrip("-").isdigit() else d for d in dims], found["dtype"])
    except OnstageError as error:
        raise click.UsageError(f"{text!r} is no spec: {error.message}") from error


def _split_dims(text: str) -> list[str]:
    """At the commas outside of parentheses: `max(B, 1),4`."""
    parts: list[str] = [""]
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    parts = [p.strip() for p in parts]
    if parts == [""]:
        return []
    if "" in parts:
        raise click.UsageError(f"[{text}] has an empty dim")
    return parts


def read_assignments(words: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` words by name."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise click.UsageError(f"{option} {word!r}: write name=value")
        if name.strip() in found:
            raise click.UsageError(f"{option}: {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found


def read_static(words: Sequence[str]) -> dict[str, Any]:
    """`n=3` words as compile-time values."""
    found: dict[str, Any] = {}
    for name, text in read_assignments(words, "--static").items():
        try:
            found[name] = StaticSpec(ast.literal_eval(text))
        except (ValueError, SyntaxError) as error:
            raise click.UsageError(f"--static {name}={text}: not a Python literal") from error
    return found


def nested(flat: Mapping[str, Any], what: str) -> Any:
    """Names joined by dots as a tree: dicts, and lists where the keys of a level are 0, 1, 2, ...; `what` is for messages."""
    root: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        level = root
        for key in path:
            level = level.setdefault(key, {})
            if not isinstance(level, dict):
                raise click.UsageError(f"{what}: {name} stands below an array of its own")
        if last in level:
            raise click.UsageError(f"{what}: {name} is both an array and a group of arrays")
        level[last] = value
    return _with_lists(root)


def _with_lists(level: Any) -> Any:
    if not isinstance(level, dict):
        return level
    children: dict[str, Any] = {key: _with_lists(value) for key, value in level.items()}
    if children and set(children) == {str(i) for i in range(len(children))}:
        return [children[str(i)] for i in range(len(children))]
    return children


def required_names(function: Callable[..., Any]) -> list[str]:
    """The parameters without a default, in order."""
    signature = python_signature(function)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [n for n, p in signature.parameters.items() if p.default is p.empty and p.kind not in kinds]


def weight_arguments(path: str, argument: str | None, free: Sequence[str]) -> dict[str, Any]:
    """The arrays of a weights file as arguments.

    argument: the one that they fill. Without it they fill those of `free`, the arguments not given otherwise, that their names begin
    with (`params.w1`), else the one called params, else the first.
    """
    arrays = read_weights(path)
    if not arrays:
        raise click.UsageError(f"{path} holds no arrays")
    if argument is None and {name.split(".")[0] for name in arrays} <= set(free):
        whole = nested(arrays, path)
        return {name: whole[name] for name in free if name in whole}
    if argument is None:
        if not free:
            raise click.UsageError(f"--params {path}: every argument is given by --arg; name the one it fills: --params NAME={path}")
        argument = "params" if "params" in free else free[0]
    elif argument not in free:
        raise click.UsageError(f"--params {argument}=...: no such argument, or given by --arg too; there are {', '.join(free) or 'none'}")
    whole = nested(arrays, path)
    # Named as our files name them, under the argument itself.
    return {argument: whole[argument] if isinstance(whole, dict) and set(whole) == {argument} else whole}


def as_specs(value: Any) -> Any:
    """A tree of arrays as a tree of specs."""
    return tree.map(lambda leaf: ArraySpec(leaf.shape, leaf.dtype) if isinstance(leaf, np.ndarray) else leaf, value)
