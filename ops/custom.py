"""User primitives: one NumPy function that every transform takes as a single operation, with rules that its author attaches."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from ..stage import tree
from ..stage.deferred import Array, array
from ..stage.dtypes import is_float
from ..stage.errors import DTypeError, MissingRuleError
from ..stage.primitive import register_custom
from ..stage.trace import bind, current_trace
from ..stage.tracer import Tracer
from .custom_call import CustomCall, Declaration, Rules
from .custom_rules import CustomOp
from .custom_values import AbstractValue, PrimitiveResult, static_entry
from .operands import operand, spec
from .stop_gradient import stop_gradient_p

__all__ = ["AbstractValue", "CustomPrimitive", "PrimitiveResult", "primitive"]

F = TypeVar("F", bound=Callable[..., Any])


class CustomPrimitive:
    """A user primitive: called like its implementation, with methods that attach rules and return them unchanged.

    Derivative rules get the leaves of all arguments but the static ones, flat, in the order of the parameters and their trees;
    static arguments come by keyword. Programs traced before a rule was attached do not know it.
    """

    def __init__(
        self, function: Callable[..., Any], declaration: Declaration, signature: inspect.Signature, rules: Rules | None = None
    ) -> None:
        self._declaration = declaration
        self._signature = signature
        self._rules = Rules(function) if rules is None else rules
        self._set()
        functools.update_wrapper(self, function, updated=())

    def _set(self, **rules: Any) -> None:
        self._rules = dataclasses.replace(self._rules, **rules)
        self._op = CustomOp(self._declaration, self._rules)
        register_custom(self._op)

    @property
    def name(self) -> str:
        return self._declaration.name

    @property
    def version(self) -> int:
        return self._declaration.version

    @property
    def declaration(self) -> Declaration:
        return self._declaration

    @property
    def rules(self) -> Rules:
        """The rules attached so far."""
        return self._rules

    @property
    def op(self) -> CustomOp:
        """The operation in the IR, with the rules attached so far."""
        return self._op

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def def_abstract(self, rule: F) -> F:
        """f(the implementation's own parameters) -> specs: each dynamic argument a tree of AbstractValue, the result the output's tree of
        ArraySpec or AbstractValue, or PrimitiveResult(output_specs, residual_specs)."""
        self._set(abstract=rule)
        return rule

    def def_jvp(self, rule: F) -> F:
        """f(output, primals, tangents, **static) -> tangent of the output's tree, traceable and linear in the tangents; a tangent is None
        where inactive, and always for nondiff_argnames and leaves that are not floating."""
        self._set(jvp=rule)
        return rule

    def def_transpose(self, rule: F) -> F:
        """f(cotangent, primals, output[, residual], *, active_input_indices=None, **static) -> a tuple with a cotangent, or None, for each
        dynamic leaf. It is used in reverse mode instead of the transposed jvp rule."""
        self._set(transpose=rule)
        return rule

    def def_batch(self, rule: F) -> F:
        """f(ctx, args, axes, **static) -> (output, axes): args and axes are flat, an axis is None where an argument is not batched;
        `ctx.size` is the size of the batch."""
        self._set(batch=rule)
        return rule

    def def_sharding(self, rule: F) -> F:
        """f(*specs, **static) -> ("m k, k n -> m n", {"k": "sum"}): the einops-like factors of operands and outputs, and the kinds of the
        contracted ones."""
        self._set(sharding=rule)
        return rule

    def def_onnx(self, rule: F) -> F:
        """f(builder, *names, **static) -> name, or a tree of names like the output (PrimitiveResult of both with a residual); or an onnxscript
        function, which gets static arguments as attributes."""
        self._set(onnx=rule)
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values, params = self.bind_arguments(args, kwargs)
        leaves, in_tree = tree.flatten_with_paths(values)
        operands = [self._operand(leaf, path) for path, leaf in leaves]
        if not any(isinstance(x, Tracer) for x in operands):
            return self._call_now(tree.unflatten(in_tree, operands), params)
        if in_tree != tree.structure(tuple([0] * len(operands))):
            params["in_tree"] = in_tree
        weak = tuple(i for i, x in enumerate(operands) if _is_weak(x))
        if weak:
            params["weak"] = weak
        operands = [self._held(x, path) for x, (path, _) in zip(operands, leaves, strict=True)]
        return self._record(operands, params)

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(the dynamic arguments in order, params with the static ones) of a call. TypeError for a call that does not fit the signature."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        bound.apply_defaults()
        dynamic = self._declaration.dynamic
        return tuple(bound.arguments[n] for n in dynamic), self.static_params(
            {n: v for n, v in bound.arguments.items() if n not in dynamic}
        )

    def static_params(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The params that hold static arguments."""
        static = tuple(static_entry(n, arguments[n], self.name) for n in sorted(arguments))
        return {"static": static} if static else {}

    def _operand(self, leaf: Any, path: tree.Path) -> Any:
        try:
            return operand(leaf, self.name)
        except DTypeError:
            where = tree.path_text(path[1:], self._declaration.dynamic[path[0].index])  # type: ignore[union-attr]
            raise DTypeError(
                f"{self.name}: {where} is {type(leaf).__name__}, which is no array; name its argument in static_argnames"
            ) from None

    def _held(self, x: Any, path: tree.Path) -> Any:
        """An operand of nondiff_argnames is a constant for differentiation."""
        owner = self._declaration.dynamic[path[0].index]  # type: ignore[union-attr]
        if owner in self._declaration.nondiff and isinstance(x, Tracer) and is_float(x.dtype):
            return bind(stop_gradient_p, x)
        return x

    def _call_now(self, values: Sequence[Any], params: dict[str, Any]) -> Any:
        function = self._rules.function
        result = self._declaration.call(function, values, CustomCall.static(params))
        return self._op.split(result, function)[0]

    def _record(self, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """One equation: the implementation runs now where all operands have values, and is only described elsewhere."""
        op = self._op
        trace = current_trace()
        if trace is None:
            return self._defer(operands, params)
        atoms = tuple([trace.atom(x) for x in operands])
        arrays = trace.known(atoms)
        results = None
        if arrays is not None:
            params, results = op.run(arrays, params)
        specs = [a.spec for a in atoms]
        outcome = op.outcome(specs, params)
        if results is None and op.wants_residual() and outcome.residual_specs is not None:
            params = {**params, "residual": True, "hidden": len(outcome.residual_specs)}
        outputs = trace.record(op, atoms, params, results)
        return tree.unflatten(outcome.out_tree, list(outputs[: len(outcome.out_specs)]))

    def _defer(self, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """On deferred arrays: recorded, or run at once where the implementation is opaque."""
        op = self._op
        specs = tuple(spec(x) for x in operands)
        try:
            op.require_lowering(specs, params)
        except MissingRuleError:
            values = [x.numpy() if isinstance(x, Array) else x for x in operands]
            return tree.map(array, self._call_now(tree.unflatten(op.in_tree(len(values), params), values), params))
        outcome = op.outcome(specs, params)
        return tree.unflatten(outcome.out_tree, list(bind(op, *operands, **params)))


def _is_weak(x: Any) -> bool:
    return x.spec.weak if isinstance(x, Tracer) else isinstance(x, int | float) and not isinstance(x, bool)


@overload
def primitive(
    function: Callable[..., Any], *, name: str | None = None, static_argnames: str | Sequence[str] = (),
    nondiff_argnames: str | Sequence[str] = (), residual: bool = False, version: int = 1,
) -> CustomPrimitive: ...  # fmt: skip
@overload
def primitive(
    function: None = None, *, name: str | None = None, static_argnames: str | Sequence[str] = (),
    nondiff_argnames: str | Sequence[str] = (), residual: bool = False, version: int = 1,
) -> Callable[[Callable[..., Any]], CustomPrimitive]: ...  # fmt: skip
def primitive(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    static_argnames: str | Sequence[str] = (),
    nondiff_argnames: str | Sequence[str] = (),
    residual: bool = False,
    version: int = 1,
) -> CustomPrimitive | Callable[[Callable[..., Any]], CustomPrimitive]:
    """Make one operation of a function of NumPy arrays; a decorator, with or without arguments.

    The function has fixed named parameters, and arguments are trees of arrays. static_argnames: arguments that are hashable Python
    values and never traced. nondiff_argnames: array arguments without derivatives. residual: it returns PrimitiveResult(output, residual);
    callers get the output, the transpose rule the residual too. name: by default the function's module and qualified name; give one to
    primitives that stand in saved files. version: raise it when the meaning changes.

    A function that can be traced needs no rules: they follow from its operations. One that cannot (it calls C, or looks at values)
    works outside `stage`, with the derivative rules that are attached, and in `stage` with def_abstract and def_onnx.
    Raises TypeError for positional-only parameters, *args and **kwargs, ValueError for names that are no parameters or stand in both sets.
    """
    if function is None:

        def decorator(f: Callable[..., Any]) -> CustomPrimitive:
            return primitive(
                f, name=name, static_argnames=static_argnames, nondiff_argnames=nondiff_argnames, residual=residual, version=version
            )

        return decorator
    if not callable(function):
        raise TypeError(
            f"primitive: the implementation must be a function, got {type(function).__name__}; other arguments are given by keyword"
        )
    chosen = name if name is not None else default_name(function)
    signature = fixed_signature(function, f"primitive {chosen!r}")
    static = _names(static_argnames, signature, f"primitive {chosen!r}: static_argnames")
    nondiff = _names(nondiff_argnames, signature, f"primitive {chosen!r}: nondiff_argnames")
    if static & nondiff:
        raise ValueError(
            f"primitive {chosen!r}: {', '.join(sorted(static & nondiff))} in static_argnames and nondiff_argnames both; an argument is in one of them"
        )
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"primitive {chosen!r}: version is {version!r}, not an int from 1")
    dynamic = tuple(n for n in signature.parameters if n not in static)
    return CustomPrimitive(function, Declaration(chosen, dynamic, frozenset(nondiff), residual, version), signature)


def default_name(function: Callable[..., Any]) -> str:
    """Module and qualified name."""
    module = getattr(function, "__module__", None) or "unknown"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def fixed_signature(function: Callable[..., Any], what: str) -> inspect.Signature:
    """The signature of a function with named parameters only; TypeError for another."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise TypeError(f"{what}: Python does not know the implementation's parameters; wrap it in a function with named ones") from None
    for parameter in signature.parameters.values():
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            kinds = {
                inspect.Parameter.POSITIONAL_ONLY: f"the positional-only parameter {parameter.name!r}",
                inspect.Parameter.VAR_POSITIONAL: f"*{parameter.name}",
                inspect.Parameter.VAR_KEYWORD: f"**{parameter.name}",
            }
            raise TypeError(f"{what}: the implementation has {kinds[parameter.kind]}; fixed named parameters are needed")
    return signature


def _names(names: str | Sequence[str], signature: inspect.Signature, what: str) -> set[str]:
    given = (names,) if isinstance(names, str) else tuple(names)
    for n in given:
        if n not in signature.parameters:
            raise ValueError(f"{what} has {n!r}, which is no parameter; there are {', '.join(signature.parameters)}")
    return set(given)
