"""What the tests of operations share: one function held against NumPy on the interpreter and on ONNX Runtime, optimised and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.stage.interpreter import evaluate

TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-12}


def assert_same(got: Any, wanted: Any, rtol: float | None, where: str) -> None:
    wanted = np.asarray(wanted)
    assert isinstance(got, np.ndarray), where
    assert got.dtype == wanted.dtype, (where, got.dtype, wanted.dtype)
    assert got.shape == wanted.shape, (where, got.shape, wanted.shape)
    tolerance = TOLERANCE.get(wanted.dtype.name, 0.0) if rtol is None else rtol
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=where)


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.fixture
def agree() -> Callable[..., Any]:
    """agree(f, *arrays): f staged gives what f of the arrays gives, values and dtypes.

    shapes: per argument a shape with names of dims to stage for; wanted: the right result where f(arrays) is not.
    """

    def check(
        function: Callable[..., Any],
        *arrays: Any,
        shapes: Any = None,
        wanted: Any = None,
        rtol: float | None = None,
    ) -> Any:
        xs = [np.asarray(a) for a in arrays]
        with np.errstate(all="ignore"):
            expected = leaves(function(*xs) if wanted is None else wanted)
        if shapes is None:
            program = ons.stage(function, *xs)
        else:
            program = ons.stage(function, specs=tuple(ons.ArraySpec(s, x.dtype) for s, x in zip(shapes, xs, strict=True)))
        results = {"interpreter": evaluate(program.program, xs)}
        for level in ("none", "all"):
            with ons.config(optimization=level):
                results[level] = leaves(program(*xs))
        for where, result in results.items():
            assert len(result) == len(expected)
            for got, want in zip(result, expected, strict=True):
                assert_same(got, want, rtol, where)
        return program

    return check


@pytest.fixture
def slopes() -> Callable[..., None]:
    """slopes(f, *arrays): the gradient of sum(weights * f) against central differences in float64, and the same staged."""

    def check(function: Callable[..., Any], *arrays: Any, shapes: Any = None, step: float = 1e-5, rtol: float = 1e-6) -> None:
        xs = [np.asarray(a, np.float64) for a in arrays]
        sample = np.asarray(function(*xs))
        weights = np.random.default_rng(7).uniform(0.5, 1.5, sample.shape)

        def loss(*args: Any) -> Any:
            return np.sum(function(*args) * weights)

        gradient = ons.grad(loss, argnums=tuple(range(len(xs))))
        if shapes is None:
            program = ons.stage(gradient, *xs)
        else:
            # Weights of the example's size would fix the dims.
            def loss(*args: Any) -> Any:
                y = function(*args)
                return np.sum(y * y)

            gradient = ons.grad(loss, argnums=tuple(range(len(xs))))
            program = ons.stage(gradient, specs=tuple(ons.ArraySpec(s, x.dtype) for s, x in zip(shapes, xs, strict=True)))
        for result in (gradient(*xs), program(*xs)):
            for i, (x, got) in enumerate(zip(xs, result, strict=True)):
                wanted = np.zeros_like(x)
                for index in np.ndindex(x.shape):
                    values = []
                    for sign in (1, -1):
                        moved = x.copy()
                        moved[index] += sign * step
                        values.append(float(loss(*[moved if j == i else y for j, y in enumerate(xs)])))
                    wanted[index] = (values[0] - values[1]) / (2 * step)
                assert got.shape == x.shape and got.dtype == x.dtype
                np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-7)

    return check
