"""cond and switch: one of several branches runs. Lowered to nested If nodes; the branches not taken cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...stage import tree
from ...stage.dtypes import BOOL, INT32, promote
from ...stage.errors import DTypeError, ShapeError, SignatureTypeError
from ...stage.interpreter import evaluate
from ...stage.primitive import Array, Primitive
from ...stage.program import Atom, Program, ProgramBuilder, Var
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind, trace_program
from ...stage.tracer import Tracer
from ..arithmetic import where, where_p
from ..comparison import equal_p, less_p
from ..operands import cast, dtype_of, operand, spec
from ..structure import broadcast_to_p, move_axis, reshape_p
from .bodies import Body, casting_outputs, check_tree, operand_leaves, same_spec, strong, trace_body

# A switch has one operand that chooses (a boolean or an int32, already within range) and the operands of its branches, which all
# branches take. `owners` says for each output which branch makes it: None for all of them; an output that one branch alone makes (a
# residual for its backward pass) is a placeholder when another branch runs, and must not be read then.


def _shared(owners: tuple[int | None, ...], branch: int) -> list[int]:
    return [i for i, owner in enumerate(owners) if owner is None or owner == branch]


def _abstract(index: ArraySpec, *operands: ArraySpec, branches: tuple[Program, ...], owners: tuple[int | None, ...]) -> Any:
    specs: list[ArraySpec | None] = [None] * len(owners)
    for i, branch in enumerate(branches):
        if tuple(branch.in_specs) != operands and not all(same_spec(a, b) for a, b in zip(branch.in_specs, operands, strict=True)):
            raise ShapeError(f"switch: branch {i} takes {branch.in_specs}, the operands are {operands}")
        for position, out in zip(_shared(owners, i), branch.out_specs, strict=True):
            known = specs[position]
            if known is not None and not same_spec(known, out):
                raise ShapeError(f"switch: branch {i} gives {out!r} for output {position}, another one {known!r}")
            specs[position] = make_spec(out.shape, out.dtype)
    return tuple(specs)


def _numpy(index: Array, *operands: Array, branches: tuple[Program, ...], owners: tuple[int | None, ...]) -> list[Array]:
    chosen = int(index)
    outputs: list[Any] = [None] * len(owners)
    for position, value in zip(_shared(owners, chosen), evaluate(branches[chosen], operands), strict=True):
        outputs[position] = value
    for i, branch in enumerate(branches):
        for position, out in zip(_shared(owners, i), branch.out_specs, strict=True):
            if outputs[position] is None:
                outputs[position] = np.broadcast_to(np.zeros((), out.dtype), [int(d) for d in out.shape])
    return outputs


def _jvp(ctx: Any, primals: Any, tangents: Any, *, branches: tuple[Program, ...], owners: tuple[int | None, ...]) -> Any:
    index, *operands = primals
    active = [t is not None for t in tangents[1:]]
    presents = [ctx.jvp(branch, active).present for branch in branches]
    some = [False] * len(owners)
    for i, present in enumerate(presents):
        for position, has in zip(_shared(owners, i), present, strict=True):
            some[position] = some[position] or has
    new = tuple(ctx.jvp(branch, active, [some[p] for p in _shared(owners, i)]).program for i, branch in enumerate(branches))
    tangent_owners = tuple(owner for owner, has in zip(owners, some, strict=True) if has)
    results = bind(switch_p, index, *operands, *[t for t in tangents[1:] if t is not None], branches=new, owners=(*owners, *tangent_owners))
    found = iter(results[len(owners) :])
    return results[: len(owners)], tuple(next(found) if has else None for has in some)


def _is_float(s: ArraySpec) -> bool:
    return s.dtype.kind == "f" or s.dtype.name == "bfloat16"


def _vjp(ctx: Any, primals: Any, active: Any, *, branches: tuple[Program, ...], owners: tuple[int | None, ...]) -> Any:
    index, *operands = primals
    mask = active[1:]
    out_specs = _abstract(spec(index), *[spec(x) for x in operands], branches=branches, owners=owners)
    float_outputs = [i for i, s in enumerate(out_specs) if _is_float(s)]
    wanted = [[p in float_outputs for p in _shared(owners, i)] for i in range(len(branches))]
    presents = [ctx.reverse(b, mask, w).present for b, w in zip(branches, wanted, strict=True)]
    some = [any(present[k] for present in presents) for k in range(len(operands))]
    parts = [ctx.reverse(b, mask, w, some) for b, w in zip(branches, wanted, strict=True)]
    # residuals that are operands need not pass through the forward switch
    stored = [[k for k, source in enumerate(part.residual_inputs) if source is None] for part in parts]
    residual_owners = tuple(i for i, kept in enumerate(stored) for _ in kept)
    forwards = tuple(_forward_branch(part, len(b.outputs), kept) for b, part, kept in zip(branches, parts, stored, strict=True))
    results = bind(switch_p, index, *operands, branches=forwards, owners=(*owners, *residual_owners))
    output, residuals = results[: len(owners)], results[len(owners) :]

    def pullback(cts: Any) -> Any:
        given = [i for i in float_outputs if cts[i] is not None]
        specs = [spec(x) for x in operands], [spec(x) for x in residuals], [strong(out_specs[i]) for i in given]
        backwards: list[Program] = []
        for i, part in enumerate(parts):
            mine = [k for k, owner in enumerate(residual_owners) if owner == i]
            backwards.append(_backward_branch(part, specs, mine, [p for p in _shared(owners, i) if p in float_outputs], given))
        values = [*operands, *residuals, *[cts[i] for i in given]]
        found = iter(bind(switch_p, index, *values, branches=tuple(backwards), owners=(None,) * sum(some)))
        return (None, *(next(found) if has else None for has in some))

    return output, pullback


def _forward_branch(part: Any, count: int, kept: Sequence[int]) -> Program:
    program = part.forward
    outputs = [*program.outputs[:count], *[program.outputs[count + k] for k in kept]]
    return Program(program.inputs, program.equations, outputs, program.name)


def _backward_branch(
    part: Any,
    specs: tuple[list[ArraySpec], list[ArraySpec], list[ArraySpec]],
    mine: Sequence[int],
    wanted: Sequence[int],
    given: Sequence[int],
) -> Program:
    """One branch of the backward switch: takes all operands, all residuals and the given cotangents, reads what is its own."""
    builder = ProgramBuilder()
    operand_vars, residual_vars, ct_vars = ([builder.add_input(s) for s in group] for group in specs)
    own = iter([residual_vars[k] for k in mine])
    cotangents = dict(zip(given, ct_vars, strict=True))
    args: list[Atom] = [next(own) if source is None else operand_vars[source] for source in part.residual_inputs]
    for position, var in zip(wanted, part.backward.inputs[len(args) :], strict=True):
        args.append(cotangents[position] if position in cotangents else emit_zeros(builder, var.spec))
    return builder.build(builder.inline(part.backward, args), part.backward.name)


def emit_zeros(builder: ProgramBuilder, s: ArraySpec) -> Atom:
    """Zeros of a spec, recorded."""
    return builder.emit(broadcast_to_p, (cast(0, s.dtype),), {"shape": s.shape}, None)[0]


def _batch(
    ctx: Any, args: Any, batch_axes: Any, /, *, branches: tuple[Program, ...], owners: tuple[int | None, ...]
) -> tuple[Sequence[Any], Sequence[Any]]:
    index, *operands = args
    axis, *axes = batch_axes
    if axis is not None:
        return _select_all(ctx, index, operands, axes, branches, owners)
    out_axes: list[list[Any]] = []

    def batched(branch: Program, forced: Sequence[bool] | None) -> Program:
        def function(*xs: Any) -> Sequence[Any]:
            outputs, found = ctx.batch(branch, xs, axes)
            if forced is None:
                out_axes.append(list(found))
                return outputs
            return [to_front(x, a, ctx.size) if f else x for x, a, f in zip(outputs, found, forced, strict=True)]

        return trace_program(function, [spec(x) for x in operands], name=branch.name, sources=False).program

    for branch in branches:
        batched(branch, None)
    some = [False] * len(owners)
    for i, found in enumerate(out_axes):
        for position, a in zip(_shared(owners, i), found, strict=True):
            some[position] = some[position] or a is not None
    new = tuple(batched(branch, [some[p] for p in _shared(owners, i)]) for i, branch in enumerate(branches))
    return bind(switch_p, index, *operands, branches=new, owners=owners), [0 if s else None for s in some]


def _select_all(
    ctx: Any, index: Any, operands: Sequence[Any], axes: Sequence[Any], branches: tuple[Program, ...], owners: tuple[int | None, ...]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """A choice for each example: all branches run and their results are selected."""
    outputs: list[Any] = [None] * len(owners)
    for i, branch in enumerate(branches):
        results, found = ctx.batch(branch, operands, axes)
        for position, x, axis in zip(_shared(owners, i), results, found, strict=True):
            x = to_front(x, axis, ctx.size)
            if outputs[position] is None:
                outputs[position] = x
            else:
                chosen = bind(reshape_p, index, shape=(ctx.size, *(1,) * (len(x.shape) - 1)))
                chosen = chosen if dtype_of(index)[0] == BOOL else bind(equal_p, chosen, np.asarray(i, np.int32))
                outputs[position] = bind(where_p, chosen, x, outputs[position])
    return outputs, [0] * len(owners)


def to_front(x: Any, axis: int | None, size: Any) -> Any:
    """The batch axis in front; what has none is repeated along it."""
    if axis is not None:
        return move_axis(x, axis, 0)
    shape = tuple(x.shape)
    return bind(broadcast_to_p, bind(reshape_p, x, shape=(1, *shape)), shape=(size, *shape))


def _onnx(b: Any, index: str, *operands: str, branches: tuple[Program, ...], owners: tuple[int | None, ...]) -> Any:
    chosen = index if b.dtype(index) == BOOL else None
    out_specs = b.out_specs

    nested = b.nested

    def placeholder(s: ArraySpec) -> str:
        # ONNX Runtime's If takes branches whose outputs differ in shape: what a branch does not make is an empty array.
        # Not so in a loop, which stacks what its steps give.
        if nested:
            return b.op("Expand", b.const(0, s.dtype), b.shape(s.shape))
        return b.const(np.zeros((0,) * max(len(s.shape), 1), s.dtype))

    def graph_of(i: int) -> Any:
        with b.graph(branches[i].name) as graph:
            results = iter(b.lower(branches[i], list(operands), own_lines=True))
            for owner, s in zip(owners, out_specs, strict=True):
                made = owner is None or owner == i
                name = next(results) if made else placeholder(s)
                if made and all(o is None for o in owners):
                    graph.output(name, s)
                else:
                    graph.output_of(name, s.dtype)
        return graph.proto

    def choose(first: int) -> Any:
        if first == len(branches) - 1:
            return graph_of(first)
        with b.graph("choose") as graph:
            here = b.op("Equal", index, b.const(first, INT32))
            for name, s in zip(as_tuple(branch_node(here, graph_of(first), choose(first + 1))), out_specs, strict=True):
                graph.output_of(name, s.dtype)
        return graph.proto

    def branch_node(condition: str, then: Any, otherwise: Any) -> Any:
        return b.op("If", condition, outputs=len(owners), then_branch=then, else_branch=otherwise)

    if len(branches) == 1:
        return tuple(b.lower(branches[0], list(operands)))
    if chosen is not None:
        return as_tuple(branch_node(chosen, graph_of(1), graph_of(0)))
    return as_tuple(branch_node(b.op("Equal", index, b.const(0, INT32)), graph_of(0), choose(1)))


def as_tuple(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


switch_p = Primitive(
    "switch",
    abstract=_abstract,
    numpy=_numpy,
    jvp_with_output=_jvp,
    vjp=_vjp,
    batch=_batch,
    onnx=_onnx,
    shadow="continuous",
)


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """true_fn(*operands) if pred, else false_fn(*operands); only one of them runs.

    pred: a 0-d boolean (or number, compared with 0). Both functions return the same tree, shapes and dtypes. Under vmap with a
    batched pred both run and their results are selected. Raises TypeError or ShapeError naming the branch and what differs.
    """
    pred = _scalar(operand(pred, "cond: pred"), "cond: pred")
    return _switch(cast(pred, BOOL), [("false_fn", false_fn), ("true_fn", true_fn)], operands, "cond")


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """branches[index](*operands); the index is clamped to the branches there are."""
    functions = list(branches)
    if not functions:
        raise SignatureTypeError("switch: at least one branch is needed")
    index = _scalar(operand(index, "switch: index"), "switch: index")
    if dtype_of(index)[0].kind not in "iu":
        raise DTypeError(f"switch: the index is {spec(index)!r}; an integer is needed")
    clamped = cast(minimum_int(maximum_int(cast(index, np.dtype(np.int64)), 0), len(functions) - 1), INT32)
    return _switch(clamped, [(f"branch {i}", f) for i, f in enumerate(functions)], operands, "switch")


def maximum_int(x: Any, low: int) -> Any:
    return where(bind(less_p, x, np.asarray(low, np.int64)), np.asarray(low, np.int64), x)


def minimum_int(x: Any, high: int) -> Any:
    return where(bind(less_p, np.asarray(high, np.int64), x), np.asarray(high, np.int64), x)


def _scalar(x: Any, what: str) -> Any:
    shape = spec(x).shape
    if shape != ():
        raise ShapeError(f"{what} has shape {list(shape)}; one value is needed (np.where chooses element by element)")
    return x


def _switch(index: Any, functions: Sequence[tuple[str, Callable[..., Any]]], operands: tuple[Any, ...], label: str) -> Any:
    leaves, treedef = operand_leaves(operands, f"{label}: operands")
    specs = [spec(x) for x in leaves]
    bodies = [trace_body(f, treedef, specs, f"{label}: {name}") for name, f in functions]
    for (name, _), body in zip(functions[1:], bodies[1:], strict=True):
        check_tree(bodies[0].out_tree, body.out_tree, f"{label}: {name} returns another tree than {functions[0][0]}")
    out_specs = _common_specs(bodies, [name for name, _ in functions], label)
    captured: dict[int, Any] = {}
    keys: list[list[int]] = []
    for body in bodies:
        keys.append([captured_key(x) for x in body.captured])
        captured.update(zip(keys[-1], body.captured, strict=True))
    programs = tuple(
        _with_captures(casting_outputs(body.program, out_specs), len(leaves), own, captured) for body, own in zip(bodies, keys, strict=True)
    )
    values = [*leaves, *captured.values()]
    results = bind(switch_p, index, *values, branches=programs, owners=(None,) * len(out_specs))
    return tree.unflatten(bodies[0].out_tree, list(results))


def captured_key(x: Tracer) -> int:
    return id(x._atom)


def _with_captures(program: Program, count: int, own: Sequence[int], captured: dict[int, Any]) -> Program:
    """The branch taking all captured operands, its own where they were."""
    mine = dict(zip(own, program.inputs[count:], strict=True))
    inputs = [*program.inputs[:count], *[mine.get(k) or Var(spec(x)) for k, x in captured.items()]]
    return Program(inputs, program.equations, program.outputs, program.name)


def _common_specs(bodies: Sequence[Body], names: Sequence[str], label: str) -> list[ArraySpec]:
    """The outputs' specs: weak results take the dtype of the others; ShapeError or DTypeError naming the branch otherwise."""
    paths = [tree.path_text(p, "out") for p in bodies[0].out_tree.paths()]
    result: list[ArraySpec] = []
    for i, path in enumerate(paths):
        found = [body.program.out_specs[i] for body in bodies]
        dtype, _ = promote([(s.dtype, s.weak) for s in found])
        wanted = make_spec(found[0].shape, dtype)
        for name, s in zip(names, found, strict=True):
            if not same_spec(make_spec(s.shape, dtype), wanted):
                raise ShapeError(f"{label}: the branches disagree on {path}: {names[0]} gives {found[0]!r}, {name} gives {s!r}")
            if s.dtype != dtype and not s.weak:
                raise DTypeError(
                    f"{label}: the branches disagree on {path}: {', '.join(f'{n} gives {x!r}' for n, x in zip(names, found, strict=True))}"
                )
        result.append(wanted)
    return result
