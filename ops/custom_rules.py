"""User primitives in the IR: rules written over trees and named parameters become rules over flat operands and params.

An equation's params: `in_tree` (of the tuple of dynamic arguments; absent if they are single arrays), `static`, `weak` (the operands
that are Python numbers), `residual` (whether the residual's leaves, of which there are `hidden`, follow the output's), `outcome` (trees
and specs that were seen when the implementation ran, where no abstract rule tells them).
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ..stage import tree
from ..stage.dims import same_dim
from ..stage.dtypes import as_dtype, is_float
from ..stage.errors import DTypeError, MissingRuleError, NonlinearRuleError, OnstageError, ShapeError, SignatureTypeError, TracingError, UnsupportedError
from ..stage.interpreter import as_array
from ..stage.primitive import Array, Params, Primitive, Rule, find_primitive
from ..stage.program import Program
from ..stage.spec import ArraySpec, make_spec, spec_of
from ..stage.staging import flatten_result
from ..stage.trace import bind, current_trace, trace_program
from ..stage.tracer import Tracer
from .custom_values import AbstractValue, PrimitiveResult, static_value
from .operands import cast, spec

_generations = itertools.count(1)
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


class CustomOp(Primitive):
    """A user primitive with the rules it has at one moment; attaching another rule makes a new one."""

    def __init__(self, declaration: Declaration, rules: Rules) -> None:
        super().__init__(
            declaration.name,
            abstract=self._abstract,
            numpy=self._numpy,
            jvp=None if rules.jvp is None else self._jvp,
            transpose=None if rules.transpose is None else self._transpose,
            batch=self._batch,
            factors=None if rules.sharding is None else self._factors,
            onnx=self._onnx,
            decompose=self._decompose,
            version=declaration.version,
            register=False,
        )
        self.declaration = declaration
        self.rules = rules
        self.generation = next(_generations)
        self.library = declaration.library
        self._inside = _Inside()
        self._outcomes: dict[Any, Outcome] = {}
        self._implementations: dict[Any, Implementation] = {}

    # what a call means

    def _in_tree(self, count: int, params: Params) -> tree.TreeDef:
        found = params.get("in_tree")
        return tree.structure(tuple([0] * count)) if found is None else found

    @staticmethod
    def static(params: Params) -> dict[str, Any]:
        return {entry[0]: static_value(entry) for entry in params.get("static", ())}

    def _call(self, leaves: Sequence[Any], params: Params, function: Callable[..., Any]) -> Any:
        values = tree.unflatten(self._in_tree(len(leaves), params), list(leaves))
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
        output, residual, (out_tree, residual_tree) = self._evaluate(arrays, full)
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

    def _evaluate(self, arrays: Sequence[Array], params: Params) -> tuple[list[Array], list[Array], tuple[tree.TreeDef, tree.TreeDef]]:
        function = self._function(params)
        weak = set(params.get("weak", ()))
        leaves = [x.item() if i in weak and x.ndim == 0 else x for i, x in enumerate(arrays)]
        output, residual = self.split(self._call(leaves, params, function), function)
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
            return self.implementation(specs, {**params, "residual": True} if self.declaration.residual and not self._inside.forward else params).outcome
        result = self._call([AbstractValue(s) for s in self._with_weakness(specs, params)], params, self.rules.abstract)
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
            output, residual = self.split(self._call(leaves, params, function), function)
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
        has_residual = isinstance(residual_tree, tree.TreeDef) and self.declaration.residual and (self.rules.forward is None or bool(params.get("residual")))
        outcome = Outcome(out_tree, made[:count], residual_tree if has_residual else None, made[count:] if has_residual else None)
        program = traced.program
        if not params.get("residual"):
            program = Program(program.inputs, program.equations, program.outputs[:count], program.name)
        return Implementation(program, outcome)

    # the rules of the IR

    def _abstract(self, *specs: ArraySpec, **params: Any) -> Any:
        found = self.outcome(specs, params)
        return (*found.out_specs, *(found.residual_specs or ())) if params.get("residual") else found.out_specs

    def _numpy(self, *arrays: Array, **params: Any) -> list[Array]:
        output, residual, _ = self._evaluate(arrays, params)
        return [*output, *residual] if params.get("residual") else output

    def _decompose(self, *operands: Any, **params: Any) -> Sequence[Any]:
        program = self.implementation([spec(x) for x in operands], params).program
        trace = current_trace()
        if trace is None:
            raise TracingError(f"{self.name}: it is decomposed only while tracing")
        return tuple(trace.inline(program, operands))

    def residual_outputs(self, params: Params) -> int:
        return params.get("hidden", 0)

    def without_residuals(self, params: Params) -> Params | None:
        return {k: v for k, v in params.items() if k not in ("residual", "hidden")} if params.get("hidden") else None

    def reverse_only(self, params: Params) -> str | None:
        return self.rules.reverse_only

    def require_lowering(self, specs: tuple[ArraySpec, ...], params: Params) -> None:
        if self.rules.onnx is None:
            self.implementation(specs, params)

    def _parts(self, primals: Sequence[Any], outputs: Sequence[Any], params: Params) -> tuple[Outcome, Any, Any]:
        """(outcome, output tree, residual tree or None) of what a derivative rule was given."""
        found = self.outcome([x.spec for x in primals], params)
        count = len(found.out_specs)
        output = tree.unflatten(found.out_tree, list(outputs[:count]))
        residual = tree.unflatten(found.residual_tree, list(outputs[count:])) if params.get("residual") and found.residual_tree is not None else None
        return found, output, residual

    def _keywords(self, count: int, params: Params) -> dict[str, Any]:
        """What derivative rules get by keyword."""
        return {**self.static(params), "in_tree": self._in_tree(count, params)} if self.rules.trees else self.static(params)

    def _differentiable(self, primals: Sequence[Any], params: Params) -> list[bool]:
        """Per operand whether it carries tangents and is not among nondiff_argnames."""
        treedef = self._in_tree(len(primals), params)
        owners = [self.declaration.dynamic[path[0].index] for path in treedef.paths()]  # type: ignore[union-attr]
        return [is_float(x.dtype) and (self.declaration.variadic or o not in self.declaration.nondiff) for x, o in zip(primals, owners, strict=True)]

    def _jvp(self, output: Any, primals: Any, tangents: Any, **params: Any) -> Any:
        assert self.rules.jvp is not None
        found, out, _ = self._parts(primals, output, params)
        given = tuple(t if d else None for t, d in zip(tangents, self._differentiable(primals, params), strict=True))
        hidden = (None,) * (len(output) - len(found.out_specs))
        if all(t is None for t in given):
            return (*(None,) * len(found.out_specs), *hidden)
        what = f"{self.name}: the jvp rule"
        leaves = prefix_leaves(self.rules.jvp(out, tuple(primals), given, **self._keywords(len(primals), params)), found.out_tree, what, "a tangent")
        results = [self._tangent(leaf, s, f"{what}: {p}") for leaf, s, p in zip(leaves, found.out_specs, leaf_paths(found.out_tree, "output"), strict=True)]
        return (*results, *hidden)

    def _tangent(self, leaf: Any, wanted: ArraySpec, what: str) -> Any:
        if leaf is None:
            return None
        if isinstance(leaf, bool | int | float | np.ndarray | np.generic):
            if not np.any(leaf):
                return None
            raise NonlinearRuleError(f"{what}: a constant that is not zero is given for a tangent; it must be linear in the tangents")
        if not is_float(wanted.dtype):
            raise DTypeError(f"{what}: a tangent is given for {wanted!r}, which has none; return None")
        check_like(f"{what}: the tangent is, its primal", leaf.spec, wanted)
        return cast(leaf, wanted.dtype) if leaf.spec.weak else leaf

    def _transpose(self, cotangent: Any, primals: Any, output: Any, *, active: Any, **params: Any) -> Any:
        assert self.rules.transpose is not None
        found, out, residual = self._parts(primals, output, params)
        cts = cotangent[: len(found.out_specs)]
        indices = tuple(i for i, (a, d) in enumerate(zip(active, self._differentiable(primals, params), strict=True)) if a and d)
        if not indices or all(c is None for c in cts):
            return (None,) * len(primals)
        args = [tree.unflatten(found.out_tree, list(cts)), tuple(primals), out]
        if self.declaration.residual:
            if not params.get("residual"):
                raise MissingRuleError(
                    f"{self.name}: staging its gradient needs the specs of its residual; let def_abstract return "
                    "ons.PrimitiveResult(output_specs, residual_specs)"
                )
            args.append(residual)
        keywords = self._keywords(len(primals), params)
        if _accepts(self.rules.transpose, "active_input_indices"):
            keywords["active_input_indices"] = indices
        results = self.rules.transpose(*args, **keywords)
        what = f"{self.name}: the transpose rule"
        if not isinstance(results, tuple | list) or len(results) != len(primals):  # pyright: ignore[reportUnknownArgumentType]
            got = f"{len(results)}" if isinstance(results, tuple | list) else type(results).__name__  # pyright: ignore[reportUnknownArgumentType]
            raise SignatureTypeError(f"{what} must give a tuple with one cotangent for each of {len(primals)} operands, got {got}")
        return tuple(self._cotangent(results[i], spec(primals[i]), f"{what}: operand {i}") if i in indices else None for i in range(len(primals)))

    def _cotangent(self, ct: Any, wanted: ArraySpec, what: str) -> Any:
        if ct is None:
            return None
        if isinstance(ct, bool | int | float | np.ndarray | np.generic):
            if not np.any(ct):
                return None
            raise NonlinearRuleError(f"{what}: a constant that is not zero is given for a cotangent; it must be linear in the output's cotangent")
        check_like(f"{what}: the cotangent is, its operand", ct.spec, wanted)
        return cast(ct, wanted.dtype) if ct.spec.weak else ct

    def _batch(self, ctx: Any, args: Any, batch_axes: Any, /, **params: Any) -> Any:
        if self.rules.batch is not None:
            result, axes = self.rules.batch(ctx, tuple(args), tuple(batch_axes), **self.static(params))
            if isinstance(result, PrimitiveResult) == bool(params.get("hidden")):
                return self._batched_leaves(result, axes, args, batch_axes, params)
        examples = tuple(example_spec(spec(x), a) for x, a in zip(args, batch_axes, strict=True))
        if self.rules.jvp is None and self.rules.transpose is None:
            try:
                program = self.implementation(examples, params).program
            except MissingRuleError:
                program = None  # an opaque one runs example by example, outside staging
            if program is not None:
                return ctx.batch(program, args, batch_axes)
        # Kept as one equation, so that its derivative rules still hold; `autodiff` declares what that means.
        outputs = bind(
            find_primitive("batched"), *args, inner=self, inner_params=tuple(sorted(params.items())), axes=tuple(batch_axes), size=ctx.size
        )
        return outputs, [0] * len(outputs)

    def _batched_leaves(self, result: Any, axes: Any, args: Any, batch_axes: Any, params: Params) -> tuple[Any, Any]:
        found = self.outcome([example_spec(spec(x), a) for x, a in zip(args, batch_axes, strict=True)], params)
        what = f"{self.name}: the batch rule"
        parts = [(result, axes, found.out_tree)]
        if isinstance(result, PrimitiveResult):
            if not isinstance(axes, PrimitiveResult) or found.residual_tree is None:
                raise SignatureTypeError(f"{what} gives a PrimitiveResult of outputs and must give one of axes too")
            parts = [(result.output, axes.output, found.out_tree), (result.residual, axes.residual, found.residual_tree)]
        outputs: list[Any] = []
        out_axes: list[Any] = []
        for value, axis, treedef in parts:
            leaves = prefix_leaves(value, treedef, what, "an output")
            outputs.extend(leaves)
            out_axes.extend(tree.broadcast_prefix(axis, treedef, root="axes"))
        return tuple(outputs), out_axes

    def _factors(self, *specs: ArraySpec, **params: Any) -> Any:
        assert self.rules.sharding is not None
        return self.rules.sharding(*specs, **self.static(params))

    def _onnx(self, b: Any, *names: str, **params: Any) -> Any:
        if self.rules.onnx is None:
            program = self.implementation(b.in_specs, params).program
            return tuple(b.lower(program, list(names)))
        count, hidden = len(b.out_specs), params.get("hidden", 0)
        if hasattr(self.rules.onnx, "to_function_proto"):
            found = b.call_function(self.rules.onnx.to_function_proto(), *names, outputs=count, **self.static(params))
            return (found,) if isinstance(found, str) else tuple(found)
        operands = names
        if self.declaration.variadic:
            given = tree.unflatten(self._in_tree(len(names), params), list(names))[0]
            operands = tuple("" if name is None else name for name in given)
        result = self.rules.onnx(b, *operands, **self.static(params))
        if isinstance(result, PrimitiveResult):
            results = [*tree.leaves(result.output), *tree.leaves(result.residual)][:count]
        else:
            results = tree.leaves(result)
        if len(results) != count:
            need = f"{count - hidden} outputs and {hidden} residuals as PrimitiveResult(names, names)" if hidden else f"{count} outputs"
            raise SignatureTypeError(f"{self.name}: the onnx rule gave {len(results)} names for {need}")
        return tuple(results)


def _cause(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text if len(text) <= _CAUSE_LENGTH else text[:_CAUSE_LENGTH] + '...'}"


def _specs(arrays: Sequence[Array]) -> tuple[ArraySpec, ...]:
    return tuple(spec_of(x) for x in arrays)


def _weak_specs(arrays: Sequence[Array], params: Params) -> list[ArraySpec]:
    weak = set(params.get("weak", ()))
    return [make_spec(x.shape, x.dtype, i in weak) for i, x in enumerate(arrays)]


def example_spec(s: ArraySpec, axis: int | None) -> ArraySpec:
    """The spec of one example of a batch."""
    return s if axis is None else make_spec(tuple(d for i, d in enumerate(s.shape) if i != axis), s.dtype)


def check_like(what: str, got: ArraySpec, wanted: ArraySpec) -> None:
    """ShapeError or DTypeError where a spec is not like another; `what` is "who: the one is, the other"."""
    who, _, other = what.rpartition(", ")
    if len(got.shape) != len(wanted.shape) or not all(same_dim(a, b) for a, b in zip(got.shape, wanted.shape, strict=True)):
        raise ShapeError(f"{who} {got!r}, {other} {wanted!r}: the shapes differ")
    if got.dtype != wanted.dtype:
        raise DTypeError(f"{who} {got!r}, {other} {wanted!r}: the dtypes differ")


def leaf_paths(treedef: tree.TreeDef, root: str) -> list[str]:
    return [tree.path_text(path, root) for path in treedef.paths()]


def prefix_leaves(value: Any, treedef: tree.TreeDef, what: str, kind: str, root: str = "output") -> list[Any]:
    """One entry a leaf of a tree; None stands for all leaves below it. TypeError, naming the path, for another tree."""
    try:
        entries = tree.broadcast_prefix(value, treedef, root=root)
    except ValueError as error:
        raise SignatureTypeError(f"{what} gave {kind} of another tree than the {root}: {error}") from None
    if sum(e is not None for e in entries) != len(tree.leaves(value)):
        where = tree.difference(treedef, tree.structure(value), root)
        raise SignatureTypeError(f"{what} gave {kind} of another tree than the {root}: {where}")
    return entries


def _accepts(rule: Callable[..., Any], keyword: str) -> bool:
    parameter = inspect.signature(rule).parameters.get(keyword)
    return parameter is not None and parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
