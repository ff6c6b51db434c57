"""gather_nd, and scatter with its kinds: rows of an array read and written by index tuples. Each is the other's transpose.

Of an array of shape [*batch, n1, ..., nk, *row], integer indices [*batch, *block, k] name rows; values have shape [*batch, *block, *row].
Negative indices count from the end; one out of range is an IndexError at run time. `unique` is the promise that no row is named
twice: where it does not hold, `set` keeps the last value, as NumPy does, and the others take all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stage.dims import Dim, same_dim
from ..stage.dtypes import BOOL, FLOAT32, INT64, is_float, short_name
from ..stage.errors import DTypeError, ProgramError, ShapeError, UnsupportedError
from ..stage.primitive import Array, Case, Primitive, Rule, Sample
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from ..stage.trace import bind
from . import scatter_nodes
from .arithmetic import divide_p, multiply_p, where_p
from .comparison import equal_p
from .families import NUMBERS, kind_of
from .structure import align_batch, broadcast_to_p, cast_p, move_axis, reshape_p, zeros


def index_depth(indices: ArraySpec, what: str) -> int:
    """How many axes an index tuple names."""
    depth = indices.shape[-1] if indices.shape else None
    if indices.dtype != INT64 or depth is None or isinstance(depth, Dim) or depth < 1:
        raise ProgramError(f"{what}: index tuples are int64 along the last axis, got {indices!r}")
    return depth


def _value_shape(what: str, x: ArraySpec, indices: ArraySpec, batch_dims: int) -> Shape:
    depth = index_depth(indices, what)
    if x.ndim < batch_dims + depth or not all(map(same_dim, x.shape[:batch_dims], indices.shape[:batch_dims])):
        raise ShapeError(f"{what}: index tuples {indices!r} do not fit {x!r} with {batch_dims} batch axes")
    return (*indices.shape[:-1], *x.shape[batch_dims + depth :])


def _places(indices: Array, batch_dims: int) -> tuple[Array, ...]:
    """Index tuples as NumPy takes them."""
    ndim = indices.ndim - 1
    batch: list[Array] = [np.arange(n, dtype=np.int64).reshape(n, *(1,) * (ndim - i - 1)) for i, n in enumerate(indices.shape[:batch_dims])]
    return (*batch, *np.moveaxis(indices, -1, 0))


# ----------------------------------------------------------------------------------------------------------------- gather_nd


def _gather_abstract(x: ArraySpec, indices: ArraySpec, *, batch_dims: int, unique: bool) -> ArraySpec:
    return make_spec(_value_shape("gather_nd", x, indices, batch_dims), x.dtype)


def _gather_numpy(x: Array, indices: Array, *, batch_dims: int, unique: bool) -> Array:
    return x[_places(indices, batch_dims)]


def _gather_onnx(b: Any, x: str, indices: str, *, batch_dims: int, unique: bool) -> str:
    return b.op("GatherND", x, indices, batch_dims=batch_dims)


def _gather_transpose(ct: Any, primals: Any, output: Any, *, active: Any, batch_dims: int, unique: bool) -> Any:
    x, indices = primals
    return scatter_into_zeros(x.shape, indices, ct, batch_dims=batch_dims, unique=unique), None


def scatter_into_zeros(shape: Shape, indices: Any, updates: Any, *, batch_dims: int = 0, unique: bool) -> Any:
    """Zeros of a shape with updates added at index tuples."""
    primitive = scatter_p if unique else scatter_add_p
    return bind(primitive, zeros(shape, updates.dtype), indices, updates, batch_dims=batch_dims, unique=unique)


def _gather_batch(ctx: Any, args: Any, axes: Any, /, *, batch_dims: int, unique: bool) -> Any:
    x, indices = args
    if axes[1] is None:
        # The batch rides along as the last axis of the rows.
        result = bind(
            gather_nd_p,
            move_axis(x, axes[0], len(x.shape) - 1),
            indices,
            batch_dims=batch_dims,
            unique=unique,
        )
        return result, len(result.shape) - 1
    if axes[0] is None:
        indices = move_axis(indices, axes[1], batch_dims)
        return bind(gather_nd_p, x, indices, batch_dims=batch_dims, unique=False), batch_dims
    x, indices = move_axis(x, axes[0], 0), move_axis(indices, axes[1], 0)
    return bind(gather_nd_p, x, indices, batch_dims=batch_dims + 1, unique=unique), 0


def _params(batch_dims: int = 0, unique: bool = False) -> dict[str, Any]:
    return {"batch_dims": batch_dims, "unique": unique}


_TUPLES = Sample((3, 2), "int64", values=[[0, 1], [-1, 2], [0, 1]])
_ROWS = Sample((4, 1), "int64", values=[[0], [2], [2], [-1]])
_BATCHED = Sample((2, 3, 1), "int64", values=[[[0], [2], [-1]], [[1], [1], [0]]])

gather_nd_p = Primitive(
    "gather_nd",
    exact=True,
    abstract=_gather_abstract,
    numpy=_gather_numpy,
    linear=((0,),),
    transpose=_gather_transpose,
    batch=_gather_batch,
    onnx=_gather_onnx,
    cases=[
        Case((Sample((2, 3), "any"), _TUPLES), _params()),
        Case((Sample((3, 2)), _ROWS), _params(), named=((3, "C"), (4, 1))),
        Case((Sample((2, 3, 2)), _BATCHED), _params(1), named=(("B", 3, 2), ("B", 3, 1))),
        Case((Sample((2, 3)), Sample((2,), "int64", values=[1, -1])), _params(0, True)),
        Case((Sample((3, 2)), Sample((0, 1), "int64")), _params()),
        Case((Sample((0, 2)), Sample((0, 1), "int64")), _params()),
    ],
)


# --------------------------------------------------------------------------------------------------------------- last_writer


def _last_abstract(indices: ArraySpec, *, shape: Shape, batch_dims: int) -> ArraySpec:
    return make_spec(indices.shape[:-1], BOOL)


def _last_numpy(indices: Array, *, shape: tuple[int, ...], batch_dims: int) -> Array:
    count = int(np.prod(indices.shape[batch_dims:-1], dtype=np.int64))
    order: Array = np.arange(count, dtype=np.int64)
    order = np.broadcast_to(order.reshape(indices.shape[batch_dims:-1]), indices.shape[:-1])
    last = np.full(shape, -1, np.int64)
    places = _places(indices, batch_dims)
    np.maximum.at(last, places, order)
    return np.asarray(last[places] == order)


def _last_batch(ctx: Any, args: Any, axes: Any, /, *, shape: Shape, batch_dims: int) -> Any:
    return bind(last_writer_p, move_axis(args[0], axes[0], 0), shape=(ctx.size, *shape), batch_dims=batch_dims + 1), 0


last_writer_p = Primitive(
    "last_writer",
    abstract=_last_abstract,
    numpy=_last_numpy,
    nondifferentiable="a boolean has no tangent",
    batch=_last_batch,
    onnx=scatter_nodes.last_writer,
    shadow="decision",
    cases=[
        Case((_ROWS,), {"shape": (3,), "batch_dims": 0}),
        Case((_TUPLES,), {"shape": (2, 3), "batch_dims": 0}),
        Case((_BATCHED,), {"shape": (2, 3), "batch_dims": 1}),
    ],
)

# ------------------------------------------------------------------------------------------------------------------- scatter

_UFUNCS: dict[str, Any] = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter_batch(primitive: Primitive) -> Rule:
    def batch(ctx: Any, args: Any, axes: Any, /, *, batch_dims: int, unique: bool) -> Any:
        x, indices, updates = args
        if axes[1] is None:
            x, updates = (_with_last_axis(a, axis, ctx.size) for a, axis in ((x, axes[0]), (updates, axes[2])))
            result = bind(primitive, x, indices, updates, batch_dims=batch_dims, unique=unique)
            return result, len(result.shape) - 1
        x, indices, updates = (_with_first_axis(a, axis, ctx.size) for a, axis in zip(args, axes, strict=True))
        return bind(primitive, x, indices, updates, batch_dims=batch_dims + 1, unique=unique), 0

    return batch


def _with_first_axis(x: Any, axis: int | None, size: DimLike) -> Any:
    if axis is not None:
        return move_axis(x, axis, 0)
    return bind(
        broadcast_to_p,
        align_batch(bind(reshape_p, x, shape=(1, *x.shape)), 0, len(x.shape)),
        shape=(size, *x.shape),
    )


def _with_last_axis(x: Any, axis: int | None, size: DimLike) -> Any:
    if axis is not None:
        return move_axis(x, axis, len(x.shape) - 1)
    return bind(broadcast_to_p, bind(reshape_p, x, shape=(*x.shape, 1)), shape=(*x.shape, size))


def _declare(
    mode: str,
    *,
    jvp: Rule | None = None,
    linear: Any = None,
    transpose: Rule | None = None,
) -> Primitive:
    name = "scatter" if mode == "set" else f"scatter_{mode}"

    def abstract(x: ArraySpec, indices: ArraySpec, updates: ArraySpec, *, batch_dims: int, unique: bool) -> ArraySpec:
        wanted = _value_shape(name, x, indices, batch_dims)
        if mode != "set" and kind_of(x.dtype) not in NUMBERS:
            raise DTypeError(f"{name}: not supported for {short_name(x.dtype)}")
        if x.dtype != updates.dtype or len(wanted) != updates.ndim or not all(map(same_dim, wanted, updates.shape)):
            raise ShapeError(f"{name}: updates are {updates!r}, {short_name(x.dtype)}{list(wanted)} is needed for {x!r} and {indices!r}")
        return make_spec(x.shape, x.dtype)

    def numpy(x: Array, indices: Array, updates: Array, *, batch_dims: int, unique: bool) -> Array:
        places = _places(indices, batch_dims)
        if mode == "set":
            result = x.copy()
            result[places] = updates
            return result
        # Narrow floats are accumulated in float32 and rounded once.
        wide = FLOAT32 if is_float(x.dtype) and x.dtype.itemsize == 2 else x.dtype
        result = x.astype(wide)
        _UFUNCS[mode].at(result, places, updates.astype(wide))
        return result.astype(x.dtype)

    def onnx(b: Any, x: str, indices: str, updates: str, *, batch_dims: int, unique: bool) -> str:
        return scatter_nodes.scatter(b, x, indices, updates, mode=mode, batch_dims=batch_dims, unique=unique)

    def batch(ctx: Any, args: Any, axes: Any, /, **params: Any) -> Any:
        return _scatter_batch(primitive)(ctx, args, axes, **params)

    kind = "any" if mode == "set" else "int"
    smooth = mode not in ("min", "max")
    differentiable = mode != "multiply"
    cases = [
        Case((Sample((3, 2), kind), _ROWS, Sample((4, 2), kind)), _params(), smooth=smooth),
        Case(
            (Sample((2, 3)), Sample((2, 2), "int64", values=[[1, -1], [0, 2]]), Sample((2,))),
            _params(0, True),
            smooth=smooth,
        ),
        Case(
            (Sample((4, 2)), Sample((1,), "int64", values=[-2]), Sample((2,))),
            _params(0, True),
            smooth=smooth,
        ),
        Case((Sample((0, 2), "int"), Sample((0, 1), "int64"), Sample((0, 2), "int")), _params(), smooth=smooth),
        Case((Sample((3, 0), "int"), _ROWS, Sample((4, 0), "int")), _params(), smooth=smooth),
    ]
    if differentiable:
        cases += [
            Case((Sample((2, 3)), _TUPLES, Sample((3,))), _params(), smooth=smooth),
            Case(
                (Sample((2, 3, 2)), _BATCHED, Sample((2, 3, 2))),
                _params(1),
                smooth=smooth,
                named=(("B", 3, 2), ("B", 3, 1), ("B", 3, 2)),
            ),
        ]
    primitive = Primitive(
        name,
        exact=True if mode in ("set", "min", "max") else None,
        abstract=abstract,
        numpy=numpy,
        jvp=jvp,
        linear=linear,
        transpose=transpose,
        batch=batch,
        onnx=onnx,
        cases=cases,
    )
    return primitive


def _zeros_like(x: Any) -> Any:
    return zeros(x.shape, x.dtype)


def _set_jvp(output: Any, primals: Any, tangents: Any, *, batch_dims: int, unique: bool) -> Any:
    x, indices, updates = primals
    a, _, c = tangents
    if a is None and c is None:
        return None
    a, c = _zeros_like(x) if a is None else a, _zeros_like(updates) if c is None else c
    return bind(scatter_p, a, indices, c, batch_dims=batch_dims, unique=unique)


def _set_transpose(ct: Any, primals: Any, output: Any, *, active: Any, batch_dims: int, unique: bool) -> Any:
    x, indices, updates = primals
    depth = indices.shape[-1]
    to_x = to_updates = None
    if active[0]:
        to_x = bind(scatter_p, ct, indices, zeros(updates.shape, ct.dtype), batch_dims=batch_dims, unique=unique)
    if active[2]:
        to_updates = bind(gather_nd_p, ct, indices, batch_dims=batch_dims, unique=unique)
        if not unique:
            last = bind(last_writer_p, indices, shape=x.shape[: batch_dims + depth], batch_dims=batch_dims)
            row = len(updates.shape) - len(last.shape)
            last = bind(reshape_p, last, shape=(*last.shape, *(1,) * row)) if row else last
            to_updates = bind(where_p, last, to_updates, np.zeros((), ct.dtype))
    return to_x, None, to_updates


scatter_p = _declare("set", jvp=_set_jvp, linear=((0, 2),), transpose=_set_transpose)


def _add_jvp(output: Any, primals: Any, tangents: Any, *, batch_dims: int, unique: bool) -> Any:
    a, _, c = tangents
    if c is None:
        return a
    return bind(
        scatter_add_p,
        _zeros_like(primals[0]) if a is None else a,
        primals[1],
        c,
        batch_dims=batch_dims,
        unique=unique,
    )


def _add_transpose(ct: Any, primals: Any, output: Any, *, active: Any, batch_dims: int, unique: bool) -> Any:
    to_updates = bind(gather_nd_p, ct, primals[1], batch_dims=batch_dims, unique=unique) if active[2] else None
    return (ct if active[0] else None), None, to_updates


scatter_add_p = _declare("add", jvp=_add_jvp, linear=((0, 2),), transpose=_add_transpose)


def _multiply_jvp(output: Any, primals: Any, tangents: Any, *, batch_dims: int, unique: bool) -> Any:
    x, indices, updates = primals
    a, _, c = tangents
    first = None if a is None else bind(scatter_multiply_p, a, indices, updates, batch_dims=batch_dims, unique=unique)
    if c is None:
        return first
    if not unique:
        raise UnsupportedError(
            "scatter_multiply: the gradient with respect to the factors is defined only where no element is multiplied twice, which must "
            "show from the index: one traced scalar, or constant indices without duplicates"
        )
    rows = bind(gather_nd_p, x, indices, batch_dims=batch_dims, unique=True)
    base = _zeros_like(x) if first is None else first
    return bind(scatter_add_p, base, indices, bind(multiply_p, c, rows), batch_dims=batch_dims, unique=True)


def _multiply_transpose(ct: Any, primals: Any, output: Any, *, active: Any, batch_dims: int, unique: bool) -> Any:
    if not active[0]:
        return None, None, None
    return (
        bind(scatter_multiply_p, ct, primals[1], primals[2], batch_dims=batch_dims, unique=unique),
        None,
        None,
    )


scatter_multiply_p = _declare("multiply", jvp=_multiply_jvp, linear=((0,),), transpose=_multiply_transpose)


def _extreme_jvp(output: Any, primals: Any, tangents: Any, *, batch_dims: int, unique: bool) -> Any:
    """All that equal the extreme share equally in its tangent."""
    x, indices, updates = primals
    a, _, c = tangents
    if a is None and c is None:
        return None
    dtype = output.dtype

    def rows(source: Any) -> Any:
        return bind(gather_nd_p, source, indices, batch_dims=batch_dims, unique=unique)

    def collected(base: Any, values: Any) -> Any:
        return bind(scatter_add_p, base, indices, values, batch_dims=batch_dims, unique=unique)

    is_kept = bind(cast_p, bind(equal_p, x, output), dtype=dtype, weak=False)
    is_taken = bind(cast_p, bind(equal_p, updates, rows(output)), dtype=dtype, weak=False)
    count = collected(is_kept, is_taken)
    # Where NaN was the result nothing equals it: no tangent rather than 0/0.
    count = bind(where_p, bind(equal_p, count, np.zeros((), dtype)), np.ones((), dtype), count)
    total = _zeros_like(x) if a is None else bind(multiply_p, a, is_kept)
    if c is not None:
        total = collected(total, bind(multiply_p, c, is_taken))
    return bind(divide_p, total, count)


scatter_min_p = _declare("min", jvp=_extreme_jvp)
scatter_max_p = _declare("max", jvp=_extreme_jvp)
SCATTER = {
    "set": scatter_p,
    "add": scatter_add_p,
    "multiply": scatter_multiply_p,
    "min": scatter_min_p,
    "max": scatter_max_p,
}
