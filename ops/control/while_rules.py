"""The while primitive: a body repeated as long as a condition holds. Lowered to one Loop node.

Operands: constants of the condition, constants of the body, carry. With `max_steps` it stops after so many steps at the latest, and
reverse mode is that of a scan of so many steps in which the body runs only while the condition holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...stage.dtypes import BOOL, INT64
from ...stage.errors import MissingRuleError, ShapeError
from ...stage.interpreter import evaluate
from ...stage.primitive import Array, Primitive
from ...stage.program import Program, Var
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind, inline, trace_program
from ..arithmetic import where_p
from ..comparison import logical_and_p
from ..operands import spec
from ..reductions import any as any_of
from ..structure import move_axis, reshape_p
from .bodies import same_spec, strong
from .branch import switch_p, to_front
from .scan_rules import Layout, bind_scan, carry_fix_point, zeros_like


def _split(values: Sequence[Any], num_cond_consts: int, num_body_consts: int) -> tuple[list[Any], list[Any], list[Any]]:
    values = list(values)
    end = num_cond_consts + num_body_consts
    return values[:num_cond_consts], values[num_cond_consts:end], values[end:]


def bind_while(
    operands: Sequence[Any], cond: Program, body: Program, num_cond_consts: int, num_body_consts: int, max_steps: int | None
) -> tuple[Any, ...]:
    """Apply the primitive."""
    return bind(
        while_p, *operands, cond=cond, body=body, num_cond_consts=num_cond_consts, num_body_consts=num_body_consts, max_steps=max_steps
    )


def _abstract(*operands: ArraySpec, cond: Program, body: Program, num_cond_consts: int, num_body_consts: int, max_steps: int | None) -> Any:
    cond_consts, body_consts, carry = _split(operands, num_cond_consts, num_body_consts)
    for name, program, wanted in (("condition", cond, [*cond_consts, *carry]), ("body", body, [*body_consts, *carry])):
        for i, (have, need) in enumerate(zip(wanted, program.in_specs, strict=True)):
            if not same_spec(have, need):
                raise ShapeError(f"while: operand {i} of the {name} is {have!r}, it takes {need!r}")
    for i, (have, need) in enumerate(zip(body.out_specs, carry, strict=True)):
        if not same_spec(have, need):
            raise ShapeError(f"while: the body gives {have!r} for carry {i}, which is {need!r}")
    return tuple(strong(s) for s in carry)


def _numpy(
    *operands: Array, cond: Program, body: Program, num_cond_consts: int, num_body_consts: int, max_steps: int | None
) -> list[Array]:
    cond_consts, body_consts, carry = _split(operands, num_cond_consts, num_body_consts)
    steps = 0
    while (max_steps is None or steps < max_steps) and bool(evaluate(cond, [*cond_consts, *carry])[0]):
        carry = evaluate(body, [*body_consts, *carry])
        steps += 1
    return carry


def _jvp(
    ctx: Any,
    primals: Any,
    tangents: Any,
    *,
    cond: Program,
    body: Program,
    num_cond_consts: int,
    num_body_consts: int,
    max_steps: int | None,
) -> Any:
    cond_consts, body_consts, carry = _split(primals, num_cond_consts, num_body_consts)
    _, const_tangents, carry_tangents = _split(tangents, num_cond_consts, num_body_consts)
    active_consts = [t is not None for t in const_tangents]
    active = carry_fix_point([t is not None for t in carry_tangents], lambda mask: ctx.jvp(body, [*active_consts, *mask]).present)
    inner = ctx.jvp(body, [*active_consts, *active], active).program
    count, n = len(body.inputs), len(carry)
    inputs = [
        *inner.inputs[: len(body_consts)],
        *inner.inputs[count : count + sum(active_consts)],
        *inner.inputs[len(body_consts) : count],
        *inner.inputs[count + sum(active_consts) :],
    ]
    new_body = Program(inputs, inner.equations, inner.outputs, inner.name)
    tangent_specs = [strong(spec(x)) for x, a in zip(carry, active, strict=True) if a]
    new_cond = Program([*cond.inputs, *[Var(s) for s in tangent_specs]], cond.equations, cond.outputs, cond.name)
    starts = [zeros_like(strong(spec(x))) if t is None else t for x, t, a in zip(carry, carry_tangents, active, strict=True) if a]
    consts = [*body_consts, *[t for t in const_tangents if t is not None]]
    results = bind_while([*cond_consts, *consts, *carry, *starts], new_cond, new_body, num_cond_consts, len(consts), max_steps)
    found = iter(results[n:])
    return results[:n], tuple(next(found) if a else None for a in active)


def _vjp(
    ctx: Any, primals: Any, active: Any, *, cond: Program, body: Program, num_cond_consts: int, num_body_consts: int, max_steps: int | None
) -> Any:
    if max_steps is None:
        raise MissingRuleError(
            "while_loop: reverse mode needs a bound on the number of steps: give max_steps, use fori_loop or scan, or forward mode (ons.jvp)"
        )
    bounded = _as_scan([spec(x) for x in primals], cond, body, num_cond_consts, num_body_consts, max_steps)
    given = [s.dtype.kind == "f" or s.dtype.name == "bfloat16" for s in bounded.out_specs]
    parts = ctx.reverse(bounded, active, given)
    results = inline(parts.forward, primals)
    outputs, residuals = results[: len(bounded.outputs)], results[len(bounded.outputs) :]

    def pullback(cts: Any) -> Any:
        values = [c if c is not None else zeros_like(strong(s)) for c, s, g in zip(cts, bounded.out_specs, given, strict=True) if g]
        found = iter(inline(parts.backward, [*residuals, *values]))
        return tuple(next(found) if present else None for present in parts.present)

    return tuple(outputs), pullback


def _as_scan(
    specs: Sequence[ArraySpec], cond: Program, body: Program, num_cond_consts: int, num_body_consts: int, max_steps: int
) -> Program:
    """The loop as a scan of max_steps steps whose body runs only while the condition holds."""
    cond_specs, body_specs, carry_specs = ([strong(s) for s in g] for g in _split(specs, num_cond_consts, num_body_consts))

    def step(*values: Any) -> Sequence[Any]:
        cond_consts, body_consts, state = _split(values, num_cond_consts, num_body_consts)
        *carry, running = state
        running = bind(logical_and_p, running, inline(cond, [*cond_consts, *carry])[0])
        rest = Program([*[Var(s) for s in body_specs], *body.inputs[num_body_consts:]], (), body.inputs[num_body_consts:], "stay")
        new = bind(switch_p, running, *body_consts, *carry, branches=(rest, body), owners=(None,) * len(carry))
        return [*new, running]

    flag = make_spec((), BOOL)
    step_program = trace_program(step, [*cond_specs, *body_specs, *carry_specs, flag], name=body.name, sources=False).program

    def whole(*values: Any) -> Sequence[Any]:
        layout = Layout(num_cond_consts + num_body_consts, len(carry_specs) + 1)
        start = bind(logical_and_p, True, True)
        return bind_scan([*values, start], step_program, layout, max_steps, False)[:-1]

    return trace_program(whole, [*cond_specs, *body_specs, *carry_specs], name=body.name, sources=False).program


def _batch(
    ctx: Any,
    args: Any,
    batch_axes: Any,
    /,
    *,
    cond: Program,
    body: Program,
    num_cond_consts: int,
    num_body_consts: int,
    max_steps: int | None,
) -> Any:
    args = [x if a is None else move_axis(x, a, 0) for x, a in zip(args, batch_axes, strict=True)]
    cond_consts, body_consts, carry = _split(args, num_cond_consts, num_body_consts)
    cond_axes, body_axes, carry_axes = (
        [None if a is None else 0 for a in group] for group in _split(batch_axes, num_cond_consts, num_body_consts)
    )

    def specs_of(mask: Sequence[bool]) -> list[ArraySpec]:
        return [_batched_spec(x, a is not None, m, ctx.size) for x, a, m in zip(carry, carry_axes, mask, strict=True)]

    def batched(program: Program, consts: Sequence[Any], const_axes: Sequence[Any], mask: Sequence[bool]) -> tuple[Program, list[Any]]:
        found: list[Any] = []

        def function(*values: Any) -> Sequence[Any]:
            outputs, axes = ctx.batch(program, values, [*const_axes, *[0 if m else None for m in mask]])
            found.extend(axes)
            return [x if a is None else move_axis(x, a, 0) for x, a in zip(outputs, axes, strict=True)]

        traced = trace_program(function, [*[spec(x) for x in consts], *specs_of(mask)], name=program.name, sources=False)
        return traced.program, found

    def step(mask: list[bool]) -> list[bool]:
        if batched(cond, cond_consts, cond_axes, mask)[1][0] is not None:
            return [True] * len(mask)
        return [a is not None for a in batched(body, body_consts, body_axes, mask)[1]]

    mask = carry_fix_point([a is not None for a in carry_axes], step)
    state_specs = specs_of(mask)
    new_cond, pred_axes = batched(cond, cond_consts, cond_axes, mask)
    starts = [to_front(x, None, ctx.size) if m and a is None else x for x, m, a in zip(carry, mask, carry_axes, strict=True)]
    inner, out_axes = batched(body, body_consts, body_axes, mask)
    if pred_axes[0] is None:

        def fill(*values: Any) -> Sequence[Any]:
            outputs = inline(inner, values)
            return [to_front(x, None, ctx.size) if m and a is None else x for x, a, m in zip(outputs, out_axes, mask, strict=True)]

        new_body = trace_program(fill, inner.in_specs, name=body.name, sources=False).program
        results = bind_while([*cond_consts, *body_consts, *starts], new_cond, new_body, num_cond_consts, num_body_consts, max_steps)
        return results, [0 if m else None for m in mask]

    # A condition for each example: the loop goes on while any holds, and examples that are done keep their carry.
    def some(*values: Any) -> Sequence[Any]:
        return [any_of(inline(new_cond, values)[0])]

    def masked(*values: Any) -> Sequence[Any]:
        conds, bodies, state = _split(values, num_cond_consts, num_body_consts)
        keep = inline(new_cond, [*conds, *state])[0]
        outputs = inline(inner, [*bodies, *state])
        outputs = [to_front(x, None, ctx.size) if a is None else x for x, a in zip(outputs, out_axes, strict=True)]
        return [
            bind(where_p, bind(reshape_p, keep, shape=(ctx.size, *(1,) * (len(x.shape) - 1))), x, old)
            for x, old in zip(outputs, state, strict=True)
        ]

    const_specs = [spec(x) for x in cond_consts]
    any_cond = trace_program(some, [*const_specs, *state_specs], name=cond.name, sources=False).program
    all_specs = [*const_specs, *[spec(x) for x in body_consts], *state_specs]
    masked_body = trace_program(masked, all_specs, name=body.name, sources=False).program
    operands = [*cond_consts, *cond_consts, *body_consts, *starts]
    results = bind_while(operands, any_cond, masked_body, num_cond_consts, num_cond_consts + num_body_consts, max_steps)
    return results, [0] * len(results)


def _batched_spec(x: Any, has_axis: bool, mapped: bool, size: Any) -> ArraySpec:
    s = strong(spec(x))
    return make_spec((size, *s.shape), s.dtype) if mapped and not has_axis else s


def _onnx(b: Any, *operands: str, cond: Program, body: Program, num_cond_consts: int, num_body_consts: int, max_steps: int | None) -> Any:
    cond_consts, body_consts, carry = _split(operands, num_cond_consts, num_body_consts)
    (first,) = b.lower(cond, [*cond_consts, *carry])
    with b.graph(body.name) as graph:
        graph.input(make_spec((), INT64))
        graph.input(make_spec((), BOOL))
        states = [graph.input(strong(s)) for s in body.in_specs[num_body_consts:]]
        results = b.lower(body, [*body_consts, *states], own_lines=True)
        (again,) = b.lower(cond, [*cond_consts, *results], own_lines=True)
        graph.output(again, make_spec((), BOOL))
        for name, s in zip(results, body.out_specs, strict=True):
            graph.output(name, strong(s))
        proto = graph.proto
    trips = "" if max_steps is None else b.const(max_steps, INT64)
    found = b.op("Loop", trips, first, *carry, outputs=len(carry), body=proto)
    return (found,) if isinstance(found, str) else tuple(found)


while_p = Primitive("while", abstract=_abstract, numpy=_numpy, jvp_with_output=_jvp, vjp=_vjp, batch=_batch, onnx=_onnx)
