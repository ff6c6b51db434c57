"""The structural linear primitives: cast, reshape, transpose, broadcast_to, reduce_sum, and the value of a dim.

They stand in one file since each other's transposes are made of them; every further family builds on these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, broadcast_dim, exact_div, product, same_dim
from ..stage.dtypes import FLOAT32, INT64, DType, is_float
from ..stage.errors import ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.program import constant
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from ..stage.trace import bind, is_tracing, lift_constant
from ..stage.tracer import Tracer
from .sum_nodes import reduced_shape, sum_nodes

# ---------------------------------------------------------------------------------------------------------------------- cast


def _cast_numpy(x: Array, *, dtype: DType, weak: bool) -> Array:
    return x.astype(dtype)


def _cast_jvp(output: Any, primals: Any, tangents: Any, *, dtype: DType, weak: bool) -> Any:
    return bind(cast_p, tangents[0], dtype=dtype, weak=weak) if is_float(dtype) else None


def _cast_transpose(ct: Any, primals: Any, output: Any, *, active: Any, dtype: DType, weak: bool) -> Any:
    source = primals[0]
    return (bind(cast_p, ct, dtype=source.dtype, weak=source.spec.weak),)


def _cast_simplify(ctx: Any, x: Any, *, dtype: DType, weak: bool) -> Any:
    return x if ctx.spec(x).dtype == dtype and ctx.spec(x).weak == weak else None


def _cast_batch(ctx: Any, args: Any, axes: Any, *, dtype: DType, weak: bool) -> Any:
    return bind(cast_p, args[0], dtype=dtype, weak=False), axes[0]


def _cast_exact(x: ArraySpec, *, dtype: DType, weak: bool) -> bool:
    return not (is_float(x.dtype) and dtype.kind in "iu")


def _cast_abstract(x: ArraySpec, *, dtype: DType, weak: bool) -> ArraySpec:
    return make_spec(x.shape, dtype, weak)


def _cast_onnx(b: Any, x: str, *, dtype: DType, weak: bool) -> str:
    return b.cast(x, dtype)


cast_p = Primitive(
    "cast",
    # A float out of the integers' range is cast differently by different processors
    exact=_cast_exact,
    abstract=_cast_abstract,
    numpy=_cast_numpy,
    jvp=_cast_jvp,
    linear=((0,),),
    transpose=_cast_transpose,
    batch=_cast_batch,
    onnx=_cast_onnx,
    simplify=_cast_simplify,
    cases=[
        Case((Sample((2, 3), "float64"),), {"dtype": np.dtype("float32"), "weak": False}),
        Case((Sample((3,), "float32"),), {"dtype": np.dtype("float64"), "weak": False}),
        Case((Sample((4,), "float32", (-9, 9)),), {"dtype": np.dtype("int32"), "weak": False}),
        Case((Sample((4,), "int32", (0, 2)),), {"dtype": np.dtype("bool"), "weak": False}),
        Case((Sample((), "bool"),), {"dtype": np.dtype("float32"), "weak": False}),
        Case((Sample((0, 2), "int64"),), {"dtype": np.dtype("uint8"), "weak": False}),
    ],
)

# ------------------------------------------------------------------------------------------------------------------- reshape


def resolve_reshape(shape: Shape, wanted: tuple[DimLike, ...]) -> Shape:
    """The target shape with -1 replaced; ShapeError if the sizes differ or cannot be compared."""
    if any(type(d) is int and d < -1 for d in wanted):
        raise ShapeError(f"reshape: negative dims in {list(wanted)}")
    if sum(type(d) is int and d == -1 for d in wanted) > 1:
        raise ShapeError(f"reshape: can only specify one unknown dimension, got {list(wanted)}")
    total = product(shape)
    holes = [i for i, d in enumerate(wanted) if type(d) is int and d == -1]
    if not holes:
        if not same_dim(product(wanted), total):
            raise ShapeError(f"reshape: cannot reshape {list(shape)} ({total} elements) into {list(wanted)} ({product(wanted)} elements)")
        return wanted
    known = product([d for i, d in enumerate(wanted) if i != holes[0]])
    rest = exact_div(total, known) if not _is_zero(known) else _unknown_of_empty(shape, wanted, holes[0])
    if rest is None:
        raise ShapeError(f"reshape: cannot reshape {list(shape)} ({total} elements) into {list(wanted)}")
    return tuple(rest if i == holes[0] else d for i, d in enumerate(wanted))


def _is_zero(d: DimLike) -> bool:
    return type(d) is int and d == 0


def _unknown_of_empty(shape: Shape, wanted: Shape, hole: int) -> DimLike | None:
    # x of shape (0, 8) reshaped to (0, -1): NumPy refuses; so do we, and name the way out.
    raise ShapeError(
        f"reshape: the unknown dim of {list(wanted)} is not determined by an array of shape {list(shape)}; give it as a number"
    )


def _reshape_abstract(x: ArraySpec, *, shape: Shape) -> ArraySpec:
    resolve_reshape(x.shape, shape)
    return make_spec(shape, x.dtype, x.weak)


def _reshape_simplify(ctx: Any, x: Any, *, shape: Shape) -> Any:
    if _same(ctx.spec(x).shape, shape):
        return x
    inner = ctx.producer(x)
    if inner is not None and inner.primitive is reshape_p:
        return ctx.emit(reshape_p, inner.inputs[0], shape=shape)
    return None


def _same(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_dim(p, q) for p, q in zip(a, b, strict=True))


def _reshape_batch(ctx: Any, args: Any, axes: Any, *, shape: Shape) -> Any:
    x = move_axis(args[0], axes[0], 0)
    return bind(reshape_p, x, shape=(x.shape[0], *shape)), 0


def _reshape_numpy(x: Array, *, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)


def _reshape_transpose(ct: Any, primals: Any, output: Any, *, active: Any, shape: Shape) -> Any:
    return (bind(reshape_p, ct, shape=primals[0].shape),)


def _reshape_onnx(b: Any, x: str, *, shape: Shape) -> str:
    return b.op("Reshape", x, b.shape(shape), allowzero=1)


reshape_p = Primitive(
    "reshape",
    exact=True,
    abstract=_reshape_abstract,
    numpy=_reshape_numpy,
    linear=((0,),),
    transpose=_reshape_transpose,
    batch=_reshape_batch,
    onnx=_reshape_onnx,
    simplify=_reshape_simplify,
    cases=[
        Case((Sample((2, 6)),), {"shape": (3, 4)}),
        Case((Sample((2, 3), "any"),), {"shape": (6,)}),
        Case((Sample(()),), {"shape": (1, 1)}),
        Case((Sample((0, 8, 2)),), {"shape": (0, 0, 4)}),
    ],
)

# ----------------------------------------------------------------------------------------------------------------- transpose


def _transpose_abstract(x: ArraySpec, *, permutation: tuple[int, ...]) -> ArraySpec:
    if sorted(permutation) != list(range(x.ndim)):
        raise ShapeError(f"transpose: axes {list(permutation)} do not match an array of shape {list(x.shape)}")
    return make_spec(tuple(x.shape[p] for p in permutation), x.dtype, x.weak)


def inverse_permutation(permutation: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(permutation)
    for i, p in enumerate(permutation):
        inverse[p] = i
    return tuple(inverse)


def _transpose_simplify(ctx: Any, x: Any, *, permutation: tuple[int, ...]) -> Any:
    if permutation == tuple(range(len(permutation))):
        return x
    inner = ctx.producer(x)
    if inner is not None and inner.primitive is transpose_p:
        first = inner.params["permutation"]
        return ctx.emit(transpose_p, inner.inputs[0], permutation=tuple(first[p] for p in permutation))
    return None


def _transpose_batch(ctx: Any, args: Any, axes: Any, *, permutation: tuple[int, ...]) -> Any:
    axis = axes[0]
    others = [i for i in range(args[0].ndim) if i != axis]
    return bind(transpose_p, args[0], permutation=(axis, *(others[p] for p in permutation))), 0


def _transpose_numpy(x: Array, *, permutation: tuple[int, ...]) -> Array:
    return np.transpose(x, permutation)


def _transpose_transpose(ct: Any, primals: Any, output: Any, *, active: Any, permutation: tuple[int, ...]) -> Any:
    return (bind(transpose_p, ct, permutation=inverse_permutation(permutation)),)


def _transpose_onnx(b: Any, x: str, *, permutation: tuple[int, ...]) -> str:
    return b.op("Transpose", x, perm=list(permutation))


transpose_p = Primitive(
    "transpose",
    exact=True,
    abstract=_transpose_abstract,
    numpy=_transpose_numpy,
    linear=((0,),),
    transpose=_transpose_transpose,
    batch=_transpose_batch,
    onnx=_transpose_onnx,
    simplify=_transpose_simplify,
    cases=[
        Case((Sample((2, 3, 4)),), {"permutation": (2, 0, 1)}, named=(("B", 3, 4),)),
        Case((Sample((2, 3), "any"),), {"permutation": (1, 0)}),
        Case((Sample(()),), {"permutation": ()}),
    ],
)


def move_axis(x: Any, source: int, destination: int) -> Any:
    """One axis moved; the others keep their order."""
    if source == destination:
        return x
    order = [i for i in range(len(x.shape)) if i != source]
    order.insert(destination, source)
    return bind(transpose_p, x, permutation=tuple(order))


# -------------------------------------------------------------------------------------------------------------- broadcast_to


def _broadcast_abstract(x: ArraySpec, *, shape: Shape) -> ArraySpec:
    offset = len(shape) - x.ndim
    fits = offset >= 0
    for i, dim in enumerate(x.shape if fits else ()):
        target = shape[offset + i]
        fits = fits and ((type(dim) is int and dim == 1) or same_dim(broadcast_dim(dim, target), target))
    if not fits:
        raise ShapeError(f"broadcast_to: {list(x.shape)} does not broadcast to {list(shape)}")
    return make_spec(shape, x.dtype, x.weak)


def broadcast_axes(source: Shape, target: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(axes of target that source lacks, axes where source is 1 and target is not the int 1)."""
    offset = len(target) - len(source)
    stretched = tuple(
        offset + i
        for i, d in enumerate(source)
        if type(d) is int and d == 1 and not (type(target[offset + i]) is int and target[offset + i] == 1)
    )
    return tuple(range(offset)), stretched


def sum_to(ct: Any, shape: Shape) -> Any:
    """Undo broadcasting: sum over the axes that broadcasting to ct's shape added or stretched."""
    if _same(ct.shape, shape):
        return ct
    added, stretched = broadcast_axes(shape, ct.shape)
    result = bind(reduce_sum_p, ct, axes=added + stretched, keepdims=False) if added or stretched else ct
    return result if _same(result.shape, shape) else bind(reshape_p, result, shape=shape)


def _broadcast_batch(ctx: Any, args: Any, axes: Any, *, shape: Shape) -> Any:
    x = align_batch(args[0], axes[0], len(shape))
    return bind(broadcast_to_p, x, shape=(x.shape[0], *shape)), 0


def align_batch(x: Any, axis: int, ndim: int) -> Any:
    """The batch axis in front, followed by ones so that the rest right-aligns with `ndim` further axes."""
    x = move_axis(x, axis, 0)
    missing = ndim - (len(x.shape) - 1)
    return x if missing <= 0 else bind(reshape_p, x, shape=(x.shape[0], *(1,) * missing, *x.shape[1:]))


def _broadcast_to_numpy(x: Array, *, shape: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(np.broadcast_to(x, shape)).reshape(shape)


def _broadcast_to_transpose(ct: Any, primals: Any, output: Any, *, active: Any, shape: Shape) -> Any:
    return (sum_to(ct, primals[0].shape),)


def _broadcast_to_onnx(b: Any, x: str, *, shape: Shape) -> str:
    return b.op("Expand", x, b.shape(shape))


def _broadcast_to_simplify(ctx: Any, x: Any, *, shape: Shape) -> Any:
    return x if _same(ctx.spec(x).shape, shape) else None


broadcast_to_p = Primitive(
    "broadcast_to",
    exact=True,
    abstract=_broadcast_abstract,
    numpy=_broadcast_to_numpy,
    linear=((0,),),
    transpose=_broadcast_to_transpose,
    batch=_broadcast_batch,
    onnx=_broadcast_to_onnx,
    simplify=_broadcast_to_simplify,
    cases=[
        Case((Sample((3, 1)),), {"shape": (2, 3, 4)}),
        Case((Sample((), "any"),), {"shape": (2, 2)}),
        Case((Sample((1, 2)),), {"shape": (0, 2)}),
    ],
)


def broadcast(x: Any, shape: Shape) -> Any:
    """x broadcast to a shape; nothing is recorded where it has it already."""
    return x if _same(x.shape, shape) else bind(broadcast_to_p, x, shape=shape)


def zeros(shape: Shape, dtype: DType) -> Any:
    """Zeros of a shape; while tracing they are recorded as a broadcast, so that no Program holds them as a constant."""
    zero = np.zeros((), dtype)
    return bind(broadcast_to_p, lift_constant(constant(zero)) if is_tracing() else zero, shape=tuple(shape))


# ---------------------------------------------------------------------------------------------------------------- reduce_sum


def _sum_abstract(x: ArraySpec, *, axes: tuple[int, ...], keepdims: bool) -> ArraySpec:
    if x.dtype.kind == "b":
        raise ShapeError("reduce_sum: booleans are cast to integers first")
    return make_spec(reduced_shape(x.shape, axes, keepdims), x.dtype)


def _sum_numpy(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    # Half-width floats are summed in float32, as NumPy does along contiguous axes.
    work = FLOAT32 if is_float(x.dtype) and x.dtype.itemsize == 2 else x.dtype
    return np.asarray(np.sum(x, axis=axes, keepdims=keepdims, dtype=work)).astype(x.dtype, copy=False)


def _sum_transpose(ct: Any, primals: Any, output: Any, *, active: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    shape = primals[0].shape
    if not keepdims:
        ct = bind(reshape_p, ct, shape=reduced_shape(shape, axes, True)) if axes else ct
    return (broadcast(ct, shape),)


def batched_axes(axes: tuple[int, ...], batch_axis: int) -> tuple[int, ...]:
    """Axes of one example as axes of the batched array."""
    return tuple(a if a < batch_axis else a + 1 for a in axes)


def _sum_batch(ctx: Any, args: Any, batch_axes: Any, /, **params: Any) -> Any:
    x = move_axis(args[0], batch_axes[0], 0)
    params["axes"] = tuple(a + 1 for a in params["axes"])
    return bind(reduce_sum_p, x, **params), 0


def _sum_onnx(b: Any, x: str, *, axes: tuple[int, ...], keepdims: bool) -> str:
    return sum_nodes(b, x, b.in_specs[0].shape, axes, keepdims)


def _sum_simplify(ctx: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    # NumPy's sum over no axes turns -0.0 into 0.0, so only integers pass through it unchanged
    return x if not axes and not ctx.spec(x).weak and ctx.spec(x).dtype.kind in "iu" else None


reduce_sum_p = Primitive(
    "reduce_sum",
    abstract=_sum_abstract,
    numpy=_sum_numpy,
    linear=((0,),),
    transpose=_sum_transpose,
    batch=_sum_batch,
    onnx=_sum_onnx,
    simplify=_sum_simplify,
    shadow="continuous",
    cases=[
        Case((Sample((2, 3, 4)),), {"axes": (0, 2), "keepdims": False}, named=(("B", 3, 4),)),
        Case((Sample((2, 3)),), {"axes": (1,), "keepdims": True}),
        Case((Sample((5,), "int"),), {"axes": (0,), "keepdims": False}),
        Case((Sample((2, 0)),), {"axes": (1,), "keepdims": False}),
        Case((Sample((3, 4099), "float64"),), {"axes": (1,), "keepdims": True}),
        Case((Sample((40, 2, 60), "float64"),), {"axes": (0, 2), "keepdims": False}),
        Case((Sample(()),), {"axes": (), "keepdims": False}),
    ],
)

# ----------------------------------------------------------------------------------------------------------------- dim_value


def _dim_onnx(b: Any, *, dim: DimLike) -> str:
    return b.dim(dim)


def _dim_value_abstract(*, dim: DimLike) -> ArraySpec:
    return make_spec((), INT64, True)


def _dim_value_numpy(*, dim: int) -> Array:
    return np.asarray(dim, INT64)


def _dim_value_batch(ctx: Any, args: Any, axes: Any, *, dim: DimLike) -> Any:
    return (bind(dim_value_p, dim=dim), None)


dim_value_p = Primitive(
    "dim_value",
    abstract=_dim_value_abstract,
    numpy=_dim_value_numpy,
    nondifferentiable="a size is an integer",
    batch=_dim_value_batch,
    onnx=_dim_onnx,
    shadow="decision",
)


def is_traced(x: object) -> bool:
    """True for a tracer: an array that has no value of its own."""
    return isinstance(x, Tracer) and not x._deferred


def dim_or_int(value: Any) -> DimLike:
    """An int or Dim given where a size is wanted."""
    if isinstance(value, Dim):
        return value
    return int(value.__index__())
