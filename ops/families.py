"""Families: what being elementwise, or a reduction, implies, so that a declaration says only what is its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate

import numpy as np

from ..stage.dtypes import DType, short_name
from ..stage.errors import DTypeError, ProgramError
from ..stage.primitive import Case, DerivativeRule, Primitive, Rule, Sample, Shadow
from ..stage.spec import ArraySpec, make_spec, same_shape_key
from ..stage.trace import bind
from .operands import broadcast_shapes
from .structure import align_batch, broadcast, broadcast_to_p, move_axis, reduced_shape

FLOATS = "f"
NUMBERS = "iuf"
INTEGERS = "iu"
BITS = "biu"
ANY = "biuf"


def kind_of(dtype: DType) -> str:
    """b, i, u or f; bfloat16 is f."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def elementwise(
    name: str,
    numpy: Callable[Concatenate[Any, ...], Any],
    *,
    onnx: Callable[Concatenate[Any, Any, ...], Any] | str | None,
    dtypes: str = ANY,
    result: DType | None = None,
    jvp: DerivativeRule | None = None,
    linear: Sequence[Sequence[int]] | None = None,
    transpose: DerivativeRule | None = None,
    nondifferentiable: str | None = None,
    mixed: bool = False,
    cases: Sequence[Case] = (),
    simplify: Rule | None = None,
    shadow: Shadow = "continuous",
    decompose: Rule | None = None,
    version: int = 1,
    exact: bool | Callable[Concatenate[ArraySpec, ...], bool] | None = None,
) -> Primitive:
    """An elementwise primitive: operands of one dtype that broadcast, each output element from the elements at its place.

    dtypes: the kinds it takes; result: the output's dtype where it is not the operands'; mixed: operands may differ in dtype
    (then the last one's is the output's, as in `where`). onnx: a rule, or the name of a node with the same operands.
    A jvp's tangents may have an operand's shape: they are broadcast to the output's.
    """

    def abstract(first: ArraySpec, *rest: ArraySpec, **params: Any) -> ArraySpec:
        specs = (first, *rest)
        dtype = specs[-1].dtype
        for spec in specs if not mixed else specs[-1:]:
            if kind_of(spec.dtype) not in dtypes:
                raise DTypeError(f"{name}: not supported for {short_name(spec.dtype)}")
            if spec.dtype != dtype:
                raise ProgramError(f"{name}: operands of {short_name(dtype)} and {short_name(spec.dtype)}; they are promoted first")
        shape = broadcast_shapes(*(s.shape for s in specs), what=name) if rest else first.shape
        return make_spec(shape, result or dtype, all(s.weak for s in specs))

    def broadcasting_jvp(output: Any, primals: Any, tangents: Any, **params: Any) -> Any:
        assert jvp is not None
        tangent = jvp(output, primals, tangents, **params)
        return None if tangent is None else broadcast(tangent, output.shape)

    def batch(ctx: Any, args: Any, batch_axes: Any, /, **params: Any) -> Any:
        ndim = max(len(x.shape) - (a is not None) for x, a in zip(args, batch_axes, strict=True))
        aligned = [x if a is None else align_batch(x, a, ndim) for x, a in zip(args, batch_axes, strict=True)]
        return bind(primitive, *aligned, **params), 0

    def evaluate(*arrays: Any, **params: Any) -> Any:
        return numpy(*arrays, **params)

    def simplified(ctx: Any, *operands: Any, **params: Any) -> Any:
        simpler = None if simplify is None else simplify(ctx, *operands, **params)
        return simpler if simpler is not None else _without_broadcasts(ctx, primitive, operands, params)

    rule: Rule | None = onnx if not isinstance(onnx, str) else _node(onnx)
    primitive = Primitive(
        name,
        abstract=abstract,
        numpy=evaluate,
        jvp=broadcasting_jvp if jvp is not None else None,
        linear=linear,
        transpose=transpose,
        nondifferentiable=nondifferentiable,
        batch=batch,
        onnx=rule,
        simplify=simplified if exact is True else simplify,
        shadow=shadow,
        decompose=decompose,
        version=version,
        cases=cases,
        elementwise=True,
        exact=exact,
    )
    return primitive


def _without_broadcasts(ctx: Any, primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """The operands of an elementwise primitive before their broadcast_to, where the output's shape stays the same."""
    if len(operands) < 2:
        return None
    shape = ctx.infer(primitive, *operands, **params).shape
    bare = list(operands)
    for i, operand in enumerate(operands):
        inner = ctx.producer(operand)
        if inner is None or inner.primitive is not broadcast_to_p:
            continue
        bare[i] = inner.inputs[0]
        if not same_shape_key(ctx.infer(primitive, *bare, **params).shape, shape):
            bare[i] = operand
    return None if all(a is b for a, b in zip(bare, operands, strict=True)) else ctx.emit(primitive, *bare, **params)


def _node(op_type: str) -> Rule:
    def rule(b: Any, *operands: str, **params: Any) -> str:
        return b.op(op_type, *operands)

    return rule


def unary_cases(domain: tuple[float, float] = (-2.0, 2.0), dtype: str = "float", smooth: bool = True) -> list[Case]:
    """A matrix, a 0-d array and an empty one."""
    return [
        Case((Sample((2, 3), dtype, domain),), smooth=smooth, named=(("B", 3),)),
        Case((Sample((), dtype, domain),), smooth=smooth),
        Case((Sample((0, 2), dtype, domain),), smooth=smooth),
    ]


def binary_cases(
    first: tuple[float, float] = (-2.0, 2.0), second: tuple[float, float] = (-2.0, 2.0), dtype: str = "float", smooth: bool = True
) -> list[Case]:
    """Equal shapes, both directions of broadcasting, 0-d, empty."""
    shapes = [((2, 3), (2, 3)), ((2, 3), (3,)), ((), (2,)), ((2, 1), (1, 3)), ((0, 3), (3,))]
    cases = [Case((Sample(a, dtype, first), Sample(b, dtype, second)), smooth=smooth) for a, b in shapes]
    return [*cases, Case((Sample((2, 3), dtype, first), Sample((2, 3), dtype, second)), smooth=smooth, named=(("B", 3), ("B", 3)))]


def reduction(
    name: str,
    numpy: Callable[..., Any],
    *,
    onnx: Rule,
    dtypes: str = ANY,
    result: DType | None = None,
    jvp: DerivativeRule | None = None,
    nondifferentiable: str | None = None,
    cases: Sequence[Case] | None = None,
    shadow: Shadow = "continuous",
    decompose: Rule | None = None,
    check: Callable[[ArraySpec, tuple[int, ...]], None] | None = None,
    version: int = 1,
) -> Primitive:
    """A reduction over `axes` (sorted, non-negative) with `keepdims`; `check(spec, axes)` may reject an operand."""

    def abstract(x: ArraySpec, *, axes: tuple[int, ...], keepdims: bool) -> ArraySpec:
        if kind_of(x.dtype) not in dtypes:
            raise DTypeError(f"{name}: not supported for {short_name(x.dtype)}")
        if check is not None:
            check(x, axes)
        return make_spec(reduced_shape(x.shape, axes, keepdims), result or x.dtype)

    def batch(ctx: Any, args: Any, batch_axes: Any, /, **params: Any) -> Any:
        x = move_axis(args[0], batch_axes[0], 0)
        params["axes"] = tuple(a + 1 for a in params["axes"])
        return bind(primitive, x, **params), 0

    def evaluate(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        return np.asarray(numpy(x, axis=axes, keepdims=keepdims))

    primitive = Primitive(
        name,
        abstract=abstract,
        numpy=evaluate,
        jvp=jvp,
        nondifferentiable=nondifferentiable,
        batch=batch,
        onnx=onnx,
        shadow=shadow,
        decompose=decompose,
        version=version,
        cases=cases if cases is not None else reduction_cases(),
    )
    return primitive


def reduction_cases(dtype: str = "float", domain: tuple[float, float] = (-2.0, 2.0), smooth: bool = True) -> list[Case]:
    """One axis, several, all, kept and dropped."""
    return [
        Case((Sample((2, 3), dtype, domain),), {"axes": (1,), "keepdims": False}, smooth=smooth, named=(("B", 3),)),
        Case((Sample((2, 3, 4), dtype, domain),), {"axes": (0, 2), "keepdims": True}, smooth=smooth),
        Case((Sample((2, 3), dtype, domain),), {"axes": (0, 1), "keepdims": False}, smooth=smooth),
    ]
