"""Matrix products: the primitive works on stacks of matrices; vectors are reshaped around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import same_dim
from ..stage.dtypes import short_name
from ..stage.errors import DTypeError, ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind
from .operands import broadcast_shapes, operand, promoted, shape_of, spec
from .registry import implements
from .structure import align_batch, reshape_p, sum_to, transpose_p


def _abstract(x: ArraySpec, y: ArraySpec) -> ArraySpec:
    if x.dtype != y.dtype:
        raise DTypeError(f"matmul: operands of {short_name(x.dtype)} and {short_name(y.dtype)}; they are promoted first")
    k, l = x.shape[-1], y.shape[-2]
    if not same_dim(k, l):
        raise ShapeError(f"matmul: inner dimensions differ: x is {x!r}, y is {y!r} (x.shape[-1] = {k}, y.shape[-2] = {l})")
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2], what="matmul")
    return make_spec((*batch, x.shape[-2], y.shape[-1]), x.dtype)


def _numpy(x: Array, y: Array) -> Array:
    return np.matmul(x, y)


def swap_last(x: Any) -> Any:
    """The matrices of a stack transposed."""
    n = len(x.shape)
    return bind(transpose_p, x, permutation=(*range(n - 2), n - 1, n - 2))


def _transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    x, y = primals
    return (
        sum_to(bind(matmul_p, ct, swap_last(y)), x.shape) if active[0] else None,
        sum_to(bind(matmul_p, swap_last(x), ct), y.shape) if active[1] else None,
    )


def _batch(ctx: Any, args: Any, axes: Any) -> Any:
    ndim = max(len(x.shape) - (a is not None) for x, a in zip(args, axes, strict=True))
    return bind(matmul_p, *(x if a is None else align_batch(x, a, ndim) for x, a in zip(args, axes, strict=True))), 0


matmul_p = Primitive(
    "matmul",
    abstract=_abstract,
    numpy=_numpy,
    linear=((0,), (1,)),
    transpose=_transpose,
    batch=_batch,
    onnx=lambda b, x, y: b.op("MatMul", x, y),
    cases=[
        Case((Sample((2, 3)), Sample((3, 4))), named=(("B", 3), (3, 4))),
        Case((Sample((5, 2, 3)), Sample((3, 4)))),
        Case((Sample((2, 1, 2, 3)), Sample((3, 3, 2)))),
        Case((Sample((2, 3), "int"), Sample((3, 2), "int"))),
        Case((Sample((2, 0)), Sample((0, 3)))),
    ],
)


@implements(np.matmul, operator="matmul")
def matmul(x: Any, y: Any) -> Any:
    """x @ y with NumPy's meaning: x: [..., m, k] or [k], y: [..., k, n] or [k]. Raises ValueError for 0-d operands."""
    x, y = promoted(operand(x), operand(y), strong=True)
    a, b = shape_of(x), shape_of(y)
    if not a or not b:
        raise ShapeError(f"matmul: 0-d operands do not multiply as matrices (x is {spec(x)!r}, y is {spec(y)!r}); use *")
    if len(a) == 1:
        x = bind(reshape_p, x, shape=(1, a[0]))
    if len(b) == 1:
        y = bind(reshape_p, y, shape=(b[0], 1))
    if len(a) == 1 or len(b) == 1:
        if not same_dim(a[-1], b[0] if len(b) == 1 else b[-2]):
            raise ShapeError(f"matmul: inner dimensions differ: x is {list(a)}, y is {list(b)}")
    product = bind(matmul_p, x, y)
    if len(a) > 1 and len(b) > 1:
        return product
    shape = product.shape
    return bind(reshape_p, product, shape=(*shape[:-2], *(() if len(a) == 1 else shape[-2:-1]), *(() if len(b) == 1 else shape[-1:])))
