"""np.fft: Fourier transforms along axes. Complex results are a ComplexPair of real arrays, and every function takes one.

Sizes along transformed axes must be known; other axes may be named. float32 stays, float16 is computed in float32, all else in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import FLOAT32, FLOAT64, is_float
from ..stage.errors import DTypeError, UnsupportedError
from ..stage.narrowing import is_numpy, is_sequence
from ..stage.trace import bind
from .arguments import array_operand, dim_argument, no_out
from .arithmetic import where
from .complex_pair import ComplexPair
from .creation import iota
from .dft import dft_p
from .joining import join
from .operands import cast, dtype_of, normalize_axis, shape_of, spec
from .registry import implements
from .shape import roll
from .slicing import pad, reverse, slice_axis
from .structure import move_axis, zeros

_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _floating(x: Any, what: str) -> Any:
    x = array_operand(x, what)
    dtype = dtype_of(x)[0]
    if not is_float(dtype):
        return cast(x, FLOAT64)
    return cast(x, FLOAT32) if dtype.itemsize == 2 else x


def _parts(a: Any, what: str) -> tuple[Any, Any]:
    """(real, imaginary or None) of an operand."""
    if isinstance(a, ComplexPair):
        return _floating(a.real, what), _floating(a.imag, what)
    if isinstance(a, complex) or (is_numpy(a) and a.dtype.kind == "c"):
        values: Any = np.asarray(a)
        return _floating(np.ascontiguousarray(values.real), what), _floating(np.ascontiguousarray(values.imag), what)
    return _floating(a, what), None


def _scale(norm: str | None, n: int, inverse: bool) -> float | None:
    """The factor of a transform of n points; None for 1."""
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm != "forward") else None


def _points(n: Any, size: Any, what: str) -> int:
    """The number of points, that of the axis for None."""
    count = size if n is None else n
    if isinstance(count, Dim):
        raise UnsupportedError(f"{what}: the size of a transformed axis must be known, it is {count}; give n=")
    count = count.__index__()
    if count < 1:
        raise ValueError(f"Invalid number of FFT data points ({count}) specified.")
    return count


def _fitted(x: Any, n: int) -> Any:
    """The last axis cut or filled with zeros to n elements."""
    shape = shape_of(x)
    size, last = shape[-1], len(shape) - 1
    if isinstance(size, Dim):
        raise UnsupportedError(f"fft: the size of a transformed axis must be known, got {spec(x)!r}")
    if size >= n:
        return slice_axis(x, last, 0, n) if size > n else x
    return pad(x, [0] * (last + 1), [0] * last + [n - size])


def _axis_last(x: Any, axis: int) -> Any:
    return move_axis(x, axis, len(shape_of(x)) - 1)


def _along(a: Any, n: Any, axis: Any, norm: str | None, inverse: bool, what: str) -> ComplexPair:
    real, imag = _parts(a, what)
    axis = normalize_axis(axis, len(shape_of(real)))
    n = _points(n, shape_of(real)[axis], what)
    parts = [_fitted(_axis_last(x, axis), n) for x in (real, imag) if x is not None]
    return ComplexPair(*[move_axis(x, len(shape_of(x)) - 1, axis) for x in _scaled(parts, n, norm, inverse)])


def _scaled(parts: Sequence[Any], n: int, norm: str | None, inverse: bool) -> list[Any]:
    scale = _scale(norm, n, inverse)
    found = bind(dft_p, *parts, inverse=inverse)
    return [x if scale is None else x * scale for x in found]


@implements(np.fft.fft)
def fft(a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: None = None) -> ComplexPair:
    """The discrete Fourier transform along an axis, cut or filled with zeros to n points.

    norm: where the factor 1/n goes: "backward" (None, the default) to the inverse, "forward" here, "ortho" a root of it to both.
    Raises ValueError for n below 1 or another norm.
    """
    no_out(out, "fft")
    return _along(a, n, axis, norm, False, "fft")


@implements(np.fft.ifft)
def ifft(a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: None = None) -> ComplexPair:
    """The inverse of `fft`."""
    no_out(out, "ifft")
    return _along(a, n, axis, norm, True, "ifft")


# ------------------------------------------------------------------------------------------------------------ real transforms


def _require_real(a: Any, what: str) -> Any:
    real, imag = _parts(a, what)
    if imag is not None:
        raise DTypeError(f"{what}: a real array is needed, got a complex one; use {what.replace('rfft', 'fft')}")
    return real


@implements(np.fft.rfft)
def rfft(a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: None = None) -> ComplexPair:
    """The first n // 2 + 1 elements of the transform of a real array; the others are their conjugates."""
    no_out(out, "rfft")
    real = _require_real(a, "rfft")
    axis = normalize_axis(axis, len(shape_of(real)))
    n = _points(n, shape_of(real)[axis], "rfft")
    found = _along(real, n, axis, norm, False, "rfft")
    return ComplexPair(*[slice_axis(x, axis, 0, n // 2 + 1) for x in found])


@implements(np.fft.irfft)
def irfft(a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: None = None) -> Any:
    """The inverse of `rfft`: a real array of n points, by default 2 * (m - 1) for m elements along the axis."""
    no_out(out, "irfft")
    real, imag = _parts(a, "irfft")
    axis = normalize_axis(axis, len(shape_of(real)))
    n = _points(_points(None, shape_of(real)[axis], "irfft") * 2 - 2 if n is None else n, None, "irfft")
    half = n // 2 + 1
    parts: list[Any] = []
    for x, sign in ((real, 1), (imag, -1)):
        if x is None:
            continue
        x = _fitted(_axis_last(x, axis), half)
        last = len(shape_of(x)) - 1
        mirrored = reverse(slice_axis(x, last, 1, 1 + n - half), [last])
        parts.append(join([x, mirrored if sign > 0 else -mirrored], last))
    return move_axis(_scaled(parts, n, norm, True)[0], len(shape_of(real)) - 1, axis)


@implements(np.fft.hfft)
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: None = None) -> Any:
    """The real transform of an array with Hermitian symmetry, of which the first n // 2 + 1 elements are given."""
    no_out(out, "hfft")
    real, imag = _parts(a, "hfft")
    return irfft(real if imag is None else ComplexPair(real, -imag), n, axis, _swapped(norm))


@implements(np.fft.ihfft)
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: None = None) -> ComplexPair:
    """The inverse of `hfft`."""
    no_out(out, "ihfft")
    return rfft(_require_real(a, "ihfft"), n, axis, _swapped(norm)).conj()


def _swapped(norm: str | None) -> str:
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return _SWAPPED[norm]


# ------------------------------------------------------------------------------------------------------------- several axes


def _sizes_and_axes(a: Any, s: Any, axes: Any, half: bool = False) -> tuple[list[Any], list[Any]]:
    """The points and the axes of a transform over several; `half`: the last axis holds half a spectrum."""
    shape = shape_of(_parts(a, "fft")[0])
    if axes is None:
        axes = list(range(len(shape))) if s is None else list(range(-len(s), 0))
    axes = list(axes)
    if s is None:
        sizes: list[Any] = [None] * len(axes)
        if half and axes and not isinstance(shape[axes[-1]], Dim):
            sizes[-1] = (shape[axes[-1]] - 1) * 2
    else:
        sizes = [None if n is None or n == -1 else n for n in s]
    if len(sizes) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    return sizes, axes


def _over_axes(a: Any, sizes: Sequence[Any], axes: Sequence[Any], norm: str | None, transform: Callable[..., Any]) -> Any:
    for n, axis in reversed(list(zip(sizes, axes, strict=True))):
        a = transform(a, n, axis, norm)
    return a


def _as_pair(a: Any) -> ComplexPair:
    if isinstance(a, ComplexPair):
        return a
    real, imag = _parts(a, "fft")
    return ComplexPair(real, zeros(shape_of(real), dtype_of(real)[0]) if imag is None else imag)


@implements(np.fft.fftn)
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> ComplexPair:
    """`fft` over several axes, all by default, with s[i] points along axes[i]; an axis may be named twice."""
    no_out(out, "fftn")
    sizes, axes = _sizes_and_axes(a, s, axes)
    return _as_pair(_over_axes(a, sizes, axes, norm, fft))


@implements(np.fft.ifftn)
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> ComplexPair:
    """The inverse of `fftn`."""
    no_out(out, "ifftn")
    sizes, axes = _sizes_and_axes(a, s, axes)
    return _as_pair(_over_axes(a, sizes, axes, norm, ifft))


@implements(np.fft.rfftn)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> ComplexPair:
    """`rfft` along the last of the axes, then `fft` over the others."""
    no_out(out, "rfftn")
    real = _require_real(a, "rfftn")
    sizes, axes = _sizes_and_axes(real, s, axes)
    return _over_axes(rfft(real, sizes[-1], axes[-1], norm), sizes[:-1], axes[:-1], norm, fft)


@implements(np.fft.irfftn)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> Any:
    """The inverse of `rfftn`."""
    no_out(out, "irfftn")
    sizes, axes = _sizes_and_axes(a, s, axes, half=True)
    for n, axis in zip(sizes[:-1], axes[:-1], strict=True):
        a = ifft(a, n, axis, norm)
    return irfft(a, sizes[-1], axes[-1], norm)


@implements(np.fft.fft2)
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> ComplexPair:
    """`fftn` over two axes."""
    return fftn(a, s, axes, norm, out)


@implements(np.fft.ifft2)
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> ComplexPair:
    """`ifftn` over two axes."""
    return ifftn(a, s, axes, norm, out)


@implements(np.fft.rfft2)
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> ComplexPair:
    """`rfftn` over two axes."""
    return rfftn(a, s, axes, norm, out)


@implements(np.fft.irfft2)
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> Any:
    """`irfftn` over two axes."""
    return irfftn(a, s, axes, norm, out)


# ------------------------------------------------------------------------------------------------------- frequencies and shifts


def fftfreq(n: Any, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the elements of `fft`, in cycles per unit of d, the sample spacing: float64[n] unless dtype says so."""
    n = dim_argument(n)
    places = iota(n)
    signed = where(places < (n + 1) // 2, places, places - n)
    return cast(signed / (n * d), FLOAT64 if dtype is None else np.dtype(dtype))


def rfftfreq(n: Any, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the elements of `rfft`: float64[n // 2 + 1] unless dtype says so."""
    n = dim_argument(n)
    return cast(iota(n // 2 + 1) / (n * d), FLOAT64 if dtype is None else np.dtype(dtype))


def _shifted(x: Any, axes: Any, back: bool) -> Any:
    if isinstance(x, ComplexPair):
        return ComplexPair(_shifted(x.real, axes, back), _shifted(x.imag, axes, back))
    x = array_operand(x, "fftshift")
    shape = shape_of(x)
    places: Sequence[Any] = range(len(shape)) if axes is None else axes if is_sequence(axes) else (axes,)
    for place in places:
        axis = normalize_axis(place, len(shape))
        x = roll(x, -(shape[axis] // 2) if back else shape[axis] // 2, axis)
    return x


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    """The frequency 0 moved to the middle of the axes, all by default."""
    return _shifted(x, axes, False)


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted(x, axes, True)
