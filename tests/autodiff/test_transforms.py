"""vmap, Jacobians, Hessians, linearize, checkpoint, stop_gradient, eval_shape, and their compositions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import onstage as ons

from .numeric import numeric_gradient

rng = np.random.default_rng(1)


def test_a_pullback_keeps_its_point_when_the_callers_array_changes() -> None:
    x, w = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    _, pullback = ons.vjp(lambda x: w * x * x, x)
    _, linear = ons.linearize(lambda x: w * x * x, x)
    x[:] = 0
    w[:] = 0
    np.testing.assert_array_equal(pullback(np.ones(2))[0], [6.0, 16.0])
    np.testing.assert_array_equal(linear(np.ones(2)), [6.0, 16.0])


def test_hessian_and_hvp_by_hand() -> None:
    x = np.array([1.0, 2.0])
    expected = np.diag([6.0, 12.0])
    np.testing.assert_allclose(ons.hessian(lambda x: np.sum(x**3))(x), expected)
    np.testing.assert_allclose(ons.stage(ons.hessian(lambda x: np.sum(x**3)), x)(x), expected)
    product = ons.hvp(lambda x: np.sum(np.sin(x) * x), (x,), (np.array([1.0, 0.0]),))
    np.testing.assert_allclose(product, [2 * np.cos(1.0) - np.sin(1.0), 0.0], atol=1e-12)


def test_jacobians_nest_output_major() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": np.sin(x) * y[0], "b": x[:, None] * y}

    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])
    forward, backward = ons.jacfwd(f, (0, 1))(x, y), ons.jacrev(f, (0, 1))(x, y)
    assert set(forward) == {"a", "b"} and isinstance(forward["a"], tuple)
    assert [v.shape for v in forward["a"]] == [(2, 2), (2, 3)]
    assert [v.shape for v in forward["b"]] == [(2, 3, 2), (2, 3, 3)]
    for p, q in zip(ons.tree.leaves(forward), ons.tree.leaves(backward), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12)
    staged = ons.stage(ons.jacobian(f, 1), x, y)(x, y)
    np.testing.assert_allclose(staged["b"], forward["b"][1], rtol=1e-12)


def test_four_hessians_agree() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.tanh(x) * np.exp(-x * x)) * np.prod(x)

    x = np.array([0.3, -0.7, 1.2])
    variants = [outer(inner(f)) for outer in (ons.jacfwd, ons.jacrev) for inner in (ons.jacfwd, ons.jacrev)]
    reference = np.stack([numeric_gradient(lambda v, i=i: ons.grad(f)(v)[i], x) for i in range(3)])
    for hessian in variants:
        np.testing.assert_allclose(hessian(x), reference, atol=1e-7)
        np.testing.assert_allclose(ons.stage(hessian, x)(x), reference, atol=1e-7)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 1), (1, 0), (-1, -1)])
@pytest.mark.parametrize("out_axes", [0, 1, -1])
def test_vmap_axes(in_axes: Any, out_axes: int) -> None:
    a, b = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))

    def f(x: Any, y: Any) -> Any:
        return np.sin(x) + np.sum(y) * y if y.ndim == 1 and x.ndim == 1 else x @ y

    def one(i: int) -> Any:
        x = a if in_axes[0] is None else np.take(a, i, axis=in_axes[0])
        y = b if in_axes[1] is None else np.take(b, i, axis=in_axes[1])
        return f(x, y)

    expected = np.stack([one(i) for i in range(4)], axis=out_axes)
    mapped = ons.vmap(f, in_axes, out_axes)
    np.testing.assert_allclose(mapped(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(ons.stage(mapped, a, b)(a, b), expected, rtol=1e-12)


def test_vmap_with_trees_nesting_and_axis_size() -> None:
    params = {"w": rng.normal(size=(5, 3)), "b": 2.0}
    mapped = ons.vmap(lambda p, x: {"y": p["w"] * p["b"] + x}, ({"w": 0, "b": None}, None))
    np.testing.assert_allclose(mapped(params, np.ones(3))["y"], params["w"] * 2 + 1)
    table = ons.vmap(ons.vmap(lambda x, y: x * y, (None, 0)), (0, None))(np.arange(3.0), np.arange(4.0))
    np.testing.assert_array_equal(table, np.multiply.outer(np.arange(3.0), np.arange(4.0)))
    assert ons.vmap(lambda x: x + 1, in_axes=None, axis_size=3)(np.ones(2)).shape == (3, 2)
    assert ons.vmap(lambda x: (x, 7.0), out_axes=(0, None))(np.ones(2))[1] == 7.0


def test_per_example_gradients() -> None:
    w, xs = rng.normal(size=3), rng.normal(size=(6, 3))
    gradient = ons.grad(lambda w, x: np.tanh(x @ w) ** 2)
    per_example = ons.vmap(gradient, (None, 0))
    expected = np.stack([gradient(w, x) for x in xs])
    np.testing.assert_allclose(per_example(w, xs), expected, rtol=1e-12)
    program = ons.stage(per_example, specs=(ons.ArraySpec((3,), "f64"), ons.ArraySpec(("B", 3), "f64")))
    for size in (0, 1, 6):
        np.testing.assert_allclose(program(w, xs[:size]), expected[:size], rtol=1e-12)


def test_vmap_errors() -> None:
    with pytest.raises(ValueError, match=r"arguments\[0\] has 2, arguments\[1\] has 3"):
        ons.vmap(lambda x, y: x + y)(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="no argument is batched"):
        ons.vmap(lambda x: x, in_axes=None)(np.ones(2))
    with pytest.raises(ValueError, match="out_axes is None for output 0"):
        ons.vmap(lambda x: x, out_axes=None)(np.ones(2))
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        ons.vmap(lambda x: x, in_axes=2)(np.ones((2, 2)))
    with pytest.raises(TypeError, match="in_axes has 1 entries for 2"):
        ons.vmap(lambda x, y: x, in_axes=(0,))(np.ones(2), np.ones(2))


def test_vmap_of_a_program_names_the_batch() -> None:
    program = ons.vmap(ons.stage(lambda x: np.sum(x * x), np.ones(3)))
    assert isinstance(program, ons.StagedProgram)
    for size in (0, 1, 4):
        x = rng.normal(size=(size, 3))
        np.testing.assert_allclose(program(x), np.sum(x * x, axis=1))


def test_linearize_is_a_reusable_linear_map() -> None:
    def f(x: Any, y: Any) -> Any:
        return np.tanh(x) * y[::-1]

    x, y = np.array([0.3, -1.0]), np.array([2.0, 5.0])
    out, linear = ons.linearize(f, x, y)
    np.testing.assert_allclose(out, f(x, y))
    for direction in (np.array([1.0, 0.0]), np.array([0.5, -2.0])):
        expected = ons.jvp(f, (x, y), (direction, direction))[1]
        np.testing.assert_allclose(linear(direction, direction), expected, rtol=1e-12)
    gx, gy = linear.transpose(np.array([1.0, 3.0]))
    expected = ons.vjp(f, x, y)[1](np.array([1.0, 3.0]))
    np.testing.assert_allclose(gx, expected[0], rtol=1e-12)
    np.testing.assert_allclose(gy, expected[1], rtol=1e-12)
    staged = ons.stage(lambda x, t: ons.linearize(f, x, y)[1](t, t), x, x)
    np.testing.assert_allclose(staged(x, y), ons.jvp(f, (x, y), (y, y))[1], rtol=1e-12)


def test_stop_gradient() -> None:
    def f(x: Any) -> Any:
        return np.sum(ons.stop_gradient({"a": x * x})["a"] * x)

    x = np.array([2.0, 3.0])
    np.testing.assert_allclose(ons.grad(f)(x), x * x)
    np.testing.assert_allclose(ons.stage(ons.hessian(f), x)(x), np.zeros((2, 2)))


def test_checkpoint_keeps_values_and_derivatives() -> None:
    w = rng.normal(size=(4, 4))

    def block(x: Any) -> Any:
        for _ in range(3):
            x = np.tanh(x @ w)
        return x

    def plain(x: Any) -> Any:
        return np.sum(block(block(x)))

    def lean(x: Any) -> Any:
        return np.sum(ons.checkpoint(block)(ons.checkpoint(block)(x)))

    x = rng.normal(size=(2, 4))
    np.testing.assert_allclose(ons.grad(lean)(x), ons.grad(plain)(x), rtol=1e-12)
    program = ons.stage(ons.grad(lean), x)
    np.testing.assert_allclose(program(x), ons.grad(plain)(x), rtol=1e-12)
    assert sum(n.op_type == "Loop" for n in program.to_onnx().graph.node) == 2
    np.testing.assert_allclose(ons.hessian(lean)(x), ons.hessian(plain)(x), rtol=1e-9)
    np.testing.assert_allclose(ons.vmap(ons.grad(lean))(x[None])[0], ons.grad(plain)(x), rtol=1e-12)


def test_eval_shape() -> None:
    spec = ons.eval_shape(lambda x, y: {"z": x @ y}, ons.ArraySpec(("B", 3), "f32"), ons.ArraySpec((3, 2), "f32"))["z"]
    assert spec == ons.ArraySpec(("B", 2), "f32")


_MEMORY = """
import resource, sys
import numpy as np
import onstage as ons

def block(x):
    for _ in range(8):
        x = np.sin(x) * np.tanh(x) + x
    return x

def f(x):
    for _ in range(6):
        x = (ons.checkpoint(block) if sys.argv[1] == "lean" else block)(x)
    return np.sum(x)

x = np.linspace(0, 1, 1_000_000, dtype=np.float32)
program = ons.stage(ons.grad(f), x)
program.to_onnx()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
program(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_checkpoint_lowers_the_peak_memory_of_the_staged_gradient() -> None:
    peaks = {
        kind: int(subprocess.run([sys.executable, "-c", _MEMORY, kind], check=True, capture_output=True, text=True).stdout)
        for kind in ("plain", "lean")
    }
    assert peaks["lean"] < 0.5 * peaks["plain"], peaks
