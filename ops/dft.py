"""The discrete Fourier transform along the last axis, without a factor, of a real array or of real and imaginary parts.

Lowered to products with small Fourier matrices: sizes that factor are split (Cooley and Tukey 1965), large primes are a convolution
with a chirp (Bluestein 1970). The matrices are exact to rounding in float32 and float64.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..stage.dims import Dim
from ..stage.dtypes import FLOAT32, FLOAT64, DType, short_name
from ..stage.errors import DTypeError, ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import bind
from .joining import join
from .matmul import matmul, swap_last
from .slicing import pad, slice_axis
from .structure import broadcast, move_axis, reshape_p, zeros

_DIRECT: Final = 32
_LARGE_PRIME: Final = 256


def _abstract(real: ArraySpec, *rest: ArraySpec, inverse: bool) -> tuple[ArraySpec, ArraySpec]:
    if any(s.shape != real.shape or s.dtype != real.dtype for s in rest):
        raise ShapeError(f"dft: real and imaginary parts differ: {real!r} and {rest[0]!r}")
    if real.dtype not in (FLOAT32, FLOAT64):
        raise DTypeError(f"dft: not supported for {short_name(real.dtype)}")
    if not real.shape or isinstance(real.shape[-1], Dim) or real.shape[-1] == 0:
        raise ShapeError(f"dft: a last axis of known size above 0 is needed, got {real!r}")
    return make_spec(real.shape, real.dtype), make_spec(real.shape, real.dtype)


def _numpy(real: Array, *rest: Array, inverse: bool) -> tuple[Array, Array]:
    values = real + 1j * rest[0] if rest else real
    result = np.fft.ifft(values, norm="forward") if inverse else np.fft.fft(values)
    return np.ascontiguousarray(result.real).astype(real.dtype), np.ascontiguousarray(result.imag).astype(real.dtype)


def _transpose(ct: Any, primals: Any, output: Any, *, active: Any, inverse: bool) -> Any:
    """The matrix of real and imaginary parts is transposed by turning the other way round."""
    real, imag = ct
    if real is None:
        turned = bind(dft_p, imag, inverse=not inverse)
        result = (-turned[1], turned[0])
    else:
        result = bind(dft_p, *([real] if imag is None else [real, imag]), inverse=not inverse)
    return result[: len(primals)]


def _batch(ctx: Any, args: Any, axes: Any, *, inverse: bool) -> Any:
    moved = [broadcast(x, (ctx.size, *x.shape)) if a is None else move_axis(x, a, 0) for x, a in zip(args, axes, strict=True)]
    return bind(dft_p, *moved, inverse=inverse), (0, 0)


def _decompose(real: Any, *rest: Any, inverse: bool) -> tuple[Any, Any]:
    found, imag = _transform(real, rest[0] if rest else None, inverse)
    return found, zeros(real.shape, real.dtype) if imag is None else imag


# A complex array in the making is a pair (real, imaginary), with None for an imaginary part of zeros.


def circle(numerators: Array, n: int, inverse: bool) -> tuple[Array, Array]:
    """Cosine and sine of -2 pi k / n, or +, in float64; exact on the axes."""
    quarters, rest = np.divmod(4 * (numerators % n), n)
    angle = rest * (np.pi / (2 * n))
    c, s = np.where(rest == 0, 1.0, np.cos(angle)), np.where(rest == 0, 0.0, np.sin(angle))
    cosine = np.choose(quarters, [c, -s, -c, s])
    sine = np.choose(quarters, [s, c, -s, -c])
    return cosine, sine if inverse else -sine


def _places(n: int) -> Array:
    return np.arange(n)


def _times(real: Any, imag: Any, factors: tuple[Array, Array], dtype: DType) -> tuple[Any, Any]:
    c, s = (f.astype(dtype) for f in factors)
    if imag is None:
        return real * c, real * s
    return real * c - imag * s, real * s + imag * c


def _transform(real: Any, imag: Any, inverse: bool) -> tuple[Any, Any]:
    n = real.shape[-1]
    if n == 1:
        return real, imag
    if n <= _DIRECT:
        return _by_matrix(real, imag, inverse)
    factor = max((d for d in range(2, _DIRECT + 1) if n % d == 0), default=1)
    if factor > 1:
        return _split(real, imag, factor, n // factor, inverse)
    return _by_matrix(real, imag, inverse) if n <= _LARGE_PRIME else _by_chirp(real, imag, inverse)


def _by_matrix(real: Any, imag: Any, inverse: bool) -> tuple[Any, Any]:
    n, last = real.shape[-1], len(real.shape) - 1
    c, s = circle(np.multiply.outer(_places(n), _places(n)), n, inverse)
    rows = np.concatenate([c, s], axis=1)
    x = real
    if imag is not None:
        rows = np.concatenate([rows, np.concatenate([-s, c], axis=1)], axis=0)
        x = join([real, imag], last)
    result = matmul(x, rows.astype(real.dtype))
    return slice_axis(result, last, 0, n), slice_axis(result, last, n, 2 * n)


def _split(real: Any, imag: Any, outer: int, inner: int, inverse: bool) -> tuple[Any, Any]:
    """n = outer * inner: transforms of size outer over strided elements, a twist, transforms of size inner."""
    shape = real.shape

    def each(change: Any, *parts: Any) -> list[Any]:
        return [None if x is None else change(x) for x in parts]

    real, imag = each(lambda x: swap_last(bind(reshape_p, x, shape=(*shape[:-1], outer, inner))), real, imag)
    real, imag = _transform(real, imag, inverse)
    twist = circle(np.multiply.outer(_places(inner), _places(outer)), outer * inner, inverse)
    real, imag = each(swap_last, *_times(real, imag, twist, real.dtype))
    real, imag = _transform(real, imag, inverse)
    real, imag = each(lambda x: bind(reshape_p, swap_last(x), shape=shape), real, imag)
    return real, imag


def _by_chirp(real: Any, imag: Any, inverse: bool) -> tuple[Any, Any]:
    """j k = (j^2 + k^2 - (k - j)^2) / 2 makes the transform a convolution, done by transforms of a power of two."""
    n, last, dtype = real.shape[-1], len(real.shape) - 1, real.dtype
    size = 1 << (2 * n - 2).bit_length()
    chirp = circle(_places(n) ** 2 % (2 * n), 2 * n, inverse)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = chirp[0] - 1j * chirp[1]
    kernel[size - n + 1 :] = kernel[n - 1 : 0 : -1]
    spectrum = np.fft.fft(kernel) / size
    high = [0] * last + [size - n]
    real, imag = (pad(x, [0] * (last + 1), high) for x in _times(real, imag, chirp, dtype))
    real, imag = _times(*_transform(real, imag, False), (spectrum.real, spectrum.imag), dtype)
    real, imag = (slice_axis(x, last, 0, n) for x in _transform(real, imag, True))
    return _times(real, imag, chirp, dtype)


dft_p = Primitive(
    "dft",
    abstract=_abstract,
    numpy=_numpy,
    linear="all",
    transpose=_transpose,
    batch=_batch,
    decompose=_decompose,
    cases=[
        Case((Sample((2, 4)), Sample((2, 4))), {"inverse": False}, named=(("B", 4), ("B", 4))),
        Case((Sample((5,)),), {"inverse": True}),
        Case((Sample((1, 48)), Sample((1, 48))), {"inverse": True}),
        Case((Sample((37,)),), {"inverse": False}),
        Case((Sample((3, 1)), Sample((3, 1))), {"inverse": False}),
        Case((Sample((0, 6)),), {"inverse": False}),
    ],
)
