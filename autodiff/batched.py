"""A user primitive under vmap, kept as one equation so that its own derivative rules still hold: they are batched, not its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ops.custom_rules import example_spec
from ..ops.structure import reduce_sum_p
from ..stage.dims import Dim
from ..stage.primitive import Array, Params, Primitive, Unknown, find_primitive
from ..stage.program import Program
from ..stage.spec import ArraySpec, DimLike, make_spec, spec_of
from ..stage.trace import bind
from .batching import Axis, BatchContext, batch_program, put_axis
from .rules import Mask, decomposition
from .templates import pullback_template, tangent_template

# Params: the `inner` primitive and `inner_params`, its params as items, the batch `axes` of its operands (None for shared ones), the batch's `size`. Outputs are
# batched along their first axis.


def _examples(operands: Sequence[Any], axes: tuple[Axis, ...]) -> tuple[ArraySpec, ...]:
    return tuple([example_spec(spec_of(x), a) for x, a in zip(operands, axes, strict=True)])


def _abstract(*specs: ArraySpec, inner: Primitive, inner_params: tuple[Any, ...], axes: tuple[Axis, ...], size: DimLike) -> Any:
    out_specs, _ = inner.infer(_examples(specs, axes), dict(inner_params))
    return tuple(make_spec((size, *s.shape), s.dtype) for s in out_specs)


def _numpy(*arrays: Array, inner: Primitive, inner_params: tuple[Any, ...], axes: tuple[Axis, ...], size: int) -> list[Array]:
    out_specs, _ = inner.infer(_examples(arrays, axes), dict(inner_params))
    rows: list[list[Array]] = []
    for i in range(size):
        example = [x if a is None else np.take(x, i, axis=a) for x, a in zip(arrays, axes, strict=True)]
        rows.append(inner.evaluate(example, dict(inner_params), out_specs))
    if not rows:
        return [np.zeros((0, *[int(d) for d in s.shape if not isinstance(d, Dim)]), s.dtype) for s in out_specs]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _run(size: DimLike, program: Program, args: Sequence[Any], axes: Sequence[Axis]) -> tuple[list[Any], list[Axis]]:
    return batch_program(BatchContext(size), program, args, axes)


def _jvp(
    output: Any, primals: Any, tangents: Any, *, inner: Primitive, inner_params: tuple[Any, ...], axes: tuple[Axis, ...], size: DimLike
) -> Any:
    active = tuple(t is not None for t in tangents)
    template = tangent_template(inner, _examples(primals, axes), dict(inner_params), active)
    args = [*primals, *output, *[t for t in tangents if t is not None]]
    found, found_axes = _run(
        size, template.program, args, [*axes, *[0] * len(output), *[a for a, t in zip(axes, active, strict=True) if t]]
    )
    results = iter([put_axis(x, a, 0, size) for x, a in zip(found, found_axes, strict=True)])
    unknown = dict(template.unknown)
    return tuple(Unknown(unknown[i]) if i in unknown else next(results) if p else None for i, p in enumerate(template.present))


def _transpose(
    cotangent: Any,
    primals: Any,
    output: Any,
    *,
    active: Mask,
    inner: Primitive,
    inner_params: tuple[Any, ...],
    axes: tuple[Axis, ...],
    size: DimLike,
) -> Any:
    given = tuple(c is not None for c in cotangent)
    template = pullback_template(inner, _examples(primals, axes), dict(inner_params), active, given)
    args = [*primals, *output, *[c for c in cotangent if c is not None]]
    found, found_axes = _run(size, template.program, args, [*axes, *[0] * len(output), *[0] * sum(given)])
    results = iter(
        [_to_operand(x, a, wanted, size) for x, a, wanted in zip(found, found_axes, _chosen(axes, template.present), strict=True)]
    )
    return tuple(next(results) if p else None for p in template.present)


def _chosen(axes: Sequence[Axis], present: Mask) -> list[Axis]:
    return [a for a, p in zip(axes, present, strict=True) if p]


def _to_operand(ct: Any, axis: Axis, wanted: Axis, size: DimLike) -> Any:
    """A cotangent along the operand's batch axis; summed over the batch where the operand is shared by all examples."""
    if wanted is not None:
        return put_axis(ct, axis, wanted, size)
    whole = put_axis(ct, axis, 0, size)
    return bind(reduce_sum_p, whole, axes=(0,), keepdims=False)


def _batch(ctx: Any, args: Any, batch_axes: Any, /, **params: Any) -> Any:
    outputs = bind(batched_p, *args, inner=batched_p, inner_params=tuple(sorted(params.items())), axes=tuple(batch_axes), size=ctx.size)
    return outputs, [0] * len(outputs)


def _decompose(*operands: Any, inner: Primitive, inner_params: tuple[Any, ...], axes: tuple[Axis, ...], size: DimLike) -> Any:
    program = decomposition(inner, _examples(operands, axes), dict(inner_params))
    found, found_axes = _run(size, program, operands, axes)
    return tuple(put_axis(x, a, 0, size) for x, a in zip(found, found_axes, strict=True))


class _Batched(Primitive):
    """Has no forward mode where the primitive inside has none."""

    # Its equations are asked for `require_lowering`, as those of user primitives are.
    generation = -1

    def reverse_only(self, params: Params) -> str | None:
        return params["inner"].reverse_only(dict(params["inner_params"]))

    def require_lowering(self, specs: tuple[ArraySpec, ...], params: Params) -> None:
        decomposition(params["inner"], _examples(specs, params["axes"]), dict(params["inner_params"]))


batched_p = _Batched("batched", abstract=_abstract, numpy=_numpy, jvp=_jvp, transpose=_transpose, batch=_batch, decompose=_decompose)
assert find_primitive("batched") is batched_p
