"""Tracer: the stand-in for an array while a function is traced.

It looks like a NumPy array to user code (operators, methods, NumPy's protocols); what these do is decided by the installed
`Frontend`, so that `stage` knows no operation by name.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from .dims import Dim
from .dtypes import DType
from .errors import ConcretizationError, EscapedTracerError, MutationError, ShapeError, TracingError
from .narrowing import is_tuple
from .primitive import Array, Primitive
from .program import Atom
from .spec import ArraySpec, DimLike, Shape

if TYPE_CHECKING:
    from .trace import Trace


class Frontend(Protocol):
    """What `ops` installs: the meaning of operators, methods and NumPy calls on tracers."""

    namespace: Any

    def operator(self, name: str, *operands: Any) -> Any:
        """`a + b` is operator("add", a, b); gives NotImplemented for operands it does not know."""
        ...

    def cast(self, x: Tracer, spec: ArraySpec) -> Tracer:
        """x in the dtype and weakness of a spec."""
        ...

    def getitem(self, x: Tracer, index: Any) -> Tracer: ...

    def setitem(self, x: Tracer, index: Any, value: Any) -> Tracer:
        """x with the indexed part replaced, as a new tracer."""
        ...

    def attribute(self, name: str) -> Callable[[Tracer], Any] | None:
        """The getter of an ndarray attribute or bound method such as `sum` or `T`; None if there is none."""
        ...

    def attribute_names(self) -> list[str]: ...

    def ufunc(self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def function(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


_frontend: Frontend


def install_frontend(frontend: Frontend) -> None:
    """Give tracers their operations; called once by `onstage/__init__.py`."""
    global _frontend
    _frontend = frontend


def cast_tracer(x: Tracer, spec: ArraySpec) -> Tracer:
    """x in the dtype and weakness of a spec."""
    return _frontend.cast(x, spec)


class PendingUpdate:
    """`x[i] += v` in flight: Python made the new value of a view and has not stored it back into x yet."""

    __slots__ = ("base", "index")

    def __init__(self, base: Tracer, index: Any) -> None:
        self.base = base
        self.index = index


class Tracer:
    """An array in a trace. Never made by user code; has no value unless the trace evaluates as it records."""

    __slots__ = (
        "__weakref__",
        "_ancestors",
        "_atom",
        "_base",
        "_base_index",
        "_is_input",
        "_pending",
        "_trace",
        "_value",
        "_views",
    )

    __array_priority__ = 1000.0
    _deferred = False
    """True for the deferred arrays of `deferred.py`: values outside any trace, which take part in one as constants."""

    def __init__(self, trace: Trace, atom: Atom, value: Array | None = None) -> None:
        self._trace = trace
        self._atom = atom
        self._value = value
        # What this is a view of: the array it was taken from, that one's base, and so on.
        self._base: weakref.ref[Tracer] | None = None
        self._ancestors: tuple[weakref.ref[Tracer], ...] = ()
        self._base_index: Any = None
        self._views: list[weakref.ref[Tracer]] | None = None
        self._pending: PendingUpdate | None = None
        self._is_input = False

    # what is known without a value

    @property
    def spec(self) -> ArraySpec:
        return self._atom.spec

    @property
    def shape(self) -> Shape:
        return self._atom.spec.shape

    @property
    def dtype(self) -> DType:
        return self._atom.spec.dtype

    @property
    def ndim(self) -> int:
        return len(self._atom.spec.shape)

    @property
    def size(self) -> DimLike:
        return self._atom.spec.size

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of unsized object")
        if isinstance(shape[0], Dim):
            raise ConcretizationError(f"len() of an array of shape {list(shape)}: the size is known only at run time; use x.shape[0]")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        value = "" if self._value is None else f" = {np.array2string(self._value, threshold=20)}"
        return f"Tracer({self.spec!r}{value})"

    __hash__ = object.__hash__

    def _settled(self) -> Array:
        """The value of a deferred array."""
        raise TracingError(f"{self!r} has no value of its own")

    @staticmethod
    def _record(primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Record an operation on deferred arrays outside any trace."""
        raise TracingError(f"{primitive.name}: no trace is live")

    @staticmethod
    def _wrap(values: Sequence[Array]) -> list[Any]:
        """Results of a program as arrays of the kind it was called with."""
        return list(values)

    # what needs a value

    def _concretize(self, how: str, way_out: str) -> NoReturn:
        if not self._trace.live:
            raise EscapedTracerError(
                f"{how} needs the value of a tracer ({self.spec!r}) whose trace has ended; "
                "return it from the traced function instead of storing it outside"
            )
        raise ConcretizationError(
            f"{how} needs the value of a traced array ({self.spec!r}), which is known only when the program runs; {way_out}"
        )

    def __bool__(self) -> bool:
        if self._value is not None:
            return bool(self._value)
        self._concretize(
            "a Python condition (bool())",
            "use ons.cond, ons.while_loop or np.where, or pass the value as ons.StaticSpec",
        )

    def __int__(self) -> int:
        if self._value is not None and self.dtype.kind in "iub":
            return int(self._value)
        self._concretize("int()", "use .astype('int64'), or pass the value as ons.StaticSpec")

    def __index__(self) -> int:
        if self._value is not None and self.dtype.kind in "iu":
            return int(self._value.__index__())
        self._concretize(
            "indexing a Python sequence or NumPy array, range(), or a size",
            "use ons.asarray(table)[i], ons.numpy.take, ons.fori_loop, or pass the value as ons.StaticSpec",
        )

    def __float__(self) -> float:
        if self._value is not None and self.dtype.kind in "iub":
            return float(self._value)
        self._concretize(
            "float()",
            "keep the array as it is: arithmetic with it is recorded; outside staging use ons.stop_gradient and bool",
        )

    def __complex__(self) -> complex:
        self._concretize("complex()", "complex numbers are not supported yet")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self._concretize(
            "turning it into a NumPy array (np.asarray, np.array of a list of tracers, constant[tracer], np.take(constant, tracer), "
            "constant.dot(tracer), np.full, np.r_, buffer[i] = tracer)",
            "use ons.asarray(table)[i], ons.numpy.take, ons.numpy.stack, ons.numpy.full, constant @ tracer, or "
            "ons.at(buffer)[i].set(tracer)",
        )

    def __format__(self, format_spec: str) -> str:
        if not format_spec:
            return repr(self)
        self._concretize(f"formatting (:{format_spec})", "print it without a format, which gives its shape and dtype")

    def __copy__(self) -> Tracer:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        return self.copy()

    def tolist(self) -> NoReturn:
        self._concretize(".tolist()", "keep the array as it is")

    def item(self, *args: int) -> NoReturn:
        self._concretize(".item()", "index it: x[i] is a traced 0-d array")

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _frontend.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _frontend.function(func, types, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return _frontend.namespace

    def __getattr__(self, name: str) -> Any:
        getter = _frontend.attribute(name)
        if getter is None:
            raise AttributeError(f"a traced array has no attribute {name!r}")
        return getter(self)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_frontend.attribute_names()})

    # indexing and mutation

    def __getitem__(self, index: Any) -> Tracer:
        return _frontend.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._pending is not None:
            if not isinstance(value, Tracer) or value._pending is not self._pending:
                raise pending_error()
            if not same_index(self._pending.index, index):
                raise MutationError("an updated view is stored at another index than it was taken from; use x.at[i].add(v)")
            value._pending = self._pending = None
        self._replace(_frontend.setitem(self, index, value), "x[i] = v", "x = x.at[i].set(v)", value)

    def _replace(self, new: Tracer, how: str, way_out: str, value: Any = None) -> Tracer:
        """Make this handle stand for `new`, as an in-place update would have done to the array.

        `value` is what was assigned: it may be a view of this array (`x[1:] = x[:-1]`), but not be used any more.
        """
        if new._trace is not self._trace:
            raise MutationError(
                f"{how} changes an array from outside the function that is being traced (a loop body, a branch, a function to differentiate); "
                f"write {way_out} and return the new array"
            )
        if self._is_input:
            raise MutationError(
                f"{how} changes an input of the traced function, which the caller's array would not show; "
                f"write {way_out}, or copy first: x = x.copy()"
            )
        if any(base() is not None for base in self._ancestors):
            raise MutationError(f"{how} changes a view, and the array under it is still in use; write {way_out}, or copy the view first")
        views = [view for reference in self._views or () if (view := reference()) is not None]
        if any(view is not value for view in views):
            raise MutationError(f"{how} changes an array of which a view is still in use; write {way_out}, or copy the view first")
        if new.shape != self.shape:
            raise ShapeError(f"{how}: the result has shape {list(new.shape)}, the array {list(self.shape)}")
        for view in views:
            view._pending = PendingUpdate(self, None)
        self._atom, self._value, self._views = new._atom, new._value, None
        self._base, self._ancestors = None, ()
        return self

    def _inplace(self, name: str, other: Any) -> Tracer:
        result = _frontend.operator(name, self, other)
        if result is NotImplemented:
            return result
        if not np.can_cast(result.dtype, self.dtype, casting="same_kind"):
            raise TypeError(f"Cannot cast ufunc '{name}' output from {result.dtype!r} to {self.dtype!r} with casting rule 'same_kind'")
        if result.dtype != self.dtype:
            result = _frontend.cast(result, self.spec)
        base = None if self._base is None else self._base()
        if base is not None and self._base_index is not None:
            # Either the middle of `base[i] += v`, whose store comes next, or a view updated under its base: then
            # the next use of the result or of the base finds the update pending and raises.
            result._pending = base._pending = PendingUpdate(base, self._base_index)
            return result
        return self._replace(result, "x += v (or another in-place operator)", "x = x + v")


def same_index(a: Any, b: Any) -> bool:
    """Whether two index expressions are the same: arrays and tracers by identity, the rest by value."""
    if is_tuple(a) and is_tuple(b):
        return len(a) == len(b) and all(same_index(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray | Tracer | list) or isinstance(b, np.ndarray | Tracer | list):
        return a is b
    return type(a) is type(b) and a == b


def mark_view(view: Tracer, base: Tracer, index: Any = None) -> Tracer:
    """Record that NumPy would share memory between the two; `index` if view is base[index]."""
    if view is base:
        return view
    reference = weakref.ref(view)
    view._base = weakref.ref(base)
    view._base_index = index
    view._ancestors = (view._base, *base._ancestors)
    for ancestor in (base, *(a for r in base._ancestors if (a := r()) is not None)):
        views = ancestor._views or []
        if len(views) >= 16 and len(views) & (len(views) - 1) == 0:
            views = [r for r in views if r() is not None]
        views.append(reference)
        ancestor._views = views
    return view


def pending_error() -> MutationError:
    return MutationError(
        "an in-place update of a view (v = x[i]; v += 1) cannot be recorded while the array under it is in use; "
        "write x[i] += 1 or x = x.at[i].add(1), or copy the view first"
    )


def settled(x: Any) -> Any:
    """A deferred array's value; anything else as it is."""
    return x._settled() if isinstance(x, Tracer) and x._deferred else x


def _binary(name: str) -> Callable[[Tracer, Any], Any]:
    def method(self: Tracer, other: Any) -> Any:
        return _frontend.operator(name, self, other)

    return method


def _reflected(name: str) -> Callable[[Tracer, Any], Any]:
    def method(self: Tracer, other: Any) -> Any:
        return _frontend.operator(name, other, self)

    return method


def _unary(name: str) -> Callable[[Tracer], Any]:
    def method(self: Tracer) -> Any:
        return _frontend.operator(name, self)

    return method


def _in_place(name: str) -> Callable[[Tracer, Any], Any]:
    def method(self: Tracer, other: Any) -> Any:
        return self._inplace(name, other)

    return method


_ARITHMETIC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
for _dunder, _name in _ARITHMETIC.items():
    setattr(Tracer, f"__{_dunder}__", _binary(_name))
    setattr(Tracer, f"__r{_dunder}__", _reflected(_name))
    setattr(Tracer, f"__i{_dunder}__", _in_place(_name))
setattr(Tracer, "__divmod__", _binary("divmod"))
setattr(Tracer, "__rdivmod__", _reflected("divmod"))
for _dunder, _name in {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}.items():  # fmt: skip
    setattr(Tracer, f"__{_dunder}__", _binary(_name))
for _dunder, _name in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
    setattr(Tracer, f"__{_dunder}__", _unary(_name))
