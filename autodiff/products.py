"""jvp and vjp: products with the Jacobian and its transpose, of functions and of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..stage import tree
from ..stage.dims import same_dim
from ..stage.dtypes import is_float
from ..stage.errors import SignatureTypeError, SignatureValueError
from ..stage.interpreter import as_array
from ..stage.narrowing import is_array
from ..stage.program import Program
from ..stage.spec import ArraySpec, make_spec, spec_of
from ..stage.staged import StagedProgram
from ..stage.trace import current_trace, trace_program
from ..stage.tracer import Tracer, settled
from .forward import jvp_transform, vjp_transform
from .gradient import Recorded, apply, record, staged_signature


def function_label(function: Any) -> str:
    return getattr(function, "name", None) or getattr(function, "__name__", type(function).__name__)


def leaf_operand(leaf: Any, what: str) -> Any:
    leaf = settled(leaf)
    if isinstance(leaf, Tracer):
        return leaf
    spec_of(leaf, what) if not hasattr(leaf, "__array__") else None
    return leaf if is_array(leaf) or isinstance(leaf, bool | int | float) else np.asarray(leaf)


def direction(value: Any, spec: ArraySpec, what: str) -> Any:
    """A tangent or cotangent that fits its primal: Python numbers and weak arrays take the dtype, others must have it."""
    value = settled(value)
    given = value if isinstance(value, Tracer) else as_array(value)
    have = given.spec if isinstance(given, Tracer) else make_spec(given.shape, given.dtype)
    if len(have.shape) != len(spec.shape) or not all(same_dim(a, b) for a, b in zip(have.shape, spec.shape, strict=True)):
        raise SignatureValueError(f"{what} has shape {list(have.shape)}, its primal {list(spec.shape)}")
    if have.dtype != spec.dtype:
        if (isinstance(given, Tracer) and not have.weak) or not isinstance(value, Tracer | bool | int | float):
            raise SignatureTypeError(f"{what} has dtype {have.dtype.name}, its primal {spec.dtype.name}")
        return given.astype(spec.dtype)
    return given


def _zeros(spec: ArraySpec) -> Any:
    return np.zeros([int(d) for d in spec.shape], spec.dtype)


def jvp(function: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(f(*primals), its directional derivative along `tangents`).

    primals and tangents are tuples of the same trees; a tangent has its primal's shape and dtype. Integer and boolean leaves carry no
    tangent: what is given for them is ignored, and an integer output's tangent is zeros.
    Raises TypeError for another tree or dtype, ValueError for another shape.
    """
    label = function_label(function)
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise SignatureTypeError("jvp: primals and tangents are tuples, one entry an argument")
    leaves, treedef = tree.flatten(tuple(primals))
    tangent_leaves, tangent_tree = tree.flatten(tuple(tangents))
    if treedef != tangent_tree:
        raise SignatureTypeError(f"jvp of {label}: tangents have another tree than primals: {tree.difference(treedef, tangent_tree)}")
    leaves = [leaf_operand(leaf, f"jvp of {label}") for leaf in leaves]
    specs = [spec_of(leaf) for leaf in leaves]
    active = [is_float(s.dtype) for s in specs]
    directions = [
        direction(t, s, f"jvp of {label}: tangent {i}") for i, (t, s, a) in enumerate(zip(tangent_leaves, specs, active, strict=True)) if a
    ]
    recorded = record(lambda *xs: function(*tree.unflatten(treedef, list(xs))), leaves, label)
    program = recorded.traced.program
    captured = len(program.inputs) - len(leaves)
    results = apply(jvp_transform(program, [*active, *[False] * captured]), recorded, directions)
    count = len(program.outputs)
    found = iter(results[count:])
    out_tangents = [next(found) if is_float(s.dtype) else _zeros(s) for s in program.out_specs]
    return tree.unflatten(recorded.out_tree, results[:count]), tree.unflatten(recorded.out_tree, out_tangents)


def vjp(function: Any, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(f(*primals), pullback): pullback(ct) gives a tuple with one cotangent a primal; it may be called again and again.

    ct has the result's tree, shapes and dtypes; entries for integer results are ignored, None stands for a zero. Integer leaves of
    primals get zeros of their shape. With has_aux the function returns (result, aux) and vjp (result, pullback, aux).
    """
    label = function_label(function)
    leaves, treedef = tree.flatten(tuple(primals))
    leaves = [leaf_operand(leaf, f"vjp of {label}") for leaf in leaves]
    # The pullback runs later, when the caller may have changed his arrays in place.
    leaves = [leaf.copy() if is_array(leaf) else leaf for leaf in leaves]
    specs = [spec_of(leaf) for leaf in leaves]
    recorded = record(lambda *xs: function(*tree.unflatten(treedef, list(xs))), leaves, label, has_aux=has_aux)
    results = apply(recorded.traced.program, recorded)
    pullback = _pullback(recorded, specs, treedef, label)
    value = tree.unflatten(recorded.out_tree, results[: recorded.out_count])
    if recorded.aux_tree is None:
        return value, pullback
    return value, pullback, tree.unflatten(recorded.aux_tree, results[recorded.out_count :])


def _pullback(recorded: Recorded, specs: Sequence[ArraySpec], treedef: tree.TreeDef, label: str) -> Callable[[Any], tuple[Any, ...]]:
    program = recorded.traced.program
    active = [i < len(specs) and is_float(specs[i].dtype) for i in range(len(program.inputs))]
    out_specs = program.out_specs
    transforms: dict[tuple[bool, ...], Program] = {}

    def pullback(ct: Any) -> tuple[Any, ...]:
        cts = _cotangent_leaves(ct, recorded, label)
        given = tuple(c is not None and is_float(s.dtype) for c, s in zip(cts, out_specs, strict=True))
        transform = transforms.get(given)
        if transform is None:
            transform = transforms[given] = vjp_transform(program, active, given)
        directions = [
            direction(c, s, f"vjp of {label}: cotangent {i}") for i, (c, s, g) in enumerate(zip(cts, out_specs, given, strict=True)) if g
        ]
        results = iter(apply(transform, recorded, directions)[len(out_specs) :])
        cotangents = [next(results) if is_float(s.dtype) else _zeros(s) for s in specs]
        return tree.unflatten(treedef, cotangents)

    return pullback


def _cotangent_leaves(ct: Any, recorded: Recorded, label: str) -> list[Any]:
    """One entry an output; None for those without a cotangent."""
    leaves, treedef = tree.flatten(ct)
    if treedef == recorded.out_tree:
        cts: list[Any] = leaves
    else:
        try:
            cts = tree.broadcast_prefix(ct, tree.unflatten(recorded.out_tree, list(range(recorded.out_count))))
        except ValueError as error:
            raise SignatureTypeError(f"vjp of {label}: the cotangent has another tree than the result: {error}") from None
        if any(c is not None for c in cts) and len([c for c in cts if c is not None]) != len(leaves):
            raise SignatureTypeError(
                f"vjp of {label}: the cotangent has another tree than the result: {tree.difference(recorded.out_tree, treedef)}"
            )
    return [*cts, *[None] * (len(recorded.traced.program.outputs) - recorded.out_count)]


def _leaf_function(program: StagedProgram) -> Callable[..., list[Any]]:
    def function(*leaves: Any) -> list[Any]:
        return _call(program, leaves)

    function.__name__ = program.name
    return function


def jvp_program(program: StagedProgram) -> StagedProgram:
    """The program that takes the primals, then their tangents, and gives (out, tangent).

    The tangents' arguments are named after the primals' (`x_tangent`); those of integer leaves are ignored.
    """
    signature, count = staged_signature(program, "tangent")

    def function(*leaves: Any) -> tuple[list[Any], Any]:
        primals, tangents = leaves[:count], leaves[count:]
        out, tangent = jvp(_leaf_function(program), tuple(primals), tuple(tangents))
        return [*out, *tangent], tree.structure((tree.unflatten(program.out_tree, out), tree.unflatten(program.out_tree, tangent)))

    return stage_flat(signature, function, f"jvp of {program.name}")


def vjp_program(program: StagedProgram) -> StagedProgram:
    """The program that takes the primals, then the result's cotangent `ct`, and gives (out, cotangents), one cotangent an argument."""
    signature, count = staged_signature(program, "cotangent")

    def function(*leaves: Any) -> tuple[list[Any], Any]:
        out, pullback = vjp(_leaf_function(program), *leaves[:count])
        cotangents = pullback(list(leaves[count:]))
        primal_tree = tree.unflatten(program.signature.tree, _with_statics(program, cotangents))
        return [*out, *cotangents], tree.structure((tree.unflatten(program.out_tree, out), primal_tree))

    return stage_flat(signature, function, f"vjp of {program.name}")


def _with_statics(program: StagedProgram, leaves: Sequence[Any]) -> list[Any]:
    full = list(leaves)
    if program.signature.statics:
        raise SignatureTypeError(f"vjp_program of {program.name}: static leaves inside an argument's tree have no cotangent")
    return full


def _call(program: StagedProgram, leaves: Sequence[Any]) -> list[Any]:
    trace = current_trace()
    assert trace is not None
    return list(trace.inline(program.program, leaves))


def stage_flat(signature: Any, function: Callable[..., tuple[list[Any], Any]], label: str) -> StagedProgram:
    out_trees: list[tree.TreeDef] = []

    def flat(*leaves: Any) -> Sequence[Any]:
        outputs, out_tree = function(*leaves)
        out_trees.append(out_tree)
        return outputs

    traced = trace_program(flat, signature.specs, name=label)
    return StagedProgram(traced.program, signature, out_trees[0])
