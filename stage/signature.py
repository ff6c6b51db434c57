"""Signatures: how a call's arguments become the flat inputs of a Program, and what is said when they do not fit.

Arguments are kept in the order of the function's parameters; a leaf's path (`params['w1']`) names it in messages and its file
name (`params.w1`) names it in an artifact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import tree
from .dims import Dim, is_name, names_of
from .dtypes import as_dtype, kind_rank, python_scalar_dtype, short_name
from .errors import DTypeError, ProgramError, ShapeError, SignatureTypeError, SignatureValueError
from .interpreter import as_array, bind_dims, concrete_shape
from .names import file_names, input_roots
from .narrowing import is_numpy
from .primitive import Array
from .spec import ArraySpec, StaticSpec, make_spec, require_plain
from .tracer import Tracer

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def python_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The function's signature; any arguments where Python does not know it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        parameters = [
            inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
            inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
        ]
        return inspect.Signature(parameters)


class Signature:
    """The flat inputs of a program and the way back: parameters, tree, paths, file names, specs, static values."""

    def __init__(self, parameters: Sequence[inspect.Parameter], values: Sequence[Any], name: str) -> None:
        """values: one for each parameter, trees of ArraySpecs and StaticSpecs (a tuple for *args, a dict for **kwargs)."""
        self.name = name
        self.parameters = tuple(p.replace(default=inspect.Parameter.empty) for p in parameters)
        self.argument_names = tuple(p.name for p in self.parameters)
        self.static_arguments = {p.name: v.value for p, v in zip(self.parameters, values, strict=True) if isinstance(v, StaticSpec)}
        kept = [(p, v) for p, v in zip(self.parameters, values, strict=True) if not isinstance(v, StaticSpec)]
        self.dynamic_names = tuple(p.name for p, _ in kept)
        entries, self.tree = tree.flatten_with_paths(tuple(v for _, v in kept))
        self.statics = {i: leaf.value for i, (_, leaf) in enumerate(entries) if isinstance(leaf, StaticSpec)}
        paths = [path for path, _ in entries]
        self.leaf_paths = tuple(tree.path_text(p[1:], self.dynamic_names[argument_index(p)]) for p in paths)
        dynamic = [i for i in range(len(entries)) if i not in self.statics]
        self.paths = tuple(self.leaf_paths[i] for i in dynamic)
        roots = input_roots(self.dynamic_names)
        self.file_names = file_names([(roots[argument_index(paths[i])], paths[i][1:]) for i in dynamic])
        self.specs: tuple[ArraySpec, ...] = tuple(entries[i][1] for i in dynamic)
        # Inputs whose arrays fit when dtype and shape are equal: comparing an int with a symbolic dim would raise.
        self._plain = frozenset(i for i, spec in enumerate(self.specs) if spec.is_static and not spec.weak)
        self._has_dims = any(not spec.is_static for spec in self.specs)
        self._simple = not self.static_arguments and all(p.kind in _POSITIONAL for p in self.parameters)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The dynamic arguments of a call, in order; SignatureTypeError for missing, extra or repeated ones."""
        if self._simple and not kwargs and len(args) == len(self.parameters):
            return args
        try:
            bound = inspect.Signature(self.parameters).bind(*args, **kwargs)
        except TypeError as error:
            wanted = ", ".join(self.argument_names) or "no arguments"
            raise SignatureTypeError(f"{self.name}: {error}; it was staged for ({wanted})") from None
        except ValueError as error:
            raise SignatureTypeError(f"{self.name}: {error}") from None
        values: list[Any] = []
        for parameter in self.parameters:
            empty: Any = () if parameter.kind is inspect.Parameter.VAR_POSITIONAL else {}
            value = bound.arguments.get(parameter.name, empty)
            if parameter.name in self.static_arguments:
                self._check_static(parameter.name, self.static_arguments[parameter.name], value)
            else:
                values.append(value)
        return tuple(values)

    def _check_static(self, path: str, wanted: Any, got: Any) -> None:
        got = got.value if isinstance(got, StaticSpec) else got
        if type(got) is not type(wanted) or got != wanted:
            raise SignatureValueError(
                f"{self.name}: static argument {path} was staged as {wanted!r}, got {got!r}; stage the function anew for it"
            )

    def flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The dynamic leaves of a call."""
        values = self.arguments(args, kwargs)
        leaves, treedef = tree.flatten(values)
        if treedef != self.tree:
            raise SignatureTypeError(f"{self.name}: {self._tree_difference(treedef)}")
        if not self.statics:
            return leaves
        for i, wanted in self.statics.items():
            self._check_static(self.leaf_paths[i], wanted, leaves[i])
        return [leaf for i, leaf in enumerate(leaves) if i not in self.statics]

    def _tree_difference(self, got: tree.TreeDef) -> str:
        difference = tree.difference(self.tree, got) or f"expected the tree {self.tree}, got {got}"
        for i, name in enumerate(self.dynamic_names):
            if difference.startswith(f"[{i}]"):
                return name + difference[len(f"[{i}]") :]
        return difference

    def call(self, function: Callable[..., Any], leaves: Sequence[Any]) -> Any:
        """Call the Python function with leaves put back into its arguments."""
        full = list(leaves)
        for i in sorted(self.statics):
            full.insert(i, self.statics[i])
        values = dict(zip(self.dynamic_names, tree.unflatten(self.tree, full), strict=True))
        values.update(self.static_arguments)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self.parameters:
            value = values[parameter.name]
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return function(*args, **kwargs)

    def arrays(self, leaves: Sequence[Any]) -> list[Array]:
        """The leaves of a call as arrays of exactly the staged dtypes, ranks and sizes."""
        arrays = [self.array_at(i, leaf) for i, leaf in enumerate(leaves)]
        if self._has_dims:
            self._check_dims(arrays)
        return arrays

    def array_at(self, index: int, leaf: Any) -> Array:
        """The leaf of one input as an array that fits its spec, but for how its names relate to those of other inputs."""
        spec = self.specs[index]
        if type(leaf) is np.ndarray and leaf.dtype is spec.dtype and index in self._plain and leaf.shape == spec.shape:
            return leaf
        if is_numpy(leaf) or hasattr(leaf, "__array__"):
            try:
                array = as_array(leaf)
                as_dtype(array.dtype, self.paths[index])
            except DTypeError as error:
                raise SignatureTypeError(f"{self.name}: {error.message}") from None
            if array.dtype != spec.dtype:
                raise SignatureValueError(f"{self.name}: {self.paths[index]} has dtype {array.dtype.name}, staged for {spec.dtype.name}")
            self._check_shape(index, array)
            return array
        if isinstance(leaf, bool | int | float):
            return self._number(index, leaf)
        raise SignatureTypeError(f"{self.name}: {self.paths[index]} is {type(leaf).__name__}, not an array")

    def _number(self, index: int, value: bool | int | float) -> Array:
        spec = self.specs[index]
        if spec.shape != ():
            raise SignatureValueError(f"{self.name}: {self.paths[index]} is a number, staged for {spec!r}")
        if kind_rank(python_scalar_dtype(value)) > kind_rank(spec.dtype):
            raise SignatureValueError(
                f"{self.name}: {self.paths[index]} is {type(value).__name__} {value!r}, staged for {short_name(spec.dtype)}"
            )
        if spec.dtype.kind in "iu":
            limits = np.iinfo(spec.dtype)
            if not limits.min <= value <= limits.max:
                raise OverflowError(f"{self.name}: {self.paths[index]}: Python integer {value} out of bounds for {spec.dtype.name}")
        return np.asarray(value, spec.dtype)

    def _check_shape(self, index: int, array: Array) -> None:
        spec = self.specs[index]
        fits = array.ndim == len(spec.shape) and all(isinstance(d, Dim) or d == n for d, n in zip(spec.shape, array.shape, strict=True))
        if not fits:
            raise SignatureValueError(f"{self.name}: {self.paths[index]} has shape {array.shape}, staged for {spec!r}")

    def _check_dims(self, arrays: Sequence[Array]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for path, spec, array in zip(self.paths, self.specs, arrays, strict=True):
            for dim, size in zip(spec.shape, array.shape, strict=True):
                if is_name(dim):
                    have = sizes.setdefault(str(dim), (size, path))
                    if have[0] != size:
                        raise SignatureValueError(
                            f"{self.name}: dim {dim} is {have[0]} in {have[1]} and {size} in {path}; equal names mean equal sizes"
                        )
        known = bind_dims(self.specs, [a.shape for a in arrays])
        for path, spec, array in zip(self.paths, self.specs, arrays, strict=True):
            if array.shape != concrete_shape(spec.shape, known):
                raise SignatureValueError(f"{self.name}: {path} has shape {array.shape}, staged for {spec!r} with {known}")

    def values(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The arguments' trees by name, with these dynamic leaves and StaticSpecs for the static values."""
        full = list(leaves)
        for i in sorted(self.statics):
            full.insert(i, StaticSpec(self.statics[i]))
        values = dict(zip(self.dynamic_names, tree.unflatten(self.tree, full), strict=True))
        values.update({name: StaticSpec(value) for name, value in self.static_arguments.items()})
        return values

    def with_specs(self, specs: Sequence[ArraySpec]) -> Signature:
        """The same arguments with other specs."""
        values = self.values(specs)
        return Signature(self.parameters, [values[p.name] for p in self.parameters], self.name)

    def without(self, removed: set[int], specs: Sequence[ArraySpec]) -> Signature:
        """The signature left when some inputs are taken out; `specs` replace those of all inputs."""
        values = self.values([_REMOVED if i in removed else spec for i, spec in enumerate(specs)])
        pruned = {name: _prune(value) for name, value in values.items()}
        kept = [p for p in self.parameters if pruned[p.name] is not _REMOVED]
        if len(kept) < len(self.parameters):
            # what follows a removed positional argument may be given by position or by keyword all the same
            kept = [p.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) if p.kind in _POSITIONAL else p for p in kept]
        return Signature(kept, [pruned[p.name] for p in kept], self.name)


class _Removed:
    """Stands for a frozen leaf while a tree is pruned."""


_REMOVED = _Removed()


def _prune(value: Any) -> Any:
    """The tree without removed leaves: dict entries go, None stands elsewhere; _REMOVED if nothing else was in it."""
    if not any(isinstance(leaf, _Removed) for leaf in tree.leaves(value)):
        return value
    if all(isinstance(leaf, _Removed) for leaf in tree.leaves(value)):
        return _REMOVED
    if isinstance(value, dict):
        entries: dict[Any, Any] = {**value}
        pruned = {k: _prune(v) for k, v in entries.items()}
        return {k: v for k, v in pruned.items() if v is not _REMOVED}
    leaves, treedef = tree.flatten(value)
    return tree.unflatten(treedef, [None if isinstance(leaf, _Removed) else leaf for leaf in leaves])


def argument_index(path: tree.Path) -> int:
    """The argument that a path into the tuple of all arguments starts with."""
    first = path[0]
    if not isinstance(first, tree.Index):
        raise ProgramError(f"{first!r} is no argument")
    return first.index


def leaf_spec(leaf: Any, path: str) -> ArraySpec | StaticSpec:
    """The spec meant by one leaf of examples or specs; TypeError naming the argument for what cannot be staged."""
    if isinstance(leaf, ArraySpec | StaticSpec):
        return leaf
    if isinstance(leaf, Tracer):
        return leaf.spec
    if is_numpy(leaf):
        require_plain(leaf, path)
        return make_spec(leaf.shape, as_dtype(leaf.dtype, path))
    if isinstance(leaf, bool | int | float | complex):
        try:
            dtype = python_scalar_dtype(leaf)
        except DTypeError as error:
            raise DTypeError(f"{path}: {error.message}") from None
        return make_spec((), dtype, not isinstance(leaf, bool))
    if hasattr(leaf, "__array__") and not isinstance(leaf, type):
        array = np.asarray(leaf)
        return make_spec(array.shape, as_dtype(array.dtype, path))
    raise SignatureTypeError(
        f"{path} is {type(leaf).__name__} {leaf!r}, which is neither an array nor a number; pass compile-time values as ons.StaticSpec(value)"
    )


def check_names(signature: Signature) -> None:
    """ShapeError for a dim name that never stands alone as a dim of an input: its size could not be told."""
    alone = {str(d) for s in signature.specs for d in s.shape if is_name(d)}
    for path, spec in zip(signature.paths, signature.specs, strict=True):
        for dim in spec.shape:
            if isinstance(dim, Dim) and not set(names_of(dim)) <= alone:
                missing = ", ".join(sorted(set(names_of(dim)) - alone))
                raise ShapeError(
                    f"{path}: the size of {missing} in dim {dim} cannot be told; a name must stand alone as a dim of some input"
                )
