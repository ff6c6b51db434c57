"""Elementwise operations against NumPy: values, dtypes, signs of zeros, errors; staged on ONNX Runtime and by the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import onstage as ons

INF, NAN = np.inf, np.nan
FLOATS = ("float16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
Agree = Callable[..., Any]


def staged(function: Callable[..., Any], *arrays: Any) -> Any:
    return ons.stage(function, *arrays)(*arrays)


# The table of shared cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_division_rounds_down_and_remainders_have_the_divisors_sign(dtype: str) -> None:
    x, y, z = (np.array(v, dtype) for v in ([7, -7, 7, -7], [2, 2, -2, -2], [3, 3, -3, -3]))
    quotient, rest, c_rest = staged(lambda x, y, z: (x // y, x % z, np.fmod(x, z)), x, y, z)
    assert quotient.tolist() == [3, -4, -4, 3]
    assert rest.tolist() == [1, 2, -2, -1]
    assert c_rest.tolist() == [1, -1, 1, -1]
    assert quotient.dtype == rest.dtype == c_rest.dtype == np.dtype(dtype)


def test_float_remainder_signs() -> None:
    x, y = np.float32([5.5, -5.5, 5.5, -5.5]), np.float32([2, 2, -2, -2])
    assert staged(lambda x, y: x % y, x, y).tolist() == [1.5, 0.5, -0.5, -1.5]


@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_by_zero_and_of_the_least_integer(agree: Agree, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([5, limits.min, limits.max, 0, limits.min], dtype)
    y = np.array([0, -1 if limits.min else 1, 3, 0, 3], dtype)
    agree(lambda x, y: (x // y, x % y, np.fmod(x, y)), x, y)
    agree(lambda x: (x // 3, x % 3, x // np.array(0, dtype), 100 // x), x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_division_at_its_edges(agree: Agree, dtype: str) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 5.5, -5.5, INF, -INF, NAN], dtype)
    x, y = np.meshgrid(values, values)
    agree(lambda x, y: (x // y, x % y, np.fmod(x, y)), x, y)
    agree(np.divmod, x, y)
    for function in (np.floor_divide, np.remainder, np.fmod):
        got = staged(function, x, y)
        with np.errstate(all="ignore"):
            wanted = function(x, y)
        assert np.array_equal(np.signbit(got)[wanted == 0], np.signbit(wanted)[wanted == 0])


def test_integer_powers() -> None:
    x = np.int32([-2, 3])
    cube = staged(lambda x: x**3, x)
    assert cube.tolist() == [-8, 27] and cube.dtype == np.int32
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        ons.stage(lambda x: x**-1, x)
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        ons.stage(lambda x: x ** np.array([1, -1]), x)
    with pytest.raises(OverflowError, match="Python integer -1 out of bounds for uint8"):
        ons.stage(lambda x: x**-1, np.uint8([2]))


def test_a_negative_exponent_at_run_time_fails() -> None:
    x, y = np.int32([[2, 3]]), np.int32([2, 1])
    program = ons.stage(lambda x, y: x**y, x, y)
    assert program(x, y).tolist() == [[4, 3]]
    for level in ("none", "all"):
        with (
            ons.config(optimization=level),
            pytest.raises(ons.OnstageError, match="integers to negative integer powers are not allowed"),
        ):
            program(x, np.int32([2, -1]))
    scalar = ons.stage(lambda x, y: x**y, np.int64(3), np.int64(2))
    assert scalar(np.int64(3), np.int64(4)) == 81


@pytest.mark.parametrize("dtype", INTS)
def test_integer_powers_wrap_exactly(agree: Agree, dtype: str) -> None:
    x = np.array([3, 2, 7, 0, 1], dtype)
    y = np.array([39, 62, 20, 0, 100], dtype)
    agree(lambda x, y: x**y, x, y)
    agree(lambda x: (x**5, x**21, x**0, x**1, np.square(x), 3**x), x)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 7, -1, -2, 0.5, 1.5, 2.0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_constant_float_powers(agree: Agree, exponent: float, dtype: str) -> None:
    agree(
        lambda x: x**exponent,
        np.array([0.5, 1.5, 3.0, 0.0, INF, NAN], dtype),
        rtol=2e-3 if dtype == "float16" else 1e-6,
    )


def test_a_square_is_one_product() -> None:
    model = ons.stage(lambda x: x**2 + np.square(x), np.float32([1.0])).to_onnx()
    assert [n.op_type for n in model.graph.node] == ["Mul", "Add"]


def test_least_integer_shifts_and_rounding() -> None:
    assert staged(np.abs, np.int32([-(2**31)])).tolist() == [-(2**31)]
    assert staged(lambda x: x >> 1, np.int32([-3])).tolist() == [-2]
    rounded = staged(np.round, np.float32([0.5, 1.5, 2.5, -0.5]))
    assert rounded.tolist() == [0, 2, 2, 0] and np.signbit(rounded).tolist() == [False, False, False, True]


def test_overflow_and_compensation_rows() -> None:
    f = np.float32
    assert staged(np.hypot, f(3e30), f(4e30)) == f(5e30)
    assert staged(np.logaddexp, f(-INF), f(-INF)) == -INF
    assert staged(np.log1p, f(1e-10)) == f(1e-10)
    angles = staged(np.arctan2, f([0, -0.0, 1, 0]), f([-1, -1, 0, 0]))
    np.testing.assert_allclose(angles, f([np.pi, -np.pi, np.pi / 2, 0]), rtol=2e-7)


def test_nan_in_clip_and_sign() -> None:
    x = np.float32([NAN, -1, 2])
    np.testing.assert_array_equal(staged(lambda x: np.clip(x, 0, 1), x), [NAN, 0, 1])
    np.testing.assert_array_equal(staged(np.sign, x), [NAN, -1, 1])


def test_promotion_rows() -> None:
    f16, i8, u8, i32 = np.float16([1.5]), np.int8([100]), np.uint8([200]), np.int32([7])
    assert staged(lambda x: x * 2.5, f16).dtype == np.float16
    assert staged(lambda x: x + 1, i8).dtype == np.int8
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        ons.stage(lambda x: x + 300, i8)
    assert staged(lambda x: x + x, u8).tolist() == [144]
    assert staged(lambda x, y: x + y, u8, i8).dtype == np.int16
    assert staged(lambda x, y: x / y, i32, i32).dtype == np.float64


# Against NumPy, in all dtypes -------------------------------------------------------------------------------------------------

_UNARY = (
    "absolute arccos arccosh arcsin arcsinh arctan arctanh bitwise_count cbrt ceil conjugate cos cosh deg2rad degrees exp exp2 expm1 fabs "
    "floor invert isfinite isinf isnan log log10 log1p log2 logical_not negative positive rad2deg radians reciprocal rint sign "
    "signbit sin sinh spacing sqrt square tan tanh trunc"
).split()
_BINARY = (
    "add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide equal float_power floor_divide fmax fmin fmod gcd greater "
    "greater_equal heaviside hypot lcm left_shift less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum "
    "minimum multiply nextafter not_equal power remainder right_shift subtract"
).split()
_LOOSE = {"float16": 4e-3, "float32": 2e-6, "float64": 2e-14}


def _tolerance(result: Any) -> float:
    return _LOOSE.get(np.asarray(result).dtype.name, 0.0)


def _agree_or_refuse(agree: Agree, ufunc: Any, *arrays: Any) -> None:
    """As NumPy: the same result, or TypeError from both."""
    try:
        with np.errstate(all="ignore"):
            wanted = ufunc(*arrays)
    except TypeError:
        with pytest.raises(TypeError):
            ons.stage(ufunc, *arrays)
        return
    agree(ufunc, *arrays, rtol=_tolerance(wanted))


@pytest.mark.parametrize("dtype", ("bool", *INTS, *FLOATS))
@pytest.mark.parametrize("name", _UNARY)
def test_unary_ufuncs(agree: Agree, name: str, dtype: str) -> None:
    values = [0, 1, 2, 3, 7, 100] if dtype[0] in "bu" else [0, 1, -1, 2, -3, 7, 100]
    if dtype[0] == "f":
        values = [0.0, -0.0, 0.25, -0.75, 1.0, -1.0, 1.5, 2.5, -3.0, INF, -INF, NAN]
    _agree_or_refuse(agree, getattr(np, name), np.array(values).astype(dtype))


@pytest.mark.parametrize("dtype", ("bool", *INTS, *FLOATS))
@pytest.mark.parametrize("name", _BINARY)
def test_binary_ufuncs(agree: Agree, name: str, dtype: str) -> None:
    rows = {
        "b": [0, 1],
        "u": [0, 1, 2, 3, 7],
        "i": [0, 1, -1, 2, -3, 7],
        "f": [0.0, -0.0, 0.5, -1.5, 2.0, 3.0, INF, -INF, NAN],
    }
    values = np.array(rows[dtype[0]]).astype(dtype)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    if name == "power" and dtype[0] == "i":
        y = np.abs(y)
    _agree_or_refuse(agree, getattr(np, name), x, y)


@pytest.mark.parametrize("name", [*_UNARY, "modf", "frexp"])
def test_unary_ufuncs_of_no_and_of_one_element(agree: Agree, name: str) -> None:
    ufunc = getattr(np, name)
    dtype = np.int32 if name in ("invert", "bitwise_count") else np.float32
    for x in (np.zeros((0, 2), dtype), np.array(1, dtype), np.ones((1, 1), dtype)):
        agree(ufunc, x, rtol=2e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_parts_of_floats(agree: Agree, dtype: str) -> None:
    info = np.finfo(dtype)
    x = np.array(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.75,
            3.7,
            info.max,
            info.tiny,
            info.smallest_subnormal,
            -info.max,
            1 - info.epsneg,
            INF,
            -INF,
            NAN,
        ],
        dtype,
    )
    agree(np.frexp, x, rtol=0)
    agree(np.modf, x, rtol=0)
    agree(np.spacing, x, rtol=0)
    grid = [a.ravel() for a in np.meshgrid(x, x)]
    agree(np.nextafter, *grid, rtol=0)
    agree(np.copysign, *grid, rtol=0)
    agree(np.ldexp, x, np.array([3, -3, 5, -2000, 2000, 1, -1, 4, 1, 0, -1, 2, 2, 2], np.int32), rtol=0)
    assert np.array_equal(np.signbit(staged(np.modf, x)[0]), np.signbit(np.modf(x)[0]))


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_any_count(agree: Agree, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 5, 100], dtype)
    counts = np.array([0, 1, limits.bits - 1, limits.bits, 70, *([-1] if limits.min else [])], dtype)
    agree(lambda x, n: (x << n, x >> n), x[:, None], counts)
    agree(lambda x: (x << 3, x >> 3), x)


def test_shift_counts_in_the_operators_of_python_numbers(agree: Agree) -> None:
    agree(lambda x: (1 << x, 100 >> x, x & 6, 6 | x, x ^ 3, ~x), np.int32([0, 1, 5]))
    agree(lambda x: (x & True, x | np.array([False, True]), ~x, x ^ x), np.array([True, False]))


@pytest.mark.parametrize("decimals", [0, 1, 2, -1, -2])
def test_round_to_decimals(agree: Agree, decimals: int) -> None:
    for x in (
        np.float64([2.675, -0.04, 15.0, 25.0, 1e300, INF, NAN]),
        np.float32([1.25, -1.35]),
        np.int32([15, 25, -15, 251]),
    ):
        agree(lambda x: (np.round(x, decimals), x.round(decimals)), x)
    assert staged(lambda x: np.around(x), np.array([True])).dtype == np.float16


def test_nan_to_num_and_sinc(agree: Agree) -> None:
    x = np.float32([NAN, INF, -INF, 1.5])
    agree(np.nan_to_num, x, rtol=0)
    agree(lambda x: np.nan_to_num(x, nan=7.0, posinf=1.0, neginf=-1.0), x, rtol=0)
    agree(np.nan_to_num, np.int32([3]))
    agree(np.sinc, np.float64([0.0, 0.5, 1.0, 1e-9, -2.5]), rtol=1e-13)
    agree(np.sinc, np.int32([0, 1]), rtol=1e-13)


# clip -------------------------------------------------------------------------------------------------------------------------


def test_clip_takes_numpys_arguments(agree: Agree) -> None:
    x = np.float32([-2, 0.5, 3, NAN])
    agree(
        lambda x: (
            np.clip(x, 0, 1),
            x.clip(0, 1),
            x.clip(max=1),
            np.clip(x, 0, None),
            np.clip(x, min=0, max=1),
            np.clip(x, a_min=0, a_max=1),
        ),
        x,
    )
    agree(lambda x: (np.clip(x, 2, 1), np.clip(x, np.float32([0, 1, 2, 3]), 5)), x)
    agree(lambda x: (np.clip(x, -1, 300), np.clip(x, 5, 100)), np.uint8([1, 200]))
    agree(lambda x: np.clip(x, 0.5, 2.5), np.int32([1, 5]))
    agree(lambda x: np.clip(x, False, True), np.array([True, False]))
    agree(lambda x: np.clip(x, None, None), x)
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        ons.stage(lambda x: np.clip(x, 300, 400), np.uint8([1]))


# Comparisons ------------------------------------------------------------------------------------------------------------------


def test_python_integers_of_any_size_compare(agree: Agree) -> None:
    u8, i64 = np.uint8([0, 255]), np.int64([-5, 5])
    agree(lambda x: (x < 300, x > 300, x == 300, x != 300, x >= -1, 300 > x, -1 == x, x <= 255), u8)
    agree(lambda x: (x < 2**70, x > -(2**70)), i64)
    agree(lambda x: (np.less(x, 300), np.equal(x, -1)), u8)


def test_signed_and_unsigned_integers_compare_exactly(agree: Agree) -> None:
    i64, u64 = np.int64([-1, -1, 1, 2**62, 2**62]), np.uint64([2**64 - 1, 0, 1, 2**62 + 1, 2**63])
    agree(lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), i64, u64)
    agree(lambda x, y: (y < x, y <= x, y > x, y >= x, y == x, y != x), i64, u64)


def test_a_traced_python_integer_compares_as_what_it_is() -> None:
    program = ons.stage(lambda x, n: x < n, np.uint8([1, 200]), 3)
    assert program(np.uint8([1, 200]), 300).tolist() == [True, True]
    assert program(np.uint8([1, 200]), 100).tolist() == [True, False]


# Python's operators -----------------------------------------------------------------------------------------------------------


def test_reflected_operators(agree: Agree) -> None:
    agree(lambda x: (7 // x, 7 % x, 2**x, divmod(7, x), 7 - x, 7 / x)[2], np.int32([1, 2, 3]))
    agree(lambda x: (7 // x, 7 % x, 7 - x, 7 / x, *divmod(7, x), *divmod(x, 2)), np.int32([1, 2, -3]))
    agree(lambda x: (2.5**x, 7 // x, abs(x), +x, -x), np.float32([1, 2, -3]))
    agree(lambda x: np.array([1.0, 2.0]) // x, np.float32([2, 3]))


def test_in_place_operators(agree: Agree) -> None:
    def update(x: Any) -> Any:
        y = x + 0
        y //= 2
        y %= 5
        y **= 2
        y <<= 1
        y |= 1
        y ^= 3
        y &= 7
        y >>= 1
        return y

    agree(update, np.int32([11, -7, 100]))
    with pytest.raises(TypeError, match="Cannot cast ufunc 'power' output from dtype"):

        def widened(x: Any) -> Any:
            y = x + 0
            y **= 0.5
            return y

        ons.stage(widened, np.int32([4]))


def test_operators_keep_weakness_and_ufuncs_do_not() -> None:
    f32 = np.float32([1.5])
    for function in (
        lambda a: a * 2.0,
        lambda a: a // 2.0,
        lambda a: a % 2.0,
        lambda a: a**2,
        lambda a: -a,
        lambda a: abs(a),
        lambda a: a**1.5,
    ):
        assert ons.stage(lambda x, a, f=function: x * f(a), f32, 3.0).out_specs.dtype == np.float32
    for function in (
        lambda a: np.sqrt(a),
        lambda a: np.multiply(a, 2.0),
        lambda a: np.abs(a),
        lambda a: np.power(a, 2),
        np.floor,
    ):
        assert ons.stage(lambda x, a, f=function: x * f(a), f32, 3.0).out_specs.dtype == np.float64


# Methods, ufunc methods, conversion -------------------------------------------------------------------------------------------


def test_astype_copy_real_imag(agree: Agree) -> None:
    x = np.float32([-1.7, 0.2, 2.9])
    agree(
        lambda x: (
            x.astype(np.int32),
            x.astype("int8").astype(bool),
            x.astype(np.float64),
            x.conj(),
            x.conjugate(),
            x.real,
            x.imag,
        ),
        x,
    )
    agree(lambda x: (np.real(x), np.imag(x), np.conj(x), np.copy(x), x.copy()), x)
    assert staged(lambda x: x.astype(np.int32).astype(bool), np.float32([-0.2, -0.1, 0, 0.1, 0.2])).tolist() == [False] * 5
    with pytest.raises(TypeError, match="Cannot cast array data from dtype"):
        ons.stage(lambda x: x.astype(np.int32, casting="safe"), x)
    with pytest.raises(TypeError, match="complex numbers"):
        ons.stage(lambda x: x.astype(complex), x)


def test_a_copy_may_be_updated_in_place() -> None:
    def function(x: Any) -> Any:
        y, z, w = x.copy(), x.astype(x.dtype), +x
        y += 1
        z += 2
        w += 3
        return x, y, z, w

    assert [v.tolist() for v in staged(function, np.float32([1.0]))] == [[1], [2], [3], [4]]


def test_outer(agree: Agree) -> None:
    agree(
        lambda x, y: (np.add.outer(x, y), np.subtract.outer(y, x), np.maximum.outer(x, y)),
        np.float32([[1, 2]]),
        np.float32([3, 4, 5]),
    )


def test_ufunc_keywords() -> None:
    x = np.float32([1.5])
    assert staged(lambda x: np.floor_divide(x, 1, dtype=np.float64), x).dtype == np.float64
    with pytest.raises(ons.MutationError, match=r"np\.floor_divide: out="):
        ons.stage(lambda x: np.floor_divide(x, 1, out=np.zeros(1, np.float32)), x)
    with pytest.raises(NotImplementedError, match=r"np\.exp: where="):
        ons.stage(lambda x: np.exp(x, where=np.array([True])), x)


def test_dims_of_any_size(agree: Agree) -> None:
    for n in (0, 1, 3):
        x, y = np.full((n, 2), 7.5, np.float32), np.full((1, 2), -2.0, np.float32)
        agree(
            lambda x, y: (x // y, x % y, np.hypot(x, y), np.maximum(x, y), x**y),
            x,
            y,
            shapes=(("B", 2), (1, 2)),
            rtol=2e-6,
        )
        i = np.full((n,), 7, np.int32)
        agree(lambda i: (i**i, np.gcd(i, 14), np.lcm(i, i), i << 1), i, shapes=(("B",),))


def test_functions_of_arrays_and_numbers_outside_staging() -> None:
    xp = ons.numpy
    assert xp.floor_divide(np.int32([-7]), 2).tolist() == [-4]
    assert float(xp.hypot(3, 4)) == 5.0
    assert xp.maximum([1.0, 2.0], 1.5).tolist() == [1.5, 2.0]
    assert float(ons.special.erf(0.0)) == 0.0


def test_errors_name_the_operation() -> None:
    for function, message in (
        (lambda x: np.bitwise_and(x, 1), "bitwise_and"),
        (lambda x: x << 1, "left_shift"),
        (lambda x: np.gcd(x, 2), "gcd"),
    ):
        with pytest.raises(TypeError, match=message):
            ons.stage(function, np.float32([1.0]))
    with pytest.raises(TypeError, match="sign"):
        ons.stage(np.sign, np.array([True]))
    with pytest.raises(ValueError, match=r"hypot: shapes .* do not broadcast"):
        ons.stage(np.hypot, np.zeros(2), np.zeros(3))


def test_scipy_is_looked_up_and_not_imported() -> None:
    assert sys.modules["scipy.special"] is scipy.special
    x = np.float64([0.25, 0.5])
    for name in ("erf", "erfc", "erfinv", "expit", "logit", "gammaln", "digamma", "ndtr", "ndtri"):
        function = getattr(scipy.special, name)
        np.testing.assert_allclose(staged(function, x), function(x), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(staged(scipy.special.xlogy, x, x), scipy.special.xlogy(x, x), rtol=1e-14)
    with pytest.raises(NotImplementedError, match="jv is not supported"):
        ons.stage(lambda x: scipy.special.jv(0, x), x)
