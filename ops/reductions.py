"""Reductions: sum, prod, max, min, any, all and what is made of them at once."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dims import Dim, product
from ..stage.dtypes import BOOL, FLOAT32, INT64, DType, as_dtype, is_float, kind_rank
from ..stage.errors import ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec
from ..stage.trace import bind
from .arguments import array_of, array_operand, no_out
from .arithmetic import add, divide_p, multiply, multiply_p, subtract, where_p
from .comparison import equal_p, logical_or_p, not_equal_p
from .families import NUMBERS, reduction, reduction_cases
from .joining import concatenate_p
from .operands import cast, dtype_of, normalize_axes, shape_of
from .registry import implements, implements_ufunc_method
from .slicing import pad, slice_axis
from .structure import broadcast, reduce_sum_p, reduced_shape, reshape_p, transpose_p

UINT64: DType = np.dtype(np.uint64)
UINT8: DType = np.dtype(np.uint8)
_INT64_MIN = np.iinfo(np.int64).min

# ---------------------------------------------------------------------------------------------------- max, min, any, all, prod


def _require_elements(name: str) -> Callable[[ArraySpec, tuple[int, ...]], None]:
    def check(x: ArraySpec, axes: tuple[int, ...]) -> None:
        rest = [d for i, d in enumerate(x.shape) if i not in axes]
        empty = builtins.any(type(x.shape[a]) is int and x.shape[a] == 0 for a in axes)
        if empty and not builtins.any(type(d) is int and d == 0 for d in rest):
            raise ShapeError(f"zero-size array to reduction operation {name} which has no identity (shape {list(x.shape)}, axis {axes})")

    return check


def keep(x: Any, shape: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The result of a reduction of an array of `shape`, with the reduced axes as ones."""
    return x if keepdims or not axes else bind(reshape_p, x, shape=reduced_shape(tuple(shape), axes, True))


def _extreme_jvp(output: Any, primals: Any, tangents: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    # Elements that tie share the tangent equally. Where the result is NaN, the NaNs are what ties.
    x = primals[0]
    chosen = bind(logical_or_p, bind(equal_p, x, keep(output, x.shape, axes, keepdims)), bind(not_equal_p, x, x))
    count = bind(reduce_sum_p, cast(chosen, x.dtype), axes=axes, keepdims=keepdims)
    picked = bind(where_p, chosen, tangents[0], np.zeros((), x.dtype))
    return bind(divide_p, bind(reduce_sum_p, picked, axes=axes, keepdims=keepdims), count)


def signed_order(b: Any, x: str) -> str:
    """uint64 as int64 in the same order: ONNX Runtime compares none of 64 unsigned bits. `unsigned_order` undoes it."""
    return b.op("Add", b.cast(x, INT64), b.const(_INT64_MIN, INT64))


def unsigned_order(b: Any, x: str) -> str:
    return b.cast(b.op("Add", x, b.const(_INT64_MIN, INT64)), UINT64)


def _extreme_onnx(op_type: str) -> Callable[..., str]:
    def rule(b: Any, x: str, *, axes: tuple[int, ...], keepdims: bool) -> str:
        if not axes:
            return b.op("Identity", x)
        dtype = b.dtype(x)
        where = b.const(list(axes), INT64)
        if dtype == UINT64:
            return unsigned_order(b, b.op(op_type, signed_order(b, x), where, keepdims=int(keepdims)))
        if dtype == BOOL:
            return b.cast(b.op(op_type, b.cast(x, UINT8), where, keepdims=int(keepdims)), BOOL)
        if not is_float(dtype):
            return b.op(op_type, x, where, keepdims=int(keepdims))
        if dtype.itemsize == 2:
            x = b.cast(x, FLOAT32)
        # ONNX Runtime's ReduceMax and ReduceMin pass NaN over.
        found = b.op(op_type, x, where, keepdims=int(keepdims))
        has_nan = b.cast(b.op("ReduceMax", b.cast(b.op("IsNaN", x), UINT8), where, keepdims=int(keepdims)), BOOL)
        return b.cast(b.op("Where", has_nan, b.const(np.nan, b.dtype(x)), found), dtype)

    return rule


def _extreme(name: str, numpy: Callable[..., Any], op_type: str, label: str) -> Primitive:
    return reduction(
        name,
        numpy,
        jvp=_extreme_jvp,
        check=_require_elements(label),
        onnx=_extreme_onnx(op_type),
        cases=[
            *reduction_cases(),
            *reduction_cases("int", (-9, 9)),
            Case((Sample((3,), "bool"),), {"axes": (0,), "keepdims": False}),
            Case(
                (Sample((2, 3), "float", values=[[1, np.nan, 3], [2, 2, -1]]),),
                {"axes": (1,), "keepdims": False},
                smooth=False,
            ),
            Case((Sample((0, 3)),), {"axes": (1,), "keepdims": False}),
            Case((Sample(()),), {"axes": (), "keepdims": False}),
        ],
    )


reduce_max_p = _extreme("reduce_max", np.max, "ReduceMax", "maximum")
reduce_min_p = _extreme("reduce_min", np.min, "ReduceMin", "minimum")


def _boolean(name: str, numpy: Callable[..., Any], op_type: str) -> Primitive:
    def onnx(b: Any, x: str, *, axes: tuple[int, ...], keepdims: bool) -> str:
        if not axes:
            return b.op("Identity", x)
        # Of no bytes the greatest is 0 and the least 255, which is what `any` and `all` of nothing are.
        return b.cast(b.op(op_type, b.cast(x, UINT8), b.const(list(axes), INT64), keepdims=int(keepdims)), BOOL)

    return reduction(
        name,
        numpy,
        dtypes="b",
        nondifferentiable="a boolean has no tangent",
        onnx=onnx,
        shadow="decision",
        cases=[*reduction_cases("bool"), Case((Sample((2, 0), "bool"),), {"axes": (1,), "keepdims": False})],
    )


reduce_or_p = _boolean("reduce_or", np.any, "ReduceMax")
reduce_and_p = _boolean("reduce_and", np.all, "ReduceMin")


def _prod_numpy(x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    work = FLOAT32 if is_float(x.dtype) and x.dtype.itemsize == 2 else x.dtype
    return np.asarray(np.prod(x, axis=axis, keepdims=keepdims, dtype=work)).astype(x.dtype, copy=False)


def _prod_halving(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The product as a tree: halves are multiplied until one element is left. Its derivatives, of any order, divide by nothing
    and so are right at zeros. A named size takes as many levels as any size could need.
    """
    shape = tuple(x.shape)
    others = tuple(i for i in range(len(shape)) if i not in axes)
    size: Any = product([shape[a] for a in axes])
    x = bind(transpose_p, x, permutation=(*others, *axes))
    x = bind(reshape_p, x, shape=(*(shape[i] for i in others), size))
    axis = len(others)
    no_pad = [0] * (axis + 1)
    if isinstance(size, Dim):
        # One more element, a one, so that there is something to end with at size 0.
        x, levels = pad(x, no_pad, [*no_pad[:-1], 1], 1), 31
    elif size == 0:
        x, levels = pad(x, no_pad, [*no_pad[:-1], 1], 1), 0
    else:
        levels = (size - 1).bit_length()
    for _ in range(levels):
        n = x.shape[axis]
        x = pad(x, no_pad, [*no_pad[:-1], (n + 1) // 2 * 2 - n], 1)
        x = bind(multiply_p, slice_axis(x, axis, 0, None, 2), slice_axis(x, axis, 1, None, 2))
    x = bind(reduce_sum_p, x, axes=(axis,), keepdims=False)
    return keep(x, shape, axes, False) if keepdims else x


def _prod_onnx(b: Any, x: str, *, axes: tuple[int, ...], keepdims: bool) -> str:
    return b.op("ReduceProd", x, b.const(list(axes), INT64), keepdims=int(keepdims)) if axes else b.op("Identity", x)


reduce_prod_p = reduction(
    "reduce_prod",
    _prod_numpy,
    dtypes=NUMBERS,
    onnx=_prod_onnx,
    decompose=_prod_halving,
    cases=[
        *reduction_cases(),
        *reduction_cases("int", (-3, 3)),
        Case(
            (Sample((2, 5), "float", values=[[2, 0, 3, 1, 0], [2, 0, 3, 1, 4]]),),
            {"axes": (1,), "keepdims": False},
        ),
        Case((Sample((2, 0)),), {"axes": (1,), "keepdims": False}),
        Case((Sample((3, 0)),), {"axes": (0,), "keepdims": True}),
    ],
)

# ---------------------------------------------------------------------------------------------------------- the public functions


def accumulator(dtype: DType) -> DType:
    """NumPy sums booleans and small integers in the 64-bit integer of their signedness."""
    if kind_rank(dtype) == 2:
        return dtype
    return UINT64 if dtype.kind == "u" else INT64


def masked(x: Any, where: Any, identity: Any) -> Any:
    """x with what `where` leaves out replaced by the identity of a reduction."""
    if where is True:
        return x
    filler = np.asarray(identity, dtype_of(x)[0])
    return bind(where_p, array_of(where, BOOL, "where"), x, filler)


def _sum_or_prod(
    what: str,
    primitive: Primitive,
    identity: int,
    combine: Callable[..., Any],
    a: Any,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    initial: Any,
    where: Any,
) -> Any:
    x = array_operand(a, what)
    x = cast(x, accumulator(dtype_of(x)[0]) if dtype is None else as_dtype(dtype))
    result_dtype = dtype_of(x)[0]
    if result_dtype == BOOL:
        # dtype=bool: any for sum, all for prod
        truth = reduce_or_p if identity == 0 else reduce_and_p
        return bind(
            truth,
            masked(x, where, identity),
            axes=normalize_axes(axis, len(shape_of(x))),
            keepdims=bool(keepdims),
        )
    x = masked(x, where, identity)
    result = bind(primitive, x, axes=normalize_axes(axis, len(shape_of(x))), keepdims=bool(keepdims))
    return result if initial is None else combine(result, array_of(initial, result_dtype, "initial"))


@implements(np.sum, method="sum")
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """The sum over axes (all by default); integers and booleans are summed in 64 bits, as NumPy does.

    Raises AxisError for an axis out of range. Large float sums are accurate: half-width floats are added up in float32.
    """
    no_out(out, "sum")
    return _sum_or_prod("sum", reduce_sum_p, 0, add, a, axis, dtype, keepdims, initial, where)


@implements(np.prod, method="prod")
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """The product over axes; 1 of no elements. Its gradient is right where elements are 0."""
    no_out(out, "prod")
    return _sum_or_prod("prod", reduce_prod_p, 1, multiply, a, axis, dtype, keepdims, initial, where)


def _lowest(dtype: DType) -> Any:
    return False if dtype == BOOL else np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: DType) -> Any:
    return True if dtype == BOOL else np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _max_or_min(
    what: str,
    primitive: Primitive,
    identity: Callable[[DType], Any],
    a: Any,
    axis: Any,
    keepdims: Any,
    initial: Any,
    where: Any,
) -> Any:
    x = array_operand(a, what)
    dtype = dtype_of(x)[0]
    if where is not True and initial is None:
        raise ValueError(f"reduction operation '{what}imum' does not have an identity, so to use a where mask one has to specify 'initial'")
    x = masked(x, where, identity(dtype))
    axes = normalize_axes(axis, len(shape_of(x)))
    if initial is None:
        return bind(primitive, x, axes=axes, keepdims=bool(keepdims))
    result = None if is_empty(x, axes) else bind(primitive, x, axes=axes, keepdims=bool(keepdims))
    first = array_of(initial, dtype, "initial")
    if result is None:
        return broadcast(first, reduced_shape(shape_of(x), axes, bool(keepdims)))
    return bind(primitive, paired(result, broadcast(first, shape_of(result))), axes=(0,), keepdims=False)


def paired(x: Any, y: Any) -> Any:
    """Two arrays of one shape and dtype along a new first axis."""
    return bind(concatenate_p, *(bind(reshape_p, r, shape=(1, *shape_of(r))) for r in (x, y)), axis=0)


def is_empty(x: Any, axes: tuple[int, ...]) -> bool:
    """Whether one of these axes is known to have no elements."""
    return builtins.any(type(shape_of(x)[a]) is int and shape_of(x)[a] == 0 for a in axes)


@implements(np.max, np.amax, method="max")
def max(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, initial: Any = None, where: Any = True) -> Any:
    """The largest element over axes; NaN if there is one. Ties share the gradient equally.

    Raises ValueError where there are no elements and no `initial`.
    """
    no_out(out, "max")
    return _max_or_min("max", reduce_max_p, _lowest, a, axis, keepdims, initial, where)


@implements(np.min, np.amin, method="min")
def min(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, initial: Any = None, where: Any = True) -> Any:
    """The smallest element over axes; see `max`."""
    no_out(out, "min")
    return _max_or_min("min", reduce_min_p, _highest, a, axis, keepdims, initial, where)


def _truth(what: str, primitive: Primitive, identity: bool, a: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    x = masked(array_of(a, BOOL, what), where, identity)
    return bind(primitive, x, axes=normalize_axes(axis, len(shape_of(x))), keepdims=bool(keepdims))


@implements(np.any, method="any")
def any(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """Whether any element over axes is true (not 0; NaN is true); False of no elements."""
    no_out(out, "any")
    return _truth("any", reduce_or_p, False, a, axis, keepdims, where)


@implements(np.all, method="all")
def all(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """Whether all elements over axes are true; True of no elements."""
    no_out(out, "all")
    return _truth("all", reduce_and_p, True, a, axis, keepdims, where)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """How many elements over axes are not 0, as int64."""
    return sum(array_of(a, BOOL, "count_nonzero"), axis, keepdims=keepdims)


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: Any = False) -> Any:
    """The largest element less the smallest, over axes."""
    no_out(out, "ptp")
    return subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _register_reduce(ufunc: Any, function: Callable[..., Any], takes_dtype: bool = False, boolean: bool = False) -> None:
    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: Any = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        no_out(out, f"np.{ufunc.__name__}.reduce")
        options: dict[str, Any] = {"keepdims": keepdims, "where": where}
        if takes_dtype:
            options |= {"dtype": dtype, "initial": initial}
        elif not boolean:
            array = array if dtype is None else array_of(array, as_dtype(dtype))
            options["initial"] = initial
        return function(array, axis, **options)

    implements_ufunc_method(ufunc, "reduce")(reduce)


_register_reduce(np.add, sum, takes_dtype=True)
_register_reduce(np.multiply, prod, takes_dtype=True)
_register_reduce(np.maximum, max)
_register_reduce(np.minimum, min)
_register_reduce(np.logical_and, all, boolean=True)
_register_reduce(np.logical_or, any, boolean=True)
