"""What a call of a user primitive means: its implementation run, traced or described, over flat operands and params.

An equation's params: `in_tree` (of the tuple of dynamic arguments; absent if they are single arrays), `static`, `weak` (the operands
that are Python numbers), `residual` (whether the residual's leaves, of which there are `hidden`, follow the output's), `outcome` (trees
and specs that were seen when the implementation ran, where no abstract rule tells them).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..stage import tree
from ..stage.dims import same_dim
from ..stage.dtypes import as_dtype
from ..stage.errors import (
    DTypeError,
    MissingRuleError,
    OnstageError,
    ShapeError,
    SignatureTypeError,
    TracingError,
    UnsupportedError,
)
from ..stage.interpreter import as_array
from ..stage.primitive import Array, Params, Rule
from ..stage.program import Program
from ..stage.spec import ArraySpec, make_spec, spec_of
from ..stage.staging import flatten_result
from ..stage.trace import trace_program
from ..stage.tracer import Tracer
from .custom_values import AbstractValue, PrimitiveResult, static_value
from .operands import cast, spec

_CAUSE_LENGTH: Final = 160


@dataclass(frozen=True)
class Declaration:
    """How a user primitive is called. variadic: the one dynamic argument is the tuple of all operands, and static ones are keywords."""

    name: str
    dynamic: tuple[str, ...]
    nondiff: frozenset[str] = frozenset()
    residual: bool = False
    version: int = 1
    variadic: bool = False
    library: str | None = None

    def call(self, function: Callable[..., Any], values: Sequence[Any], static: Mapping[str, Any]) -> Any:
        if self.variadic:
            return function(*values[0], **static)
        return function(**dict(zip(self.dynamic, values, strict=True)), **static)


@dataclass(frozen=True)
class Rules:
    """What was attached to a user primitive.

    forward: gives output and residual, where `function` gives the output alone. trees: derivative rules get the tree of the arguments as
    `in_tree`.
    """

    function: Callable[..., Any]
    abstract: Rule | None = None
    jvp: Rule | None = None
    transpose: Rule | None = None
    batch: Rule | None = None
    sharding: Rule | None = None
    onnx: Any = None
    forward: Callable[..., Any] | None = None
    reverse_only: str | None = None
    trees: bool = False


class Outcome(NamedTuple):
    """What a call gives: trees, and specs of their leaves. The residual's are None where there is none or nothing is known of it."""

    out_tree: tree.TreeDef
    out_specs: tuple[ArraySpec, ...]
    residual_tree: tree.TreeDef | None
    residual_specs: tuple[ArraySpec, ...] | None


class Implementation(NamedTuple):
    """An implementation as a Program: its outputs are the output's leaves, then the residual's where they are asked for."""

    program: Program
    outcome: Outcome


class _Inside(threading.local):
    """Whether this thread runs `Rules.forward`, which may call the primitive itself: then for its output alone."""

    forward = False


class CustomCall:
    """A declaration with its rules at one moment, and what is known of its calls."""

    def __init__(self, declaration: Declaration, rules: Rules) -> None:
        self.name = declaration.name
        self.declaration = declaration
        self.rules = rules
        self._inside = _Inside()
        self._outcomes: dict[Any, Outcome] = {}
        self._implementations: dict[Any, Implementation] = {}

    def in_tree(self, count: int, params: Params) -> tree.TreeDef:
        found = params.get("in_tree")
        return tree.structure(tuple([0] * count)) if found is None else found

    @staticmethod
    def static(params: Params) -> dict[str, Any]:
        return {entry[0]: static_value(entry) for entry in params.get("static", ())}

    def call(self, leaves: Sequence[Any], params: Params, function: Callable[..., Any]) -> Any:
        values = tree.unflatten(self.in_tree(len(leaves), params), list(leaves))
        outer = self._inside.forward
        self._inside.forward = outer or function is self.rules.forward
        try:
            return self.declaration.call(function, values, self.static(params))
        finally:
            self._inside.forward = outer

    def _function(self, params: Params) -> Callable[..., Any]:
        return self.rules.forward if params.get("residual") and self.rules.forward is not None else self.rules.function

    def wants_residual(self) -> bool:
        return self.declaration.residual and self.rules.transpose is not None and not self._inside.forward

    def split(self, result: Any, function: Callable[..., Any]) -> tuple[Any, Any]:
        """(output, residual) of what the implementation gave; TypeError if it is not what was declared."""
        declared = self.declaration.residual and (self.rules.forward is None or function is self.rules.forward)
        if isinstance(result, PrimitiveResult) != declared:
            raise SignatureTypeError(
                f"{self.name}: declared with residual={declared}, so the implementation must return "
                f"{'PrimitiveResult(output, residual)' if declared else 'the output'}; got {type(result).__name__}"
            )
        return (result.output, result.residual) if isinstance(result, PrimitiveResult) else (result, None)

    def run(self, arrays: Sequence[Array], params: Params) -> tuple[dict[str, Any], list[Array]]:
        """The implementation at once: the params with what was seen of its result, and the values of the equation's outputs."""
        full = {**params, "residual": True} if self.wants_residual() else dict(params)
        output, residual, (out_tree, residual_tree) = self.invoke(arrays, full)
        seen = Outcome(out_tree, _specs(output), None, None)
        if self.wants_residual():
            seen = Outcome(out_tree, _specs(output), residual_tree, _specs(residual))
            full["hidden"] = len(residual)
        if self.rules.abstract is None:
            full["outcome"] = tuple(seen)
        else:
            known = self.outcome(_weak_specs(arrays, params), params)
            self._hold_against(known, seen)
            if seen.residual_specs is not None and known.residual_specs is None:
                full["outcome"] = tuple(seen)
        return full, [*output, *residual] if full.get("residual") else output

    def invoke(self, arrays: Sequence[Array], params: Params) -> tuple[list[Array], list[Array], tuple[tree.TreeDef, tree.TreeDef]]:
        function = self._function(params)
        weak = set(params.get("weak", ()))
        leaves = [x.item() if i in weak and x.ndim == 0 else x for i, x in enumerate(arrays)]
        output, residual = self.split(self.call(leaves, params, function), function)
        out_leaves, out_tree = tree.flatten(output)
        residual_leaves, residual_tree = tree.flatten(residual)
        out_arrays = [self._array(x, "output") for x in out_leaves]
        return out_arrays, [self._array(x, "residual") for x in residual_leaves], (out_tree, residual_tree)

    def _array(self, leaf: Any, what: str) -> Array:
        if isinstance(leaf, Tracer):
            raise TracingError(f"{self.name}: its {what} hangs on a traced array from outside; pass it as an argument")
        array = as_array(leaf)
        as_dtype(array.dtype, f"{self.name}: its {what}")
        return array

    def _hold_against(self, known: Outcome, seen: Outcome) -> None:
        """Errors naming def_abstract where it says something else than the implementation did."""
        who = f"{self.name}: def_abstract says, the implementation gave"
        parts = [("the output", known.out_tree, known.out_specs, seen.out_tree, seen.out_specs)]
        if known.residual_tree is not None and seen.residual_tree is not None:
            parts.append(("the residual", known.residual_tree, known.residual_specs or (), seen.residual_tree, seen.residual_specs or ()))
        for what, known_tree, known_specs, seen_tree, seen_specs in parts:
            if known_tree != seen_tree:
                raise SignatureTypeError(f"{who} another tree for {what}: {tree.difference(known_tree, seen_tree)}")
            for i, (a, b) in enumerate(zip(known_specs, seen_specs, strict=True)):
                check_like(f"{self.name}: the implementation gave, def_abstract says for leaf {i} of {what}", b, a)

    def outcome(self, specs: Sequence[ArraySpec], params: Params) -> Outcome:
        """Trees and specs of the result, by the abstract rule or by tracing the implementation. MissingRuleError if neither can tell."""
        seen = params.get("outcome")
        if seen is not None:
            return Outcome(*seen)
        key = (tuple(specs), params.get("in_tree"), params.get("static"), params.get("weak"), self._inside.forward)
        found = self._outcomes.get(key)
        if found is None:
            found = self._outcomes[key] = self._find_outcome(specs, params)
        return found

    def _find_outcome(self, specs: Sequence[ArraySpec], params: Params) -> Outcome:
        if self.rules.abstract is None:
            return self.implementation(
                specs, {**params, "residual": True} if self.declaration.residual and not self._inside.forward else params
            ).outcome
        result = self.call([AbstractValue(s) for s in self._with_weakness(specs, params)], params, self.rules.abstract)
        residual: tuple[Any, ...] = (None, None)
        if isinstance(result, PrimitiveResult):
            if not self.declaration.residual:
                raise SignatureTypeError(f"{self.name}: its abstract rule gives a residual, but it was declared without residual=True")
            residual = self._abstract_leaves(result.residual, "residual")
            result = result.output
        return Outcome(*self._abstract_leaves(result, "output"), *residual)

    def _abstract_leaves(self, result: Any, what: str) -> tuple[tree.TreeDef, tuple[ArraySpec, ...]]:
        leaves, treedef = tree.flatten(result)
        if not leaves and what == "output":
            raise SignatureTypeError(f"{self.name}: its abstract rule gives no array")
        specs: list[ArraySpec] = []
        for path, leaf in zip(treedef.paths(), leaves, strict=True):
            found = getattr(leaf, "spec", None)
            if not isinstance(found, ArraySpec):
                raise SignatureTypeError(
                    f"{self.name}: its abstract rule gives {type(leaf).__name__} for {tree.path_text(path, what)}, not an ArraySpec or AbstractValue"
                )
            specs.append(make_spec(found.shape, found.dtype))
        return treedef, tuple(specs)

    @staticmethod
    def _with_weakness(specs: Sequence[ArraySpec], params: Params) -> list[ArraySpec]:
        weak = set(params.get("weak", ()))
        return [make_spec(s.shape, s.dtype, i in weak and s.shape == ()) for i, s in enumerate(specs)]

    def implementation(self, specs: Sequence[ArraySpec], params: Params) -> Implementation:
        """The implementation traced; MissingRuleError, saying which rules would do instead, if it is opaque."""
        key = (tuple(specs), params.get("in_tree"), params.get("static"), params.get("weak"), bool(params.get("residual")))
        found = self._implementations.get(key)
        if found is None:
            found = self._implementations[key] = self._trace(specs, params)
        return found

    def _trace(self, specs: Sequence[ArraySpec], params: Params) -> Implementation:
        function = self._function(params)
        trees: list[Any] = []

        def flat(*operands: Any) -> Sequence[Any]:
            wanted = self._with_weakness(specs, params)
            leaves = [cast(x, s.dtype, weak=s.weak) for x, s in zip(operands, wanted, strict=True)]
            output, residual = self.split(self.call(leaves, params, function), function)
            out_leaves, out_tree = flatten_result(output, self.name)
            residual_leaves, residual_tree = flatten_result(residual, self.name)
            trees.extend((out_tree, residual_tree, len(out_leaves)))
            return [cast(x, spec(x).dtype) if spec(x).weak else x for x in (*out_leaves, *residual_leaves)]

        try:
            traced = trace_program(flat, specs, name=self.name)
        except Exception as error:
            if isinstance(error, OnstageError) and not isinstance(error, TracingError | MissingRuleError | UnsupportedError):
                raise
            raise MissingRuleError(
                f"{self.name}: it is opaque: staging it needs def_abstract and def_onnx, differentiating it def_jvp or def_transpose, vmap of it "
                f"def_abstract, and def_batch in a staged program; its implementation cannot be traced ({_cause(error)})"
            ) from error
        if traced.captured:
            raise TracingError(f"{self.name}: its implementation uses a traced array from outside; pass it as an argument")
        out_tree, residual_tree, count = trees
        made = traced.program.out_specs
        has_residual = (
            isinstance(residual_tree, tree.TreeDef)
            and self.declaration.residual
            and (self.rules.forward is None or bool(params.get("residual")))
        )
        outcome = Outcome(out_tree, made[:count], residual_tree if has_residual else None, made[count:] if has_residual else None)
        program = traced.program
        if not params.get("residual"):
            program = Program(program.inputs, program.equations, program.outputs[:count], program.name)
        return Implementation(program, outcome)


def _cause(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text if len(text) <= _CAUSE_LENGTH else text[:_CAUSE_LENGTH] + '...'}"


def _specs(arrays: Sequence[Array]) -> tuple[ArraySpec, ...]:
    return tuple(spec_of(x) for x in arrays)


def _weak_specs(arrays: Sequence[Array], params: Params) -> list[ArraySpec]:
    weak = set(params.get("weak", ()))
    return [make_spec(x.shape, x.dtype, i in weak) for i, x in enumerate(arrays)]


def check_like(what: str, got: ArraySpec, wanted: ArraySpec) -> None:
    """ShapeError or DTypeError where a spec is not like another; `what` is "who: the one is, the other"."""
    who, _, other = what.rpartition(", ")
    if len(got.shape) != len(wanted.shape) or not all(same_dim(a, b) for a, b in zip(got.shape, wanted.shape, strict=True)):
        raise ShapeError(f"{who} {got!r}, {other} {wanted!r}: the shapes differ")
    if got.dtype != wanted.dtype:
        raise DTypeError(f"{who} {got!r}, {other} {wanted!r}: the dtypes differ")
