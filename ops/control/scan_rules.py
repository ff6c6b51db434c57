"""The scan primitive: a body applied along a leading axis with a carry. All its rules; `scan.py` has what users call.

Body inputs: constants, carry, one slice of each xs. Body outputs: carry, one slice of each ys. Operands: constants, carry, xs.
Reverse mode is a forward scan that also stacks what the backward pass reads, and a scan the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...stage.dims import Dim, same_dim
from ...stage.dtypes import BOOL, INT64
from ...stage.errors import ShapeError
from ...stage.interpreter import evaluate
from ...stage.primitive import Array, Primitive
from ...stage.program import Atom, Program, ProgramBuilder
from ...stage.spec import ArraySpec, DimLike, carries_tangent, make_spec
from ...stage.trace import bind, inline, trace_program
from ..arithmetic import add_p
from ..operands import spec
from ..structure import move_axis
from .bodies import same_spec, strong
from .branch import emit_zeros, to_front


class Layout(NamedTuple):
    """How operands and body inputs divide."""

    consts: int
    carry: int

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """(constants, carry, xs)"""
        values = list(values)
        end = self.consts + self.carry
        return values[: self.consts], values[self.consts : end], values[end:]


def bind_scan(operands: Sequence[Any], body: Program, layout: Layout, length: DimLike, reverse: bool) -> tuple[Any, ...]:
    """Apply the primitive."""
    return bind(scan_p, *operands, body=body, num_consts=layout.consts, num_carry=layout.carry, length=length, reverse=reverse)


def stacked(s: ArraySpec, length: DimLike) -> ArraySpec:
    return make_spec((length, *s.shape), s.dtype)


def _abstract(*operands: ArraySpec, body: Program, num_consts: int, num_carry: int, length: DimLike, reverse: bool) -> Any:
    layout = Layout(num_consts, num_carry)
    consts, carry, xs = layout.split(operands)
    wanted = [*consts, *carry, *[make_spec(x.shape[1:], x.dtype) for x in xs]]
    for i, (have, need) in enumerate(zip(wanted, body.in_specs, strict=True)):
        if not same_spec(have, need):
            raise ShapeError(f"scan: operand {i} is {have!r}, the body takes {need!r}")
    for x in xs:
        if not same_dim(x.shape[0], length):
            raise ShapeError(f"scan: xs have length {x.shape[0]}, expected {length}")
    outs = body.out_specs
    for i, (have, need) in enumerate(zip(outs[: layout.carry], carry, strict=True)):
        if not same_spec(have, need):
            raise ShapeError(f"scan: the body gives {have!r} for carry {i}, which is {need!r}")
    return (*[strong(s) for s in outs[: layout.carry]], *[stacked(s, length) for s in outs[layout.carry :]])


def _numpy(*operands: Array, body: Program, num_consts: int, num_carry: int, length: int, reverse: bool) -> list[Array]:
    layout = Layout(num_consts, num_carry)
    consts, carry, xs = layout.split(operands)
    ys_specs = body.out_specs[layout.carry :]
    ys = [np.empty((length, *[int(d) for d in s.shape]), s.dtype) for s in ys_specs]
    for t in range(length - 1, -1, -1) if reverse else range(length):
        outputs = evaluate(body, [*consts, *carry, *[np.asarray(x[t]) for x in xs]])
        carry = outputs[: layout.carry]
        for y, value in zip(ys, outputs[layout.carry :], strict=True):
            y[t] = value
    return [*carry, *ys]


# ----------------------------------------------------------------------------------------------------------------- forward mode


def _jvp(ctx: Any, primals: Any, tangents: Any, *, body: Program, num_consts: int, num_carry: int, length: DimLike, reverse: bool) -> Any:
    layout = Layout(num_consts, num_carry)
    active_consts, active_carry, active_xs = ([t is not None for t in g] for g in layout.split(tangents))
    active_carry = carry_fix_point(active_carry, lambda mask: ctx.jvp(body, [*active_consts, *mask, *active_xs]).present[: layout.carry])
    required = [*active_carry, *[False] * (len(body.outputs) - layout.carry)]
    inner = ctx.jvp(body, [*active_consts, *active_carry, *active_xs], required)
    present_ys = inner.present[layout.carry :]
    # inner: consts, carry, xs, then their tangents; a scan wants them side by side
    count = len(body.inputs)
    split = layout.split(range(count))
    tangent_at = {i: count + k for k, i in enumerate([i for i, a in enumerate([*active_consts, *active_carry, *active_xs]) if a])}
    groups = [[*group, *[tangent_at[i] for i in group if i in tangent_at]] for group in split]
    outs, out_tangents = list(inner.program.outputs[: len(body.outputs)]), list(inner.program.outputs[len(body.outputs) :])
    carried = sum(active_carry)
    outputs = [*outs[: layout.carry], *out_tangents[:carried], *outs[layout.carry :], *out_tangents[carried:]]
    program = Program([inner.program.inputs[i] for g in groups for i in g], inner.program.equations, outputs, f"jvp of {body.name}")
    values: list[Any] = []
    for group, active in zip(split, (active_consts, active_carry, active_xs), strict=True):
        values.extend(primals[i] for i in group)
        values.extend(_tangent(tangents[i], primals[i]) for i, a in zip(group, active, strict=True) if a)
    new = Layout(len(groups[0]), len(groups[1]))
    results = bind_scan([*values], program, new, length, reverse)
    n, ys = layout.carry, len(body.outputs) - layout.carry
    carry_tangents = iter(results[n : n + carried])
    ys_tangents = iter(results[n + carried + ys :])
    output = (*results[:n], *results[n + carried : n + carried + ys])
    return output, (
        *[next(carry_tangents) if a else None for a in active_carry],
        *[next(ys_tangents) if p else None for p in present_ys],
    )


def carry_fix_point(mask: list[bool], step: Callable[[list[bool]], Sequence[Any]]) -> list[bool]:
    """The smallest mask above `mask` that one pass of the body does not enlarge."""
    while True:
        found = [a or bool(b) for a, b in zip(mask, step(mask), strict=True)]
        if found == mask:
            return mask
        mask = found


def _tangent(tangent: Any, primal: Any) -> Any:
    return zeros_like(spec(primal)) if tangent is None else tangent


def zeros_like(s: ArraySpec) -> Any:
    """Zeros of a spec, recorded in the trace around."""
    return inline(_zeros_program(s), [])[0]


def _zeros_program(s: ArraySpec) -> Program:
    builder = ProgramBuilder()
    return builder.build([emit_zeros(builder, s)])


# ----------------------------------------------------------------------------------------------------------------- reverse mode


def _vjp(ctx: Any, primals: Any, active: Any, *, body: Program, num_consts: int, num_carry: int, length: DimLike, reverse: bool) -> Any:
    layout = Layout(num_consts, num_carry)
    n, count = layout.carry, len(body.inputs)
    active_consts, active_carry, active_xs = layout.split(active)
    tangent_mask = [carries_tangent(s) for s in body.out_specs]
    active_carry = carry_fix_point(list(active_carry), lambda mask: ctx.jvp(body, [*active_consts, *mask, *active_xs]).present[:n])
    mask = [*active_consts, *active_carry, *active_xs]
    ys_given = tangent_mask[n:]
    given = [*active_carry, *ys_given]
    parts = ctx.reverse(body, mask, given, mask)
    consts, carry, _ = layout.split(primals)

    # What the backward body reads: constants and xs are at hand, the rest is stacked by the forward scan.
    kinds = [_residual_kind(source, layout) for source in parts.residual_inputs]
    stored = [k for k, kind in enumerate(kinds) if kind == "stacked"]
    outs = len(body.outputs)
    forward_outputs = [*parts.forward.outputs[:outs], *[parts.forward.outputs[outs + k] for k in stored]]
    forward = Program(parts.forward.inputs, parts.forward.equations, forward_outputs, parts.forward.name)
    results = bind_scan([*primals], forward, layout, length, reverse)
    output, stacks = results[:outs], results[outs:]

    def pullback(cts: Any) -> Any:
        backward, groups = _backward_body(parts, body, layout, active_consts, active_carry, [c is not None for c in cts[n:]], ys_given)
        const_values = [primals[source] for source, kind in zip(parts.residual_inputs, kinds, strict=True) if kind == "constant"]
        carry_cts = [c if c is not None else zeros_like(strong(spec(x))) for c, x, a in zip(cts[:n], carry, active_carry, strict=True) if a]
        const_cts = [zeros_like(strong(spec(x))) for x, a in zip(consts, active_consts, strict=True) if a]
        stack_values = iter(stacks)
        per_step = [
            next(stack_values) if kind == "stacked" else primals[source]
            for source, kind in zip(parts.residual_inputs, kinds, strict=True)
            if kind != "constant"
        ]
        ys_cts = [c for c in cts[n:] if c is not None]
        found = bind_scan([*const_values, *carry_cts, *const_cts, *per_step, *ys_cts], backward, groups, length, not reverse)
        carried, rest = iter(found[: len(carry_cts)]), found[len(carry_cts) :]
        const_found, xs_found = iter(rest[: len(const_cts)]), iter(rest[len(const_cts) :])
        return (
            *[next(const_found) if a else None for a in active_consts],
            *[next(carried) if a else None for a in active_carry],
            *[next(xs_found) if a else None for a in active_xs],
        )

    assert count == len(mask)
    return output, pullback


def _residual_kind(source: int | None, layout: Layout) -> str:
    if source is None:
        return "stacked"
    if source < layout.consts:
        return "constant"
    return "stacked" if source < layout.consts + layout.carry else "xs"


def _backward_body(
    parts: Any, body: Program, layout: Layout, active_consts: Sequence[bool], active_carry: Sequence[bool],
    ys_present: Sequence[bool], ys_given: Sequence[bool],
) -> tuple[Program, Layout]:  # fmt: skip
    """Inputs: constant residuals; cotangents of the carry, accumulators for the constants'; other residuals, cotangents of ys.

    Outputs: the new cotangents of the carry, the accumulators; the cotangents of xs.
    """
    builder = ProgramBuilder()
    residual_vars = list(parts.backward.inputs[: len(parts.residual_inputs)])
    ct_vars = list(parts.backward.inputs[len(parts.residual_inputs) :])
    kinds = [_residual_kind(source, layout) for source in parts.residual_inputs]
    inputs = [builder.add_input(strong(v.spec)) for v, kind in zip(residual_vars, kinds, strict=True) if kind == "constant"]
    const_inputs = iter(inputs)
    carried = sum(active_carry)
    carry_inputs = [builder.add_input(strong(v.spec)) for v in ct_vars[:carried]]
    accumulators = [builder.add_input(strong(v.spec)) for v, a in zip(body.inputs, active_consts, strict=False) if a]
    step_inputs = iter([builder.add_input(strong(v.spec)) for v, kind in zip(residual_vars, kinds, strict=True) if kind != "constant"])
    ys_vars = iter(ct_vars[carried:])
    ys_inputs: list[Atom] = []
    for present, is_given in zip(ys_present, ys_given, strict=True):
        if not is_given:
            continue
        var = next(ys_vars)
        ys_inputs.append(builder.add_input(strong(var.spec)) if present else emit_zeros(builder, strong(var.spec)))
    residuals = [next(const_inputs) if kind == "constant" else next(step_inputs) for kind in kinds]
    found = builder.inline(parts.backward, [*residuals, *carry_inputs, *ys_inputs])
    const_count = sum(active_consts)
    added = [builder.emit(add_p, (acc, ct), {}, None)[0] for acc, ct in zip(accumulators, found[:const_count], strict=True)]
    outputs = [*found[const_count : const_count + carried], *added, *found[const_count + carried :]]
    return builder.build(outputs, f"backward of {body.name}"), Layout(len(inputs), carried + const_count)


# ------------------------------------------------------------------------------------------------------------------------- vmap


def _batch(
    ctx: Any, args: Any, batch_axes: Any, /, *, body: Program, num_consts: int, num_carry: int, length: DimLike, reverse: bool
) -> Any:
    layout = Layout(num_consts, num_carry)
    const_axes, carry_axes, xs_axes = layout.split(batch_axes)
    mapped_xs = [a is not None for a in xs_axes]
    args = [
        move_axis(x, a, 0 if i < layout.consts + layout.carry else 1) if a is not None else x
        for i, (x, a) in enumerate(zip(args, batch_axes, strict=True))
    ]
    const_mask = [a is not None for a in const_axes]

    def axes_of(carry_mask: Sequence[bool]) -> list[int | None]:
        return [0 if m else None for m in (*const_mask, *carry_mask, *mapped_xs)]

    consts, carry, xs = layout.split(args)
    slices = [_slice_spec(x, m) for x, m in zip(xs, mapped_xs, strict=True)]

    def batched(carry_mask: Sequence[bool], forced: Sequence[bool] | None) -> tuple[Program, list[int | None]]:
        found_axes: list[int | None] = []
        specs = [
            *[spec(x) for x in consts],
            *[_carry_spec(x, a is not None, m, ctx.size) for x, a, m in zip(carry, carry_axes, carry_mask, strict=True)],
            *slices,
        ]

        def function(*values: Any) -> Sequence[Any]:
            outputs, axes = ctx.batch(body, values, axes_of(carry_mask))
            found_axes.extend(axes)
            if forced is None:
                return outputs
            return [to_front(x, a, ctx.size) if f or a is not None else x for x, a, f in zip(outputs, axes, forced, strict=True)]

        program = trace_program(function, specs, name=body.name, sources=False).program
        return program, found_axes

    start = [a is not None for a in carry_axes]
    carry_mask = carry_fix_point(start, lambda mask: [a is not None for a in batched(mask, None)[1][: layout.carry]])
    ys = len(body.outputs) - layout.carry
    program, found = batched(carry_mask, [*carry_mask, *[False] * ys])
    values = [
        *consts,
        *[to_front(x, None, ctx.size) if m and a is None else x for x, m, a in zip(carry, carry_mask, carry_axes, strict=True)],
        *xs,
    ]
    results = bind_scan([*values], program, layout, length, reverse)
    out_axes = [*[0 if m else None for m in carry_mask], *[None if a is None else 1 for a in found[layout.carry :]]]
    return results, out_axes


def _slice_spec(x: Any, mapped: bool) -> ArraySpec:
    s = spec(x)
    return make_spec(s.shape[1:], s.dtype)


def _carry_spec(x: Any, has_axis: bool, mapped: bool, size: DimLike) -> ArraySpec:
    s = strong(spec(x))
    return make_spec((size, *s.shape), s.dtype) if mapped and not has_axis else s


# --------------------------------------------------------------------------------------------------------------------- lowering


def _onnx(b: Any, *operands: str, body: Program, num_consts: int, num_carry: int, length: DimLike, reverse: bool) -> Any:
    layout = Layout(num_consts, num_carry)
    consts, carry, xs = layout.split(operands)
    if not isinstance(length, Dim) and length > 0 and xs:
        return _onnx_scan(b, consts, carry, xs, body, layout, reverse)
    return _onnx_loop(b, consts, carry, xs, body, layout, length, reverse)


def _onnx_scan(b: Any, consts: list[str], carry: list[str], xs: list[str], body: Program, layout: Layout, reverse: bool) -> Any:
    in_specs = body.in_specs
    graph = b.subgraph(body, [*consts, *in_specs[layout.consts :]])
    ys = len(body.outputs) - layout.carry
    attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": len(xs)}
    if reverse:
        attributes["scan_input_directions"] = [1] * len(xs)
        attributes["scan_output_directions"] = [1] * ys
    result = b.op("Scan", *carry, *xs, outputs=len(body.outputs), **{k: v for k, v in attributes.items() if v != []})
    return (result,) if isinstance(result, str) else tuple(result)


def _onnx_loop(
    b: Any, consts: list[str], carry: list[str], xs: list[str], body: Program, layout: Layout, length: DimLike, reverse: bool
) -> Any:
    """For lengths that are 0 or known at run time only (ONNX Runtime's Scan fails at length 0), and for scans without xs."""
    trip = b.dim(length)
    last = b.op("Sub", trip, b.const(1, INT64)) if reverse else None
    ys_specs = body.out_specs[layout.carry :]
    with b.graph(body.name) as graph:
        step = graph.input(make_spec((), INT64))
        condition = graph.input(make_spec((), BOOL))
        states = [graph.input(s) for s in body.in_specs[layout.consts : layout.consts + layout.carry]]
        position = step if last is None else b.op("Sub", last, step)
        slices = [b.op("Gather", x, position, axis=0) for x in xs]
        results = b.lower(body, [*consts, *states, *slices], own_lines=True)
        graph.output(b.op("Identity", condition), make_spec((), BOOL))
        for name, s in zip(results, body.out_specs, strict=True):
            graph.output(name, s)
        proto = graph.proto
    result = b.op("Loop", trip, "", *carry, outputs=len(body.outputs), body=proto)
    outputs = [result] if isinstance(result, str) else list(result)
    ys = [_loop_stack(b, y, s, length, last) for y, s in zip(outputs[layout.carry :], ys_specs, strict=True)]
    return (*outputs[: layout.carry], *ys)


def _loop_stack(b: Any, y: str, s: ArraySpec, length: DimLike, last: str | None) -> str:
    """A Loop's stacked output in its full shape, also after no step at all, and in the order of the xs."""
    y = b.op("Reshape", y, b.shape((length, *s.shape)), allowzero=1)
    if last is None:
        return y
    # A Slice, since ONNX Runtime turns Gather(Range(last, -1, -1)) into a Slice that takes the -1 for the last element.
    minimum = np.iinfo(np.int64).min
    return b.op("Slice", y, b.const([-1], INT64), b.const([minimum], INT64), b.const([0], INT64), b.const([-1], INT64))


scan_p = Primitive(
    "scan",
    abstract=_abstract,
    numpy=_numpy,
    jvp_with_output=_jvp,
    vjp=_vjp,
    batch=_batch,
    onnx=_onnx,
)
