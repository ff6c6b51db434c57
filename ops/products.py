"""dot, inner, outer, tensordot and the other products that NumPy has beside matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import same_dim
from ..stage.dtypes import FLOAT32, is_float
from ..stage.errors import ShapeError
from ..stage.spec import DimLike
from ..stage.trace import bind
from .arithmetic import multiply, subtract
from .contraction import Label, Term, contract, ordered
from .creation import eye
from .joining import concatenate
from .linalg.systems import inv
from .matmul import matmul
from .operands import cast, dtype_of, normalize_axis, operand, promoted, shape_of, spec
from .registry import implements, implements_ufunc_method
from .slicing import slice_axis
from .structure import broadcast, move_axis, reshape_p


def _operands(x: Any, y: Any) -> list[Any]:
    return promoted(operand(x), operand(y), strong=True)


def _contracted(what: str, x: Any, y: Any, x_axes: Sequence[int], y_axes: Sequence[int], batch: int = 0) -> Any:
    """The sum of products over paired axes: first the `batch` leading axes of both, then x's other axes, then y's."""
    x_shape, y_shape = shape_of(x), shape_of(y)
    for i, j in zip(x_axes, y_axes, strict=True):
        if not same_dim(x_shape[i], y_shape[j]):
            raise ShapeError(
                f"{what}: the axes to sum over differ: x is {spec(x)!r}, y is {spec(y)!r} (x.shape[{i}] = {x_shape[i]}, y.shape[{j}] = {y_shape[j]})"
            )
    x_labels: list[Label] = [("x", i) for i in range(len(x_shape))]
    y_labels: list[Label] = [("y", i) for i in range(len(y_shape))]
    for i, j in zip(x_axes, y_axes, strict=True):
        y_labels[j] = x_labels[i]
    output = [label for label in (*x_labels, *y_labels) if label not in {x_labels[i] for i in x_axes}]
    dtype = dtype_of(x)[0]
    if is_float(dtype) and dtype.itemsize == 2 and not x_axes:
        return cast(
            ordered(contract(Term(cast(x, FLOAT32), tuple(x_labels)), Term(cast(y, FLOAT32), tuple(y_labels)), output), output).value, dtype
        )
    return ordered(contract(Term(x, tuple(x_labels)), Term(y, tuple(y_labels)), output, output), output).value


@implements(np.dot, method="dot")
def dot(x: Any, y: Any) -> Any:
    """NumPy's dot: the inner product of vectors, the product of matrices, a product with a scalar, and for more axes the sum over the
    last axis of x and the last but one of y. Raises ValueError where their sizes differ.
    """
    x, y = _operands(x, y)
    a, b = shape_of(x), shape_of(y)
    if not a or not b:
        return multiply(x, y)
    if len(a) <= 2 and len(b) <= 2:
        return matmul(x, y)
    return _contracted("dot", x, y, [len(a) - 1], [max(len(b) - 2, 0)])


@implements(np.vdot)
def vdot(x: Any, y: Any) -> Any:
    """The inner product of the elements of two arrays in order, whatever their shapes. Raises ValueError where their numbers differ."""
    x, y = _operands(x, y)
    return matmul(_flat(x), _flat(y))


def _flat(x: Any) -> Any:
    return x if len(shape_of(x)) == 1 else bind(reshape_p, x, shape=(spec(x).size,))


@implements(np.inner)
def inner(x: Any, y: Any) -> Any:
    """The sum over the last axes of both: shape x.shape[:-1] + y.shape[:-1]; a plain product where one is 0-d."""
    x, y = _operands(x, y)
    a, b = shape_of(x), shape_of(y)
    if not a or not b:
        return multiply(x, y)
    return _contracted("inner", x, y, [len(a) - 1], [len(b) - 1])


@implements(np.outer)
def outer(x: Any, y: Any) -> Any:
    """All products of an element of x and one of y, both flattened: shape (x.size, y.size)."""
    x, y = _operands(x, y)
    return multiply(bind(reshape_p, x, shape=(spec(x).size, 1)), bind(reshape_p, y, shape=(1, spec(y).size)))


@implements(np.linalg.outer)
def linalg_outer(x: Any, y: Any) -> Any:
    """The outer product of two vectors. Raises ValueError for other shapes, as NumPy does."""
    if len(shape_of(operand(x))) != 1 or len(shape_of(operand(y))) != 1:
        raise ShapeError(f"outer: two vectors are needed, got shapes {list(shape_of(operand(x)))} and {list(shape_of(operand(y)))}")
    return outer(x, y)


@implements_ufunc_method(np.multiply, "outer")
def multiply_outer(x: Any, y: Any) -> Any:
    """All products of an element of x and one of y: shape x.shape + y.shape."""
    x, y = _operands(x, y)
    return multiply(bind(reshape_p, x, shape=(*shape_of(x), *(1,) * len(shape_of(y)))), y)


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """The sum of products over axes: the last `axes` of x with the first of y, or a pair of sequences of axes.

    Raises ValueError where paired axes differ in size or number, AxisError for an axis that is not there.
    """
    x, y = _operands(x, y)
    a, b = len(shape_of(x)), len(shape_of(y))
    if hasattr(axes, "__index__"):
        count = axes.__index__()
        if count < 0 or count > min(a, b):
            raise ShapeError(f"tensordot: {count} axes are summed over; x has {a} and y {b}")
        return _contracted("tensordot", x, y, list(range(a - count, a)), list(range(count)))
    first, second = (_axis_list(part) for part in axes)
    if len(first) != len(second):
        raise ShapeError(f"tensordot: {len(first)} axes of x are paired with {len(second)} of y")
    x_axes, y_axes = [normalize_axis(i, a) for i in first], [normalize_axis(i, b) for i in second]
    if len(set(x_axes)) < len(x_axes) or len(set(y_axes)) < len(y_axes):
        raise ShapeError(f"tensordot: an axis is named twice in {axes}")
    return _contracted("tensordot", x, y, x_axes, y_axes)


def _axis_list(axes: Any) -> list[Any]:
    return [axes] if hasattr(axes, "__index__") else list(axes)


# ----------------------------------------------------------------------------------------------- vectors in stacks (NumPy 2)


def _column(x: Any) -> Any:
    return bind(reshape_p, x, shape=(*shape_of(x), 1))


def _row(x: Any) -> Any:
    shape = shape_of(x)
    return bind(reshape_p, x, shape=(*shape[:-1], 1, shape[-1]))


def _require_ndim(what: str, x: Any, y: Any, x_ndim: int, y_ndim: int) -> None:
    for name, value, ndim in (("x", x, x_ndim), ("y", y, y_ndim)):
        if len(shape_of(value)) < ndim:
            raise ShapeError(f"{what}: {name} is {spec(value)!r}; {ndim} axes at least are needed")


def matvec(x: Any, y: Any) -> Any:
    """Matrices times vectors: x: [..., m, n], y: [..., n] give [..., m]; the leading axes broadcast."""
    x, y = _operands(x, y)
    _require_ndim("matvec", x, y, 2, 1)
    result = matmul(x, _column(y))
    return bind(reshape_p, result, shape=shape_of(result)[:-1])


def vecmat(x: Any, y: Any) -> Any:
    """Vectors times matrices: x: [..., m], y: [..., m, n] give [..., n]; the leading axes broadcast."""
    x, y = _operands(x, y)
    _require_ndim("vecmat", x, y, 1, 2)
    result = matmul(_row(x), y)
    shape = shape_of(result)
    return bind(reshape_p, result, shape=(*shape[:-2], shape[-1]))


def vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    """Inner products of vectors along an axis; the other axes broadcast."""
    x, y = _operands(x, y)
    _require_ndim("vecdot", x, y, 1, 1)
    x, y = (move_axis(v, normalize_axis(axis, len(shape_of(v))), len(shape_of(v)) - 1) for v in (x, y))
    if not same_dim(shape_of(x)[-1], shape_of(y)[-1]):
        raise ShapeError(f"vecdot: the vectors' lengths differ: x is {spec(x)!r}, y is {spec(y)!r}")
    if len(shape_of(x)) == len(shape_of(y)) == 1:
        return matmul(x, y)
    result = matmul(_row(x), _column(y))
    return bind(reshape_p, result, shape=shape_of(result)[:-2])


for _name, _function in (("matvec", matvec), ("vecmat", vecmat), ("vecdot", vecdot)):
    if hasattr(np, _name):  # matvec and vecmat are new in NumPy 2.2
        implements(getattr(np, _name))(_function)
implements(np.linalg.vecdot)(vecdot)

# -------------------------------------------------------------------------------------------------- chains, powers and others


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of two or more matrices in the cheapest order; the first and last may be vectors.

    Named dims count as a typical size. Raises ValueError for fewer than two arrays or for shapes that do not fit.
    """
    values = promoted(*(operand(a) for a in arrays), strong=True)
    if len(values) < 2:
        raise ShapeError("multi_dot: two arrays at least are needed")
    for i, value in enumerate(values):
        ndim = len(shape_of(value))
        if ndim != 2 and not (ndim == 1 and i in (0, len(values) - 1)):
            raise ShapeError(f"multi_dot: array {i} is {spec(value)!r}; matrices are needed, and vectors only at the ends")
    sizes = [1 if len(shape_of(values[0])) == 1 else _typical(shape_of(values[0])[0]), *(_typical(shape_of(v)[0]) for v in values[1:])]
    sizes.append(1 if len(shape_of(values[-1])) == 1 else _typical(shape_of(values[-1])[1]))
    return _product_of(values, _chain_order(sizes), 0, len(values) - 1)


def _typical(dim: DimLike) -> int:
    return dim if type(dim) is int else 64


def _chain_order(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of a matrix chain (Cormen et al., Introduction to Algorithms, section 15.2)."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], split[i, j] = min((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))
    return split


def _product_of(values: Sequence[Any], split: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return values[i]
    k = split[i, j]
    return matmul(_product_of(values, split, i, k), _product_of(values, split, k + 1, j))


@implements(np.linalg.matrix_power)
def matrix_power(x: Any, n: int) -> Any:
    """A square matrix, or each of a stack, to an integer power by repeated squaring; negative powers are those of the inverse.

    Raises ValueError for matrices that are not square, TypeError for a power that is no integer.
    """
    x = operand(x)
    shape = shape_of(x)
    if not hasattr(n, "__index__"):
        raise TypeError("exponent must be an integer")
    n = n.__index__()
    if len(shape) < 2 or not same_dim(shape[-1], shape[-2]):
        raise ShapeError(f"matrix_power: square matrices are needed, got {spec(x)!r}")
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        return broadcast(eye(shape[-1], dtype=dtype_of(x)[0]), shape)
    result = None
    while n:
        n, bit = divmod(n, 2)
        if bit:
            result = x if result is None else matmul(result, x)
        if n:
            x = matmul(x, x)
    return result


@implements(np.kron)
def kron(x: Any, y: Any) -> Any:
    """The Kronecker product: every element of x times the whole of y; the shapes, padded with 1 in front, multiply."""
    x, y = _operands(x, y)
    ndim = max(len(shape_of(x)), len(shape_of(y)))
    a, b = ((*(1,) * (ndim - len(shape_of(v))), *shape_of(v)) for v in (x, y))
    x = bind(reshape_p, x, shape=tuple(d for n in a for d in (n, 1)))
    y = bind(reshape_p, y, shape=tuple(d for n in b for d in (1, n)))
    return bind(reshape_p, multiply(x, y), shape=tuple(n * m for n, m in zip(a, b, strict=True)))


@implements(np.linalg.cross)
def linalg_cross(x: Any, y: Any, *, axis: int = -1) -> Any:
    """The cross product of 3-vectors along an axis. Raises ValueError for other lengths."""
    return cross(x, y, axis=axis)


@implements(np.cross)
def cross(x: Any, y: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of 3-vectors: along axisa of x and axisb of y, its components along axisc of the result; `axis` says all three.

    Raises ValueError for vectors of another length.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = _operands(x, y)
    a, b = normalize_axis(axisa, len(shape_of(x)), "axisa"), normalize_axis(axisb, len(shape_of(y)), "axisb")
    for value, at in ((x, a), (y, b)):
        size = shape_of(value)[at]
        if type(size) is not int or size != 3:
            raise ShapeError(f"cross: vectors of 3 components are needed, got {spec(value)!r} along axis {at}")
    u, v = _components(x, a), _components(y, b)
    parts = [subtract(multiply(u[i], v[j]), multiply(u[j], v[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    result = concatenate(parts, axis=-1)
    ndim = len(shape_of(result))
    return move_axis(result, ndim - 1, normalize_axis(axisc, ndim, "axisc"))


def _components(x: Any, axis: int) -> list[Any]:
    last = move_axis(x, axis, len(shape_of(x)) - 1)
    return [slice_axis(last, len(shape_of(x)) - 1, i, i + 1) for i in range(3)]
