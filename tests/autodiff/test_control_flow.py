"""cond, switch, scan, while_loop, fori_loop, map, associative_scan: values, both derivative modes, vmap, named dims, node counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

from .numeric import numeric_gradient

rng = np.random.default_rng(2)
W = rng.normal(size=(3, 3)) / 2
XS = rng.normal(size=(6, 3))
H = np.ones(3)


def recurrent(w: Any, xs: Any, h: Any) -> Any:
    last, ys = ons.scan(lambda h, x: (np.tanh(x + h @ w), np.sum(h * h)), h, xs)
    return np.sum(last) + np.sum(ys * ys)


def recurrent_by_hand(w: Any, xs: Any, h: Any) -> Any:
    total = 0.0
    for x in xs:
        total = total + np.sum(h * h) ** 2
        h = np.tanh(x + h @ w)
    return np.sum(h) + total


def test_scan_gradients_against_central_differences() -> None:
    assert float(recurrent(W, XS, H)) == pytest.approx(float(recurrent_by_hand(W, XS, H)))
    expected = [
        numeric_gradient(lambda w: recurrent_by_hand(w, XS, H), W),
        numeric_gradient(lambda xs: recurrent_by_hand(W, xs, H), XS),
        numeric_gradient(lambda h: recurrent_by_hand(W, XS, h), H),
    ]
    gradient = ons.grad(recurrent, (0, 1, 2))
    for got, staged, wanted in zip(gradient(W, XS, H), ons.stage(gradient, W, XS, H)(W, XS, H), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-7)
        np.testing.assert_allclose(staged, got, rtol=1e-10, atol=1e-12)


def test_scan_second_order_and_forward_mode() -> None:
    def directional(w: Any) -> Any:
        return np.sum(ons.grad(recurrent)(w, XS, H) * W)

    expected = numeric_gradient(directional, W)
    np.testing.assert_allclose(ons.grad(directional)(W), expected, atol=1e-6)
    np.testing.assert_allclose(ons.stage(ons.grad(directional), W)(W), expected, atol=1e-6)
    forward = ons.jvp(lambda w: ons.grad(recurrent)(w, XS, H), (W,), (W,))[1]
    np.testing.assert_allclose(forward, expected, atol=1e-6)


def test_scan_under_vmap_both_ways() -> None:
    batch = rng.normal(size=(4, 6, 3))
    per_example = ons.vmap(ons.grad(recurrent, 1), (None, 0, None))
    expected = np.stack([ons.grad(recurrent, 1)(W, xs, H) for xs in batch])
    np.testing.assert_allclose(per_example(W, batch, H), expected, rtol=1e-10)
    np.testing.assert_allclose(ons.stage(per_example, W, batch, H)(W, batch, H), expected, rtol=1e-10)
    total = ons.grad(lambda w: np.sum(ons.vmap(recurrent, (None, 0, None))(w, batch, H)))(W)
    np.testing.assert_allclose(total, sum(ons.grad(recurrent)(W, xs, H) for xs in batch), rtol=1e-10)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_scan_directions_and_lengths(reverse: bool, length: int) -> None:
    xs = np.arange(2.0, 2.0 + length)

    def f(xs: Any) -> Any:
        return ons.scan(lambda c, x: (c * x + 1.0, c - x), 1.0, xs, reverse=reverse)

    c, ys = 1.0, np.zeros(length)
    for i in reversed(range(length)) if reverse else range(length):
        ys[i] = c - xs[i]
        c = c * xs[i] + 1.0
    for run in (f, ons.stage(f, xs), ons.stage(f, specs=(ons.ArraySpec(("T",), "f64"),))):
        carry, out = run(xs)
        assert float(carry) == c
        np.testing.assert_array_equal(out, ys)

    def scalar(xs: Any) -> Any:
        carry, ys = f(xs)
        return carry + np.sum(ys * ys)

    expected = numeric_gradient(scalar, xs)
    np.testing.assert_allclose(ons.grad(scalar)(xs), expected, atol=1e-6)
    staged = ons.stage(ons.grad(scalar), specs=(ons.ArraySpec(("T",), "f64"),))
    np.testing.assert_allclose(staged(xs), expected, atol=1e-6)


def test_ten_and_ten_thousand_steps_have_equal_node_counts() -> None:
    def nodes(steps: int) -> int:
        program = ons.stage(ons.grad(recurrent), W, np.zeros((steps, 3)), H)
        return len(program.to_onnx().graph.node)

    assert nodes(10) == nodes(10_000)


def test_rows_of_known_values() -> None:
    xs = np.array([2.0, 3.0, 4.0])
    product = ons.grad(lambda xs: ons.scan(lambda c, x: (c * x, None), 1.0, xs)[0])
    assert product(xs).tolist() == [12.0, 8.0, 6.0]
    branch = ons.grad(lambda x: ons.cond(x > 0, lambda x: x * x, lambda x: -x, x))
    assert float(branch(-3.0)) == -1.0 and float(ons.stage(branch, 1.0)(-3.0)) == -1.0
    cube = ons.grad(lambda x: ons.fori_loop(0, 3, lambda i, v: v * x, 1.0))
    assert float(cube(2.0)) == 12.0 and float(ons.stage(cube, 1.0)(2.0)) == 12.0


def choose(x: Any, a: Any) -> Any:
    return np.sum(ons.cond(x[0] > 0, lambda x: np.exp(x) * a, lambda x: -x * x * a, x))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_with_captured_tracers(sign: float) -> None:
    x = sign * np.array([1.0, 2.0])
    both = ons.value_and_grad(choose, (0, 1))
    _, (gx, ga) = both(x, np.float64(3.0))
    expected = (np.exp(x) * 3, np.sum(np.exp(x))) if sign > 0 else (-6 * x, -np.sum(x * x))
    np.testing.assert_allclose(gx, expected[0])
    assert float(ga) == pytest.approx(float(expected[1]))
    staged = ons.stage(both, x, np.float64(3.0))(x, np.float64(3.0))
    np.testing.assert_allclose(staged[1][0], gx)
    hessian = ons.stage(ons.hessian(lambda x: choose(x, 2.0)), x)(x)
    np.testing.assert_allclose(hessian, np.diag(np.exp(x) * 2 if sign > 0 else [-4.0, -4.0]))


def test_cond_under_vmap_selects() -> None:
    xs = np.array([[1.0, 2.0], [-1.0, 2.0], [0.5, -1.0]])
    expected = np.stack([ons.grad(choose)(x, 2.0) for x in xs])
    np.testing.assert_allclose(ons.vmap(lambda x: ons.grad(choose)(x, 2.0))(xs), expected)
    np.testing.assert_allclose(ons.grad(lambda xs: np.sum(ons.vmap(lambda x: choose(x, 2.0))(xs)))(xs), expected)


def test_switch_clamps_its_index_and_differentiates() -> None:
    branches = [lambda x: x, lambda x: x * x, np.sin]
    program = ons.stage(ons.value_and_grad(lambda x, i: np.sum(ons.switch(i, branches, x))), np.ones(2), np.int32(0))
    x = np.array([0.5, 2.0])
    for index, value, slope in (
        (-3, x, np.ones(2)),
        (0, x, np.ones(2)),
        (1, x * x, 2 * x),
        (2, np.sin(x), np.cos(x)),
        (9, np.sin(x), np.cos(x)),
    ):
        got, gradient = program(x, np.int32(index))
        assert float(got) == pytest.approx(float(np.sum(value)))
        np.testing.assert_allclose(gradient, slope)


def test_cond_inside_scan_and_scan_inside_cond() -> None:
    def f(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return ons.cond(x > 0, lambda c: c * x, lambda c: c - x * x, c), c

        carry, ys = ons.scan(step, 1.0, xs)
        return ons.cond(carry > 0, lambda: np.sum(ys * ys), lambda: ons.scan(lambda c, y: (c + y**3, None), 0.0, ys)[0])

    for xs in (np.array([2.0, -1.0, 3.0]), np.array([0.5, -3.0, 1.0, -1.0])):
        expected = numeric_gradient(f, xs)
        np.testing.assert_allclose(ons.grad(f)(xs), expected, atol=1e-6)
        np.testing.assert_allclose(ons.stage(ons.grad(f), xs)(xs), expected, atol=1e-6)


def decay(k: Any) -> Any:
    def more(state: Any) -> Any:
        return state[0] < 1.0

    return ons.while_loop(more, lambda s: (s[0] + 0.125, s[1] - 0.125 * k * s[1]), (0.0, 1.0), max_steps=20)[1]


def test_while_loop_in_every_mode() -> None:
    expected = (1 - 0.25) ** 8
    slope = -((1 - 0.25) ** 7)
    assert float(decay(2.0)) == pytest.approx(expected)
    assert float(ons.jvp(decay, (2.0,), (1.0,))[1]) == pytest.approx(slope)
    assert float(ons.grad(decay)(2.0)) == pytest.approx(slope)
    value, gradient = ons.stage(ons.value_and_grad(decay), 2.0)(2.0)
    assert float(value) == pytest.approx(expected) and float(gradient) == pytest.approx(slope)
    ks = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(ons.vmap(ons.grad(decay))(ks), [float(ons.grad(decay)(k)) for k in ks])
    np.testing.assert_allclose(ons.stage(ons.vmap(ons.grad(decay)), ks)(ks), ons.vmap(ons.grad(decay))(ks))


def test_while_loop_with_a_condition_for_each_example() -> None:
    def collatz(n: Any) -> Any:
        state = ons.while_loop(
            lambda s: s[0] != 1, lambda s: (np.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, np.int64(0))
        )
        return state[1]

    ns = np.array([1, 2, 3, 7, 27])
    assert ons.vmap(collatz)(ns).tolist() == [0, 1, 7, 16, 111]
    assert ons.stage(ons.vmap(collatz), ns)(ns).tolist() == [0, 1, 7, 16, 111]


def test_fori_loop_with_traced_and_named_bounds() -> None:
    def f(x: Any, n: Any) -> Any:
        return ons.fori_loop(0, n, lambda i, v: v * x + i, 1.0)

    assert float(ons.stage(f, 2.0, np.int64(3))(2.0, np.int64(3))) == 12.0
    named = ons.stage(lambda x: ons.fori_loop(0, x.shape[0], lambda i, v: v + x[i] * i, 0.0), specs=(ons.ArraySpec(("B",), "f64"),))
    for size in (0, 1, 4):
        assert float(named(np.ones(size))) == size * (size - 1) / 2
    step = ons.fori_loop(0, 3, lambda i, v: v * i, np.float32(1))
    assert step.dtype == np.float32


def test_map_and_associative_scan() -> None:
    xs = np.arange(1.0, 6.0)
    np.testing.assert_array_equal(ons.map(lambda x: x * x, xs), xs * xs)
    for size in (0, 1, 2, 3, 8, 13):
        x = rng.normal(size=(size, 2))
        np.testing.assert_allclose(ons.associative_scan(np.add, x), np.cumsum(x, 0), atol=1e-12)
        np.testing.assert_allclose(ons.associative_scan(np.add, x, axis=0, reverse=True), np.cumsum(x[::-1], 0)[::-1], atol=1e-12)
    named = ons.stage(lambda x: ons.associative_scan(np.multiply, x), specs=(ons.ArraySpec(("B",), "f64"),))
    for size in (0, 1, 5):
        np.testing.assert_allclose(named(xs[:size]), np.cumprod(xs[:size]))

    def affine(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    a, b = rng.normal(size=7), rng.normal(size=7)
    expected, state = [], 0.0
    for p, q in zip(a, b, strict=True):
        state = state * p + q
        expected.append(state)
    np.testing.assert_allclose(ons.associative_scan(affine, (a, b))[1], expected)


def test_the_branch_not_taken_is_not_run() -> None:
    program = ons.stage(
        lambda x, i: ons.cond(x > 0, lambda: np.arange(3.0)[ons.asarray(i)] if False else x, lambda: ons.asarray(np.arange(3.0))[i]),
        1.0,
        np.int64(0),
    )
    assert float(program(1.0, np.int64(99))) == 1.0
    with pytest.raises(IndexError):
        program(-1.0, np.int64(99))


def test_weak_carries_take_the_body_dtype() -> None:
    carry, _ = ons.scan(lambda c, x: (c + x, None), 0.0, np.ones(3, np.float32))
    assert carry.dtype == np.float32 and float(carry) == 3.0
    (a, b), _ = ons.scan(lambda c, x: ((c[1], c[0] + x), None), (0.0, 0.0), np.ones(4, np.float32))
    assert a.dtype == b.dtype == np.float32


def test_errors_name_the_branch_and_what_differs() -> None:
    with pytest.raises(TypeError, match="true_fn returns another tree than false_fn"):
        ons.cond(True, lambda x: x, lambda x: (x, x), 1.0)
    with pytest.raises(ValueError, match=r"the branches disagree on out: false_fn gives f64\[2\], true_fn gives f64\[3\]"):
        ons.cond(True, lambda: np.ones(3), lambda: np.ones(2))
    with pytest.raises(TypeError, match="the branches disagree on out"):
        ons.cond(True, lambda: np.ones(3), lambda: np.ones(3, np.float32))
    with pytest.raises(ValueError, match="carry starts as"):
        ons.scan(lambda c, x: (np.stack([c, c]), x), 1.0, np.ones(3))
    with pytest.raises(TypeError, match="carry starts as f32"):
        ons.scan(lambda c, x: (c * np.float64(2), x), np.float32(1), np.ones(3))
    with pytest.raises(TypeError, match=r"must return a pair \(carry, y\)"):
        ons.scan(lambda c, x: c, 1.0, np.ones(3))
    with pytest.raises(ValueError, match="has length 3"):
        ons.scan(lambda c, x: (c, x), 1.0, (np.ones(3), np.ones(4)))
    with pytest.raises(NotImplementedError, match="give max_steps"):
        ons.grad(lambda x: ons.while_loop(lambda s: s < 10, lambda s: s * x, 1.0))(2.0)
    with pytest.raises(TypeError, match="cond_fn must return a boolean"):
        ons.while_loop(lambda s: s, lambda s: s, 1.0)
    with pytest.raises(ValueError, match="one value is needed"):
        ons.cond(np.array([True, False]), lambda: 1.0, lambda: 2.0)
    kept: list[Any] = []
    ons.scan(lambda c, x: (c, kept.append(x)), 1.0, np.ones(3))
    with pytest.raises(ons.EscapedTracerError, match="after its trace has ended"):
        ons.stage(lambda x: x + kept[0], 1.0)
