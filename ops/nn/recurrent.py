"""Cells of recurrent networks: one step each; `ons.scan` runs them over time."""

from __future__ import annotations

from typing import Any

from ...stage.dims import same_dim
from ...stage.errors import ShapeError
from ..arithmetic import add, floating, multiply, subtract
from ..exponential import tanh
from ..formulas import half_as_single
from ..matmul import matmul, swap_last
from ..operands import cast, dtype_of, promoted, shape_of
from ..slicing import slice_axis
from .activations import sigmoid


def lstm_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> tuple[Any, Any]:
    """One step of an LSTM (Hochreiter and Schmidhuber, 1997, with a forget gate): the next (h, c).

    x: [..., I]; h, c: [..., H]; w_ih: [4 H, I]; w_hh: [4 H, H]; b_ih, b_hh: [4 H]. Rows of the weights stand in PyTorch's order: input,
    forget, cell, output. float16 and bfloat16 are computed in float32. Raises ValueError for shapes that do not fit.
    """
    dtype, x, h, c, w_ih, w_hh, b_ih, b_hh = _operands("lstm_cell", 4, x, h, c, w_ih, w_hh, b_ih, b_hh)
    gates = add(_affine(x, w_ih, b_ih), _affine(h, w_hh, b_hh))
    i, f, g, o = _parts(gates, 4)
    c = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
    return cast(multiply(sigmoid(o), tanh(c)), dtype), cast(c, dtype)


def gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a GRU (Cho et al., 2014, arXiv 1406.1078), its reset gate applied after the product with w_hh: the next h.

    x: [..., I]; h: [..., H]; w_ih: [3 H, I]; w_hh: [3 H, H]; b_ih, b_hh: [3 H]. Rows of the weights stand in PyTorch's order: reset,
    update, new. float16 and bfloat16 are computed in float32. Raises ValueError for shapes that do not fit.
    """
    dtype, x, h, _, w_ih, w_hh, b_ih, b_hh = _operands("gru_cell", 3, x, h, None, w_ih, w_hh, b_ih, b_hh)
    reset_x, update_x, new_x = _parts(_affine(x, w_ih, b_ih), 3)
    reset_h, update_h, new_h = _parts(_affine(h, w_hh, b_hh), 3)
    update = sigmoid(add(update_x, update_h))
    new = tanh(add(new_x, multiply(sigmoid(add(reset_x, reset_h)), new_h)))
    return cast(add(new, multiply(update, subtract(h, new))), dtype)


def _operands(what: str, gates: int, *given: Any) -> tuple[Any, ...]:
    """The operands' dtype, and they themselves in the dtype to compute in; shapes are checked."""
    present = promoted(*(floating(v) for v in given if v is not None), strong=True)
    dtype = dtype_of(present[0])[0]
    values = iter(cast(v, half_as_single(dtype)) for v in present)
    x, h, c, w_ih, w_hh, b_ih, b_hh = (None if v is None else next(values) for v in given)
    if not shape_of(x) or not shape_of(h):
        raise ShapeError(f"{what}: x and h have a last axis of features, got shapes {list(shape_of(x))} and {list(shape_of(h))}")
    size, features = shape_of(h)[-1], shape_of(x)[-1]
    wanted = {"w_ih": (gates * size, features), "w_hh": (gates * size, size), "b_ih": (gates * size,), "b_hh": (gates * size,)}
    for (name, shape), value in zip(wanted.items(), (w_ih, w_hh, b_ih, b_hh), strict=True):
        if value is not None and (len(shape_of(value)) != len(shape) or not all(map(same_dim, shape_of(value), shape))):
            raise ShapeError(
                f"{what}: {name} has shape {list(shape_of(value))}, {list(shape)} is needed for {features} inputs and {size} units"
            )
    if c is not None and not (shape_of(c) and same_dim(shape_of(c)[-1], size)):
        raise ShapeError(f"{what}: c has shape {list(shape_of(c))}, h has {list(shape_of(h))}")
    return dtype, x, h, c, w_ih, w_hh, b_ih, b_hh


def _affine(x: Any, w: Any, b: Any) -> Any:
    y = matmul(x, swap_last(w))
    return y if b is None else add(y, b)


def _parts(x: Any, count: int) -> list[Any]:
    axis = len(shape_of(x)) - 1
    size = shape_of(x)[axis] // count
    return [slice_axis(x, axis, i * size, (i + 1) * size) for i in range(count)]
