"""grad, value_and_grad, jvp, vjp and the program forms: trees, argnums, orders, eager branches, captured tracers, errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import onstage as ons

from .numeric import numeric_gradient

rng = np.random.default_rng(0)
W = rng.normal(size=(3, 4))
X = rng.normal(size=(5, 3))


def loss(w: Any, x: Any) -> Any:
    h = np.tanh(x @ w)
    return np.mean((h - 1.0) * h)


@pytest.mark.parametrize("shape", [(3, 4), (3, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_layer_weight_gradient(shape: tuple[int, int], dtype: Any) -> None:
    x = rng.normal(size=(5, 3)).astype(dtype)
    w = rng.normal(size=shape).astype(dtype)

    def f(w: Any, x: Any) -> Any:
        return np.sum((x @ w) ** 2)

    gradient = ons.stage(ons.grad(f), w, x)(w, x)
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, x.T @ (2 * x @ w), rtol=2e-5)


def test_cross_entropy_with_integer_labels() -> None:
    x = rng.normal(size=(6, 3))
    w = rng.normal(size=(3, 4))
    labels = np.array([0, 3, 1, 1, 2, 0])

    def f(w: Any) -> Any:
        return ons.nn.cross_entropy(x @ w, labels)

    logits = x @ w
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    expected = x.T @ (p - np.eye(4)[labels]) / 6
    np.testing.assert_allclose(ons.grad(f)(w), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ons.stage(ons.grad(f), w)(w), expected, rtol=1e-12, atol=1e-14)


def test_a_staged_gradient_follows_its_input() -> None:
    program = ons.stage(ons.grad(lambda x: np.sum(x**3)), np.ones(2))
    assert program(np.array([1.0, 2.0])).tolist() == [3.0, 12.0]
    assert program(np.array([-2.0, 0.5])).tolist() == [12.0, 0.75]


def test_self_attention() -> None:
    x = rng.normal(size=(4, 3))

    def f(x: Any) -> Any:
        return np.sum(ons.nn.softmax(x @ x.T) @ x)

    expected = numeric_gradient(lambda x: np.sum(_softmax(x @ x.T) @ x), x)
    np.testing.assert_allclose(ons.stage(ons.grad(f), x)(x), expected, atol=1e-8)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("staged", [False, True])
def test_argnums_argnames_and_aux(staged: bool) -> None:
    def run(f: Any, *args: Any) -> Any:
        return ons.stage(f, *args)(*args) if staged else f(*args)

    gw, gx = ons.grad(loss)(W, X), ons.grad(loss, 1)(W, X)
    both = run(ons.grad(loss, (0, 1)), W, X)
    assert isinstance(both, tuple)
    np.testing.assert_allclose(both[0], gw, rtol=1e-12)
    np.testing.assert_allclose(both[1], gx, rtol=1e-12)
    named = run(ons.grad(loss, argnames=("x", "w")), W, X)
    assert list(named) == ["x", "w"] or set(named) == {"x", "w"}
    np.testing.assert_allclose(named["x"], gx, rtol=1e-12)
    np.testing.assert_allclose(run(ons.grad(loss, argnames="x"), W, X), gx, rtol=1e-12)
    (value, aux), gradient = run(ons.value_and_grad(lambda w, x: (loss(w, x), {"twice": 2 * x}), has_aux=True), W, X)
    assert value == pytest.approx(float(loss(W, X)))
    np.testing.assert_array_equal(aux["twice"], 2 * X)
    np.testing.assert_allclose(gradient, gw, rtol=1e-12)


class Layer(NamedTuple):
    w: Any
    b: Any


def test_gradients_keep_the_tree_and_its_types() -> None:
    params = {"first": Layer(W, np.zeros(4)), "rest": [(np.ones(4),)]}

    def f(params: Any, x: Any) -> Any:
        return np.sum(np.tanh(x @ params["first"].w + params["first"].b) * params["rest"][0][0])

    gradient = ons.grad(f)(params, X)
    assert isinstance(gradient["first"], Layer) and isinstance(gradient["rest"][0], tuple)
    staged = ons.stage(ons.grad(f), params, X)(params, X)
    assert isinstance(staged["first"], Layer)
    for a, b in zip(ons.tree.leaves(gradient), ons.tree.leaves(staged), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_an_unused_argument_has_a_zero_gradient_and_stays_an_input() -> None:
    program = ons.stage(ons.grad(lambda x, y: np.sum(x * x), 1), X, W)
    assert program.in_names == ("x", "y")
    result = program(X, W)
    assert result.shape == W.shape and not result.any()
    assert [i.name for i in program.to_onnx().graph.input] == ["x", "y"]


def test_python_branches_on_values_outside_staging() -> None:
    def f(x: Any) -> Any:
        if np.sum(x) > 0:
            return np.sum(x * x)
        while not np.all(np.abs(x) < 1):
            x = x / 2
        return np.sum(x)

    assert ons.grad(f)(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert ons.grad(f)(np.array([-4.0, 1.0])).tolist() == [0.125, 0.125]
    with pytest.raises(ons.ConcretizationError, match="Python condition"):
        ons.stage(ons.grad(f), np.ones(2))


def test_orders_one_to_four() -> None:
    f: Any = lambda x: np.sin(x) * x
    expected = [
        lambda x: np.cos(x) * x + np.sin(x),
        lambda x: 2 * np.cos(x) - np.sin(x) * x,
        lambda x: -3 * np.sin(x) - np.cos(x) * x,
        lambda x: -4 * np.cos(x) + np.sin(x) * x,
    ]
    for derivative in expected:
        f = ons.grad(f)
        assert float(f(0.7)) == pytest.approx(float(derivative(0.7)), rel=1e-12)
        assert float(ons.stage(f, 0.7)(0.7)) == pytest.approx(float(derivative(0.7)), rel=1e-12)


def test_an_outer_tracer_captured_by_an_inner_gradient_is_differentiated_by_the_outer() -> None:
    def outer(x: Any) -> Any:
        inner = ons.grad(lambda y: np.sum(np.sin(y * x)))(np.array([1.0, 2.0]))
        return np.sum(inner * x)

    def closed(x: Any) -> Any:
        y = np.array([1.0, 2.0])
        return np.sum(np.cos(y * x) * x * x)

    x = np.array([0.3, -0.8])
    np.testing.assert_allclose(ons.grad(outer)(x), numeric_gradient(closed, x), atol=1e-8)
    np.testing.assert_allclose(ons.stage(ons.grad(outer), x)(x), numeric_gradient(closed, x), atol=1e-8)


def test_jvp_and_vjp_agree_and_the_pullback_is_reusable() -> None:
    out, tangent = ons.jvp(loss, (W, X), (W, np.zeros_like(X)))
    gradient = ons.grad(loss)(W, X)
    assert float(tangent) == pytest.approx(float(np.sum(gradient * W)), rel=1e-10)
    value, pullback = ons.vjp(lambda w, x: {"h": x @ w, "n": x.shape[0]}, W, X)
    assert value["n"] == 5
    for scale in (1.0, 2.0):
        gw, gx = pullback({"h": np.full((5, 4), scale), "n": None})
        np.testing.assert_allclose(gw, scale * X.T @ np.ones((5, 4)))
        np.testing.assert_allclose(gx, scale * np.ones((5, 4)) @ W.T)
    with pytest.raises(TypeError, match="another tree"):
        pullback(np.ones((5, 4)))
    with pytest.raises(ValueError, match="shape"):
        pullback({"h": np.ones((5, 3)), "n": None})
    assert float(out) == pytest.approx(float(loss(W, X)))


def test_program_forms() -> None:
    program = ons.stage(loss, W, X)
    gradient = ons.grad(program)
    assert isinstance(gradient, ons.StagedProgram)
    np.testing.assert_allclose(gradient(W, X), ons.grad(loss)(W, X), rtol=1e-12)
    out, tangent = ons.jvp_program(program)(W, X, W, np.zeros_like(X))
    assert float(tangent) == pytest.approx(float(np.sum(gradient(W, X) * W)), rel=1e-10)
    out, (gw, gx) = ons.vjp_program(program)(W, X, np.asarray(2.0))
    np.testing.assert_allclose(gw, 2 * gradient(W, X), rtol=1e-12)
    assert float(out) == pytest.approx(float(loss(W, X))) and gx.shape == X.shape
    w_product, x_product = ons.hvp_program(program)(W, X, W, np.zeros_like(X))
    expected = ons.hvp(loss, (W, X), (W, np.zeros_like(X)))
    np.testing.assert_allclose(w_product, expected[0], rtol=1e-10)
    np.testing.assert_allclose(x_product, expected[1], rtol=1e-10)
    value, both = ons.value_and_grad(program, (0, 1))(W, X)
    assert float(value) == pytest.approx(float(loss(W, X))) and both[1].shape == X.shape


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(TypeError, match=r"must return a scalar, got f64\[5,3\]"):
        ons.grad(lambda x: x * 2)(X)
    with pytest.raises(TypeError, match="argument 0 is i64"):
        ons.grad(lambda x: np.sum(x))(np.arange(3))
    with pytest.raises(TypeError, match=r"argument 0\['b'\] is i64"):
        ons.grad(lambda p: np.sum(p["a"]))({"a": np.ones(2), "b": np.arange(2)})
    with pytest.raises(TypeError, match="real floating scalar"):
        ons.grad(lambda x: np.argmax(x))(np.ones(3))
    with pytest.raises(TypeError, match="argnums names argument 2"):
        ons.grad(loss, 2)(W, X)
    with pytest.raises(TypeError, match="argnames names 'z'"):
        ons.grad(loss, argnames="z")(W, X)
    with pytest.raises(TypeError, match="tree of 2"):
        ons.grad(lambda x: (np.sum(x), np.sum(x)))(X)
    with pytest.raises(ValueError, match="tangent 0 has shape"):
        ons.jvp(loss, (W, X), (W.T, X))
    with pytest.raises(TypeError, match="another tree"):
        ons.jvp(loss, (W, X), (W,))


def test_kink_conventions() -> None:
    def at(f: Any, x: float) -> float:
        return float(ons.stage(ons.grad(f), x)(x))

    assert at(lambda x: np.maximum(x, 0.0), 0.0) == 0.5
    assert at(lambda x: ons.nn.relu(x), 0.0) == 0.0
    assert at(np.abs, 0.0) == 0.0
    assert at(lambda x: np.clip(x, 0.0, 1.0), 0.0) == 1.0
    assert at(lambda x: np.clip(x, 0.0, 1.0), 1.0) == 1.0
    assert at(lambda x: x % 2.0, 5.5) == 1.0
    assert at(lambda y: 5.5 % y, 2.0) == -2.0
    assert at(np.sqrt, 0.0) == np.inf
    assert ons.grad(lambda x: np.max(x))(np.array([1.0, 3.0, 3.0])).tolist() == [0.0, 0.5, 0.5]
    power = ons.grad(lambda x, y: np.sum(x**y), 1)(np.array([0.0, 2.0]), np.array([2.0, 3.0]))
    np.testing.assert_allclose(power, [0.0, 8 * np.log(2)])
    double = ons.grad(lambda x: np.sum(np.where(x > 0, np.sqrt(np.where(x > 0, x, 1.0)), 0.0)))
    assert double(np.array([0.0, 4.0])).tolist() == [0.0, 0.25]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_gradient_with_a_named_dim(size: int) -> None:
    program = ons.stage(ons.grad(loss, (0, 1)), specs=(ons.ArraySpec((3, 4), "f64"), ons.ArraySpec(("B", 3), "f64")))
    x = rng.normal(size=(size, 3))
    gw, gx = program(W, x)
    assert gx.shape == (size, 3)
    if size:
        np.testing.assert_allclose(gw, ons.grad(loss)(W, x), rtol=1e-12)
