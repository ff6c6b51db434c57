"""softmax and log_softmax: each one node, in the differentiated forward pass too; their derivatives are written in their outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...stage.dtypes import FLOAT64, INT64, short_name
from ...stage.errors import DTypeError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..arithmetic import floating
from ..exponential import exp_p
from ..families import kind_of
from ..formulas import half_as_single
from ..operands import normalize_axis, shape_of
from ..structure import move_axis, reduce_sum_p


def _abstract(x: ArraySpec, *, axis: int) -> ArraySpec:
    if kind_of(x.dtype) != "f":
        raise DTypeError(f"softmax: not supported for {short_name(x.dtype)}")
    return make_spec(x.shape, x.dtype)


def _shifted(x: Array, axis: int) -> Array:
    """x minus its maximum, in the dtype to compute in."""
    wide = x.astype(half_as_single(x.dtype), copy=False)
    return wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)


def _softmax_numpy(x: Array, *, axis: int) -> Array:
    e = np.exp(_shifted(x, axis))
    return (e / np.sum(e, axis=axis, keepdims=True)).astype(x.dtype, copy=False)


def _log_softmax_numpy(x: Array, *, axis: int) -> Array:
    shifted = _shifted(x, axis)
    return (shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))).astype(x.dtype, copy=False)


def sum_along(x: Any, axis: int) -> Any:
    """The sum along one axis, which is kept with size 1."""
    return bind(reduce_sum_p, x, axes=(axis,), keepdims=True)


def _softmax_jvp(output: Any, primals: Any, tangents: Any, *, axis: int) -> Any:
    t = tangents[0]
    return output * (t - sum_along(output * t, axis))


def _log_softmax_jvp(output: Any, primals: Any, tangents: Any, *, axis: int) -> Any:
    t = tangents[0]
    return t - sum_along(bind(exp_p, output) * t, axis)


def _batch_rule(name: str) -> Any:
    def batch(ctx: Any, args: Any, axes: Any, *, axis: int) -> Any:
        primitive = {"softmax": softmax_p, "log_softmax": log_softmax_p}[name]
        return bind(primitive, move_axis(args[0], axes[0], 0), axis=axis + 1), 0

    return batch


def _along_last(b: Any, x: str, axis: int, node: Callable[[str], str]) -> str:
    """`node(x)` along the last axis: ONNX Runtime is several times slower along others, a transpose included."""
    last = len(b.in_specs[0].shape) - 1
    if axis == last:
        return node(x)
    order = [*(i for i in range(last + 1) if i != axis), axis]
    back = [order.index(i) for i in range(last + 1)]
    return b.op("Transpose", node(b.op("Transpose", x, perm=order)), perm=back)


def _softmax_onnx(b: Any, x: str, *, axis: int) -> str:
    return _along_last(b, x, axis, lambda name: b.op("Softmax", name, axis=-1))


def log_softmax_node(b: Any, x: str) -> str:
    """log_softmax along the last axis."""
    if b.dtype(x) != FLOAT64:
        return b.op("LogSoftmax", x, axis=-1)
    # The float64 kernel gives -inf beside +inf, where NumPy and the float32 one give NaN
    axes = b.const([-1], INT64)
    shifted = b.op("Sub", x, b.op("ReduceMax", x, axes, keepdims=1))
    total = b.op("ReduceSum", b.op("Exp", shifted), axes, keepdims=1)
    return b.op("Sub", shifted, b.op("Log", total))


def _log_softmax_onnx(b: Any, x: str, *, axis: int) -> str:
    return _along_last(b, x, axis, lambda name: log_softmax_node(b, name))


_CASES = [
    Case((Sample((2, 3)),), {"axis": 1}, named=(("B", 3),)),
    Case((Sample((3, 2, 4)),), {"axis": 1}, named=(("B", "T", 4),)),
    Case((Sample((3, 4), domain=(-80, 80)),), {"axis": 0}, named=(("B", 4),)),
    Case((Sample((1,)),), {"axis": 0}),
    Case((Sample((0, 3)),), {"axis": 1}),
    Case((Sample((2, 0)),), {"axis": 1}),
]

softmax_p = Primitive(
    "softmax",
    abstract=_abstract,
    numpy=_softmax_numpy,
    jvp=_softmax_jvp,
    batch=_batch_rule("softmax"),
    onnx=_softmax_onnx,
    cases=_CASES,
)
log_softmax_p = Primitive(
    "log_softmax",
    abstract=_abstract,
    numpy=_log_softmax_numpy,
    jvp=_log_softmax_jvp,
    batch=_batch_rule("log_softmax"),
    onnx=_log_softmax_onnx,
    cases=_CASES,
)


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, stable for large x; same shape as x. Integers are computed in floating point.

    A slice that holds NaN or +inf, or nothing but -inf, is NaN. Raises AxisError for an axis that x does not have.
    """
    x = floating(x)
    return bind(softmax_p, x, axis=normalize_axis(axis, len(shape_of(x))))


def log_softmax(x: Any, axis: int = -1) -> Any:
    """log(softmax(x)) along an axis without cancellation; same shape as x. Raises AxisError for an axis that x does not have."""
    x = floating(x)
    return bind(log_softmax_p, x, axis=normalize_axis(axis, len(shape_of(x))))
