"""ArraySpec: what is known of an array before it has a value. Every Var of a Program has one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import numpy as np

from .dims import Dim, as_dim, dim_text, product
from .dtypes import DType, as_dtype, is_float, python_scalar_dtype, short_name
from .errors import DTypeError
from .narrowing import is_numpy

DimLike: TypeAlias = int | Dim
Shape: TypeAlias = tuple[DimLike, ...]


class ArraySpec:
    """Shape and dtype of an array: `ArraySpec(("B", 784), "float32")`.

    shape: ints, names such as "B", or integer expressions of names ("2*B + 1"); a name is one unknown size
    throughout a program. weak: a Python number, which takes the dtype of what it meets (NEP 50).
    sharding: a PartitionSpec over the program's mesh; replicated by default.
    Raises ShapeError for a bad dim and DTypeError for a dtype that onstage does not compute with.
    """

    __slots__ = ("_hash", "dtype", "shape", "sharding", "weak")
    shape: Shape
    dtype: DType
    weak: bool
    sharding: Any
    _hash: int

    def __init__(self, shape: Iterable[int | str | Dim] | int | str | Dim, dtype: Any, *, weak: bool = False, sharding: Any = None):
        dims = (shape,) if isinstance(shape, int | str | Dim | np.integer) else tuple(shape)
        set_ = object.__setattr__
        set_(self, "shape", tuple(as_dim(d) for d in dims))
        set_(self, "dtype", as_dtype(dtype))
        set_(self, "weak", bool(weak))
        set_(self, "sharding", sharding)
        set_(self, "_hash", hash((self.shape, self.dtype, self.weak, self.sharding)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an ArraySpec is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.shape, self.dtype.name, self.weak, self.sharding))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ArraySpec):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.dtype == other.dtype
            and self.weak == other.weak
            and same_shape_key(self.shape, other.shape)
            and self.sharding == other.sharding
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> DimLike:
        return product(self.shape)

    @property
    def is_static(self) -> bool:
        """True if no dim is symbolic."""
        return all(type(d) is int for d in self.shape)

    @property
    def spec(self) -> ArraySpec:
        return self

    def update(self, *, shape: Shape | None = None, dtype: DType | None = None, weak: bool | None = None) -> ArraySpec:
        """A copy with some fields replaced; the sharding is dropped with the shape."""
        return ArraySpec(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            weak=self.weak if weak is None else weak,
            sharding=self.sharding if shape is None else None,
        )

    def __repr__(self) -> str:
        dims = ",".join(d if isinstance(d, str) else dim_text(d) for d in self.shape)
        return f"{short_name(self.dtype)}[{dims}]{'~' if self.weak else ''}"


def _rebuild(shape: Shape, dtype: str, weak: bool, sharding: Any) -> ArraySpec:
    return ArraySpec(shape, dtype, weak=weak, sharding=sharding)


def same_shape_key(a: Shape, b: Shape) -> bool:
    """Equality of shapes by canonical form; never raises, unlike comparing symbolic dims with `==`."""
    return len(a) == len(b) and all(x is y or (type(x) is type(y) and hash(x) == hash(y)) for x, y in zip(a, b, strict=True))


_interned: dict[tuple[Shape, DType, bool], ArraySpec] = {}
_INTERNED_LIMIT: Final = 1 << 16


def make_spec(shape: Shape, dtype: DType, weak: bool = False) -> ArraySpec:
    """An interned ArraySpec from dims and a dtype that are already canonical: the fast path of abstract rules."""
    key = (shape, dtype, weak)
    found = _interned.get(key)
    if found is None:
        if len(_interned) > _INTERNED_LIMIT:
            _interned.clear()
        found = _interned[key] = ArraySpec(shape, dtype, weak=weak)
    return found


class StaticSpec:
    """A compile-time leaf: `StaticSpec(3)` among examples or specs hands the plain value to the function.

    The value must be hashable; it becomes part of the program.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"StaticSpec({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticSpec) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("StaticSpec", self.value))


def require_plain(value: object, what: str = "value") -> None:
    """DTypeError for the array classes whose operators mean something else than those of arrays: the result would be silently wrong."""
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            f"{what}: masked arrays are not supported, their mask would be lost; pass x.filled(value), or the data and the mask"
        )
    if isinstance(value, np.matrix):
        raise DTypeError(f"{what}: np.matrix is not supported, its * is a matrix product; pass np.asarray(x) and write @ for products")


def spec_of(value: Any, what: str = "value") -> ArraySpec:
    """The spec of a NumPy array, scalar, Python number, or anything that carries `.spec`."""
    spec = getattr(value, "spec", None)
    if isinstance(spec, ArraySpec):
        return spec
    if is_numpy(value):
        require_plain(value, what)
        return make_spec(value.shape, as_dtype(value.dtype, what))
    if isinstance(value, bool | int | float | complex):
        dtype = python_scalar_dtype(value)
        return make_spec((), dtype, not isinstance(value, bool))
    raise DTypeError(f"{what}: {type(value).__name__} is no array")


def carries_tangent(spec: ArraySpec) -> bool:
    """Only floating arrays have tangents and cotangents."""
    return is_float(spec.dtype)
