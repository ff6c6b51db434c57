"""Losses: cross-entropy of class scores with integer labels or with probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dims import same_shape
from ...stage.dtypes import INT64, kind_rank, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, make_spec
from ...stage.trace import bind
from ..arithmetic import floating, multiply, negative, where
from ..comparison import equal, logical_and
from ..exponential import exp_p
from ..families import kind_of
from ..formulas import half_as_single
from ..operands import cast, dtype_of, normalize_axis, operand, promoted, shape_of, spec
from ..reductions import sum as sum_
from ..statistics import mean
from ..structure import broadcast, move_axis, reduce_sum_p
from .embedding import one_hot_p
from .softmax import log_softmax, log_softmax_node, log_softmax_p, sum_along


def _abstract(logits: ArraySpec, labels: ArraySpec) -> tuple[ArraySpec, ArraySpec]:
    if kind_of(logits.dtype) != "f" or labels.dtype != INT64:
        raise DTypeError(f"cross_entropy: logits are {short_name(logits.dtype)}, labels {short_name(labels.dtype)}")
    if not same_shape(labels.shape, logits.shape[:-1]):
        raise ShapeError(
            f"cross_entropy: labels have shape {list(labels.shape)}, logits without their class axis {list(logits.shape[:-1])}"
        )
    return make_spec(labels.shape, logits.dtype), make_spec(logits.shape, logits.dtype)


def _numpy(logits: Array, labels: Array) -> tuple[Array, Array]:
    wide = logits.astype(half_as_single(logits.dtype), copy=False)
    log_p = log_softmax_p.numpy(wide, axis=wide.ndim - 1)
    valid = (labels >= 0) & (labels < logits.shape[-1])
    picked = np.take_along_axis(log_p, np.where(valid, labels, 0)[..., None], axis=-1)[..., 0]
    loss = np.where(valid, -picked, np.array(np.nan, wide.dtype))
    return loss.astype(logits.dtype), log_p.astype(logits.dtype)


def _jvp(output: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    _, log_p = output
    logits, labels = primals
    t = tangents[0]
    classes = logits.shape[-1]
    p = bind(exp_p, log_p)
    hot = bind(one_hot_p, labels, classes=classes, dtype=logits.dtype)
    along = bind(reduce_sum_p, (p - hot) * t, axes=(len(logits.shape) - 1,), keepdims=False)
    valid = logical_and(labels >= 0, labels < classes)
    unit = where(valid, np.ones((), logits.dtype), np.full((), np.nan, logits.dtype))
    return along * unit, t - sum_along(p * t, len(logits.shape) - 1)


def _batch(ctx: Any, args: Any, axes: Any) -> Any:
    logits, labels = args
    size = next(x.shape[a] for x, a in zip(args, axes, strict=True) if a is not None)
    logits = broadcast(logits, (size, *logits.shape)) if axes[0] is None else move_axis(logits, axes[0], 0)
    labels = broadcast(labels, (size, *labels.shape)) if axes[1] is None else move_axis(labels, axes[1], 0)
    return bind(cross_entropy_p, logits, labels), (0, 0)


def _onnx(b: Any, logits: str, labels: str) -> tuple[str, str]:
    dtype = b.dtype(logits)
    log_p = log_softmax_node(b, logits)
    classes = b.dim(b.spec(logits).shape[-1])
    zero = b.const(0, INT64)
    valid = b.op("And", b.op("GreaterOrEqual", labels, zero), b.op("Less", labels, classes))
    axis = b.const([-1], INT64)
    index = b.op("Unsqueeze", b.op("Where", valid, labels, zero), axis)
    picked = b.op("Squeeze", b.op("GatherElements", log_p, index, axis=-1), axis)
    return b.op("Where", valid, b.op("Neg", picked), b.const(np.nan, dtype)), log_p


cross_entropy_p = Primitive(
    "cross_entropy",
    abstract=_abstract,
    numpy=_numpy,
    jvp=_jvp,
    batch=_batch,
    onnx=_onnx,
    cases=[
        Case((Sample((3, 4)), Sample((3,), "int64", (0, 3))), named=(("B", 4), ("B",))),
        Case((Sample((2, 3, 5), domain=(-30, 30)), Sample((2, 3), "int64", (0, 4)))),
        Case((Sample((4,)), Sample((), "int64", (0, 3)))),
        Case((Sample((0, 3)), Sample((0,), "int64", (0, 3)))),
    ],
)


def cross_entropy(logits: Any, labels: Any, *, axis: int = -1, reduction: str = "mean") -> Any:
    """-log softmax(logits)[label], stable for logits of any size.

    logits: scores, the classes along `axis`. labels: integers of logits' shape without that axis, each in [0, classes); or
    probabilities, floats of logits' shape. reduction: "mean" over all other axes, "sum", or "none", which keeps them.
    An integer label out of range makes its loss and its gradient NaN, in the file as here.
    Raises ShapeError (a ValueError) for labels of another shape, DTypeError (a TypeError) for booleans, AxisError for a wrong axis.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"cross_entropy: reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    logits, labels = floating(logits), operand(labels, "labels")
    axis = normalize_axis(axis, len(shape_of(logits)))
    kind = kind_rank(dtype_of(labels)[0])
    if kind == 0:
        raise DTypeError("cross_entropy: labels are booleans; give class numbers, or probabilities as floats")
    losses = _of_classes(logits, labels, axis) if kind == 1 else _of_probabilities(logits, labels, axis)
    if reduction == "none":
        return losses
    return mean(losses) if reduction == "mean" else sum_(losses)


def _of_classes(logits: Any, labels: Any, axis: int) -> Any:
    shape = shape_of(logits)
    wanted = (*shape[:axis], *shape[axis + 1 :])
    if not same_shape(shape_of(labels), wanted):
        raise ShapeError(
            f"cross_entropy: logits are {spec(logits)!r} with their classes along axis {axis}, so integer labels have shape {list(wanted)}, "
            f"got {list(shape_of(labels))}; probabilities of logits' shape must be floats"
        )
    if type(shape[axis]) is int and shape[axis] == 0:
        raise ShapeError("cross_entropy: logits have no classes")
    return bind(cross_entropy_p, move_axis(logits, axis, len(shape) - 1), cast(labels, INT64))[0]


def _of_probabilities(logits: Any, labels: Any, axis: int) -> Any:
    if not same_shape(shape_of(labels), shape_of(logits)):
        raise ShapeError(
            f"cross_entropy: probabilities have the shape of the logits, {list(shape_of(logits))}, got {list(shape_of(labels))}"
        )
    logits, labels = promoted(logits, labels)
    log_p = log_softmax(logits, axis)
    # A class of probability zero costs nothing, also where its logit is -inf
    excluded = logical_and(equal(labels, 0), equal(log_p, -np.inf))
    return negative(sum_(multiply(labels, where(excluded, 0.0, log_p)), axis=axis))
