"""grad and value_and_grad: user functions in, user functions out.

Each traces the function to a Program, transforms it, and inlines the result into the trace around it; where there is none the
derivative's equations are evaluated at once, on the values recorded while the function ran.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..stage import tree
from ..stage.dtypes import is_float
from ..stage.errors import DTypeError, SignatureTypeError, TracingError
from ..stage.interpreter import as_array, evaluate, run_equations
from ..stage.narrowing import is_numpy, is_tuple
from ..stage.primitive import Array
from ..stage.program import Atom, Const, Equation, Program, ProgramBuilder, scalar_one
from ..stage.signature import Signature, python_signature
from ..stage.spec import ArraySpec, StaticSpec, spec_of
from ..stage.staged import StagedProgram
from ..stage.staging import flatten_result
from ..stage.trace import Traced, current_trace, trace_program
from ..stage.tracer import Tracer, settled
from .forward import vjp_transform
from .rules import tangent_spec


class Recorded(NamedTuple):
    """A function traced over some of its leaves: the Program, the operands of all its inputs, its result's trees."""

    traced: Traced
    operands: list[Any]
    out_tree: tree.TreeDef
    aux_tree: tree.TreeDef | None
    out_count: int


def record(function: Callable[..., Any], leaves: Sequence[Any], label: str, *, has_aux: bool = False) -> Recorded:
    """Trace `function(*leaves) -> result`, or `-> (result, aux)`; values are carried along wherever they are known."""
    trees: list[tree.TreeDef | None] = []
    counts: list[int] = []

    def flat(*tracers: Any) -> Sequence[Any]:
        result = function(*tracers)
        aux: Any = None
        if has_aux:
            if not is_tuple(result) or len(result) != 2:
                raise TracingError(f"{label}: with has_aux=True the function returns (result, aux), got {type(result).__name__}")
            result, aux = result
        outputs, out_tree = flatten_result(result, label)
        extra, aux_tree = flatten_result(aux, f"{label}: aux")
        trees.extend((out_tree, aux_tree if has_aux else None))
        counts.append(len(outputs))
        return [*outputs, *extra]

    specs = [leaf if isinstance(leaf, ArraySpec) else spec_of(leaf) for leaf in leaves]
    values = [None if isinstance(x, ArraySpec) else x._value if isinstance(x, Tracer) else as_array(x) for x in leaves]
    traced = trace_program(flat, specs, values=values, name=label)
    out_tree, aux_tree = trees
    assert out_tree is not None
    return Recorded(traced, [*leaves, *traced.captured], out_tree, aux_tree, counts[0])


def apply_program(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Inline a Program into the trace around it if an operand is traced, else evaluate it."""
    trace = current_trace()
    if trace is not None and any(isinstance(x, Tracer) for x in operands):
        return list(trace.inline(program, operands))
    return [x.copy() for x in evaluate(program, [as_array(x) for x in operands])]


def apply(program: Program, recorded: Recorded, extra: Sequence[Any] = ()) -> list[Any]:
    """Run a derivative Program of a recorded one: its inputs are the recorded inputs, then `extra`.

    Inlined into the trace around it if anything is traced; else evaluated, what was recorded with values not again.
    """
    operands = [*recorded.operands, *extra]
    trace = current_trace()
    if trace is not None and any(isinstance(x, Tracer) for x in operands):
        return list(trace.inline(program, operands))
    env: dict[Atom, Array] = dict(recorded.traced.values or {})
    for var, x in zip(program.inputs, operands, strict=True):
        env[var] = as_array(x)
    run_equations(program.equations, env)
    return [(a.value if isinstance(a, Const) else env[a]).copy() for a in program.outputs]


# --------------------------------------------------------------------------------------------------------------------- grad


class _Chosen(NamedTuple):
    """The arguments to differentiate: how to take them out of a call, and to put leaves back."""

    names: tuple[str | int, ...]
    values: tuple[Any, ...]
    rebuild: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def choose(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, argnames: Any, what: str) -> _Chosen:
    positions: list[int] = []
    keywords: list[str] = []
    if argnames is None:
        wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for n in wanted:
            index = n + len(args) if n < 0 else n
            if not 0 <= index < len(args):
                raise SignatureTypeError(f"{what}: argnums names argument {n}, but {len(args)} positional arguments were given")
            positions.append(index)
        values = tuple(args[i] for i in positions)
        names: tuple[str | int, ...] = tuple(positions)
    else:
        names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
        parameters = list(python_signature(function).parameters.values())
        order = {
            p.name: i
            for i, p in enumerate(parameters)
            if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        }
        found: list[Any] = []
        for name in names:
            if name in kwargs:
                keywords.append(str(name))
                found.append(kwargs[str(name)])
            elif isinstance(name, str) and order.get(name, len(args)) < len(args):
                positions.append(order[name])
                found.append(args[order[name]])
            else:
                raise SignatureTypeError(f"{what}: argnames names {name!r}, which is not among the arguments of the call")
        values = tuple(found)
        positions = [order[str(n)] if str(n) not in kwargs else -1 for n in names]

    def rebuild(new: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        new_args, new_kwargs = list(args), dict(kwargs)
        for name, position, value in zip(names, positions, new, strict=True):
            if position >= 0:
                new_args[position] = value
            else:
                new_kwargs[str(name)] = value
        return tuple(new_args), new_kwargs

    return _Chosen(names, values, rebuild)


def _check_argument_names(argnums: Any, argnames: Any) -> None:
    if argnames is not None and argnums != 0:
        raise TypeError("give argnums or argnames, not both")


def value_and_grad(function: Any, argnums: Any = 0, *, argnames: Any = None, has_aux: bool = False) -> Any:
    """A function of the same arguments that gives (value, gradient), or ((value, aux), gradient) with has_aux.

    argnums: an int gives that argument's gradient as a tree of its shape, a tuple of ints a tuple of them; argnames: a name gives its
    tree, a tuple of names a dict. Of a StagedProgram it gives a StagedProgram.
    Raises TypeError if the value is no real floating scalar or a chosen argument is not floating.
    """
    _check_argument_names(argnums, argnames)
    if isinstance(function, StagedProgram):
        return _staged_transform(
            function, value_and_grad(python_function(function), argnums, argnames=argnames, has_aux=has_aux), "value_and_grad"
        )
    label = getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = choose(function, args, kwargs, argnums, argnames, "grad")
        leaves, treedef = float_leaves(chosen, "grad", label)

        def call(*tracers: Any) -> Any:
            new_args, new_kwargs = chosen.rebuild(tree.unflatten(treedef, tracers))
            return function(*new_args, **new_kwargs)

        recorded = record(call, leaves, label, has_aux=has_aux)
        program = recorded.traced.program
        _check_scalar(program, recorded, label)
        count = len(program.outputs)
        active = [i < len(leaves) for i in range(len(program.inputs))]
        derivative = _gradient_program(program, active, count)
        results = apply(derivative, recorded)
        value = tree.unflatten(recorded.out_tree, results[: recorded.out_count])
        if recorded.aux_tree is not None:
            value = (value, tree.unflatten(recorded.aux_tree, results[recorded.out_count : count]))
        return value, _gradient_tree(chosen, tree.unflatten(treedef, results[count:]), argnums, argnames)

    return wrapped


def _gradient_tree(chosen: _Chosen, gradients: tuple[Any, ...], argnums: Any, argnames: Any) -> Any:
    if argnames is not None:
        return gradients[0] if isinstance(argnames, str) else dict(zip(chosen.names, gradients, strict=True))
    return gradients[0] if isinstance(argnums, int) else gradients


def grad(function: Any, argnums: Any = 0, *, argnames: Any = None, has_aux: bool = False) -> Any:
    """A function of the same arguments that gives the gradient, or (gradient, aux) with has_aux; see value_and_grad."""
    _check_argument_names(argnums, argnames)
    if isinstance(function, StagedProgram):
        return _staged_transform(function, grad(python_function(function), argnums, argnames=argnames, has_aux=has_aux), "grad")
    both = value_and_grad(function, argnums, argnames=argnames, has_aux=has_aux)

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def _gradient_program(program: Program, active: Sequence[bool], count: int) -> Program:
    """The vjp of the first output at cotangent one."""
    general = vjp_transform(program, active, [i == 0 for i in range(count)])
    builder = ProgramBuilder()
    inputs = general.inputs[: len(program.inputs)]
    builder.inputs.extend(inputs)
    one = scalar_one(program.outputs[0].spec)
    ct = general.inputs[-1]
    for eqn in general.equations:
        operands = tuple([one if a is ct else a for a in eqn.inputs]) if ct in eqn.inputs else eqn.inputs
        builder.equations.append(eqn if operands is eqn.inputs else Equation(eqn.primitive, operands, eqn.params, eqn.outputs, eqn.source))
    return builder.build([one if a is ct else a for a in general.outputs], f"gradient of {program.name}")


def float_leaves(chosen: _Chosen, what: str, label: str) -> tuple[list[Any], tree.TreeDef]:
    """The chosen arguments' leaves; TypeError naming the path of one that is no floating array."""
    entries, treedef = tree.flatten_with_paths(chosen.values)
    leaves: list[Any] = []
    for path, leaf in entries:
        name = chosen.names[path[0].index]  # type: ignore[union-attr]
        where = tree.path_text(path[1:], name if isinstance(name, str) else f"argument {name}")
        leaves.append(float_leaf(leaf, f"{what} of {label}: {where}"))
    return leaves, treedef


def _tangent_or_static(spec: Any) -> Any:
    return spec if isinstance(spec, StaticSpec) else tangent_spec(spec)


def float_leaf(leaf: Any, where: str) -> Any:
    """A leaf that carries tangents; TypeError for others."""
    leaf = settled(leaf)
    if not is_numpy(leaf) and not isinstance(leaf, Tracer | bool | int | float):
        if hasattr(leaf, "__array__") and not isinstance(leaf, type):
            leaf = np.asarray(leaf)
        else:
            raise SignatureTypeError(f"{where} is {type(leaf).__name__}, not an array")
    spec = spec_of(leaf, where)
    if not is_float(spec.dtype):
        raise DTypeError(f"{where} is {spec!r}; only floating arrays have derivatives, cast it or choose other arguments")
    return leaf


def _check_scalar(program: Program, recorded: Recorded, label: str) -> None:
    if recorded.out_tree is not tree.LEAF:
        raise TracingError(
            f"grad of {label}: the function must return a scalar, got a tree of {recorded.out_count}: {recorded.out_tree!r}; use has_aux=True for more"
        )
    spec = program.outputs[0].spec
    if spec.shape != ():
        raise TracingError(f"grad of {label}: the function must return a scalar, got {spec!r}; sum it, or use ons.vjp or ons.jacobian")
    if not is_float(spec.dtype):
        raise DTypeError(f"grad of {label}: the function must return a real floating scalar, got {spec!r}")


def python_function(program: StagedProgram) -> Callable[..., Any]:
    """A StagedProgram as a function with its own parameters, for transforms that look at the signature."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    function.__name__ = program.name
    function.__signature__ = inspect.Signature(program.signature.parameters)
    return function


def _staged_transform(program: StagedProgram, function: Callable[..., Any], what: str) -> StagedProgram:
    """Stage a transformed program for the same arguments."""
    return restage(program, function, f"{what} of {program.name}")


def restage(program: StagedProgram, function: Callable[..., Any], label: str, specs: Sequence[ArraySpec] | None = None) -> StagedProgram:
    """A StagedProgram of the same arguments, or of others' specs in the same tree, that computes `function` of them."""
    signature = program.signature if specs is None else program.signature.with_specs(specs)
    out_trees: list[tree.TreeDef] = []

    def flat(*leaves: Any) -> Sequence[Any]:
        outputs, out_tree = flatten_result(signature.call(function, leaves), label)
        out_trees.append(out_tree)
        return outputs

    traced = trace_program(flat, signature.specs, name=label)
    return StagedProgram(traced.program, signature, out_trees[0])


def staged_signature(program: StagedProgram, what: str) -> tuple[Signature, int]:
    """The signature of a program form: the primals' arguments, then theirs again as tangents, or the result's cotangent `ct`.

    Gives it with the number of primal leaves. Statics stay where they are.
    """
    signature = program.signature
    values = signature.values(signature.specs)
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [p.replace(kind=keyword) for p in signature.parameters]
    primal_values = [values[p.name] for p in parameters]
    if what == "cotangent":
        extra = [("ct", tree.unflatten(program.out_tree, [tangent_spec(s) for s in program.program.out_specs]))]
    else:
        extra = [
            (f"{p.name}_tangent", tree.map(_tangent_or_static, v))
            for p, v in zip(parameters, primal_values, strict=True)
            if not isinstance(v, StaticSpec)
        ]
    added = [inspect.Parameter(name, keyword) for name, _ in extra]
    full = Signature(
        [*parameters, *added], [*primal_values, *(v for _, v in extra)], f"{'jvp' if what == 'tangent' else 'vjp'} of {signature.name}"
    )
    return full, len(signature.specs)
