"""Cumulative operations: cumsum, cumprod, running maxima and minima, logcumsumexp, diff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dims import Dim, max_dim
from ..stage.dtypes import BOOL, FLOAT32, INT64, DType, as_dtype, is_float, short_name
from ..stage.errors import DTypeError
from ..stage.primitive import Array, Case, Primitive, Rule, Sample
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind
from .arguments import array_of, array_operand, no_out, size_of
from .arithmetic import floating, multiply_p, subtract
from .comparison import not_equal
from .exponential import logaddexp_p
from .extremum import maximum_p, minimum_p
from .families import FLOATS, NUMBERS, kind_of
from .joining import concatenate
from .operands import cast, dtype_of, normalize_axis, shape_of
from .reductions import accumulator
from .registry import implements, implements_ufunc_method
from .slicing import pad, slice_axis
from .statistics import without_nan
from .structure import broadcast, move_axis, reshape_p

_LEVELS = 31
"""Doublings that cover any size: named sizes take them all, steps past the end change nothing."""


def prefix_scan(x: Any, axis: int, combine: Callable[[Any, Any], Any], identity: Any) -> Any:
    """The running reduction along an axis by an associative operation, in log2(size) steps over the whole array.

    combine(earlier, later); identity: what leaves `later` as it is when combined before it. It is made of differentiable
    operations and divides by nothing, so its derivatives are right wherever those of `combine` are.
    """
    size = x.shape[axis]
    levels = _LEVELS if isinstance(size, Dim) else max(size - 1, 0).bit_length()
    ndim = len(x.shape)
    for level in range(levels):
        # Shifted by a gap: shortened first, so that a gap far past the end of a named size takes no memory.
        short = slice_axis(x, axis, 0, max_dim(size - (1 << level), 0))
        low = [size - short.shape[axis] if i == axis else 0 for i in range(ndim)]
        x = combine(pad(short, low, [0] * ndim, identity), x)
    return x


def _numbers_abstract(name: str, kinds: str) -> Rule:
    def abstract(x: ArraySpec, **params: Any) -> ArraySpec:
        if kind_of(x.dtype) not in kinds:
            raise DTypeError(f"{name}: not supported for {short_name(x.dtype)}")
        return make_spec(x.shape, x.dtype)

    return abstract


def _cases(dtype: str = "float", smooth: bool = True) -> list[Case]:
    return [
        Case((Sample((3, 4), dtype),), {"axis": 1}, smooth=smooth, named=(("B", 4),)),
        Case((Sample((5, 2), dtype),), {"axis": 0}, smooth=smooth, named=(("B", 2),)),
        Case((Sample((1,), dtype),), {"axis": 0}, smooth=smooth),
        Case((Sample((0, 2), dtype),), {"axis": 0}, smooth=smooth),
    ]


# -------------------------------------------------------------------------------------------------------------------- cumsum


def _cumsum_numpy(x: Array, *, axis: int, reverse: bool) -> Array:
    work = FLOAT32 if is_float(x.dtype) and x.dtype.itemsize == 2 else x.dtype
    y = np.flip(x, axis) if reverse else x
    total = np.cumsum(y, axis=axis, dtype=work).astype(x.dtype, copy=False)
    return np.ascontiguousarray(np.flip(total, axis)) if reverse else total


def _cumsum_transpose(ct: Any, primals: Any, output: Any, *, active: Any, axis: int, reverse: bool) -> Any:
    return (bind(cumsum_p, ct, axis=axis, reverse=not reverse),)


def _cumsum_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int, reverse: bool) -> Any:
    return bind(cumsum_p, move_axis(args[0], batch_axes[0], 0), axis=axis + 1, reverse=reverse), 0


def _cumsum_onnx(b: Any, x: str, *, axis: int, reverse: bool) -> str:
    return b.op("CumSum", x, b.const(axis, INT64), reverse=int(reverse))


cumsum_p = Primitive(
    "cumsum",
    abstract=_numbers_abstract("cumsum", NUMBERS),
    numpy=_cumsum_numpy,
    linear=((0,),),
    transpose=_cumsum_transpose,
    batch=_cumsum_batch,
    onnx=_cumsum_onnx,
    cases=[Case(c.samples, {**c.params, "reverse": r}, named=c.named) for c in [*_cases(), *_cases("int")] for r in (False, True)],
)

# -------------------------------------------------------------------------------------------- cumprod, cummax, cummin, logcumsumexp


def _running(
    name: str,
    numpy: Callable[..., Array],
    combine: Primitive,
    identity: Callable[[DType], Any],
    cases: list[Case],
    kinds: str = NUMBERS,
) -> Primitive:
    """A running reduction by an elementwise primitive."""

    def evaluate(x: Array, *, axis: int) -> Array:
        half = is_float(x.dtype) and x.dtype.itemsize == 2
        return numpy(x.astype(FLOAT32) if half else x, axis=axis).astype(x.dtype, copy=False)

    def batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int) -> Any:
        return bind(primitive, move_axis(args[0], batch_axes[0], 0), axis=axis + 1), 0

    def decompose(x: Any, *, axis: int) -> Any:
        half = is_float(x.dtype) and x.dtype.itemsize == 2
        wide = cast(x, FLOAT32) if half else x
        return cast(prefix_scan(wide, axis, lambda a, b: bind(combine, a, b), identity(wide.dtype)), x.dtype)

    primitive = Primitive(
        name,
        abstract=_numbers_abstract(name, kinds),
        numpy=evaluate,
        batch=batch,
        decompose=decompose,
        cases=cases,
    )
    return primitive


def _one(dtype: DType) -> Any:
    return 1


def _lowest(dtype: DType) -> Any:
    return -np.inf if is_float(dtype) else int(np.iinfo(dtype).min)


def _highest(dtype: DType) -> Any:
    return np.inf if is_float(dtype) else int(np.iinfo(dtype).max)


def _cumprod_numpy(x: Array, *, axis: int) -> Array:
    return np.cumprod(x, axis=axis, dtype=x.dtype)


cumprod_p = _running(
    "cumprod",
    _cumprod_numpy,
    multiply_p,
    _one,
    [*_cases(), *_cases("int"), Case((Sample((3,), "float", values=[2, 0, 3]),), {"axis": 0})],
)
cummax_p = _running(
    "cummax",
    np.maximum.accumulate,
    maximum_p,
    _lowest,
    [
        *_cases(),
        *_cases("int"),
        Case((Sample((4,), "float", values=[1, np.nan, 3, 0]),), {"axis": 0}, smooth=False),
    ],
)
cummin_p = _running("cummin", np.minimum.accumulate, minimum_p, _highest, [*_cases(), *_cases("int")])
logcumsumexp_p = _running("logcumsumexp", np.logaddexp.accumulate, logaddexp_p, _lowest, _cases(), kinds=FLOATS)

# ---------------------------------------------------------------------------------------------------------- the public functions


def _along(what: str, a: Any, axis: Any, dtype: Any, accumulate: bool = True) -> tuple[Any, int]:
    """The operand in the dtype that is accumulated in, flattened for axis None, and the axis."""
    x = array_operand(a, what)
    given = dtype_of(x)[0]
    x = cast(x, as_dtype(dtype) if dtype is not None else accumulator(given) if accumulate else given)
    if axis is None:
        return bind(reshape_p, x, shape=(size_of(x),)), 0
    if not shape_of(x):
        normalize_axis(axis, 1)
        return bind(reshape_p, x, shape=(1,)), 0
    return x, normalize_axis(axis, len(shape_of(x)))


@implements(np.cumsum, method="cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Running sums along an axis, or of all elements for None; integers and booleans in 64 bits, as NumPy does."""
    no_out(out, "cumsum")
    x, axis = _along("cumsum", a, axis, dtype)
    return bind(cumsum_p, x, axis=axis, reverse=False)


@implements(np.cumprod, method="cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Running products along an axis; the gradient is right where elements are 0."""
    no_out(out, "cumprod")
    x, axis = _along("cumprod", a, axis, dtype)
    return bind(cumprod_p, x, axis=axis)


def _with_initial(x: Any, axis: int, identity: int) -> Any:
    ndim = len(shape_of(x))
    return pad(x, [1 if i == axis else 0 for i in range(ndim)], [0] * ndim, identity)


def _cumulative(what: str, primitive: Primitive, identity: int, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    x = array_operand(x, what)
    if axis is None:
        if len(shape_of(x)) != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    x, axis = _along(what, x, axis, dtype)
    result = bind(primitive, x, axis=axis, reverse=False) if primitive is cumsum_p else bind(primitive, x, axis=axis)
    return _with_initial(result, axis, identity) if include_initial else result


@implements(np.cumulative_sum)
def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, out: None = None, include_initial: bool = False) -> Any:
    """Running sums along an axis (which may be left out for 1-d arrays), after a 0 with include_initial."""
    no_out(out, "cumulative_sum")
    return _cumulative("cumulative_sum", cumsum_p, 0, x, axis, dtype, include_initial)


@implements(np.cumulative_prod)
def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None, out: None = None, include_initial: bool = False) -> Any:
    """Running products along an axis, after a 1 with include_initial."""
    no_out(out, "cumulative_prod")
    return _cumulative("cumulative_prod", cumprod_p, 1, x, axis, dtype, include_initial)


@implements(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Running sums with NaN taken as 0."""
    return cumsum(without_nan(a, 0, "nancumsum"), axis, dtype, out)


@implements(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Running products with NaN taken as 1."""
    return cumprod(without_nan(a, 1, "nancumprod"), axis, dtype, out)


def _accumulate(ufunc: Any, primitive: Primitive, *, sums: bool) -> Callable[..., Any]:
    def accumulate(array: Any, axis: Any = 0, dtype: Any = None, out: None = None) -> Any:
        no_out(out, f"np.{ufunc.__name__}.accumulate")
        x = array_operand(array, ufunc.__name__)
        if not shape_of(x):
            raise TypeError("cannot accumulate on a scalar")
        x, axis = _along(ufunc.__name__, x, axis, dtype, accumulate=sums)
        if primitive is logcumsumexp_p:
            x = floating(x)
        elif dtype_of(x)[0] == BOOL:
            # The larger of two booleans is their or.
            return cast(bind(primitive, cast(x, np.dtype(np.uint8)), axis=axis), BOOL)
        return bind(primitive, x, axis=axis, reverse=False) if primitive is cumsum_p else bind(primitive, x, axis=axis)

    return implements_ufunc_method(ufunc, "accumulate")(accumulate)


_accumulate(np.add, cumsum_p, sums=True)
_accumulate(np.multiply, cumprod_p, sums=True)
_running_max = _accumulate(np.maximum, cummax_p, sums=False)
_accumulate(np.logaddexp, logcumsumexp_p, sums=False)
_running_min = _accumulate(np.minimum, cummin_p, sums=False)


def cummax(a: Any, axis: Any = 0) -> Any:
    """Running maxima along an axis, NaN from the first one on: `np.maximum.accumulate`."""
    return _running_max(a, axis)


def cummin(a: Any, axis: Any = 0) -> Any:
    """Running minima along an axis: `np.minimum.accumulate`."""
    return _running_min(a, axis)


@implements(np.diff)
def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Any:
    """The n-th difference of neighbours along an axis: x[1:] - x[:-1], n times; != for booleans."""
    n = n.__index__()
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    x = array_operand(a, "diff")
    if not shape_of(x):
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis(axis, len(shape_of(x)))
    pieces = [_edge(p, x, axis) for p in (prepend,) if p is not None]
    ends = [_edge(p, x, axis) for p in (append,) if p is not None]
    if pieces or ends:
        x = concatenate([*pieces, x, *ends], axis)
    step = not_equal if dtype_of(x)[0] == BOOL else subtract
    for _ in range(n):
        x = step(slice_axis(x, axis, 1, None), slice_axis(x, axis, None, -1))
    return x


def _edge(value: Any, x: Any, axis: int) -> Any:
    """A number to prepend or append as an array of size 1 along the axis."""
    value = array_operand(value, "diff")
    return value if shape_of(value) else broadcast(value, tuple(1 if i == axis else d for i, d in enumerate(shape_of(x))))


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours of the flattened array, with values put before and after."""
    x = array_operand(ary, "ediff1d")
    x = diff(bind(reshape_p, x, shape=(size_of(x),)))
    parts = [to_begin, x, to_end]
    return concatenate(
        [bind(reshape_p, array_of(p, dtype_of(x)[0]), shape=(size_of(array_operand(p, "ediff1d")),)) for p in parts if p is not None]
    )
