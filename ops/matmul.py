"""Matrix products: the primitive works on stacks of matrices; vectors are reshaped around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import product, same_dim
from ..stage.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64, is_float, short_name
from ..stage.errors import DTypeError, ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, Shape, make_spec
from ..stage.trace import bind
from .operands import broadcast_shapes, operand, promoted, shape_of, spec
from .registry import implements
from .structure import align_batch, move_axis, reshape_p, sum_to, transpose_p


def _abstract(x: ArraySpec, y: ArraySpec) -> ArraySpec:
    if x.dtype != y.dtype:
        raise DTypeError(f"matmul: operands of {short_name(x.dtype)} and {short_name(y.dtype)}; they are promoted first")
    m, n = x.shape[-1], y.shape[-2]
    if not same_dim(m, n):
        raise ShapeError(f"matmul: inner dimensions differ: x is {x!r}, y is {y!r} (x.shape[-1] = {m}, y.shape[-2] = {n})")
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2], what="matmul")
    return make_spec((*batch, x.shape[-2], y.shape[-1]), x.dtype)


def _numpy(x: Array, y: Array) -> Array:
    if is_float(x.dtype) and x.dtype.itemsize == 2:
        return np.matmul(x.astype(FLOAT32), y.astype(FLOAT32)).astype(x.dtype)
    return np.matmul(x, y)


def swap_last(x: Any) -> Any:
    """The matrices of a stack transposed."""
    n = len(x.shape)
    return bind(transpose_p, x, permutation=(*range(n - 2), n - 1, n - 2))


def rows_of(x: Any) -> Any:
    """A stack of matrices as one matrix of all their rows."""
    return x if len(x.shape) == 2 else bind(reshape_p, x, shape=(product(x.shape[:-1]), x.shape[-1]))


def _transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    x, y = primals
    return (
        sum_to(bind(matmul_p, ct, swap_last(y)), x.shape) if active[0] else None,
        _right_cotangent(x, ct, y.shape) if active[1] else None,
    )


def _right_cotangent(x: Any, ct: Any, shape: Shape) -> Any:
    if len(shape) == 2:
        # One product over the rows of the whole stack, rather than a stack of products and their sum
        return bind(matmul_p, swap_last(rows_of(x)), rows_of(ct))
    return sum_to(bind(matmul_p, swap_last(x), ct), shape)


def _batch(ctx: Any, args: Any, axes: Any) -> Any:
    x, y = args
    if axes[0] is None and len(x.shape) == 2 and len(y.shape) == 3:
        y = move_axis(y, axes[1], 0)
        if type(y.shape[2]) is int and y.shape[2] == 1:
            # A matrix times a batch of vectors is one product
            rows = bind(matmul_p, bind(reshape_p, y, shape=y.shape[:2]), swap_last(x))
            return bind(reshape_p, rows, shape=(*rows.shape, 1)), 0
        return bind(matmul_p, x, y), 0
    ndim = max(len(x.shape) - (a is not None) for x, a in zip(args, axes, strict=True))
    return bind(matmul_p, *(x if a is None else align_batch(x, a, ndim) for x, a in zip(args, axes, strict=True))), 0


def _onnx(b: Any, x: str, y: str) -> str:
    if b.dtype(x) == BOOL:
        # Sums of zeros and ones that are not all zero stay above zero in float32, however long
        total = b.op("MatMul", b.cast(x, FLOAT32), b.cast(y, FLOAT32))
        return b.op("Greater", total, b.const(0, FLOAT32))
    dtype = b.dtype(x)
    if dtype.kind == "u":
        # The unsigned kernels fail where nothing is summed; signed integers of the width or more give the same low bits
        signed = INT32 if dtype.itemsize < 4 else INT64
        return b.cast(b.op("MatMul", b.cast(x, signed), b.cast(y, signed)), dtype)
    return b.op("MatMul", x, y)


def _simplify(ctx: Any, x: Any, y: Any) -> Any:
    """A product of transposed matrices as one node."""
    if len(ctx.spec(x).shape) != 2 or len(ctx.spec(y).shape) != 2 or ctx.spec(x).dtype not in (FLOAT32, FLOAT64):
        return None
    a, b = _untransposed(ctx, x), _untransposed(ctx, y)
    if a is None and b is None:
        return None
    return ctx.emit(gemm_p, x if a is None else a, y if b is None else b, transpose_x=a is not None, transpose_y=b is not None)


def _untransposed(ctx: Any, x: Any) -> Any:
    producer = ctx.producer(x)
    if producer is None or producer.primitive is not transpose_p or producer.params["permutation"] != (1, 0):
        return None
    return producer.inputs[0]


matmul_p = Primitive(
    "matmul",
    abstract=_abstract,
    numpy=_numpy,
    linear=((0,), (1,)),
    transpose=_transpose,
    batch=_batch,
    onnx=_onnx,
    simplify=_simplify,
    cases=[
        Case((Sample((2, 3)), Sample((3, 4))), named=(("B", 3), (3, 4))),
        Case((Sample((5, 2, 3)), Sample((3, 4))), named=(("B", "T", 3), (3, 4))),
        Case((Sample((2, 1, 2, 3)), Sample((3, 3, 2))), named=(("B", 1, 2, 3), (3, 3, 2))),
        Case((Sample((2, 3)), Sample((4, 3, 1)))),
        Case((Sample((2, 3), "int"), Sample((3, 2), "int"))),
        Case((Sample((2, 3), "bool"), Sample((3, 2), "bool"))),
        Case((Sample((2, 0)), Sample((0, 3)))),
        Case((Sample((2, 0), "int"), Sample((0, 3), "int"))),
        Case((Sample((0, 3)), Sample((3, 2)))),
        Case((Sample((0, 2, 3)), Sample((3, 2)))),
    ],
)


# ---------------------------------------------------------------------- products of matrices that are read along their columns


def _turned(x: Any, transpose: bool) -> Any:
    return swap_last(x) if transpose else x


def _gemm_abstract(x: ArraySpec, y: ArraySpec, *, transpose_x: bool, transpose_y: bool) -> ArraySpec:
    if x.ndim != 2 or y.ndim != 2:
        raise ShapeError(f"gemm: two matrices are needed, got {x!r} and {y!r}")
    rows, columns = (s.update(shape=s.shape[::-1]) if t else s for s, t in ((x, transpose_x), (y, transpose_y)))
    return _abstract(rows, columns)


def _gemm_transpose(ct: Any, primals: Any, output: Any, *, active: Any, transpose_x: bool, transpose_y: bool) -> Any:
    x, y = primals
    return (
        _turned(bind(matmul_p, ct, _turned(y, not transpose_y)), transpose_x) if active[0] else None,
        _turned(bind(matmul_p, _turned(x, not transpose_x), ct), transpose_y) if active[1] else None,
    )


def _gemm_batch(ctx: Any, args: Any, axes: Any, *, transpose_x: bool, transpose_y: bool) -> Any:
    x, y = (v if a is None else move_axis(v, a, 0) for v, a in zip(args, axes, strict=True))
    return bind(matmul_p, _turned(x, transpose_x), _turned(y, transpose_y)), 0


def _gemm_numpy(x: Array, y: Array, *, transpose_x: bool, transpose_y: bool) -> Array:
    return _numpy(x.T if transpose_x else x, y.T if transpose_y else y)


def _gemm_onnx(b: Any, x: str, y: str, *, transpose_x: bool, transpose_y: bool) -> str:
    return b.op("Gemm", x, y, transA=int(transpose_x), transB=int(transpose_y))


gemm_p = Primitive(
    "gemm",
    abstract=_gemm_abstract,
    numpy=_gemm_numpy,
    linear=((0,), (1,)),
    transpose=_gemm_transpose,
    batch=_gemm_batch,
    onnx=_gemm_onnx,
    cases=[
        Case((Sample((3, 2)), Sample((3, 4))), {"transpose_x": True, "transpose_y": False}, named=(("B", 2), ("B", 4))),
        Case((Sample((2, 3)), Sample((4, 3))), {"transpose_x": False, "transpose_y": True}, named=(("B", 3), (4, 3))),
        Case((Sample((3, 2)), Sample((4, 3))), {"transpose_x": True, "transpose_y": True}),
        Case((Sample((0, 2)), Sample((0, 4))), {"transpose_x": True, "transpose_y": False}),
    ],
)


@implements(np.matmul, np.linalg.matmul, operator="matmul")
def matmul(x: Any, y: Any) -> Any:
    """x @ y with NumPy's meaning: x: [..., m, k] or [k], y: [..., k, n] or [k]. Raises ValueError for 0-d operands."""
    x, y = promoted(operand(x), operand(y), strong=True)
    a, b = shape_of(x), shape_of(y)
    if not a or not b:
        raise ShapeError(f"matmul: 0-d operands do not multiply as matrices (x is {spec(x)!r}, y is {spec(y)!r}); use *")
    rows = bind(reshape_p, x, shape=(1, a[0])) if len(a) == 1 else x
    columns = bind(reshape_p, y, shape=(b[0], 1)) if len(b) == 1 else y
    if (len(a) == 1 or len(b) == 1) and not same_dim(a[-1], b[max(len(b) - 2, 0)]):
        raise ShapeError(f"matmul: inner dimensions differ: x is {spec(x)!r}, y is {spec(y)!r}")
    result = bind(matmul_p, rows, columns)
    if len(a) > 1 and len(b) > 1:
        return result
    shape = shape_of(result)
    kept = (*shape[:-2], *(() if len(a) == 1 else shape[-2:-1]), *(() if len(b) == 1 else shape[-1:]))
    return bind(reshape_p, result, shape=kept)
