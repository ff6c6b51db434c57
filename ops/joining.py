"""Joining and splitting: concatenate, stack and their kin, split, tile, repeat."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import exact_div, min_dim, same_dim
from ..stage.dtypes import as_dtype, short_name
from ..stage.errors import ProgramError, ShapeError
from ..stage.narrowing import is_list, is_sequence
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from ..stage.trace import bind
from .along_axis import batch_all
from .arguments import array_operand, dim_argument, no_out, shape_argument, size_of
from .operands import cast, normalize_axis, operand, promoted, shape_of
from .registry import implements
from .slicing import pad, slice_axis
from .structure import broadcast_to_p, reshape_p, zeros
from .views import copied, view

# --------------------------------------------------------------------------------------------------------------- concatenate


def _concatenate_abstract(*xs: ArraySpec, axis: int) -> ArraySpec:
    first = xs[0]
    total: DimLike = 0
    for i, x in enumerate(xs):
        if x.dtype != first.dtype:
            raise ProgramError(f"concatenate: operands of {short_name(first.dtype)} and {short_name(x.dtype)}; they are promoted first")
        if x.ndim != first.ndim or not all(same_dim(a, b) for j, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if j != axis):
            raise ShapeError(
                f"concatenate: all the input array dimensions except for the concatenation axis must match exactly, but along axis {axis} "
                f"array 0 is {list(first.shape)} and array {i} is {list(x.shape)}"
            )
        total = total + x.shape[axis]
    return make_spec((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)


def _concatenate_jvp(output: Any, primals: Any, tangents: Any, *, axis: int) -> Any:
    if all(t is None for t in tangents):
        return None
    filled = (zeros(x.shape, x.dtype) if t is None else t for x, t in zip(primals, tangents, strict=True))
    return bind(concatenate_p, *filled, axis=axis)


def _piece(x: Any, axis: int, start: DimLike, size: DimLike) -> Any:
    """`size` elements of an axis that has them all."""
    piece = slice_axis(x, axis, start, start + size)
    if same_dim(piece.shape[axis], size):
        return piece
    # A slice may stop short, and its size says so. Cropping takes away what is before and after, so that the size stays as it is.
    after = x.shape[axis] - start - size
    return pad(x, [-start if i == axis else 0 for i in range(len(x.shape))], [-after if i == axis else 0 for i in range(len(x.shape))])


def _concatenate_transpose(ct: Any, primals: Any, output: Any, *, active: Any, axis: int) -> Any:
    results: list[Any] = []
    offset: DimLike = 0
    for x, is_active in zip(primals, active, strict=True):
        results.append(_piece(ct, axis, offset, x.shape[axis]) if is_active else None)
        offset = offset + x.shape[axis]
    return tuple(results)


def _concatenate_batch(ctx: Any, args: Any, batch_axes: Any, /, *, axis: int) -> Any:
    return bind(concatenate_p, *batch_all(args, batch_axes, ctx.size), axis=axis + 1), 0


def _concatenate_simplify(ctx: Any, *xs: Any, axis: int) -> Any:
    return xs[0] if len(xs) == 1 and not ctx.spec(xs[0]).weak else None


def _concatenate_numpy(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis)


def _concatenate_onnx(b: Any, *xs: str, axis: int) -> str:
    return b.op("Concat", *xs, axis=axis)


concatenate_p = Primitive(
    "concatenate",
    exact=True,
    abstract=_concatenate_abstract,
    numpy=_concatenate_numpy,
    jvp=_concatenate_jvp,
    linear="all",
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    onnx=_concatenate_onnx,
    simplify=_concatenate_simplify,
    cases=[
        Case((Sample((2, 3)), Sample((1, 3)), Sample((0, 3))), {"axis": 0}),
        Case((Sample((2, 3)), Sample((2, 3)), Sample((1, 3))), {"axis": 0}, named=(("B", 3), ("B", 3), (1, 3))),
        Case((Sample((2, 3), "any"), Sample((2, 2), "any")), {"axis": 1}),
        Case((Sample((4,)),), {"axis": 0}),
        Case((Sample((0, 2)), Sample((0, 2))), {"axis": 0}),
    ],
)


def sequence(arrays: Any, what: str) -> list[Any]:
    """The arrays of a list, a tuple, or an array's first axis."""
    if is_sequence(arrays):
        items: list[Any] = list(arrays)
    elif hasattr(arrays, "shape"):
        items = unstack(arrays)
    else:
        raise TypeError(f"{what}: arrays to join must be passed as a sequence, got {type(arrays).__name__}")
    if not items:
        raise ValueError(f"{what}: need at least one array")
    return [array_operand(x, what) for x in items]


def _promoted_all(xs: Sequence[Any], dtype: Any) -> list[Any]:
    """The arrays in their common dtype."""
    return promoted(*xs, strong=True) if dtype is None else [cast(x, as_dtype(dtype)) for x in xs]


@implements(np.concatenate)
def concatenate(arrays: Any, axis: Any = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays joined along an existing axis (flattened first for axis None), in their common dtype; named sizes add up.

    Raises ValueError where the other axes differ, or for 0-d arrays.
    """
    no_out(out, "concatenate")
    xs = _promoted_all(sequence(arrays, "concatenate"), dtype)
    if axis is None:
        xs, axis = [bind(reshape_p, x, shape=(size_of(x),)) for x in xs], 0
    ndim = len(shape_of(xs[0]))
    if ndim == 0:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    return join(xs, normalize_axis(axis, ndim))


def join(xs: Sequence[Any], axis: int) -> Any:
    """Arrays of one dtype joined along a non-negative axis."""
    return copied(xs[0]) if len(xs) == 1 else bind(concatenate_p, *xs, axis=axis)


@implements(np.stack)
def stack(arrays: Any, axis: Any = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays of one shape joined along a new axis. Raises ValueError where the shapes differ."""
    no_out(out, "stack")
    xs = _promoted_all(sequence(arrays, "stack"), dtype)
    shape = shape_of(xs[0])
    for x in xs:
        if len(shape_of(x)) != len(shape) or not all(map(same_dim, shape_of(x), shape)):
            raise ShapeError(f"stack: all input arrays must have the same shape, got {', '.join(str(list(shape_of(x))) for x in xs)}")
    axis = normalize_axis(axis, len(shape) + 1)
    return join([bind(reshape_p, x, shape=(*shape[:axis], 1, *shape[axis:])) for x in xs], axis)


def at_least(x: Any, ndim: int) -> Any:
    """x with axes added as NumPy's atleast_1d, 2d and 3d do."""
    shape = shape_of(x)
    if len(shape) >= ndim:
        return x
    if ndim < 3:
        return bind(reshape_p, x, shape=(*(1,) * (ndim - len(shape)), *shape))
    return bind(reshape_p, x, shape={0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}[len(shape)])


def _stacked(what: str, arrays: Any, ndim: int, axis: int | None, dtype: Any) -> Any:
    xs = [at_least(x, ndim) for x in _promoted_all(sequence(arrays, what), dtype)]
    return join(xs, axis if axis is not None else 0 if len(shape_of(xs[0])) == 1 else 1)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays joined along the first axis, 1-d ones as rows."""
    return _stacked("vstack", tup, 2, 0, dtype)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays joined along the second axis, 1-d ones along the first."""
    return _stacked("hstack", tup, 1, None, dtype)


@implements(np.dstack)
def dstack(tup: Any) -> Any:
    """Arrays joined along the third axis."""
    return _stacked("dstack", tup, 3, 2, None)


@implements(np.column_stack)
def column_stack(tup: Any) -> Any:
    """Arrays joined along the second axis, 1-d ones as columns."""
    xs = _promoted_all(sequence(tup, "column_stack"), None)
    return join([bind(reshape_p, x, shape=(size_of(x), 1)) if len(shape_of(x)) < 2 else x for x in xs], 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """`values` joined to the end of `arr`; both are flattened where axis is None."""
    return concatenate([arr, values], axis)


@implements(np.block)
def block(arrays: Any) -> Any:
    """An array assembled from nested lists of blocks, the innermost joined along the last axis."""
    depth = _depth(arrays)
    leaves = _leaves(arrays, depth)
    ndim = max([depth, *(len(shape_of(x)) for x in leaves)])

    def assemble(item: Any, level: int) -> Any:
        if level == depth:
            x = array_operand(item, "block")
            return bind(reshape_p, x, shape=(*(1,) * (ndim - len(shape_of(x))), *shape_of(x)))
        return concatenate([assemble(i, level + 1) for i in item], axis=ndim - depth + level)

    return assemble(arrays, 0)


def _depth(item: Any) -> int:
    if not is_list(item):
        return 0
    if not item:
        raise ValueError("List at arrays cannot be empty")
    return 1 + max(_depth(i) for i in item)


def _leaves(item: Any, depth: int) -> list[Any]:
    if depth == 0:
        if isinstance(item, list):
            raise ValueError("List depths are mismatched")
        return [operand(item, "block")]
    if not is_list(item):
        raise ValueError("List depths are mismatched")
    return [x for i in item for x in _leaves(i, depth - 1)]


# ----------------------------------------------------------------------------------------------------------------- splitting


@implements(np.unstack)
def unstack(x: Any, /, *, axis: Any = 0) -> Any:
    """A tuple of the arrays along an axis. Raises ConcretizationError where its size is not known."""
    x = array_operand(x, "unstack")
    shape = shape_of(x)
    if not shape:
        raise ValueError("Input array must be at least 1-d.")
    place = normalize_axis(axis, len(shape))
    rest = (*shape[:place], *shape[place + 1 :])
    return tuple([view(bind(reshape_p, slice_axis(x, place, i, i + 1), shape=rest), x) for i in range(shape[place].__index__())])


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Any]:
    """Pieces along an axis: at the given indices, or a number of them that differ by at most one in size, the larger first."""
    x = array_operand(ary, "array_split")
    place = normalize_axis(axis, len(shape_of(x)))
    size = shape_of(x)[place]
    if hasattr(indices_or_sections, "__len__"):
        cuts = [dim_argument(i) for i in indices_or_sections]
        # Each cut is one of NumPy's slice bounds: negative ones count from the end, and pieces may be empty.
        return [view(slice_axis(x, place, a, b), x) for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    sections = indices_or_sections.__index__()
    if sections <= 0:
        raise ValueError("number sections must be larger than 0.")
    whole, extra = size // sections, size % sections
    # The first `extra` pieces have one element more.
    cuts = [size if i == sections else i * whole + min_dim(i, extra) for i in range(sections + 1)]
    return [view(slice_axis(x, place, a, b), x) for a, b in itertools.pairwise(cuts)]


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Any]:
    """Pieces along an axis: at the given indices, or a number of equal ones. Raises ValueError where that does not divide."""
    if not hasattr(indices_or_sections, "__len__"):
        shape = shape_of(operand(ary, "split"))
        sections = indices_or_sections.__index__()
        if sections <= 0 or exact_div(shape[normalize_axis(axis, len(shape))], sections) is None:
            raise ShapeError(f"array split does not result in an equal division (shape {list(shape)}, axis {axis}, {sections} sections)")
    return array_split(ary, indices_or_sections, axis)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`split` along the first axis of an array of two or more."""
    if len(shape_of(operand(ary, "vsplit"))) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`split` along the second axis, or the only one."""
    ndim = len(shape_of(operand(ary, "hsplit")))
    if ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, min(ndim - 1, 1))


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`split` along the third axis."""
    if len(shape_of(operand(ary, "dsplit"))) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


# ------------------------------------------------------------------------------------------------------------ tile and repeat


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """The array repeated `reps` times along each axis; counts may be named dims."""
    x = array_operand(A, "tile")
    counts = shape_argument(reps)
    shape = shape_of(x)
    ndim = max(len(shape), len(counts))
    shape = (*(1,) * (ndim - len(shape)), *shape)
    counts = (*(1,) * (ndim - len(counts)), *counts)
    if any(type(c) is int and c < 0 for c in counts):
        raise ValueError("negative dimensions are not allowed")
    if all(type(c) is int and c == 1 for c in counts):
        return copied(x) if len(shape) == len(shape_of(x)) else bind(reshape_p, x, shape=shape)
    spaced = bind(reshape_p, x, shape=tuple(d for n in shape for d in (1, n)))
    wide = bind(broadcast_to_p, spaced, shape=tuple(d for c, n in zip(counts, shape, strict=True) for d in (c, n)))
    return bind(reshape_p, wide, shape=tuple(c * n for c, n in zip(counts, shape, strict=True)))


@implements(np.repeat, method="repeat")
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Each element repeated along an axis (of the flattened array for None): a number of times, or one for each.

    The counts must be known while staging. Raises ValueError where their number is not the axis's size.
    """
    x = array_operand(a, "repeat")
    if axis is None:
        x, axis = bind(reshape_p, x, shape=(size_of(x),)), 0
    place = normalize_axis(axis, len(shape_of(x)))
    shape = shape_of(x)
    counts: Shape = shape_argument(repeats)
    if any(type(c) is int and c < 0 for c in counts):
        raise ValueError("repeats may not contain negative values.")
    if len(counts) == 1:
        return _repeat_each(x, counts[0], place)
    if not same_dim(shape[place], len(counts)):
        raise ShapeError(f"repeat: {len(counts)} counts for axis {place} of an array of shape {list(shape)}")
    pieces = [_repeat_each(slice_axis(x, place, i, i + 1), c, place) for i, c in enumerate(counts) if type(c) is not int or c > 0]
    return join(pieces, place) if pieces else slice_axis(x, place, 0, 0)


def _repeat_each(x: Any, count: DimLike, axis: int) -> Any:
    shape = shape_of(x)
    column = bind(reshape_p, x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    wide = bind(broadcast_to_p, column, shape=(*shape[: axis + 1], count, *shape[axis + 1 :]))
    return bind(reshape_p, wide, shape=(*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))
