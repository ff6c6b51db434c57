"""implicit_root: derivatives through the equation, not the method, by every mode, order, tree and linear solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

A = np.array([[3.0, 0.2, -0.4], [0.1, 2.5, 0.3], [-0.2, 0.5, 3.5]])
B = np.array([1.0, -0.5, 2.0])


def residual(x: Any, a: Any, b: Any) -> Any:
    return a @ x + 0.1 * x**3 - b


def newton(f: Any, x0: Any) -> Any:
    """12 steps with the Jacobian."""
    return ons.fori_loop(0, 12, lambda i, x: x - np.linalg.solve(ons.jacfwd(f)(x), f(x)), x0)


def richardson(matvec: Any, b: Any) -> Any:
    """A linear solver for trees that only multiplies: x += 0.3 (b - A x), until the steps vanish."""

    def rest(x: Any) -> Any:
        return ons.tree.map(lambda p, q: p - q, b, matvec(x))

    def size(tree: Any) -> Any:
        return sum(np.sum(np.abs(leaf)) for leaf in ons.tree.leaves(tree))

    start = ons.tree.map(lambda leaf: leaf * 0.0, b)
    state = ons.while_loop(
        lambda s: (size(rest(s[0])) > 1e-14) & (s[1] < 300),
        lambda s: (ons.tree.map(lambda p, q: p + 0.3 * q, s[0], rest(s[0])), s[1] + 1),
        (start, 0),
    )
    return state[0]


SOLVERS = pytest.mark.parametrize("linear_solve", [None, richardson], ids=["dense", "given"])


def loss_of(linear_solve: Any) -> Any:
    root = ons.implicit_root(residual, newton, linear_solve=linear_solve)
    return lambda a, b: np.sum(np.sin(root(np.zeros(3), a, b)))


def central(f: Any, x: Any, step: float = 1e-6) -> Any:
    shifts = step * np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([(np.asarray(f(x + d)) - np.asarray(f(x - d))) / (2 * step) for d in shifts])


@SOLVERS
def test_first_derivatives_by_both_modes(linear_solve: Any) -> None:
    loss = loss_of(linear_solve)
    gradient = ons.grad(loss, argnums=(0, 1))
    by_a, by_b = gradient(A, B)
    np.testing.assert_allclose(by_b, central(lambda b: loss(A, b), B), rtol=1e-7)
    np.testing.assert_allclose(by_a, central(lambda a: loss(a, B), A).reshape(3, 3), rtol=1e-6, atol=1e-9)
    for got, want in zip(ons.stage(gradient, A, B)(A, B), (by_a, by_b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    tangent = ons.jvp(loss, (A, B), (A.T, B))[1]
    assert tangent == pytest.approx(np.sum(by_a * A.T) + by_b @ B, rel=1e-12)


@SOLVERS
def test_second_derivatives_by_every_pair_of_modes(linear_solve: Any) -> None:
    loss = loss_of(linear_solve)

    def f(b: Any) -> Any:
        return loss(A, b)

    numeric = central(ons.grad(f), B)
    for hessian in (ons.hessian(f), ons.jacrev(ons.jacrev(f)), ons.jacfwd(ons.jacfwd(f)), ons.jacrev(ons.jacfwd(f))):
        np.testing.assert_allclose(hessian(B), numeric, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ons.stage(ons.hessian(f), B)(B), numeric, rtol=1e-6, atol=1e-9)


def test_a_method_with_python_branches_outside_staging() -> None:
    def branching(f: Any, x: Any) -> Any:
        while abs(f(x)) > 1e-12:
            x = x - f(x) / ons.grad(f)(x)
        return x

    root = ons.implicit_root(lambda x, a: x * x - a, branching)
    assert root(1.0, 2.0) == pytest.approx(np.sqrt(2), rel=1e-12)
    assert ons.grad(lambda a: root(1.0, a))(2.0) == pytest.approx(0.5 / np.sqrt(2), rel=1e-12)


def unbounded(f: Any, x0: Any) -> Any:
    return ons.while_loop(lambda x: np.abs(f(x)) > 1e-13, lambda x: x - f(x) / ons.grad(f)(x), x0)


def test_an_unbounded_while_loop_has_reverse_mode_of_any_order() -> None:
    root = ons.implicit_root(lambda x, a: x * x - a, unbounded)
    third = ons.grad(ons.grad(ons.grad(lambda a: root(1.0, a))))
    assert ons.stage(third, 2.0)(2.0) == pytest.approx(3 / 8 * 2**-2.5, rel=1e-10)
    values = np.array([1.0, 4.0, 9.0])
    np.testing.assert_allclose(ons.vmap(ons.grad(lambda a: root(1.0, a)))(values), 0.5 / np.sqrt(values), rtol=1e-12)
    total = ons.grad(lambda v: np.sum(ons.vmap(lambda a: root(1.0, a))(v)))
    np.testing.assert_allclose(ons.stage(total, values)(values), 0.5 / np.sqrt(values), rtol=1e-12)


@SOLVERS
def test_trees_captured_values_and_batches(linear_solve: Any, tmp_path: Any) -> None:
    def equations(x: Any, a: Any) -> Any:
        return {"u": x["u"] ** 2 - a * np.array([1.0, 2.0]), "v": x["v"] - np.sum(x["u"]) * a}

    def method(f: Any, x0: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            rest = f(x)
            return {"u": x["u"] - rest["u"] / (2 * x["u"]), "v": x["v"] - rest["v"]}

        return ons.fori_loop(0, 60, step, x0)

    def loss(a: Any) -> Any:
        # `a` reaches the residual as a param and as a captured value
        root = ons.implicit_root(lambda x, p: ons.tree.map(lambda r: r * (0.35 + 0.35 * a * a), equations(x, p)), method, linear_solve=None)
        given = ons.implicit_root(equations, method, linear_solve=linear_solve)
        x, y = root({"u": np.ones(2), "v": 0.0}, a), given({"u": np.ones(2), "v": 0.0}, a)
        return np.sum(np.sin(x["u"])) * y["v"]

    def exact(a: Any) -> Any:
        u = np.sqrt(a * np.array([1.0, 2.0]))
        return np.sum(np.sin(u)) * np.sum(u) * a

    points = np.array([1.3, 0.7])
    for transform in (ons.grad, lambda f: ons.grad(ons.grad(f))):
        wanted = np.array([transform(exact)(a) for a in points])
        np.testing.assert_allclose([transform(loss)(a) for a in points], wanted, rtol=1e-9)
        np.testing.assert_allclose(ons.vmap(transform(loss))(points), wanted, rtol=1e-9)
    total = ons.stage(ons.grad(lambda v: np.sum(ons.vmap(ons.grad(loss))(v))), points)
    np.testing.assert_allclose(total(points), [ons.grad(ons.grad(exact))(a) for a in points], rtol=1e-9)
    total.save(tmp_path / "root.onnx")
    loaded = ons.load(tmp_path / "root.onnx")
    assert loaded.hash == total.hash
    np.testing.assert_array_equal(loaded(points), total(points))


def test_the_start_has_no_derivative() -> None:
    root = ons.implicit_root(lambda x, a: x * x - a, unbounded)
    assert ons.grad(lambda x0: root(x0, 2.0))(1.5) == 0.0


def test_float32_stays() -> None:
    root = ons.implicit_root(residual, newton)
    a, b = A.astype("float32"), B.astype("float32")
    gradient = ons.stage(ons.grad(lambda b: np.sum(root(np.zeros(3, "float32"), a, b))), b)(b)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, ons.grad(lambda b: np.sum(root(np.zeros(3), A, b)))(B), rtol=1e-5)


@pytest.mark.parametrize(
    ("equations", "method", "linear_solve", "error", "message"),
    [
        (lambda x, a: (x - a)[:2], lambda f, x: x, None, ons.ShapeError, r"the residual gives f64\[2\] for an unknown f64\[3\]"),
        (lambda x, a: (x - a,), lambda f, x: x, None, ons.SignatureTypeError, "the residual has another tree than x"),
        (lambda x, a: x - a, lambda f, x: np.arange(3), None, ons.DTypeError, "roots are floating arrays"),
        (lambda x, a: x - a, lambda f, x: x, lambda m, b: b[:2], ons.ShapeError, "linear_solve gives f64"),
        (lambda x, a: x - a, lambda f, x: x, lambda m, b: (b,), ons.SignatureTypeError, "linear_solve gives another tree than x"),
    ],
)
def test_errors(equations: Any, method: Any, linear_solve: Any, error: Any, message: str) -> None:
    root = ons.implicit_root(equations, method, linear_solve=linear_solve)
    with pytest.raises(error, match=message):
        ons.stage(lambda a: root(np.zeros(3), a), np.ones(3))
