"""Normalisation: over axes, groups of channels, or by given statistics. Forward and backward share the mean and the inverse deviation."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...stage.dims import Dim, exact_div, product, same_shape
from ...stage.dtypes import FLOAT64, is_float, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, DimLike, Shape, make_spec
from ...stage.trace import bind
from ..arithmetic import add, floating, multiply, subtract, true_divide
from ..exponential import sqrt
from ..families import kind_of
from ..formulas import half_as_single
from ..operands import broadcast_shapes, cast, dtype_of, normalize_axis, operand, promoted, shape_of
from ..structure import broadcast, dim_or_int, move_axis, reduce_sum_p, reshape_p, transpose_p
from .precision import lower_function


def _abstract(x: ArraySpec, *affine: ArraySpec, count: int, epsilon: float) -> tuple[ArraySpec, ...]:
    if kind_of(x.dtype) != "f":
        raise DTypeError(f"layer_norm: not supported for {short_name(x.dtype)}")
    normalized = x.shape[x.ndim - count :]
    for name, spec in zip(("scale", "bias"), affine, strict=False):
        if spec.dtype != x.dtype:
            raise DTypeError(f"layer_norm: {name} is {short_name(spec.dtype)}, x is {short_name(x.dtype)}; they are promoted first")
        if not same_shape(spec.shape, normalized):
            raise ShapeError(f"layer_norm: {name} has shape {list(spec.shape)}, the normalised axes {list(normalized)}")
    statistics = make_spec((*x.shape[: x.ndim - count], *(1,) * count), half_as_single(x.dtype))
    return make_spec(x.shape, x.dtype), statistics, statistics


def _numpy(x: Array, *affine: Array, count: int, epsilon: float) -> tuple[Array, ...]:
    wide = x.astype(half_as_single(x.dtype), copy=False)
    axes = tuple(range(x.ndim - count, x.ndim))
    size = math.prod(x.shape[x.ndim - count :])
    mean = np.sum(wide, axis=axes, keepdims=True) / size
    centered = wide - mean
    variance = np.sum(centered * centered, axis=axes, keepdims=True) / size
    inverse = 1 / np.sqrt(variance + wide.dtype.type(epsilon))
    y = centered * inverse
    for name, operand_ in zip(("scale", "bias"), affine, strict=False):
        y = y * operand_ if name == "scale" else y + operand_
    return y.astype(x.dtype), mean.astype(wide.dtype), inverse.astype(wide.dtype)


def _mean(x: Any, count: int) -> Any:
    """The mean over the last `count` axes, which are kept with size 1."""
    shape = shape_of(x)
    total = bind(reduce_sum_p, x, axes=tuple(range(len(shape) - count, len(shape))), keepdims=True)
    return true_divide(total, operand(product(shape[len(shape) - count :])))


def _composed(x: Any, *affine: Any, count: int, epsilon: float) -> tuple[Any, Any, Any]:
    """What the node computes, in simpler functions."""
    dtype = dtype_of(x)[0]
    wide = cast(x, half_as_single(dtype))
    mean = _mean(wide, count)
    centered = subtract(wide, mean)
    inverse = true_divide(1.0, sqrt(add(_mean(multiply(centered, centered), count), epsilon)))
    y = multiply(centered, inverse)
    if affine:
        y = multiply(y, cast(affine[0], half_as_single(dtype)))
    if len(affine) > 1:
        y = add(y, cast(affine[1], half_as_single(dtype)))
    return cast(y, dtype), mean, inverse


def _jvp(output: Any, primals: Any, tangents: Any, *, count: int, epsilon: float) -> tuple[Any, Any, Any]:
    y, mean, inverse = output
    x, *affine = primals
    wide = mean.dtype
    standard = (cast(x, wide) - mean) * inverse
    t_y: Any = None
    t_mean: Any = None
    t_inverse: Any = None
    if tangents[0] is not None:
        t = cast(tangents[0], wide)
        t_mean = _mean(t, count)
        along = _mean(standard * t, count)
        t_inverse = -(inverse * inverse) * along
        t_y = (t - t_mean - standard * along) * inverse
        if affine:
            t_y = t_y * cast(affine[0], wide)
    if affine and tangents[1] is not None:
        term = standard * cast(tangents[1], wide)
        t_y = term if t_y is None else t_y + term
    if len(affine) > 1 and tangents[2] is not None:
        term = broadcast(cast(tangents[2], wide), x.shape)
        t_y = term if t_y is None else t_y + term
    return (None if t_y is None else cast(t_y, y.dtype)), t_mean, t_inverse


def _batch(ctx: Any, args: Any, axes: Any, *, count: int, epsilon: float) -> Any:
    x, *affine = args
    if axes[0] is not None:
        x = move_axis(x, axes[0], 0)
    affine_axes = axes[1:]
    if all(a is None for a in affine_axes):
        return bind(layer_norm_p, x, *affine, count=count, epsilon=epsilon), (0, 0, 0)
    y, mean, inverse = bind(layer_norm_p, x, count=count, epsilon=epsilon)
    ndim = len(x.shape) - (axes[0] is not None)
    for i, (value, axis) in enumerate(zip(affine, affine_axes, strict=True)):
        if axis is not None:
            value = move_axis(value, axis, 0)
            value = bind(reshape_p, value, shape=(value.shape[0], *(1,) * (ndim - count), *value.shape[1:]))
        y = y * value if i == 0 else y + value
    statistics = 0 if axes[0] is not None else None
    return (y, mean, inverse), (0, statistics, statistics)


def _onnx(b: Any, x: str, *affine: str, count: int, epsilon: float) -> Any:
    dtype = b.dtype(x)
    normalized: Shape = b.spec(x).shape[-count:]
    # The node's statistics and epsilon are float32, and it refuses an empty slice
    if dtype == FLOAT64 or not all(type(d) is int and d > 0 for d in normalized):
        return lower_function(b, functools.partial(_composed, count=count, epsilon=epsilon), x, *affine)
    scale = affine[0] if affine else b.const(np.ones(normalized, dtype))
    return b.op("LayerNormalization", x, scale, *affine[1:], outputs=3, axis=-count, epsilon=float(epsilon))


layer_norm_p = Primitive(
    "layer_norm",
    abstract=_abstract,
    numpy=_numpy,
    jvp=_jvp,
    batch=_batch,
    onnx=_onnx,
    cases=[
        Case((Sample((3, 4)),), {"count": 1, "epsilon": 1e-5}, named=(("B", 4),)),
        Case((Sample((3, 4)), Sample((4,)), Sample((4,))), {"count": 1, "epsilon": 1e-5}, named=(("B", 4), (4,), (4,))),
        Case((Sample((2, 3, 4)), Sample((3, 4))), {"count": 2, "epsilon": 0.1}),
        Case((Sample((2, 1)),), {"count": 1, "epsilon": 1e-5}, smooth=False),
        Case((Sample((0, 4)), Sample((4,)), Sample((4,))), {"count": 1, "epsilon": 1e-5}),
    ],
)


def layer_norm(x: Any, scale: Any = None, bias: Any = None, *, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-5) -> Any:
    """(x - mean) / sqrt(variance + epsilon) over the given axes, times scale, plus bias (Ba et al., 2016, arXiv 1607.06450).

    scale, bias: of the shape of the normalised axes, in x's order, or what broadcasts to it. The variance is the biased one; float16 and
    bfloat16 are computed in float32. Raises AxisError for an axis that x does not have, ValueError for a shape that does not fit.
    """
    x, scale, bias = _promoted(x, scale, bias)
    x, axes, back = _axes_last(x, axis, "layer_norm")
    normalized = shape_of(x)[len(shape_of(x)) - len(axes) :]
    affine: list[Any] = []
    if scale is not None or bias is not None:
        ones = np.ones((), dtype_of(x)[0]) if scale is None else scale
        affine = [_of_shape("scale", ones, normalized)]
    if bias is not None:
        affine.append(_of_shape("bias", bias, normalized))
    y = bind(layer_norm_p, x, *affine, count=len(axes), epsilon=float(epsilon))[0]
    return y if back is None else bind(transpose_p, y, permutation=back)


def rms_norm(x: Any, scale: Any = None, *, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-5) -> Any:
    """x / sqrt(mean(x**2) + epsilon) over the given axes, times scale (Zhang and Sennrich, 2019, arXiv 1910.07467).

    scale: of the shape of the normalised axes, in x's order, or what broadcasts to it. float16 and bfloat16 are computed in float32.
    Raises AxisError for an axis that x does not have, ValueError for a shape that does not fit.
    """
    x, scale, _ = _promoted(x, scale, None)
    x, axes, back = _axes_last(x, axis, "rms_norm")
    dtype = dtype_of(x)[0]
    wide = cast(x, half_as_single(dtype))
    y = true_divide(wide, sqrt(add(_mean(multiply(wide, wide), len(axes)), float(epsilon))))
    if scale is not None:
        normalized = shape_of(x)[len(shape_of(x)) - len(axes) :]
        y = multiply(y, cast(_of_shape("scale", scale, normalized), half_as_single(dtype)))
    y = cast(y, dtype)
    return y if back is None else bind(transpose_p, y, permutation=back)


def _promoted(x: Any, scale: Any, bias: Any) -> tuple[Any, Any, Any]:
    given = [operand(v) for v in (scale, bias) if v is not None]
    x, *given = promoted(floating(x), *given)
    if not is_float(dtype_of(x)[0]):
        raise DTypeError(f"normalisation is computed in floating point, got {short_name(dtype_of(x)[0])}")
    values = iter(given)
    return x, None if scale is None else next(values), None if bias is None else next(values)


def _axes_last(x: Any, axis: int | tuple[int, ...], what: str) -> tuple[Any, tuple[int, ...], tuple[int, ...] | None]:
    """x with the axes at its end, the axes, and the permutation that undoes it (None where they stood there)."""
    ndim = len(shape_of(x))
    axes = tuple(sorted(normalize_axis(a, ndim) for a in (axis if isinstance(axis, tuple | list) else (axis,))))
    if not axes or len(set(axes)) != len(axes):
        raise ValueError(f"{what}: axis names no axis, or one twice: {axis}")
    order = (*(i for i in range(ndim) if i not in axes), *axes)
    if order == tuple(range(ndim)):
        return x, axes, None
    return bind(transpose_p, x, permutation=order), axes, tuple(order.index(i) for i in range(ndim))


def _of_shape(name: str, value: Any, normalized: Shape) -> Any:
    shape = shape_of(value)
    try:
        fits = same_shape(broadcast_shapes(shape, normalized), normalized)
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"layer_norm: {name} has shape {list(shape)}, which does not broadcast to the normalised axes {list(normalized)}")
    return broadcast(cast(value, dtype_of(value)[0]), normalized)


def batch_norm(x: Any, mean: Any, var: Any, scale: Any = None, bias: Any = None, *, axis: int = 1, epsilon: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with a statistic for each channel (Ioffe and Szegedy, 2015, arXiv 1502.03167).

    mean, var, scale, bias: [C], where C is the size of x's `axis`. In training they are the batch's: np.mean and np.var over the other axes,
    through which gradients then flow. float16 and bfloat16 are computed in float32. Raises AxisError for an axis that x does not have,
    ValueError for a shape that does not fit.
    """
    given = [operand(v) for v in (mean, var, scale, bias) if v is not None]
    x, *given = promoted(floating(x), *(floating(v) for v in given))
    dtype = dtype_of(x)[0]
    x, *given = (cast(v, half_as_single(dtype)) for v in (x, *given))
    values = iter(given)
    channel = normalize_axis(axis, len(shape_of(x)))
    mean, var, scale, bias = (
        None if v is None else _on_axis("batch_norm", n, next(values), shape_of(x), channel)
        for n, v in zip(("mean", "var", "scale", "bias"), (mean, var, scale, bias), strict=True)
    )
    factor = true_divide(1.0 if scale is None else scale, sqrt(add(var, float(epsilon))))
    y = multiply(subtract(x, mean), factor)
    return cast(y if bias is None else add(y, bias), dtype)


def group_norm(x: Any, groups: int, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5) -> Any:
    """x: [N, C, ...] normalised over each of `groups` groups of channels and all further axes (Wu and He, 2018, arXiv 1803.08494).

    scale, bias: [C]. The variance is the biased one; float16 and bfloat16 are computed in float32. Raises ValueError where C does not divide
    into groups and for a shape that does not fit.
    """
    return _grouped("group_norm", x, groups, scale, bias, epsilon)


def instance_norm(x: Any, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5) -> Any:
    """x: [N, C, ...] normalised over the axes after C (Ulyanov et al., 2016, arXiv 1607.08022); scale, bias: [C]. See `group_norm`."""
    return _grouped("instance_norm", x, None, scale, bias, epsilon)


def _grouped(what: str, x: Any, groups: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    x, scale, bias = _promoted(x, scale, bias)
    dtype, shape = dtype_of(x)[0], shape_of(x)
    if len(shape) < (3 if groups is None else 2):
        raise ShapeError(f"{what}: x is [N, C, ...], got shape {list(shape)}")
    count: DimLike = shape[1] if groups is None else dim_or_int(groups)
    if not isinstance(count, Dim) and (count < 1 and groups is not None):
        raise ShapeError(f"{what}: groups is {count}; at least 1 is needed")
    each = 1 if groups is None else exact_div(shape[1], count)
    if each is None:
        raise ShapeError(f"{what}: {shape[1]} channels do not divide into {count} groups (x has shape {list(shape)})")
    wide = half_as_single(dtype)
    rows = bind(reshape_p, cast(x, wide), shape=(shape[0], count, product((each, *shape[2:]))))
    y = bind(reshape_p, bind(layer_norm_p, rows, count=1, epsilon=float(epsilon))[0], shape=shape)
    if scale is not None:
        y = multiply(y, cast(_on_axis(what, "scale", scale, shape, 1), wide))
    if bias is not None:
        y = add(y, cast(_on_axis(what, "bias", bias, shape, 1), wide))
    return cast(y, dtype)


def _on_axis(what: str, name: str, value: Any, shape: Shape, axis: int) -> Any:
    """A value for each channel, so that it broadcasts with x."""
    given = shape_of(value)
    if not same_shape(given, (shape[axis],)):
        raise ShapeError(
            f"{what}: {name} has shape {list(given)}; one value for each of x's {shape[axis]} channels is needed (x: {list(shape)})"
        )
    return bind(reshape_p, cast(value, dtype_of(value)[0]), shape=(shape[axis], *(1,) * (len(shape) - axis - 1)))
