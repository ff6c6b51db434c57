"""custom_jvp and custom_vjp: traceable functions with derivatives of their own, as thin forms of user primitives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..stage import tree
from ..stage.errors import MissingRuleError, SignatureTypeError
from ..stage.narrowing import is_sequence, is_tuple
from ..stage.trace import bind
from .custom import CustomPrimitive, default_name, fixed_signature
from .custom_call import Declaration, Rules
from .custom_rules import prefix_leaves
from .custom_values import PrimitiveResult
from .operands import cast
from .structure import broadcast_to_p

F = TypeVar("F", bound=Callable[..., Any])


class CustomFunction:
    """A function that becomes a primitive when its rule is attached."""

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        if not callable(function):
            raise TypeError(f"{kind}: a function is needed, got {type(function).__name__}")
        self._function = function
        self._kind = kind
        name = f"{kind}.{default_name(function)}"
        self._signature = fixed_signature(function, f"{kind} of {name}")
        self._declaration = Declaration(name, tuple(self._signature.parameters))
        self.primitive: CustomPrimitive | None = None
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.primitive is None:
            rule = "def_jvp(rule)" if self._kind == "custom_jvp" else "def_vjp(forward, backward)"
            raise MissingRuleError(f"{self._declaration.name}: no derivative rule yet; attach it with .{rule}")
        return self.primitive(*args, **kwargs)


class custom_jvp(CustomFunction):
    """A function whose derivative is a rule: `f = ons.custom_jvp(f); f.def_jvp(rule)`, or as a decorator.

    rule(primals, tangents) -> (out, tangent): tuples with one entry an argument, trees like the arguments; the tangent is linear in
    the tangents. A tangent of an argument that does not move is zeros. Reverse mode transposes the rule.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, "custom_jvp")

    def def_jvp(self, rule: F) -> F:
        """Attach the rule; gives it back unchanged."""
        name = self._declaration.name

        def jvp(output: Any, primals: Any, tangents: Any, *, in_tree: tree.TreeDef) -> Any:
            moved = [zeros(x) if t is None else t for x, t in zip(primals, tangents, strict=True)]
            result = rule(tree.unflatten(in_tree, primals), tree.unflatten(in_tree, moved))
            if not is_tuple(result) or len(result) != 2:
                raise SignatureTypeError(f"{name}: the jvp rule returns (out, tangent), got {type(result).__name__}")
            return result[1]

        rules = Rules(self._function, jvp=jvp, trees=True)
        self.primitive = CustomPrimitive(self._function, self._declaration, self._signature, rules)
        return rule


class custom_vjp(CustomFunction):
    """A function whose reverse mode is a pair of functions: `f = ons.custom_vjp(f); f.def_vjp(forward, backward)`.

    forward(*args) -> (out, residual), a tree of arrays; backward(residual, ct) -> a tuple with one cotangent an argument, a tree like it,
    or None for zeros. There is no forward mode: MissingRuleError.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, "custom_vjp")

    def def_vjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Attach the pair."""
        declaration = Declaration(self._declaration.name, self._declaration.dynamic, residual=True)
        name = declaration.name

        def with_residual(**arguments: Any) -> PrimitiveResult:
            result = forward(*arguments.values())
            if not is_tuple(result) or len(result) != 2:
                raise SignatureTypeError(f"{name}: forward returns (out, residual), got {type(result).__name__}")
            output, residual = result
            return PrimitiveResult(output, residual)

        def transpose(cotangent: Any, primals: Any, output: Any, residual: Any, *, in_tree: tree.TreeDef) -> Any:
            leaves, treedef = tree.flatten(output)
            given = tree.broadcast_prefix(cotangent, treedef)
            ct = tree.unflatten(treedef, [zeros(x) if c is None else c for x, c in zip(leaves, given, strict=True)])
            result = backward(residual, ct)
            if not is_sequence(result) or len(result) != len(in_tree.children):
                got = f"{len(result)}" if is_sequence(result) else type(result).__name__
                raise SignatureTypeError(
                    f"{name}: backward returns a tuple with one cotangent for each of {len(in_tree.children)} arguments, got {got}"
                )
            return tuple(prefix_leaves(tuple(result), in_tree, f"{name}: backward", "cotangents", "arguments"))

        reason = f"{name}: no forward mode, since only def_vjp was given; use ons.custom_jvp, whose rule serves both modes"
        rules = Rules(self._function, transpose=transpose, forward=with_residual, reverse_only=reason, trees=True)
        self.primitive = CustomPrimitive(self._function, declaration, self._signature, rules)


def zeros(x: Any) -> Any:
    """Zeros like an operand."""
    return bind(broadcast_to_p, cast(0, x.dtype), shape=tuple(x.shape))
