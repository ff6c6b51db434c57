"""ComplexPair: what stands for complex arrays until there are complex dtypes, two real arrays and the arithmetic of complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..stage.dims import Dim
from ..stage.errors import UnsupportedError
from ..stage.narrowing import is_numpy
from ..stage.tracer import Tracer
from .exponential import sqrt
from .operands import operand
from .registry import NUMPY


@dataclass(frozen=True)
class ComplexPair:
    """The real and imaginary parts of a complex array, two arrays of one shape and dtype; `real, imag = pair` takes it apart.

    + - * / with pairs, real arrays and numbers are those of complex numbers; abs(pair), pair.conj(). The functions of np.fft take pairs;
    of other functions, call them with the parts.
    """

    real: Any
    imag: Any

    # NumPy leaves operators to the methods below
    __array_ufunc__ = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.real, self.imag))

    def __add__(self, other: Any) -> ComplexPair:
        real, imag = _parts(other)
        return ComplexPair(self.real + real, self.imag if imag is None else self.imag + imag)

    __radd__ = __add__

    def __sub__(self, other: Any) -> ComplexPair:
        real, imag = _parts(other)
        return ComplexPair(self.real - real, self.imag if imag is None else self.imag - imag)

    def __rsub__(self, other: Any) -> ComplexPair:
        return -self + other

    def __mul__(self, other: Any) -> ComplexPair:
        real, imag = _parts(other)
        if imag is None:
            return ComplexPair(self.real * real, self.imag * real)
        return ComplexPair(self.real * real - self.imag * imag, self.real * imag + self.imag * real)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> ComplexPair:
        real, imag = _parts(other)
        if imag is None:
            return ComplexPair(self.real / real, self.imag / real)
        square = real * real + imag * imag
        return self * ComplexPair(real / square, -imag / square)

    def __rtruediv__(self, other: Any) -> ComplexPair:
        square = self.real * self.real + self.imag * self.imag
        return ComplexPair(self.real / square, -self.imag / square) * other

    def __neg__(self) -> ComplexPair:
        return ComplexPair(-self.real, -self.imag)

    def __abs__(self) -> Any:
        return sqrt(self.real * self.real + self.imag * self.imag)

    def conj(self) -> ComplexPair:
        """The complex conjugate."""
        return ComplexPair(self.real, -self.imag)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        function = NUMPY.get(func) if func.__module__ == "numpy.fft" else None
        if function is None:
            raise UnsupportedError(f"{func.__module__}.{func.__name__} does not take a ComplexPair; call it with pair.real and pair.imag")
        return function(*args, **kwargs)


def _parts(x: Any) -> tuple[Any, Any]:
    """(real, imaginary) of what a pair is combined with; None for real values."""
    if isinstance(x, ComplexPair):
        return x.real, x.imag
    if isinstance(x, complex) or (is_numpy(x) and x.dtype.kind == "c"):
        values: Any = x
        return values.real, values.imag
    if is_numpy(x) or isinstance(x, Tracer | int | float | Dim):
        return operand(x), None
    raise TypeError(f"a ComplexPair is combined with pairs, arrays and numbers, not with {type(x).__name__}")
