"""Cases that exporters, runtimes and autodiff tools are known to get wrong, each at every optimisation level of ONNX Runtime.

Values are NumPy's; gradients were checked with central differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onstage as ons

nan, inf = np.nan, np.inf
f4, i4, i1, u1, f2 = np.float32, np.int32, np.int8, np.uint8, np.float16
LEVELS = (
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


def a(values: Any, dtype: Any = np.float64) -> Any:
    return np.array(values, dtype)


def results(f: Callable[..., Any], *args: Any) -> list[list[Any]]:
    """The flat results: of the program, and of its ONNX model in plain ONNX Runtime at each level."""
    program = ons.stage(f, *args)
    model = program.to_onnx().SerializeToString()
    found = [ons.tree.leaves(program(*args))]
    for level in LEVELS:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 4
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found.append(session.run(list(program.out_names), dict(zip(program.in_names, [np.asarray(x) for x in args], strict=True))))
    return found


VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "scatter with duplicates": (lambda x: x.at[[1, 1, -1]].add([5, 7, 9]), (np.zeros(3),), a([0, 12, 9])),
    "floor division": (lambda x, y: x // y, (a([7, -7, 7, -7], int), a([2, 2, -2, -2], int)), a([3, -4, -4, 3], int)),
    "modulo": (lambda x, y: x % y, (a([7, -7, 7, -7], int), a([3, 3, -3, -3], int)), a([1, 2, -2, -1], int)),
    "fmod": (np.fmod, (a([7, -7, 7, -7], int), a([3, 3, -3, -3], int)), a([1, -1, 1, -1], int)),
    "float modulo": (lambda x, y: x % y, (a([5.5, -5.5, 5.5, -5.5], f4), a([2, 2, -2, -2], f4)), a([1.5, 0.5, -0.5, -1.5], f4)),
    "max with nan": (lambda x: np.max(x), (a([1, nan, 3], f4),), a(nan, f4)),
    "max with many nans": (lambda x: np.max(x), (a([nan, nan, nan, 42], f4),), a(nan, f4)),
    "min with nan": (lambda x: np.min(x), (a([1, nan, 3], f4),), a(nan, f4)),
    "argmax with nan": (lambda x: np.argmax(x), (a([1, nan, 3], f4),), a(1, np.int64)),
    "cast chain": (lambda x: x.astype(np.int32).astype(bool), (a([-0.2, -0.1, 0, 0.1, 0.2], f4),), np.zeros(5, bool)),
    "sum of nothing": (lambda x: x.sum(1), (np.zeros((2, 0)),), np.zeros(2)),
    "product over nothing": (lambda x, y: x @ y, (np.zeros((2, 0)), np.zeros((0, 3))), np.zeros((2, 3))),
    "empty reshape": (lambda x: x.reshape(0, 0, 4), (np.zeros((0, 8, 2)),), np.zeros((0, 0, 4))),
    "mean of nothing": (lambda x: np.mean(x), (np.zeros(0),), a(nan)),
    "prod of nothing": (lambda x: np.prod(x), (np.zeros(0),), a(1.0)),
    "0-d plus": (lambda x: x + 1, (np.float32(2),), a(3, f4)),
    "0-d sum": (lambda x: np.sum(x), (np.float32(2),), a(2, f4)),
    "0-d reshape": (lambda x: x.reshape(1, 1), (np.float32(2),), a([[2]], f4)),
    "concatenate promotes": (lambda x, y: np.concatenate([x, y]), (a([1], i4), a([0.5], f4)), a([1, 0.5])),
    "where promotes": (lambda x, y: np.where(x > 0, x, y), (a([1.5, -1]), a([7, 8], i4)), a([1.5, 8])),
    "sum of bools": (lambda x: np.sum(x), (a([1, 1, 0], bool),), a(2, np.int64)),
    "mean of bools": (lambda x: np.mean(x), (a([1, 1, 0], bool),), a(2 / 3)),
    "cumsum of bools": (lambda x: np.cumsum(x), (a([1, 1, 0], bool),), a([1, 2, 2], np.int64)),
    "sum of u8": (lambda x: np.sum(x), (np.ones(300, u1),), a(300, np.uint64)),
    "mean of i32": (lambda x: np.mean(x), (a([1, 2], i4),), a(1.5)),
    "f16 times a Python float": (lambda x: x * 2.5, (a([2], f2),), a([5], f2)),
    "i8 plus a Python int": (lambda x: x + 1, (a([2], i1),), a([3], i1)),
    "u8 wraps": (lambda x: x + x, (a([200], u1),), a([144], u1)),
    "u8 and i8": (lambda x, y: x + y, (a([200], u1), a([-1], i1)), a([199], np.int16)),
    "i32 over i32": (lambda x, y: x / y, (a([3], i4), a([2], i4)), a([1.5])),
    "integer cube": (lambda x: x**3, (a([-2, 3], i4),), a([-8, 27], i4)),
    "abs of the least": (np.abs, (a([-(2**31)], i4),), a([-(2**31)], i4)),
    "shift of a negative": (lambda x: x >> 1, (a([-3], i4),), a([-2], i4)),
    "round half even": (np.round, (a([0.5, 1.5, 2.5, -0.5], f4),), a([0, 2, 2, -0.0], f4)),
    "integer matmul": (lambda x, y: x @ y, (a([[1, 2], [3, 4]], i4), a([[5, 6], [7, 8]], i4)), a([[19, 22], [43, 50]], i4)),
    "mean of f16": (lambda x: np.mean(x), (np.full(1000, 100, f2),), a(100, f2)),
    "sum of f16": (lambda x: np.sum(x), (np.ones(4096, f2),), a(4096, f2)),
    "variance": (lambda x: np.var(x, ddof=1), (a([10001, 10002, 10003], f4),), a(1, f4)),
    "hypot": (np.hypot, (a(3e30, f4), a(4e30, f4)), a(5e30, f4)),
    "logaddexp": (np.logaddexp, (a(-inf, f4), a(-inf, f4)), a(-inf, f4)),
    "log1p": (np.log1p, (a(1e-10, f4),), a(1e-10, f4)),
    "arctan2": (np.arctan2, (a([0, -0.0, 1, 0], f4), a([-1, -1, 0, 0], f4)), a([np.pi, -np.pi, np.pi / 2, 0], f4)),
    "sort with nan": (np.sort, (a([3, nan, 1], f4),), a([1, 3, nan], f4)),
    "argsort with nan": (np.argsort, (a([3, nan, 1], f4),), a([2, 0, 1], np.int64)),
    "stable argsort": (lambda x: np.argsort(x, kind="stable"), (a([1, 0, 1, 0, 1], f4),), a([1, 3, 0, 2, 4], np.int64)),
    "clip nan": (lambda x: np.clip(x, 0, 1), (a(nan, f4),), a(nan, f4)),
    "sign of nan": (np.sign, (a(nan, f4),), a(nan, f4)),
    "traced indices": (lambda x, i: x[i], (a([1, 2, 3]), a([-1, 0, -3], np.int64)), a([3, 1, 1])),
    "negative step": (lambda x: x[::-2], (a([0, 1, 2, 3, 4]),), a([4, 2, 0])),
    "inner negative step": (lambda x: x[:, 3:0:-1], (np.arange(5.0)[None],), a([[3, 2, 1]])),
    "reflect": (lambda x: np.pad(x, 1, "reflect"), (a([1, 2, 3]),), a([2, 1, 2, 3, 2])),
    "take wraps": (lambda x: np.take(x, [-4, 5], mode="wrap"), (a([1, 2, 3]),), a([3, 3])),
    "an input returned": (lambda x: x, (a([1, 2]),), a([1, 2])),
    "transposed input": (lambda x: x + 1, (np.arange(6.0).reshape(2, 3).T,), np.arange(6.0).reshape(2, 3).T + 1),
    "large int64": (lambda x: x * 2, (a(2**40, np.int64),), a(2**41, np.int64)),
    "f64 stays": (lambda x: x * (1 / 3), (a(1.0),), a(1 / 3)),
    "logsumexp": (lambda x: ons.special.logsumexp(x), (a([1000, 1000]),), a(1000 + np.log(2))),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    f, args, expected = VALUES[name]
    for found in results(f, *args):
        (got,) = found
        assert got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=2e-7 if expected.dtype != np.float64 else 1e-15, equal_nan=True)
            known = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))
        else:
            np.testing.assert_array_equal(got, expected)


def test_constant_and_repeated_outputs_and_an_unused_input() -> None:
    def f(x: Any, unused: Any) -> Any:
        y = x * 2
        return y, y, np.arange(2.0), 7.0

    for found in results(f, a([1, 2]), a([9.0])):
        assert [v.tolist() for v in found] == [[2, 4], [2, 4], [0, 1], 7.0]
    names = [i.name for i in ons.stage(f, a([1, 2]), a([9.0])).to_onnx().graph.input]
    assert names == ["x", "unused"]


@pytest.mark.parametrize(
    ("f", "args", "error", "match"),
    [
        (lambda x: np.max(x), (np.zeros(0),), ValueError, "zero-size array"),
        (lambda x: x + 300, (np.ones(1, i1),), OverflowError, "300 out of bounds for int8"),
        (lambda x: x**-1, (np.ones(1, i4),), ValueError, "negative integer powers"),
        (lambda x: x, ("text",), TypeError, "x is str"),
        (lambda x: x, (np.array([object()]),), TypeError, "x: objects"),
    ],
)
def test_errors_while_staging(f: Any, args: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ons.stage(f, *args)


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "strided slice": (lambda x: np.sum(x[::-2] * a([1, 2, 3])), (np.zeros(5),), a([3, 0, 2, 0, 1])),
    "gather with duplicates": (lambda x: np.sum(x[[0, 2, 2, -1]] * a([1, 2, 3, 4])), (np.zeros(3),), a([1, 0, 9])),
    "prod with a zero": (lambda x: np.prod(x), (a([2, 0, 3]),), a([0, 6, 0])),
    "cumprod with a zero": (lambda x: np.sum(np.cumprod(x)), (a([2, 0, 3]),), a([1, 8, 0])),
    "cumsum": (lambda x: np.cumsum(x)[-1], (a([2, 0, 3]),), a([1, 1, 1])),
    "power in the exponent": (lambda y: np.sum(a([0.0, 2.0]) ** y), (a([2, 3]),), a([0, 8 * np.log(2)])),
    "sort": (lambda x: np.sum(np.sort(x) * a([1, 2, 3])), (a([3, 1, 2]),), a([3, 1, 2])),
    "top_k": (lambda x: np.sum(ons.nn.top_k(x, 2)[0] * a([10, 1])), (a([1, 3, 2, 3]),), a([0, 10, 0, 1])),
    "logsumexp": (lambda x: ons.special.logsumexp(x), (a([1000, 1000]),), a([0.5, 0.5])),
    "double where": (lambda x: np.sum(np.where(x > 0, np.sqrt(np.where(x > 0, x, 1.0)), 0.0)), (a([0, 4]),), a([0, 0.25])),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    f, args, expected = GRADIENTS[name]
    np.testing.assert_allclose(ons.grad(f)(*args), expected, rtol=1e-12, atol=1e-12)
    for (got,) in results(ons.grad(f), *args):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_the_file_fails_where_two_inputs_disagree_on_a_named_dim() -> None:
    spec = ons.ArraySpec(("B", 2), "f64")
    program = ons.stage(lambda x, y: x * y, specs=(spec, spec))
    for level in LEVELS:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 4
        session = ort.InferenceSession(program.to_onnx().SerializeToString(), options, providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": np.ones((3, 2)), "y": np.ones((3, 2))})[0].shape == (3, 2)
        with pytest.raises(Exception, match="Non-zero status code"):
            session.run(None, {"x": np.ones((1, 2)), "y": np.ones((4, 2))})


def test_results_are_not_changed_by_later_calls_or_edits() -> None:
    program = ons.stage(lambda x: x * 2, np.ones(3))
    x1 = np.ones(3)
    r1 = program(x1)
    program(np.zeros(3))
    x1[:] = 9
    assert r1.tolist() == [2, 2, 2]
