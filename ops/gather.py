"""gather: slices of an array taken along one axis by an array of indices; np.take."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import BOOL, INT64, is_integer, short_name
from ..stage.errors import DTypeError, ProgramError
from ..stage.narrowing import is_array, is_sequence
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, Shape, make_spec
from ..stage.trace import bind
from .arguments import no_out, size_of
from .arithmetic import add_p, where_p
from .comparison import less_p
from .operands import cast, dtype_of, normalize_axis, operand, shape_of
from .registry import NUMPY, implements
from .scatter import gather_nd_p, scatter_into_zeros
from .structure import dim_value_p, move_axis, reshape_p, transpose_p


def _abstract(x: ArraySpec, indices: ArraySpec, *, axis: int, unique: bool) -> ArraySpec:
    if indices.dtype != INT64 or not 0 <= axis < x.ndim:
        raise ProgramError(f"gather: int64 indices along an axis are needed, got {indices!r} along axis {axis} of {x!r}")
    return make_spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _numpy(x: Array, indices: Array, *, axis: int, unique: bool) -> Array:
    return np.asarray(x[(slice(None),) * axis + (indices,)])


def move_block(x: Any, start: int, length: int, destination: int) -> Any:
    """`length` axes from `start` on moved so that they start at `destination`; the others keep their order."""
    if start == destination or not length:
        return x
    ndim = len(x.shape)
    block = list(range(start, start + length))
    order = [i for i in range(ndim) if i not in block]
    order[destination:destination] = block
    return bind(transpose_p, x, permutation=tuple(order))


def _transpose(ct: Any, primals: Any, output: Any, *, active: Any, axis: int, unique: bool) -> Any:
    x, indices = primals
    shape = x.shape
    rows = move_block(ct, axis, len(indices.shape), 0)
    tuples = bind(reshape_p, indices, shape=(*indices.shape, 1))
    leading = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return move_axis(scatter_into_zeros(leading, tuples, rows, unique=unique), 0, axis), None


def _batch(ctx: Any, args: Any, axes: Any, /, *, axis: int, unique: bool) -> Any:
    x, indices = args
    if axes[1] is None:
        return bind(gather_p, move_axis(x, axes[0], 0), indices, axis=axis + 1, unique=unique), 0
    indices = move_axis(indices, axes[1], 0)
    if axes[0] is None:
        return bind(gather_p, x, indices, axis=axis, unique=False), axis
    x = move_axis(move_axis(x, axes[0], 0), axis + 1, 1)
    block = len(indices.shape) - 1
    rows = bind(gather_nd_p, x, bind(reshape_p, indices, shape=(*indices.shape, 1)), batch_dims=1, unique=unique)
    return move_block(rows, 1, block, 1 + axis), 0


def _onnx(b: Any, x: str, indices: str, *, axis: int, unique: bool) -> str:
    return b.op("Gather", x, indices, axis=axis)


gather_p = Primitive(
    "gather",
    exact=True,
    abstract=_abstract,
    numpy=_numpy,
    linear=((0,),),
    transpose=_transpose,
    batch=_batch,
    onnx=_onnx,
    cases=[
        Case(
            (Sample((3, 4), "any"), Sample((2, 2), "int64", values=[[0, 2], [-1, 2]])),
            {"axis": 0, "unique": False},
            named=((3, "C"), (2, 2)),
        ),
        Case(
            (Sample((2, 3, 2)), Sample((4,), "int64", values=[0, 2, 2, -1])),
            {"axis": 1, "unique": False},
            named=(("B", 3, 2), (4,)),
        ),
        Case((Sample((2, 4)), Sample((2,), "int64", values=[3, 1])), {"axis": 1, "unique": True}),
        Case((Sample((2, 3)), Sample((), "int64", values=-1)), {"axis": 1, "unique": True}),
        Case((Sample((3, 2)), Sample((0,), "int64")), {"axis": 0, "unique": False}),
        Case((Sample((0, 2)), Sample((0, 3), "int64")), {"axis": 0, "unique": False}),
        Case((Sample((3, 0)), Sample((2,), "int64", values=[1, 1])), {"axis": 0, "unique": False}),
    ],
)


def dim_operand(d: Any) -> Any:
    """A size as an int64 array."""
    return cast(bind(dim_value_p, dim=d), INT64) if isinstance(d, Dim) else np.asarray(d, INT64)


def check_bounds(indices: Array, size: Any, axis: int) -> None:
    """IndexError, as NumPy words it, for constant indices out of the range of an axis of known size."""
    if isinstance(size, Dim) or not indices.size:
        return
    bad = indices[(indices < -size) | (indices >= size)]
    if bad.size:
        raise IndexError(f"index {int(bad.reshape(-1)[0])} is out of bounds for axis {axis} with size {size}")


def is_unique(indices: Any) -> bool:
    """Whether an index array can be seen to name nothing twice, whatever the axis' size."""
    count = size_of(indices)
    if not isinstance(count, Dim) and count <= 1:
        return True
    if not is_array(indices) or (indices.min() < 0 <= indices.max()):
        return False
    return bool(np.unique(indices).size == indices.size)


@implements(np.take, method="take")
def take(a: Any, indices: Any, axis: Any = None, out: None = None, mode: str = "raise") -> Any:
    """Elements of `a` by integer indices of any shape along an axis; of the flattened array for axis None.

    mode: "raise" (IndexError, at once for constant indices, else at run time), "wrap" or "clip" (negative ones become 0).
    Raises TypeError for indices that are no integers. `a` may be a constant and the indices traced.
    """
    no_out(out, "take")
    x, index = operand(a, "take"), operand(indices, "take: indices")
    if is_sequence(indices) and not len(indices):
        index = np.zeros(0, INT64)
    dtype = dtype_of(index)[0]
    if not is_integer(dtype) and dtype != BOOL:
        raise DTypeError(f"take: cannot cast indices from {short_name(dtype)} to integers")
    index = cast(index, INT64) if hasattr(index, "shape") else np.asarray(index, INT64)
    x = np.asarray(x) if not hasattr(x, "shape") else x
    if axis is None:
        x, axis = bind(reshape_p, x, shape=(size_of(x),)), 0
    shape = shape_of(x)
    if not shape:
        x, shape = bind(reshape_p, x, shape=(1,)), (1,)
    axis = normalize_axis(axis, len(shape))
    return bind(
        gather_p,
        x,
        _in_range(index, shape, axis, mode),
        axis=axis,
        unique=is_unique(index) if mode == "raise" else False,
    )


def _in_range(index: Any, shape: Shape, axis: int, mode: str) -> Any:
    size = shape[axis]
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if not isinstance(size, Dim) and size == 0 and not _is_empty(index):
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if mode == "raise":
        if is_array(index):
            check_bounds(index, size, axis)
        return index
    length = dim_operand(size)
    if mode == "wrap":
        return NUMPY[np.remainder](index, length)
    zero = np.zeros((), INT64)
    index = bind(where_p, bind(less_p, index, zero), zero, index)
    return bind(where_p, bind(less_p, index, length), index, bind(add_p, length, np.asarray(-1, INT64)))


def _is_empty(x: Any) -> bool:
    count = size_of(x)
    return not isinstance(count, Dim) and count == 0
