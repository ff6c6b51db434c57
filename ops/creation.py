"""Making arrays: arange, linspace, zeros, ones, full, eye and their kin, of sizes that may be named dims.

Where no size is a named dim and no value is traced they give plain NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage import deferred
from ..stage.dims import Dim, max_dim
from ..stage.dtypes import FLOAT64, INT64, DType, as_dtype, kind_rank, promote
from ..stage.errors import UnsupportedError
from ..stage.primitive import Array, Primitive
from ..stage.program import Const
from ..stage.spec import ArraySpec, DimLike, make_spec
from ..stage.trace import bind, is_tracing, lift_constant, scalar_constant
from ..stage.tracer import Tracer
from .arguments import array_of, array_operand, dim_argument, listed, shape_argument
from .arithmetic import add, divide_p, multiply, subtract, where_p
from .comparison import equal, greater_equal
from .joining import stack
from .operands import broadcast_shapes, cast, dtype_of, normalize_axis, operand, shape_of
from .power import power
from .registry import NUMPY, implements
from .rounding import floor
from .structure import broadcast, broadcast_to_p, move_axis, reshape_p
from .views import copied

# ---------------------------------------------------------------------------------------------------------------------- iota


def _iota_onnx(b: Any, *, size: DimLike, dtype: DType) -> str:
    counted = b.op("Range", b.const(0, INT64), b.dim(size), b.const(1, INT64))
    return b.cast(counted, dtype)


def _iota_abstract(*, size: DimLike, dtype: DType) -> ArraySpec:
    return make_spec((size,), dtype)


def _iota_numpy(*, size: int, dtype: DType) -> Array:
    return np.arange(size).astype(dtype)


def _iota_batch(ctx: Any, args: Any, axes: Any, *, size: DimLike, dtype: DType) -> Any:
    return (bind(iota_p, size=size, dtype=dtype), None)


iota_p = Primitive(
    "iota",
    exact=True,
    abstract=_iota_abstract,
    numpy=_iota_numpy,
    nondifferentiable="it has no operands",
    batch=_iota_batch,
    onnx=_iota_onnx,
    shadow="decision",
)


def iota(size: DimLike, dtype: DType = INT64) -> Any:
    """0, 1, ..., size - 1."""
    return bind(iota_p, size=size, dtype=dtype)


# --------------------------------------------------------------------------------------------------------------- arange, linspace


def _holds_dim(*values: Any) -> bool:
    return any(isinstance(v, Dim) for v in values)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None) -> Any:
    """start, start + step, ... before stop, or 0, 1, ... before the only argument. Any of them may be a named dim.

    Raises UnsupportedError for a dim beside a step that is no integer, ValueError for a step of 0.
    """
    if stop is None:
        start, stop = 0, start
    if not _holds_dim(start, stop, step):
        plain: Any = np.arange
        return plain(start, stop, step, dtype=None if dtype is None else as_dtype(dtype))
    if isinstance(step, Dim) or step != int(step):
        raise UnsupportedError(f"arange: a named dim needs a step that is an integer and known, got {step}")
    if step == 0:
        raise ValueError("arange: the step must not be 0")
    step = int(step)
    begin = start if isinstance(start, Dim) else start.__index__()
    gap = (dim_argument(stop) - begin) if step > 0 else (begin - dim_argument(stop))
    count = (max_dim(gap, 0) + (abs(step) - 1)) // abs(step)
    wanted = INT64 if dtype is None else as_dtype(dtype)
    if not _holds_dim(begin) and begin == 0 and step == 1:
        return iota(count, wanted)
    return cast(add(multiply(iota(count), np.asarray(step)), cast(operand(begin), INT64)), wanted)


def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: Any = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` values evenly spaced from start to stop, which is left out without `endpoint`. start and stop may be traced, num a dim."""
    num = dim_argument(num)
    if not isinstance(num, Dim) and num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    first, last = array_operand(start, "linspace: start"), array_operand(stop, "linspace: stop")
    if not _holds_dim(num) and not isinstance(first, Tracer) and not isinstance(last, Tracer):
        plain: Any = np.linspace
        return plain(first, last, num, endpoint, retstep, None if dtype is None else as_dtype(dtype), axis)
    work, _ = promote([dtype_of(operand(start)), dtype_of(operand(stop)), (FLOAT64, True)])
    result_dtype = work if dtype is None else as_dtype(dtype)
    first, last = cast(first, work), cast(last, work)
    shape = broadcast_shapes(shape_of(first), shape_of(last), what="linspace")
    count = num - 1 if endpoint else num
    gaps = array_of(max_dim(count, 1), work)
    step = bind(divide_p, subtract(last, first), gaps)
    places = bind(reshape_p, iota(num, work), shape=(num, *(1,) * len(shape)))
    result = add(multiply(places, step), first)
    if endpoint:
        at_end = equal(places, gaps)
        result = bind(where_p, at_end, broadcast(last, shape), result)
    if kind_rank(result_dtype) < 2:
        result = floor(result)
    result = move_axis(cast(result, result_dtype), 0, normalize_axis(axis, len(shape) + 1))
    return (result, step) if retstep else result


def logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: Any = 0,
) -> Any:
    """base to the power of evenly spaced exponents."""
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    result = power(array_operand(base, "logspace: base"), exponents)
    return result if dtype is None else cast(result, as_dtype(dtype))


@implements(np.geomspace)
def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: Any = 0) -> Any:
    """`num` float64 values (by default) from start to stop, each a fixed multiple of the one before; both have one sign and are not zero.

    Raises ValueError for constants that are zero or differ in sign; of traced ones those give NaN or infinity.
    """
    first, last = array_operand(start, "geomspace: start"), array_operand(stop, "geomspace: stop")
    for x, y in ((first, last), (last, first)):
        if isinstance(x, np.ndarray) and bool(np.any(x == 0)):
            raise ValueError("Geometric sequence cannot include zero")
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and bool(np.any((x < 0) != (y < 0))):
            raise ValueError("Geometric sequence of real numbers cannot change its sign")
    if not _holds_dim(num) and not isinstance(first, Tracer) and not isinstance(last, Tracer):
        return np.geomspace(first, last, num, endpoint, None if dtype is None else as_dtype(dtype), axis)
    first, last = cast(first, FLOAT64), cast(last, FLOAT64)
    shape = broadcast_shapes(shape_of(first), shape_of(last), what="geomspace")
    ratio = bind(divide_p, broadcast(last, shape), broadcast(first, shape))
    exponents = linspace(0.0, 1.0, num, endpoint)
    exponents = bind(reshape_p, exponents, shape=(shape_of(exponents)[0], *(1,) * len(shape)))
    result = multiply(first, power(ratio, exponents))
    if endpoint:
        result = bind(where_p, equal(exponents, 1.0), broadcast(last, shape), result)
    result = result if dtype is None else cast(result, as_dtype(dtype))
    return move_axis(result, 0, normalize_axis(axis, len(shape) + 1))


# ----------------------------------------------------------------------------------------------------------- zeros, ones, full


def _filled(shape: Any, value: Any, dtype: DType) -> Any:
    wanted = shape_argument(shape)
    if any(type(d) is int and d < 0 for d in wanted):
        raise ValueError("negative dimensions are not allowed")
    if not _holds_dim(*wanted):
        return np.full(wanted, value, dtype)
    return bind(broadcast_to_p, np.asarray(value, dtype), shape=wanted)


def zeros(shape: Any, dtype: Any = float, order: Any = "C", *, device: Any = None) -> Any:
    """Zeros of a shape whose sizes may be named dims; float64 by default."""
    return _filled(shape, 0, FLOAT64 if dtype is None else as_dtype(dtype))


def ones(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    """Ones of a shape; see `zeros`."""
    return _filled(shape, 1, FLOAT64 if dtype is None else as_dtype(dtype))


def empty(shape: Any, dtype: Any = float, order: Any = "C", *, device: Any = None) -> Any:
    """Zeros: arrays in a program have no undefined contents."""
    return zeros(shape, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    """A value, which may be traced or an array that broadcasts, repeated to a shape."""
    value = array_operand(fill_value, "full")
    value = value if dtype is None else cast(value, as_dtype(dtype))
    wanted = shape_argument(shape)
    if not _holds_dim(*wanted) and not isinstance(value, Tracer):
        return np.full(wanted, value)
    return _own(bind(broadcast_to_p, value, shape=wanted))


def _own(x: Any) -> Any:
    return x if isinstance(x, Tracer) else np.array(x)


def _traced(x: Any) -> Any:
    """A constant as a traced array while a function is traced, so that `y = zeros_like(x); y[0] = v` can be recorded."""
    if isinstance(x, Tracer) or not is_tracing():
        return x
    return lift_constant(_constant(x))


def _constant(x: Array) -> Const:
    return Const(_read_only(x), make_spec(x.shape, as_dtype(x.dtype)))


def _read_only(x: Array) -> Array:
    x = np.array(x)
    x.flags.writeable = False
    return x


def _like(x: Any, value: Any, dtype: Any, shape: Any, what: str) -> Any:
    base = array_operand(x, what)
    wanted = shape_of(base) if shape is None else shape_argument(shape)
    kind = dtype_of(base)[0] if dtype is None else as_dtype(dtype)
    if not isinstance(base, Tracer):
        return _filled(wanted, value, kind)
    if not is_tracing():
        return deferred.array(_filled(wanted, value, kind))
    scalar = lift_constant(scalar_constant(value, make_spec((), kind)))
    return bind(broadcast_to_p, scalar, shape=wanted)


@implements(np.zeros_like)
def zeros_like(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None) -> Any:
    """Zeros of the shape and dtype of an array; of a traced array a traced array."""
    return _like(a, 0, dtype, shape, "zeros_like")


@implements(np.ones_like)
def ones_like(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None) -> Any:
    """Ones of the shape and dtype of an array; see `zeros_like`."""
    return _like(a, 1, dtype, shape, "ones_like")


@implements(np.empty_like)
def empty_like(
    prototype: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """Zeros of the shape and dtype of an array; see `empty`."""
    return _like(prototype, 0, dtype, shape, "empty_like")


@implements(np.full_like)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """A value, which may be traced, repeated to the shape of an array, in its dtype."""
    base = array_operand(a, "full_like")
    kind = dtype_of(base)[0] if dtype is None else as_dtype(dtype)
    wanted = shape_of(base) if shape is None else shape_argument(shape)
    value = array_of(fill_value, kind, "full_like")
    if isinstance(base, Tracer):
        value = _traced(value)
    return _own(bind(broadcast_to_p, value, shape=wanted)) if isinstance(value, Tracer) or _holds_dim(*wanted) else np.full(wanted, value)


# ------------------------------------------------------------------------------------------------------------------ matrices


def diagonal_mask(n: DimLike, m: DimLike, k: int, compare: Callable[[Any, Any], Any]) -> Any:
    """A boolean [n, m]: where compare(i + k, j) holds."""
    rows = bind(reshape_p, iota(n), shape=(n, 1))
    columns = bind(reshape_p, iota(m), shape=(1, m))
    return compare(add(rows, np.asarray(k)), columns)


def _band(N: Any, M: Any, k: Any, dtype: Any, compare: Callable[[Any, Any], Any]) -> Any:
    n = dim_argument(N)
    m = n if M is None else dim_argument(M)
    return cast(diagonal_mask(n, m, k.__index__(), compare), FLOAT64 if dtype is None else as_dtype(dtype))


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: Any = "C", *, device: Any = None) -> Any:
    """A matrix [N, M] with ones on its k-th diagonal."""
    return _band(N, M, k, dtype, equal)


def identity(n: Any, dtype: Any = None) -> Any:
    """The identity matrix [n, n]."""
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    """A matrix [N, M] with ones at and below its k-th diagonal."""
    return _band(N, M, k, dtype, greater_equal)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """The indices of a grid: an array [ndim, *dimensions], or with `sparse` a tuple of arrays that broadcast."""
    shape = shape_argument(dimensions)
    kind = as_dtype(dtype)
    ndim = len(shape)
    rows = [bind(reshape_p, iota(d, kind), shape=(*(1,) * i, d, *(1,) * (ndim - i - 1))) for i, d in enumerate(shape)]
    if sparse:
        return tuple(rows)
    return stack([bind(broadcast_to_p, r, shape=shape) for r in rows]) if rows else np.empty((0,), kind)


# ----------------------------------------------------------------------------------------------------------- from other values


def asarray(obj: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array from anything: traced arrays and NumPy arrays as they are, nested lists, also of traced arrays, stacked.

    The way from a NumPy table to one that a traced index may enter: `ons.asarray(table)[i]`. Raises TypeError for what is no array.
    """
    x = _assembled(obj)
    x = x if dtype is None else cast(x, as_dtype(dtype))
    x = _traced(x) if not isinstance(x, Tracer) else x
    return copied(x) if copy else x


def _assembled(obj: Any) -> Any:
    if isinstance(obj, list | tuple) and _holds_traced(obj):
        return stack([_assembled(item) for item in listed(obj)])
    return array_operand(obj, "asarray")


def _holds_traced(items: Any) -> bool:
    if isinstance(items, list | tuple):
        return any(_holds_traced(i) for i in listed(items))
    return isinstance(items, Tracer | Dim)


def array(object: Any, dtype: Any = None, *, copy: bool | None = True, order: Any = None) -> Any:
    """A new array from anything `asarray` takes."""
    return asarray(object, dtype, copy=copy)


def _dispatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `np.zeros(n, like=x)` with a traced x gives: a traced array."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _traced(function(*args, **kwargs))

    return call


for _numpy_function, _function in (
    (np.arange, arange), (np.zeros, zeros), (np.ones, ones), (np.empty, empty), (np.full, full), (np.eye, eye), (np.identity, identity),
    (np.tri, tri), (np.asarray, asarray), (np.array, array),
):  # fmt: skip
    NUMPY[_numpy_function] = _dispatched(_function)
NUMPY[np.linspace] = linspace
NUMPY[np.logspace] = logspace
