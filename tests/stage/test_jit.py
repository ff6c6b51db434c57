"""jit: one program a signature, static arguments, the bound on how many are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons


def test_one_program_a_signature() -> None:
    calls: list[tuple[int, ...]] = []

    @ons.jit
    def f(x: Any, scale: Any = 2.0) -> Any:
        calls.append(x.shape)
        return {"y": x * scale}

    for _ in range(3):
        np.testing.assert_array_equal(f(np.ones(3))["y"], np.full(3, 2.0))
    np.testing.assert_array_equal(f(np.ones(3, np.float32))["y"], np.full(3, 2.0, np.float32))
    np.testing.assert_array_equal(f(np.ones(2), scale=3.0)["y"], np.full(2, 3.0))
    np.testing.assert_array_equal(f(np.ones(2), scale=4.0)["y"], np.full(2, 4.0))
    assert calls == [(3,), (3,), (2,)]
    assert len(f.programs()) == 3


def test_static_arguments_are_values() -> None:
    @ons.jit(static_argnames="n")
    def power(x: Any, n: int) -> Any:
        result = x
        for _ in range(n - 1):
            result = result * x
        return result

    assert power(np.float64(2), 3) == 8 and power(np.float64(2), n=5) == 32
    assert len(power.programs()) == 2
    with pytest.raises(TypeError, match="static arguments must be hashable"):
        power(np.float64(2), [3])
    with pytest.raises(TypeError, match="static_argnames names m"):
        ons.jit(lambda x: x, static_argnames=("m",))


def test_the_number_of_programs_is_bounded() -> None:
    f = ons.jit(lambda x: x + 1, max_signatures=2)
    for size in (1, 2, 3, 1):
        assert f(np.zeros(size)).shape == (size,)
    assert [p.signature.specs[0].shape for p in f.programs()] == [(3,), (1,)]


def test_inside_a_trace_and_under_transforms() -> None:
    f = ons.jit(lambda x: np.sum(np.sin(x)))
    x = np.array([0.5, 1.0])
    np.testing.assert_allclose(ons.grad(f)(x), np.cos(x))
    np.testing.assert_allclose(ons.jit(ons.grad(f))(x), np.cos(x))
    assert f.programs() == []
