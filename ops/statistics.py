"""Mean, variance and their kin, logsumexp, and the reductions that leave NaN out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dims import Dim, max_dim, product
from ..stage.dtypes import BOOL, FLOAT32, FLOAT64, INT64, DType, as_dtype, is_float, kind_rank, short_name
from ..stage.errors import DTypeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind
from . import reductions
from .arguments import array_of, array_operand, listed, no_out
from .arithmetic import divide_p, floating, multiply, multiply_p, subtract_p, where_p
from .comparison import equal_p, less_p, logical_not_p, not_equal_p
from .exponential import sqrt_p
from .nn.softmax import softmax_p
from .operands import cast, dtype_of, normalize_axes, normalize_axis, operand, promoted, shape_of
from .reductions import keep, masked, reduce_and_p
from .registry import implements, implements_ufunc_method
from .structure import broadcast, move_axis, reduce_sum_p, reduced_shape, reshape_p, sum_nodes, transpose_p

# ------------------------------------------------------------------------------------------------------------ mean, var, std


def _dtypes(x: Any, dtype: Any) -> tuple[DType, DType]:
    """(the result's dtype, the one to compute in): float64 for integers; half-width floats are computed in float32."""
    given = dtype_of(x)[0]
    result = as_dtype(dtype) if dtype is not None else given if kind_rank(given) == 2 else FLOAT64
    if kind_rank(result) < 2:
        return result, FLOAT64
    return result, FLOAT32 if result.itemsize == 2 else result


def _sum(x: Any, axes: tuple[int, ...], keepdims: bool, where: Any) -> Any:
    return bind(reduce_sum_p, masked(x, where, 0), axes=axes, keepdims=keepdims)


def _count(x: Any, axes: tuple[int, ...], keepdims: bool, where: Any, dtype: DType, ddof: float = 0) -> Any:
    """How many elements are reduced, less ddof but at least 0, in a float dtype."""
    if where is True:
        count = product([shape_of(x)[a] for a in axes])
        if not isinstance(count, Dim):
            return np.asarray(max(count - ddof, 0), dtype)
        if float(ddof).is_integer():
            return cast(operand(max_dim(count - int(ddof), 0)), dtype)
        total = cast(operand(count), dtype)
    else:
        chosen = broadcast(array_of(where, BOOL, "where"), shape_of(x))
        total = bind(reduce_sum_p, cast(chosen, dtype), axes=axes, keepdims=keepdims)
    if ddof == 0:
        return total
    rest = bind(subtract_p, total, np.asarray(ddof, dtype))
    zero = np.zeros((), dtype)
    return bind(where_p, bind(less_p, rest, zero), zero, rest)


@implements(np.mean, method="mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """The mean over axes (all by default); of integers in float64, of half-width floats added up in float32; nan of no elements."""
    no_out(out, "mean")
    x = array_operand(a, "mean")
    result, work = _dtypes(x, dtype)
    axes = normalize_axes(axis, len(shape_of(x)))
    x = cast(x, work)
    return cast(
        bind(divide_p, _sum(x, axes, bool(keepdims), where), _count(x, axes, bool(keepdims), where, work)),
        result,
    )


def _variance(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: bool, where: Any, known_mean: Any) -> tuple[Any, DType]:
    """The variance in the dtype to compute in, and the result's dtype. In two passes: mean first, then the squared deviations."""
    x = array_operand(a, "var")
    result, work = _dtypes(x, dtype)
    axes = normalize_axes(axis, len(shape_of(x)))
    x = cast(x, work)
    if known_mean is None:
        center = bind(divide_p, _sum(x, axes, True, where), _count(x, axes, True, where, work))
    else:
        center = array_of(known_mean, work, "mean")
    # Masked before it is squared: the slope of a square at NaN is NaN, also where the square is left out.
    deviation = masked(bind(subtract_p, x, center), where, 0)
    total = bind(reduce_sum_p, bind(multiply_p, deviation, deviation), axes=axes, keepdims=keepdims)
    return bind(divide_p, total, _count(x, axes, keepdims, where, work, ddof)), result


@implements(np.var, method="var")
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = False, *, where: Any = True,
    mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The variance over axes: the squared deviations from the mean, summed and divided by their number less `ddof` (or `correction`)."""
    no_out(out, "var")
    value, result = _variance(a, axis, dtype, ddof if correction is None else correction, bool(keepdims), where, mean)
    return cast(value, result)


@implements(np.std, method="std")
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = False, *, where: Any = True,
    mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The square root of the variance. Its gradient is 0 where it is 0, as that of a norm."""
    no_out(out, "std")
    value, result = _variance(a, axis, dtype, ddof if correction is None else correction, bool(keepdims), where, mean)
    return cast(root(value), result)


def root(x: Any) -> Any:
    """sqrt(x), with slope 0 instead of infinity at 0."""
    dtype = dtype_of(x)[0]
    zero, one = np.zeros((), dtype), np.ones((), dtype)
    at_zero = bind(equal_p, x, zero)
    return bind(where_p, at_zero, zero, bind(sqrt_p, bind(where_p, at_zero, one, x)))


@implements(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """The weighted mean over axes; `weights` has the shape of `a`, or of its reduced axes. With `returned`, (average, sum of weights)."""
    x = array_operand(a, "average")
    axes = normalize_axes(axis, len(shape_of(x)))
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        total: Any = _count(x, axes, bool(keepdims), True, dtype_of(result)[0])
    else:
        w = array_operand(weights, "weights")
        if len(shape_of(w)) != len(shape_of(x)):
            if len(shape_of(w)) != len(axes):
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            given = [normalize_axis(i, len(shape_of(x))) for i in (listed(axis) if axis is not None else axes)]
            order = tuple(given.index(i) for i in axes)
            w = bind(transpose_p, w, permutation=order)
            w = bind(reshape_p, w, shape=tuple(shape_of(x)[i] if i in axes else 1 for i in range(len(shape_of(x)))))
        x, w = promoted(x, w, strong=True)
        if kind_rank(dtype_of(x)[0]) < 2:
            x, w = cast(x, FLOAT64), cast(w, FLOAT64)
        w = broadcast(w, shape_of(x))
        total = reductions.sum(w, axis, keepdims=keepdims)
        result = bind(divide_p, reductions.sum(multiply(x, w), axis, keepdims=keepdims), total)
    return (result, broadcast(total, shape_of(result))) if returned else result


# ----------------------------------------------------------------------------------------------------------------- logsumexp


def _logsumexp_abstract(x: ArraySpec, *, axis: int) -> ArraySpec:
    if not is_float(x.dtype):
        raise DTypeError(f"logsumexp: not supported for {short_name(x.dtype)}")
    return make_spec(reduced_shape(x.shape, (axis,), False), x.dtype)


def _logsumexp_numpy(x: Array, *, axis: int) -> Array:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    top = np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isinf(top), wide.dtype.type(0), top)
    total = np.log(np.sum(np.exp(wide - top), axis=axis)) + np.squeeze(top, axis)
    return np.asarray(total).astype(x.dtype, copy=False)


def _logsumexp_jvp(output: Any, primals: Any, tangents: Any, *, axis: int) -> Any:
    # softmax divides by its own sum: exp(x - output) would carry the rounding of the output (.49998 at [1000, 1000]).
    weights = bind(softmax_p, primals[0], axis=axis)
    return bind(reduce_sum_p, bind(multiply_p, weights, tangents[0]), axes=(axis,), keepdims=False)


def _logsumexp_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int) -> Any:
    return bind(logsumexp_p, move_axis(args[0], batch_axes[0], 0), axis=axis + 1), 0


def _logsumexp_onnx(b: Any, x: str, *, axis: int) -> str:
    dtype, shape = b.dtype(x), b.in_specs[0].shape
    if dtype.itemsize == 2:
        x = b.cast(x, FLOAT32)
    axes = b.const([axis], INT64)
    # Whether ReduceMax sees NaN does not matter: x minus anything has it.
    top = b.op("ReduceMax", x, axes, keepdims=1)
    top = b.op("Where", b.op("IsInf", b.cast(top, FLOAT32)), b.const(0, b.dtype(x)), top)
    total = sum_nodes(b, b.op("Exp", b.op("Sub", x, top)), shape, (axis,), False)
    return b.cast(b.op("Add", b.op("Log", total), b.op("Squeeze", top, axes)), dtype)


logsumexp_p = Primitive(
    "logsumexp",
    abstract=_logsumexp_abstract,
    numpy=_logsumexp_numpy,
    jvp=_logsumexp_jvp,
    batch=_logsumexp_batch,
    onnx=_logsumexp_onnx,
    cases=[
        Case((Sample((2, 3)),), {"axis": 1}, named=(("B", 3),)),
        Case((Sample((3, 2), domain=(-80, 80)),), {"axis": 0}, named=(("B", 2),)),
        Case((Sample((2, 0)),), {"axis": 1}, smooth=False),
        Case((Sample((2,), "float", values=[1000, 1000]),), {"axis": 0}),
    ],
)


def logsumexp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """log(sum(exp(a))) over axes without overflow; its gradient is softmax. -inf of no elements."""
    x = floating(array_operand(a, "logsumexp"))
    shape = shape_of(x)
    axes = normalize_axes(axis, len(shape))
    if len(axes) != 1:
        others = tuple(i for i in range(len(shape)) if i not in axes)
        x = bind(transpose_p, x, permutation=(*others, *axes))
        x = bind(reshape_p, x, shape=(*(shape[i] for i in others), product([shape[i] for i in axes])))
    result = bind(logsumexp_p, x, axis=axes[0] if len(axes) == 1 else len(shape) - len(axes))
    return keep(result, shape, axes, False) if keepdims else result


def _logaddexp_reduce(
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    no_out(out, "np.logaddexp.reduce")
    x = floating(array_operand(array, "np.logaddexp.reduce") if dtype is None else array_of(array, as_dtype(dtype)))
    result = logsumexp(masked(x, where, -np.inf), axis, keepdims=bool(keepdims))
    if initial is None:
        return result
    shape = shape_of(result)
    first = broadcast(array_of(initial, dtype_of(x)[0]), shape)
    return logsumexp(reductions.paired(result, first), 0)


implements_ufunc_method(np.logaddexp, "reduce")(_logaddexp_reduce)

# ------------------------------------------------------------------------------------------------------------- NaN left out


def _is_nan(x: Any) -> Any:
    return bind(not_equal_p, x, x)


def without_nan(a: Any, identity: Any, what: str) -> Any:
    """The array with NaN replaced by the identity of a reduction."""
    x = array_operand(a, what)
    if not is_float(dtype_of(x)[0]):
        return x
    return bind(where_p, _is_nan(x), np.asarray(identity, dtype_of(x)[0]), x)


@implements(np.nansum)
def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """The sum of the elements that are not NaN."""
    return reductions.sum(without_nan(a, 0, "nansum"), axis, dtype, out, keepdims, initial, where)


@implements(np.nanprod)
def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """The product of the elements that are not NaN."""
    return reductions.prod(without_nan(a, 1, "nanprod"), axis, dtype, out, keepdims, initial, where)


def _nan_extreme(
    what: str,
    reduce: Callable[..., Any],
    identity: float,
    a: Any,
    axis: Any,
    keepdims: Any,
    initial: Any,
    where: Any,
) -> Any:
    x = array_operand(a, what)
    found = reduce(without_nan(x, identity, what), axis, None, keepdims, initial, where)
    if not is_float(dtype_of(x)[0]) or initial is not None:
        return found
    axes = normalize_axes(axis, len(shape_of(x)))
    nothing = bind(reduce_and_p, _is_nan(x), axes=axes, keepdims=bool(keepdims))
    return bind(where_p, nothing, np.asarray(np.nan, dtype_of(x)[0]), found)


@implements(np.nanmax)
def nanmax(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, initial: Any = None, where: Any = True) -> Any:
    """The largest element that is not NaN; NaN where all are."""
    no_out(out, "nanmax")
    return _nan_extreme("nanmax", reductions.max, -np.inf, a, axis, keepdims, initial, where)


@implements(np.nanmin)
def nanmin(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, initial: Any = None, where: Any = True) -> Any:
    """The smallest element that is not NaN; NaN where all are."""
    no_out(out, "nanmin")
    return _nan_extreme("nanmin", reductions.min, np.inf, a, axis, keepdims, initial, where)


def _nan_mask(a: Any, where: Any, what: str) -> Any:
    """The `where` that leaves NaN out too."""
    x = array_operand(a, what)
    if not is_float(dtype_of(x)[0]):
        return where
    valid = bind(logical_not_p, _is_nan(x))
    return valid if where is True else multiply(valid, array_of(where, BOOL, "where"))


@implements(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """The mean of the elements that are not NaN; NaN where there are none."""
    return mean(a, axis, dtype, out, keepdims, where=_nan_mask(a, where, "nanmean"))


@implements(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = False, *, where: Any = True,
    mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The variance of the elements that are not NaN."""
    value = var(
        a,
        axis,
        dtype,
        out,
        ddof,
        keepdims,
        where=_nan_mask(a, where, "nanvar"),
        mean=mean,
        correction=correction,
    )
    return _defined(value, a, axis, ddof if correction is None else correction, keepdims, where)


@implements(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = False, *, where: Any = True,
    mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation of the elements that are not NaN."""
    value = std(
        a,
        axis,
        dtype,
        out,
        ddof,
        keepdims,
        where=_nan_mask(a, where, "nanstd"),
        mean=mean,
        correction=correction,
    )
    return _defined(value, a, axis, ddof if correction is None else correction, keepdims, where)


def _defined(value: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any) -> Any:
    """NaN where no more elements than ddof are there, as nanvar gives."""
    x = array_operand(a, "nanvar")
    mask = _nan_mask(x, where, "nanvar")
    count = _count(x, normalize_axes(axis, len(shape_of(x))), bool(keepdims), mask, FLOAT64, ddof)
    return bind(where_p, bind(equal_p, count, np.zeros((), FLOAT64)), np.asarray(np.nan, dtype_of(value)[0]), value)
