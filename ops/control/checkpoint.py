"""checkpoint: a function whose intermediate values are computed again in the backward pass instead of being kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...stage import tree
from ...stage.dtypes import BOOL, INT64, is_float
from ...stage.interpreter import evaluate
from ...stage.primitive import Array, Primitive
from ...stage.program import Program, ProgramBuilder
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind, trace_program
from ..operands import spec
from .bodies import operand_leaves, strong, trace_body
from .scan_rules import zeros_like

# `barrier` keeps the body apart from the equations around it: it is lowered to a Loop of one trip, which survives ONNX Runtime's
# common-subexpression elimination; that would otherwise merge the recomputation with the forward pass and keep every value alive.


def _numpy(*operands: Array, body: Program, barrier: bool) -> list[Array]:
    return [x.copy() for x in evaluate(body, operands)]


def _jvp(ctx: Any, primals: Any, tangents: Any, *, body: Program, barrier: bool) -> Any:
    active = [t is not None for t in tangents]
    inner = ctx.jvp(body, active)
    results = bind(checkpoint_p, *primals, *[t for t in tangents if t is not None], body=inner.program, barrier=barrier)
    count = len(body.outputs)
    found = iter(results[count:])
    return results[:count], tuple(next(found) if p else None for p in inner.present)


def _vjp(ctx: Any, primals: Any, active: Any, *, body: Program, barrier: bool) -> Any:
    output = bind(checkpoint_p, *primals, body=body, barrier=barrier)
    given = [is_float(s.dtype) for s in body.out_specs]
    parts = ctx.reverse(body, active, given)
    count = len(body.outputs)

    def pullback(cts: Any) -> Any:
        builder = ProgramBuilder()
        inputs = [builder.add_input(strong(spec(x))) for x in primals]
        ct_inputs = [builder.add_input(v.spec) for v in parts.backward.inputs[len(parts.residual_inputs) :]]
        residuals = builder.inline(parts.forward, inputs)[count:]
        again = builder.build(builder.inline(parts.backward, [*residuals, *ct_inputs]), f"backward of {body.name}")
        values = [c if c is not None else zeros_like(strong(s)) for c, s, g in zip(cts, body.out_specs, given, strict=True) if g]
        found = iter(bind(checkpoint_p, *primals, *values, body=again, barrier=True))
        return tuple(next(found) if p else None for p in parts.present)

    return output, pullback


def _batch(ctx: Any, args: Any, batch_axes: Any, /, *, body: Program, barrier: bool) -> Any:
    from_axes: list[Any] = []

    def function(*xs: Any) -> Sequence[Any]:
        outputs, axes = ctx.batch(body, xs, batch_axes)
        from_axes.extend(axes)
        return outputs

    program = trace_program(function, [spec(x) for x in args], name=body.name, sources=False).program
    return bind(checkpoint_p, *args, body=program, barrier=barrier), from_axes


def _onnx(b: Any, *operands: str, body: Program, barrier: bool) -> Any:
    if not barrier:
        return tuple(b.lower(body, list(operands), own_lines=True))
    with b.graph(body.name) as graph:
        graph.input(make_spec((), INT64))
        keep = graph.input(make_spec((), BOOL))
        results = b.lower(body, list(operands), own_lines=True)
        graph.output(b.op("Identity", keep), make_spec((), BOOL))
        for name, s in zip(results, body.out_specs, strict=True):
            graph.output(name, s)
        proto = graph.proto
    found = b.op("Loop", b.const(1, INT64), "", outputs=len(body.outputs), body=proto)
    stacked = (found,) if isinstance(found, str) else tuple(found)
    return tuple(b.op("Reshape", x, b.shape(s.shape), allowzero=1) for x, s in zip(stacked, body.out_specs, strict=True))


def _abstract(*operands: ArraySpec, body: Program, barrier: bool) -> Any:
    return tuple(strong(s) for s in body.out_specs)


checkpoint_p = Primitive("checkpoint", abstract=_abstract, numpy=_numpy, jvp_with_output=_jvp, vjp=_vjp, batch=_batch, onnx=_onnx)


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function like f whose intermediate values are not kept for the backward pass but computed again: less memory, more time."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = operand_leaves((args, kwargs), "checkpoint: arguments")
        in_tree = tree.structure((tree.unflatten(treedef, leaves),))

        def call(both: Any) -> Any:
            return f(*both[0], **both[1])

        body = trace_body(call, in_tree, [spec(x) for x in leaves], f"checkpoint: {getattr(f, '__name__', type(f).__name__)}")
        results = bind(checkpoint_p, *leaves, *body.captured, body=body.program, barrier=False)
        return tree.unflatten(body.out_tree, list(results))

    wrapped.__name__ = getattr(f, "__name__", type(f).__name__)
    return wrapped
