"""conv and conv_transpose: one primitive, whose derivatives by either operand are that primitive again.

conv_general is y[n, o, p] = sum over c, k of x'[n, c, p * stride + k * rhs_dilation - low] * w[o, c, k], where x' is x with
lhs_dilation - 1 zeros between its elements, and zero outside. `size` is the number of positions p, from which the padding after
follows. `transposed` reads w as [channels of x, outputs / groups, *kernel], each kernel reversed: the adjoint of the convolution with
the same w, so that no derivative moves weights about.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...stage.dims import Dim, exact_div, product, same_dim
from ...stage.dtypes import FLOAT64, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, DimLike, Shape, make_spec
from ...stage.trace import bind
from ..arithmetic import floating
from ..families import kind_of
from ..formulas import half_as_single
from ..operands import cast, dtype_of, promoted, shape_of
from ..slicing import pad, pad_p, reverse, spread_out
from ..structure import move_axis, reshape_p, transpose_p
from .conv_products import by_windows, gathered_windows
from .precision import lower_function
from .windows import Pads, dilated, paddings, per_axis, quotient, reach, require_room, spatial_axes, window_count

Ints = tuple[int, ...]

# Of weight gradients: one matrix product for each element of the kernel, which is the small output here
_FEW_POSITIONS = 64


def _counts(what: str, x: Shape, w: Shape, groups: DimLike, transposed: bool) -> tuple[DimLike, DimLike]:
    """(channels of x, channels of the result); ShapeError where the operands do not fit."""
    if len(x) != len(w):
        raise ShapeError(f"{what}: x has shape {list(x)} and w {list(w)}; both have as many spatial axes")
    channels, outputs = (w[0], w[1] * groups) if transposed else (w[1] * groups, w[0])
    if not same_dim(channels, x[1]):
        raise ShapeError(f"{what}: x has {x[1]} channels (shape {list(x)}), w of shape {list(w)} with groups={groups} is for {channels}")
    if exact_div(w[0], groups) is None:
        raise ShapeError(f"{what}: the first axis of w, {w[0]}, does not divide into {groups} groups")
    return channels, outputs


def _abstract(x: ArraySpec, w: ArraySpec, *, size: Shape, groups: DimLike, transposed: bool, **params: Any) -> ArraySpec:
    if kind_of(x.dtype) != "f" or x.dtype != w.dtype:
        raise DTypeError(f"conv: floats of one dtype are needed, got {short_name(x.dtype)} and {short_name(w.dtype)}")
    _, outputs = _counts("conv", x.shape, w.shape, groups, transposed)
    return make_spec((x.shape[0], outputs, *size), x.dtype)


def _pads(spatial: Shape, kernel: Any, *, strides: Ints, low: Shape, size: Shape, lhs_dilation: Ints, rhs_dilation: Ints) -> Pads:
    """What stands before and after x; where the last window ends before x does, the amount after is negative."""
    spans = reach(kernel, rhs_dilation)
    return tuple(
        (a, (o - 1) * s + span - dilated(n, gap) - a)
        for n, a, o, s, gap, span in zip(spatial, low, size, strides, lhs_dilation, spans, strict=True)
    )


def _window_params(params: dict[str, Any]) -> dict[str, Any]:
    return {k: params[k] for k in ("strides", "low", "size", "lhs_dilation", "rhs_dilation")}


# -------------------------------------------------------------------------------------------------------------------- values


def _numpy(x: Array, w: Array, *, groups: int, transposed: bool, **params: Any) -> Array:
    strides, size, gaps, taps = (params[k] for k in ("strides", "size", "lhs_dilation", "rhs_dilation"))
    kernel = w.shape[2:]
    outputs = w.shape[1] * groups if transposed else w.shape[0]
    wide = half_as_single(x.dtype)
    if 0 in (*size, *w.shape, *x.shape):
        return np.zeros((x.shape[0], outputs, *size), x.dtype)
    if transposed:
        w = _plain_numpy(w, groups)
    count = len(size)
    spread = np.zeros((*x.shape[:2], *(dilated(n, g) for n, g in zip(x.shape[2:], gaps, strict=True))), wide)
    spread[(..., *(slice(None, None, g) for g in gaps))] = x
    pads = _pads(x.shape[2:], kernel, **params)
    framed = pad_p.numpy(spread, low=(0, 0, *(p[0] for p in pads)), high=(0, 0, *(p[1] for p in pads)), value=0)
    windows = np.lib.stride_tricks.sliding_window_view(framed, reach(kernel, taps), axis=tuple(range(2, 2 + count)))
    windows = windows[(..., *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in taps))]
    order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))
    columns = windows.transpose(order).reshape(x.shape[0], groups, -1, math.prod(size))
    rows = w.astype(wide, copy=False).reshape(groups, outputs // groups, -1)
    return np.matmul(rows, columns).reshape(x.shape[0], outputs, *size).astype(x.dtype, copy=False)


def _plain_numpy(w: Array, groups: int) -> Array:
    """Weights of a transposed convolution as those of a plain one."""
    kernel = w.shape[2:]
    w = w[(..., *(slice(None, None, -1) for _ in kernel))].reshape(groups, -1, *w.shape[1:])
    return w.swapaxes(1, 2).reshape(-1, w.shape[1], *kernel)


def _plain(w: Any, groups: DimLike) -> Any:
    """Weights of a transposed convolution as those of a plain one."""
    shape = shape_of(w)
    kernel = shape[2:]
    each = quotient(shape[0], groups)
    w = bind(reshape_p, reverse(w, range(2, len(shape))), shape=(groups, each, *shape[1:]))
    w = bind(transpose_p, w, permutation=(0, 2, 1, *range(3, 3 + len(kernel))))
    return bind(reshape_p, w, shape=(groups * shape[1], each, *kernel))


# --------------------------------------------------------------------------------------------------------------- derivatives


def _adjoint(spatial: Shape, kernel: Any, params: dict[str, Any]) -> dict[str, Any]:
    """The params of the adjoint in x: from cotangents to an array of x's shape, by the same weights."""
    spans = reach(kernel, params["rhs_dilation"])
    return {
        "strides": params["lhs_dilation"],
        "low": tuple(span - 1 - a for span, a in zip(spans, params["low"], strict=True)),
        "size": tuple(spatial),
        "lhs_dilation": params["strides"],
        "rhs_dilation": params["rhs_dilation"],
        "groups": params["groups"],
        "transposed": not params["transposed"],
    }


def _transpose(ct: Any, primals: Any, output: Any, *, active: Any, **params: Any) -> Any:
    x, w = primals
    kernel = w.shape[2:]
    adjoint = _adjoint(x.shape[2:], kernel, params)
    dx = bind(conv_p, ct, w, **adjoint) if active[0] else None
    if not active[1]:
        return dx, None
    # Of a transposed convolution from x the weights are those of the plain one from its cotangent
    dw = _weight_cotangent(ct, x, kernel, adjoint) if params["transposed"] else _weight_cotangent(x, ct, kernel, params)
    return dx, dw


def _weight_cotangent(x: Any, ct: Any, kernel: Shape, params: dict[str, Any]) -> Any:
    """Sum over the batch of x and ct, shifted against each other: a convolution in which batch and channels change places."""
    groups = params["groups"]
    n, channels, *spatial = x.shape
    each = quotient(channels, groups)
    rest = tuple(range(3, 3 + len(kernel)))
    lhs = bind(transpose_p, bind(reshape_p, x, shape=(n, groups, each, *spatial)), permutation=(2, 1, 0, *rest))
    lhs = bind(reshape_p, lhs, shape=(each, groups * n, *spatial))
    result = bind(
        conv_p,
        lhs,
        move_axis(ct, 1, 0),
        strides=params["rhs_dilation"],
        low=params["low"],
        size=tuple(kernel),
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["strides"],
        groups=groups,
        transposed=False,
    )
    return move_axis(result, 1, 0)


# --------------------------------------------------------------------------------------------------------------------- vmap


def _batch(ctx: Any, args: Any, axes: Any, /, **params: Any) -> Any:
    x, w = args
    groups, transposed = params["groups"], params["transposed"]
    if axes[1] is None:
        x = move_axis(x, axes[0], 0)
        b, n = x.shape[:2]
        y = bind(conv_p, bind(reshape_p, x, shape=(b * n, *x.shape[2:])), w, **params)
        return bind(reshape_p, y, shape=(b, n, *y.shape[1:])), 0
    w = move_axis(w, axes[1], 0)
    b, first, second, *kernel = w.shape
    if axes[0] is None:
        # The weights of the whole batch side by side, within each group
        each = second if transposed else quotient(first, groups)
        if transposed:
            w = bind(reshape_p, move_axis(w, 0, 1), shape=(first, b * second, *kernel))
        else:
            w = move_axis(bind(reshape_p, w, shape=(b, groups, each, second, *kernel)), 0, 1)
            w = bind(reshape_p, w, shape=(groups * b * each, second, *kernel))
        y = bind(conv_p, x, w, **params)
        y = bind(reshape_p, y, shape=(y.shape[0], groups, b, each, *y.shape[2:]))
        return bind(reshape_p, move_axis(y, 2, 0), shape=(b, y.shape[0], groups * each, *y.shape[4:])), 0
    x = move_axis(x, axes[0], 1)
    x = bind(reshape_p, x, shape=(x.shape[0], b * x.shape[2], *x.shape[3:]))
    w = bind(reshape_p, w, shape=(b * first, second, *kernel))
    y = bind(conv_p, x, w, **{**params, "groups": b * groups})
    return bind(reshape_p, y, shape=(y.shape[0], b, quotient(y.shape[1], b), *y.shape[2:])), 1


# ----------------------------------------------------------------------------------------------------------------- lowering


def _onnx(b: Any, x: str, w: str, **params: Any) -> str:
    x_spec, w_spec, out = *b.in_specs, b.out_specs[0]
    if any(type(d) is int and d == 0 for d in (*x_spec.shape, *w_spec.shape, *out.shape)):
        return b.op("Expand", b.const(np.zeros((), out.dtype)), b.shape(out.shape))
    spatial, kernel = x_spec.shape[2:], w_spec.shape[2:]
    if out.dtype == FLOAT64 or any(isinstance(d, Dim) for d in (params["groups"], *kernel)):
        return lower_function(b, lambda x, w: _by_gathering(x, w, **params), x, w)
    if params["transposed"]:
        return _transposed_node(b, x, w, spatial, kernel, out, params)
    pads = _pads(spatial, kernel, **_window_params(params))
    few = product(params["size"])
    if not isinstance(few, Dim) and few <= _FEW_POSITIONS and few < math.prod(kernel):
        return lower_function(
            b, lambda x, w: by_windows(_framed(x, pads, params["lhs_dilation"]), w, **_window_params(params), groups=params["groups"]), x, w
        )
    if any(g != 1 for g in params["lhs_dilation"]) or not all(type(d) is int and d >= 0 for p in pads for d in p):
        unpadded = {**params, "low": (0,) * len(pads), "lhs_dilation": (1,) * len(pads)}
        return lower_function(b, lambda x, w: bind(conv_p, _framed(x, pads, params["lhs_dilation"]), w, **unpadded), x, w)
    return b.op(
        "Conv",
        x,
        w,
        kernel_shape=list(kernel),
        strides=list(params["strides"]),
        dilations=list(params["rhs_dilation"]),
        pads=[p[0] for p in pads] + [p[1] for p in pads],
        group=params["groups"],
    )


def _transposed_node(b: Any, x: str, w: str, spatial: Shape, kernel: Any, out: ArraySpec, params: dict[str, Any]) -> str:
    groups, gaps = params["groups"], params["lhs_dilation"]
    if any(s != 1 for s in params["strides"]):
        return lower_function(b, lambda x, w: bind(conv_p, x, _plain(w, groups), **{**params, "transposed": False}), x, w)
    spans = reach(kernel, params["rhs_dilation"])
    whole = [(n - 1) * g + span for n, g, span in zip(spatial, gaps, spans, strict=True)]
    before = [span - 1 - a for span, a in zip(spans, params["low"], strict=True)]
    after = [total - a - o for total, a, o in zip(whole, before, params["size"], strict=True)]
    # What the node cannot crop, it leaves: named and negative amounts are cropped, or filled with zeros, afterwards
    fits = all(type(a) is int and a >= 0 and type(c) is int for a, c in zip(before, after, strict=True))
    fits = fits and all(-c < max(g, d) for c, g, d in zip(after, gaps, params["rhs_dilation"], strict=True))
    y = b.op(
        "ConvTranspose",
        x,
        w,
        kernel_shape=list(kernel),
        strides=list(gaps),
        dilations=list(params["rhs_dilation"]),
        pads=[*before, *(max(c, 0) for c in after)] if fits else [0] * (2 * len(kernel)),
        output_padding=[max(-c, 0) for c in after] if fits else [0] * len(kernel),
        group=groups,
    )
    if fits:
        return y
    b.declare(y, make_spec((*out.shape[:2], *whole), out.dtype))
    return lower_function(b, lambda y: pad(y, (0, 0, *(-a for a in before)), (0, 0, *(-c for c in after))), y)


def _framed(x: Any, pads: Pads, gaps: Ints) -> Any:
    """x with zeros between its elements and around it."""
    extra: list[DimLike] = []
    for i, gap in enumerate(gaps):
        if gap != 1:
            x = spread_out(x, 2 + i, gap)
        extra.append(gap - 1)
    return pad(x, (0, 0, *(p[0] for p in pads)), (0, 0, *(p[1] - e for p, e in zip(pads, extra, strict=True))))


def _by_gathering(x: Any, w: Any, *, groups: DimLike, transposed: bool, **params: Any) -> Any:
    """One matrix product, of windows of x that are gathered."""
    w = _plain(w, groups) if transposed else w
    pads = _pads(shape_of(x)[2:], shape_of(w)[2:], **params)
    return gathered_windows(_framed(x, pads, params["lhs_dilation"]), w, groups=groups, **params)


def _case(x: Ints, w: Ints, size: Ints, *, named: Any = None, transposed: bool = False, groups: int = 1, **changes: Any) -> Case:
    ones = (1,) * len(size)
    params = {"strides": ones, "low": (0,) * len(size), "size": size, "lhs_dilation": ones, "rhs_dilation": ones, **changes}
    return Case((Sample(x), Sample(w)), {**params, "groups": groups, "transposed": transposed}, named=named)


conv_p = Primitive(
    "conv_general",
    abstract=_abstract,
    numpy=_numpy,
    linear=((0,), (1,)),
    transpose=_transpose,
    batch=_batch,
    onnx=_onnx,
    cases=[
        _case((2, 3, 5), (4, 3, 3), (5,), low=(1,), named=(("B", 3, 5), (4, 3, 3))),
        _case((1, 4, 5, 6), (4, 2, 3, 2), (3, 2), strides=(2, 3), low=(1, 0), rhs_dilation=(2, 1), groups=2),
        _case((2, 4, 3), (4, 3, 3), (6,), lhs_dilation=(2,), low=(1,), groups=2, transposed=True, named=(("B", 4, 3), (4, 3, 3))),
        _case((1, 2, 5), (3, 2, 2), (2,), strides=(2,), lhs_dilation=(2,), low=(-1,)),
        _case((1, 2, 3), (2, 1, 2), (5,), strides=(2,), lhs_dilation=(3,), low=(3,), transposed=True),
        _case((2, 2, 4, 4), (3, 2, 4, 3), (1, 2), named=(("B", 2, 4, 4), (3, 2, 4, 3))),
        _case((2, 4, 5), (2, 2, 4), (2,), groups=2),
        _case((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), (2, 2, 2)),
        _case((2, 3, 4), (2, 3, 3), (0,)),
        _case((0, 3, 4), (2, 3, 3), (2,)),
        _case((2, 0, 4), (2, 0, 3), (2,)),
    ],
)


# ------------------------------------------------------------------------------------------------------------------- public


def _operands(what: str, x: Any, w: Any, stride: Any, dilation: Any, groups: Any) -> tuple[Any, Any, Ints, Ints, int]:
    x, w = promoted(floating(x), floating(w))
    count = spatial_axes(what, len(shape_of(x)))
    x, w = cast(x, dtype_of(x)[0]), cast(w, dtype_of(w)[0])
    strides, dilations = per_axis(f"{what}: stride", stride, count), per_axis(f"{what}: dilation", dilation, count)
    return x, w, strides, dilations, per_axis(f"{what}: groups", groups, 1)[0]


def conv(x: Any, w: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
    """Convolution (cross-correlation) of x: [N, C, *spatial] with w: [O, C / groups, *kernel], giving [N, O, *spatial'].

    stride, dilation: an int or one for each spatial axis. padding: an int, ints, (before, after) pairs, "SAME" (ceil(size / stride)
    outputs) or "VALID" (0). An axis has (size + before + after - (kernel - 1) * dilation - 1) // stride + 1 outputs. N and spatial
    sizes may be named dims. Raises ValueError for shapes that do not fit.
    """
    x, w, strides, dilations, groups = _operands("conv", x, w, stride, dilation, groups)
    shape, weights = shape_of(x), shape_of(w)
    _counts("conv", shape, weights, groups, False)
    spans = reach(_kernel("conv", weights), dilations)
    pads = paddings("conv", padding, shape[2:], spans, strides)
    require_room("conv", shape[2:], pads, spans)
    size = tuple(window_count(*axis) for axis in zip(shape[2:], pads, spans, strides, strict=True))
    return bind(
        conv_p,
        x,
        w,
        strides=strides,
        low=tuple(p[0] for p in pads),
        size=size,
        lhs_dilation=(1,) * len(size),
        rhs_dilation=dilations,
        groups=groups,
        transposed=False,
    )


def conv_transpose(
    x: Any, w: Any, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The transpose of `conv` with the same w: of x: [N, C, *spatial] and w: [C, O / groups, *kernel] it gives [N, O, *spatial'].

    padding: what the convolution would have been given; it is taken off the result, whose axes have (size - 1) * stride + (kernel - 1) *
    dilation + 1 - before - after + output_padding elements; "SAME" gives size * stride. output_padding is added at the end of each axis;
    it is smaller than the stride or the dilation. Raises ValueError for shapes that do not fit.
    """
    what = "conv_transpose"
    x, w, strides, dilations, groups = _operands(what, x, w, stride, dilation, groups)
    shape, weights = shape_of(x), shape_of(w)
    _counts(what, shape, weights, groups, True)
    spans = reach(_kernel(what, weights), dilations)
    extra = per_axis(f"{what}: output_padding", output_padding, len(spans), 0)
    for e, s, d in zip(extra, strides, dilations, strict=True):
        if e >= max(s, d):
            raise ShapeError(f"{what}: output_padding {e} is not smaller than the stride {s} or the dilation {d}")
    before: list[int] = []
    size: list[DimLike] = []
    if isinstance(padding, str) and padding == "SAME":
        before = [max(span - s, 0) // 2 for span, s in zip(spans, strides, strict=True)]
        size = [n * s + e for n, s, e in zip(shape[2:], strides, extra, strict=True)]
    else:
        for n, pads, span, s, e in zip(shape[2:], paddings(what, padding, shape[2:], spans, strides), spans, strides, extra, strict=True):
            total = (n - 1) * s + span - pads[0] - pads[1] + e
            if not isinstance(total, Dim) and total < 0:
                if not (type(n) is int and n == 0):
                    raise ShapeError(f"{what}: the padding {pads} takes more than all of an axis of {total + pads[0] + pads[1]}")
                total = 0
            before.append(pads[0])  # pyright: ignore[reportArgumentType]
            size.append(total)
    return bind(
        conv_p,
        x,
        w,
        strides=(1,) * len(size),
        low=tuple(span - 1 - a for span, a in zip(spans, before, strict=True)),
        size=tuple(size),
        lhs_dilation=strides,
        rhs_dilation=dilations,
        groups=groups,
        transposed=True,
    )


def _kernel(what: str, weights: Shape) -> Ints:
    kernel = weights[2:]
    if not all(type(d) is int and d > 0 for d in kernel):
        raise ShapeError(f"{what}: the kernel's sizes are known and positive numbers; w has shape {list(weights)}")
    return kernel  # type: ignore[return-value]
