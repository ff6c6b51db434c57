"""Fourier transforms against np.fft: complex results are pairs of real arrays, on arrays and traced arrays alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.stage.interpreter import evaluate

fft = ons.numpy.fft
X = np.random.default_rng(2).normal(size=(3, 4, 6))
Z = X + 1j * np.random.default_rng(3).normal(size=(3, 4, 6))


def complex_of(x: Any) -> Any:
    return x.real + 1j * x.imag if isinstance(x, fft.ComplexPair) else x


def pair_of(z: Any) -> Any:
    return fft.ComplexPair(np.ascontiguousarray(z.real), np.ascontiguousarray(z.imag))


def assert_transform(function: Callable[[Any], Any], x: Any, expected: Any, tolerance: float = 1e-14) -> None:
    """The function staged at both levels, on the interpreter and on arrays."""
    program = ons.stage(function, x)
    leaves = list(x) if isinstance(x, fft.ComplexPair) else [x]
    results = {"arrays": complex_of(function(x))}
    found = evaluate(program.program, leaves)
    results["interpreter"] = found[0] if len(found) == 1 else found[0] + 1j * found[1]
    for level in ("none", "all"):
        with ons.config(optimization=level):
            results[level] = complex_of(program(x))
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    for where, got in results.items():
        assert got.dtype == expected.dtype, where
        assert got.shape == expected.shape, where
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale, err_msg=where)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 37, 48, 97, 128, 263, 360, 674, 1000, 1024])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kind_of_size(n: int, dtype: str) -> None:
    """Small, prime, composite, powers of two, large primes and multiples of them."""
    x = np.random.default_rng(n).normal(size=(2, n)).astype(dtype)
    tolerance = 1e-6 if dtype == "float32" else 2e-15
    assert_transform(lambda x: np.fft.fft(x) if ons.is_traced(x) else fft.fft(x), x, np.fft.fft(x), tolerance)
    back = ons.stage(lambda x: np.fft.ifft(np.fft.fft(x)), x)(x)
    np.testing.assert_allclose(back.real, x, atol=10 * tolerance)
    np.testing.assert_allclose(back.imag, np.zeros_like(x), atol=10 * tolerance)
    np.testing.assert_allclose(ons.stage(lambda x: np.fft.irfft(np.fft.rfft(x), n), x)(x), x, atol=10 * tolerance)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn"])
def test_transforms_of_real_arrays(name: str, norm: Any) -> None:
    ours, numpys = getattr(fft, name), getattr(np.fft, name)
    assert_transform(lambda x: ours(x, norm=norm), X, numpys(X, norm=norm))


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft", "fft2", "ifft2", "irfft2", "fftn", "ifftn", "irfftn"])
def test_transforms_of_pairs(name: str, norm: Any) -> None:
    ours, numpys = getattr(fft, name), getattr(np.fft, name)
    assert_transform(lambda x: ours(x, norm=norm), pair_of(Z), numpys(Z, norm=norm))


@pytest.mark.parametrize("n", [1, 3, 5, 6, 9, None])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "hfft", "ihfft"])
def test_points_are_cut_and_filled(name: str, axis: int, n: int | None) -> None:
    ours, numpys = getattr(fft, name), getattr(np.fft, name)
    assert_transform(lambda x: ours(x, n, axis), X, numpys(X, n, axis))


def test_several_axes_and_sizes() -> None:
    assert_transform(lambda x: fft.fftn(x, s=(5, 3), axes=(0, 2)), X, np.fft.fftn(X, s=(5, 3), axes=(0, 2)))
    assert_transform(lambda x: fft.irfftn(x, s=(5, 7), axes=(1, 2)), pair_of(Z), np.fft.irfftn(Z, s=(5, 7), axes=(1, 2)))
    assert_transform(lambda x: fft.rfftn(x, axes=(0, 1)), X, np.fft.rfftn(X, axes=(0, 1)))


def test_dtypes() -> None:
    for dtype, parts in (("float16", "float32"), ("float32", "float32"), ("int32", "float64"), ("bool", "float64")):
        x = np.arange(6).astype(dtype)
        result = ons.stage(lambda x: np.fft.fft(x), x)(x)
        assert result.real.dtype == result.imag.dtype == np.dtype(parts)
        np.testing.assert_allclose(complex_of(result), np.fft.fft(x), rtol=1e-6, atol=1e-6)


def test_frequencies_and_shifts() -> None:
    for n in (1, 5, 8):
        np.testing.assert_array_equal(fft.fftfreq(n, 0.25), np.fft.fftfreq(n, 0.25))
        np.testing.assert_array_equal(fft.rfftfreq(n, 0.25), np.fft.rfftfreq(n, 0.25))
        assert fft.fftfreq(n).dtype == np.float64
    assert fft.rfftfreq(6, dtype="float32").dtype == np.float32
    program = ons.stage(lambda x: fft.fftfreq(x.shape[0], 0.5) + x, specs=(ons.ArraySpec(("n",), "float64"),))
    np.testing.assert_array_equal(program(np.zeros(7)), np.fft.fftfreq(7, 0.5))
    assert_transform(lambda x: fft.fftshift(x), X, np.fft.fftshift(X))
    assert_transform(lambda x: fft.ifftshift(x, axes=(0, -1)), pair_of(Z), np.fft.ifftshift(Z, axes=(0, -1)))
    assert_transform(lambda x: fft.fftshift(x, 1), X, np.fft.fftshift(X, 1))


def test_arithmetic_of_pairs() -> None:
    w, z = Z[0, 0], Z[1, 0]

    def f(w: Any, z: Any) -> Any:
        return (w * z + 2 - z / w + 3j * w - 1.5 / z - (1 - w) * np.arange(6.0)).conj(), abs(w)

    (got, size) = ons.stage(f, pair_of(w), pair_of(z))(pair_of(w), pair_of(z))
    wanted = (w * z + 2 - z / w + 3j * w - 1.5 / z - (1 - w) * np.arange(6.0)).conj()
    np.testing.assert_allclose(complex_of(got), wanted, rtol=1e-12)
    np.testing.assert_allclose(size, np.abs(w), rtol=1e-14)
    with pytest.raises(TypeError):
        pair_of(w) + "1"


def test_gradients_and_vmap() -> None:
    x = X[0, 0]

    def energy(x: Any) -> Any:
        spectrum = np.fft.rfft(x) if not isinstance(x, np.ndarray) else fft.rfft(x)
        return np.sum(abs(spectrum) ** 2 * np.arange(1.0, 5.0))

    gradient = ons.grad(energy)(x)
    numeric = [(energy(x + 1e-6 * d) - energy(x - 1e-6 * d)) / 2e-6 for d in np.eye(6)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-7)
    program = ons.stage(ons.grad(energy), x)
    np.testing.assert_allclose(program(x), gradient, rtol=1e-12)
    np.testing.assert_allclose(ons.vmap(ons.grad(energy))(X[0])[0], gradient, rtol=1e-12)
    np.testing.assert_allclose(ons.hessian(energy)(x) @ x, gradient, rtol=1e-10)
    assert sum(e.primitive.name == "dft" for e in program.program.equations) == 2


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: np.fft.fft(x, 0), ValueError, r"Invalid number of FFT data points \(0\)"),
        (lambda x: np.fft.fft(x, norm="other"), ValueError, "Invalid norm value other"),
        (lambda x: np.fft.fft(x, axis=3), np.exceptions.AxisError, "axis 3 is out of bounds"),
        (lambda x: np.fft.rfft(np.fft.fft(x)), ons.DTypeError, "rfft: a real array is needed"),
        (lambda x: np.sum(np.fft.fft(x)), (ons.UnsupportedError, TypeError), "ComplexPair"),
        (lambda x: np.fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "Shape and axes have different lengths"),
    ],
)
def test_errors(function: Callable[[Any], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ons.stage(function, X)


def test_named_sizes_along_other_axes_only() -> None:
    program = ons.stage(lambda x: np.fft.rfft(x), specs=(ons.ArraySpec(("B", 6), "float64"),))
    np.testing.assert_allclose(complex_of(program(X[0])), np.fft.rfft(X[0]), atol=1e-14)
    with pytest.raises(ons.UnsupportedError, match="fft: the size of a transformed axis must be known, it is n"):
        ons.stage(lambda x: np.fft.fft(x), specs=(ons.ArraySpec(("n",), "float64"),))
