"""argmax and argmin: where the extreme elements are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, FLOAT32, INT64, is_float
from ..stage.errors import ShapeError
from ..stage.narrowing import is_numpy
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind
from .arguments import array_operand, no_out, size_of
from .arithmetic import where
from .comparison import not_equal
from .operands import normalize_axis, shape_of
from .reductions import UINT8, UINT64, is_empty, signed_order
from .reductions import all as all_
from .registry import implements
from .statistics import without_nan
from .structure import move_axis, reshape_p
from .sum_nodes import reduced_shape


def _arg_abstract(x: ArraySpec, *, axis: int, keepdims: bool) -> ArraySpec:
    return make_spec(reduced_shape(x.shape, (axis,), keepdims), INT64)


def _arg(name: str, numpy: Callable[..., Any], op_type: str, reduce_type: str) -> Primitive:
    def onnx(b: Any, x: str, *, axis: int, keepdims: bool) -> str:
        dtype = b.dtype(x)
        if is_float(dtype):
            # The first NaN, else the first of the elements that equal the extreme one; ONNX Runtime's ArgMax passes NaN over.
            if dtype.itemsize == 2:
                x = b.cast(x, FLOAT32)
            best = b.op(reduce_type, x, b.const([axis], INT64), keepdims=1)
            # Ranked as float32, which CUDA's ArgMax takes, unlike integers
            nan = b.cast(b.op("IsNaN", x), FLOAT32)
            chosen = b.op("Add", nan, b.op("Add", nan, b.cast(b.op("Equal", x, best), FLOAT32)))
            return b.op("ArgMax", chosen, axis=axis, keepdims=int(keepdims))
        if dtype == UINT64:
            x = signed_order(b, x)
        return b.op(op_type, b.cast(x, UINT8) if dtype == BOOL else x, axis=axis, keepdims=int(keepdims))

    def evaluate(x: Array, *, axis: int, keepdims: bool) -> Array:
        return np.asarray(numpy(x, axis=axis, keepdims=keepdims), dtype=np.int64)

    def batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int, keepdims: bool) -> Any:
        return bind(primitive, move_axis(args[0], batch_axes[0], 0), axis=axis + 1, keepdims=keepdims), 0

    primitive = Primitive(
        name,
        abstract=_arg_abstract,
        numpy=evaluate,
        nondifferentiable="an index is an integer",
        batch=batch,
        onnx=onnx,
        shadow="decision",
        cases=[
            Case((Sample((2, 3)),), {"axis": 1, "keepdims": False}, named=(("B", 3),)),
            Case((Sample((4, 3), "int", (-2, 2)),), {"axis": 0, "keepdims": True}),
            Case((Sample((5,), "bool"),), {"axis": 0, "keepdims": False}),
            Case(
                (Sample((2, 3), "float", values=[[1, np.nan, 3], [2, -1, 2]]),),
                {"axis": 1, "keepdims": False},
            ),
            Case((Sample((0, 3)),), {"axis": 1, "keepdims": False}),
        ],
    )
    return primitive


argmax_p = _arg("argmax", np.argmax, "ArgMax", "ReduceMax")
argmin_p = _arg("argmin", np.argmin, "ArgMin", "ReduceMin")


def _position(what: str, primitive: Primitive, a: Any, axis: Any, keepdims: Any) -> Any:
    x = array_operand(a, what)
    shape = shape_of(x)
    if axis is None:
        x = bind(reshape_p, x, shape=(size_of(x),))
    index = 0 if axis is None else normalize_axis(axis, len(shape))
    if is_empty(x, (index,)) and not any(type(d) is int and d == 0 for i, d in enumerate(shape_of(x)) if i != index):
        raise ShapeError(f"attempt to get {what} of an empty sequence")
    result = bind(primitive, x, axis=index, keepdims=bool(keepdims))
    return bind(reshape_p, result, shape=(1,) * len(shape)) if axis is None and keepdims else result


@implements(np.argmax, method="argmax")
def argmax(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = False) -> Any:
    """The index (int64) of the first largest element, or of the first NaN; of the flattened array by default.

    Raises ValueError where there are no elements.
    """
    no_out(out, "argmax")
    return _position("argmax", argmax_p, a, axis, keepdims)


@implements(np.argmin, method="argmin")
def argmin(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = False) -> Any:
    """The index (int64) of the first smallest element, or of the first NaN; see `argmax`."""
    no_out(out, "argmin")
    return _position("argmin", argmin_p, a, axis, keepdims)


def _among_numbers(what: str, find: Callable[..., Any], identity: float, a: Any, axis: Any, keepdims: Any) -> Any:
    x = array_operand(a, what)
    place = find(without_nan(x, identity, what), axis, keepdims=keepdims)
    if not is_float(x.dtype):
        return place
    nothing = all_(not_equal(x, x), axis, keepdims=bool(keepdims))
    if is_numpy(nothing):
        if np.any(nothing):
            raise ValueError("All-NaN slice encountered")
        return place
    return where(nothing, np.asarray(-1, INT64), place)


@implements(np.nanargmax)
def nanargmax(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = False) -> Any:
    """The index (int64) of the first largest element that is not NaN. Of traced arrays -1 where all are, for which NumPy raises."""
    no_out(out, "nanargmax")
    return _among_numbers("nanargmax", argmax, -np.inf, a, axis, keepdims)


@implements(np.nanargmin)
def nanargmin(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = False) -> Any:
    """The index (int64) of the first smallest element that is not NaN. Of traced arrays -1 where all are, for which NumPy raises."""
    no_out(out, "nanargmin")
    return _among_numbers("nanargmin", argmin, np.inf, a, axis, keepdims)
