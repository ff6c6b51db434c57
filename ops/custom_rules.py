"""User primitives in the IR: rules written over trees and named parameters become rules over flat operands and params."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..stage import tree
from ..stage.dtypes import is_float
from ..stage.errors import DTypeError, MissingRuleError, NonlinearRuleError, SignatureTypeError, TracingError
from ..stage.narrowing import is_sequence
from ..stage.primitive import Array, Params, Primitive, find_primitive
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind, current_trace
from ..stage.tracer import Tracer
from .custom_call import CustomCall, Declaration, Outcome, Rules, check_like
from .custom_values import PrimitiveResult
from .operands import cast, spec

_generations = itertools.count(1)


class CustomOp(CustomCall, Primitive):
    """A user primitive with the rules it has at one moment; attaching another rule makes a new one."""

    def __init__(self, declaration: Declaration, rules: Rules) -> None:
        CustomCall.__init__(self, declaration, rules)
        Primitive.__init__(
            self,
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
        self.generation = next(_generations)
        self.library = declaration.library
        functions = (rules.function, rules.abstract, rules.jvp, rules.transpose, rules.batch, rules.sharding, rules.onnx, rules.forward)
        codes = (getattr(f, "__code__", None) for f in functions)
        self.source_files = tuple(sorted({c.co_filename for c in codes if c is not None}))

    def _abstract(self, *specs: ArraySpec, **params: Any) -> Any:
        found = self.outcome(specs, params)
        return (*found.out_specs, *(found.residual_specs or ())) if params.get("residual") else found.out_specs

    def _numpy(self, *arrays: Array, **params: Any) -> list[Array]:
        output, residual, _ = self.invoke(arrays, params)
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
        residual = (
            tree.unflatten(found.residual_tree, list(outputs[count:]))
            if params.get("residual") and found.residual_tree is not None
            else None
        )
        return found, output, residual

    def _keywords(self, count: int, params: Params) -> dict[str, Any]:
        """What derivative rules get by keyword."""
        return {**self.static(params), "in_tree": self.in_tree(count, params)} if self.rules.trees else self.static(params)

    def _differentiable(self, primals: Sequence[Any], params: Params) -> list[bool]:
        """Per operand whether it carries tangents and is not among nondiff_argnames."""
        treedef = self.in_tree(len(primals), params)
        owners = [self.declaration.dynamic[path[0].index] for path in treedef.paths()]  # type: ignore[union-attr]
        return [
            is_float(x.dtype) and (self.declaration.variadic or o not in self.declaration.nondiff)
            for x, o in zip(primals, owners, strict=True)
        ]

    def _jvp(self, output: Any, primals: Any, tangents: Any, **params: Any) -> Any:
        assert self.rules.jvp is not None
        found, out, _ = self._parts(primals, output, params)
        given = tuple(t if d else None for t, d in zip(tangents, self._differentiable(primals, params), strict=True))
        hidden = (None,) * (len(output) - len(found.out_specs))
        if all(t is None for t in given):
            return (*(None,) * len(found.out_specs), *hidden)
        what = f"{self.name}: the jvp rule"
        leaves = prefix_leaves(
            self.rules.jvp(out, tuple(primals), given, **self._keywords(len(primals), params)), found.out_tree, what, "a tangent"
        )
        results = [
            self._tangent(leaf, s, f"{what}: {p}")
            for leaf, s, p in zip(leaves, found.out_specs, leaf_paths(found.out_tree, "output"), strict=True)
        ]
        return (*results, *hidden)

    def _tangent(self, leaf: Any, wanted: ArraySpec, what: str) -> Any:
        if leaf is None:
            return None
        if not isinstance(leaf, Tracer):
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
        if not is_sequence(results) or len(results) != len(primals):
            got = f"{len(results)}" if is_sequence(results) else type(results).__name__
            raise SignatureTypeError(f"{what} must give a tuple with one cotangent for each of {len(primals)} operands, got {got}")
        return tuple(
            self._cotangent(results[i], spec(primals[i]), f"{what}: operand {i}") if i in indices else None for i in range(len(primals))
        )

    def _cotangent(self, ct: Any, wanted: ArraySpec, what: str) -> Any:
        if ct is None:
            return None
        if not isinstance(ct, Tracer):
            if not np.any(ct):
                return None
            raise NonlinearRuleError(
                f"{what}: a constant that is not zero is given for a cotangent; it must be linear in the output's cotangent"
            )
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
            given = tree.unflatten(self.in_tree(len(names), params), list(names))[0]
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


def example_spec(s: ArraySpec, axis: int | None) -> ArraySpec:
    """The spec of one example of a batch."""
    return s if axis is None else make_spec(tuple(d for i, d in enumerate(s.shape) if i != axis), s.dtype)


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
