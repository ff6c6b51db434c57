"""Laws of the transforms over random programs that Hypothesis builds from smooth steps, control flow and nested transforms.

For each: staged = eager; gradient against central differences; the transpose law; the four second derivatives; vmap = loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onstage as ons

Step = Callable[[Any], Any]

STEPS: dict[str, Step] = {
    "tanh": np.tanh,
    "square": lambda x: x * x * 0.5,
    "sin": lambda x: np.sin(x) + x,
    "exp": lambda x: np.exp(-x * x),
    "softmax": lambda x: ons.nn.softmax(x, axis=-1) * 3,
    "centre": lambda x: x - np.mean(x, axis=0, keepdims=True),
    "norm": lambda x: x / np.sqrt(np.sum(x * x, axis=1, keepdims=True) + 1),
    "transpose": lambda x: (x.T @ x) @ x.T * 0.3 if x.shape[0] == x.shape[1] else x.T.T,
    "product": lambda x: x @ np.ones((x.shape[1], x.shape[1])) * 0.3,
    "flip": lambda x: x[::-1] * np.arange(1.0, x.shape[1] + 1),
    "roll": lambda x: np.roll(x, 1, axis=0) - x,
    "gather": lambda x: x[[0, -1, 1, 0]][: x.shape[0]],
    "update": lambda x: ons.at(x)[0].add(x[-1] * 2),
    "cumsum": lambda x: np.cumsum(x, axis=1) * 0.5,
    "logsumexp": lambda x: x - ons.special.logsumexp(x, axis=1, keepdims=True),
    "pad": lambda x: np.pad(x, ((1, 0), (0, 0)))[: x.shape[0]],
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x)[:, : x.shape[1]] * 0.2 if x.shape[0] >= x.shape[1] else x,
    "scan": lambda x: ons.scan(lambda c, r: (np.tanh(c + r), c * r), np.zeros(x.shape[1:]), x)[1],
    "cond": lambda x: ons.cond(np.sum(x) > 0.05, lambda v: v * v, lambda v: np.sin(v), x),
    "fori": lambda x: ons.fori_loop(0, 3, lambda i, v: np.sin(v) + x * 0.1, x),
    "while": lambda x: ons.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, np.tanh(s[1]) + x), (0, x), max_steps=3)[1],
    "map": lambda x: ons.map(lambda r: r * np.sum(r), x),
    "vmap": lambda x: ons.vmap(lambda r: r * np.sum(np.sin(r)))(x),
    "checkpoint": lambda x: ons.checkpoint(lambda v: np.tanh(v) * v)(x),
    "inner gradient": lambda x: ons.grad(lambda v: np.sum(np.sin(v) * x))(x * 0.5),
    "stopped": lambda x: x * ons.stop_gradient(np.tanh(1.0)) + np.tanh(x),
}
KINKED = {"cond"}


def compose(names: list[str]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x

    return f


programs = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)
shapes = st.sampled_from([(3, 3), (4, 3), (3, 2)])
common = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def point(names: list[str], shape: tuple[int, int]) -> Any:
    return np.random.default_rng(abs(hash(tuple(len(n) for n in names))) % 1000).uniform(-0.8, 0.9, shape)


def close(a: Any, b: Any, tolerance: float, what: str) -> None:
    a, b = np.asarray(a, float), np.asarray(b, float)
    scale = max(1.0, float(np.abs(b).max(initial=0)))
    error = float(np.abs(a - b).max(initial=0))
    assert a.shape == b.shape and error <= tolerance * scale, f"{what}: off by {error} of {scale}"


@common
@given(programs, shapes)
def test_gradient_of_a_random_program(names: list[str], shape: tuple[int, int]) -> None:
    f = compose(names)
    x = point(names, shape)
    weights = np.cos(np.arange(x.size).reshape(shape))

    def loss(x: Any) -> Any:
        return np.sum(f(x) * weights)

    value, gradient = ons.value_and_grad(loss)(x)
    staged_value, staged_gradient = ons.stage(ons.value_and_grad(loss), x)(x)
    close(staged_value, value, 1e-12, "staged value")
    close(staged_gradient, gradient, 1e-10, "staged gradient")
    direction = np.sin(np.arange(x.size) + 1.0).reshape(shape)
    step = 1e-6
    numeric = (float(loss(x + step * direction)) - float(loss(x - step * direction))) / (2 * step)
    if not KINKED & set(names) or abs(numeric - np.sum(gradient * direction)) < 1:
        close(np.sum(gradient * direction), numeric, 1e-6, "central difference")
    close(ons.jvp(loss, (x,), (direction,))[1], np.sum(gradient * direction), 1e-10, "transpose law")


@common
@given(programs, shapes)
def test_second_derivatives_of_a_random_program(names: list[str], shape: tuple[int, int]) -> None:
    f = compose(names)
    x = point(names, shape)

    def loss(x: Any) -> Any:
        return np.sum(f(x) ** 2)

    u = np.sin(np.arange(x.size) + 1.0).reshape(shape)
    v = np.cos(np.arange(x.size)).reshape(shape)
    gradient = ons.grad(loss)
    forward_over_reverse = np.sum(ons.jvp(gradient, (x,), (u,))[1] * v)
    reverse_over_reverse = np.sum(ons.grad(lambda x: np.sum(gradient(x) * u))(x) * v)
    forward_over_forward = ons.jvp(lambda x: ons.jvp(loss, (x,), (u,))[1], (x,), (v,))[1]
    reverse_over_forward = np.sum(ons.grad(lambda x: ons.jvp(loss, (x,), (u,))[1])(x) * v)
    for name, value in (("rr", reverse_over_reverse), ("ff", forward_over_forward), ("rf", reverse_over_forward)):
        close(value, forward_over_reverse, 1e-8, f"{name} against fr")


@common
@given(programs, shapes)
def test_vmap_of_a_random_program_and_of_its_gradient(names: list[str], shape: tuple[int, int]) -> None:
    f = compose(names)
    batch = np.stack([point(names, shape), -0.5 * point(names, shape), np.full(shape, 0.25)])
    loop = np.stack([f(x) for x in batch])
    close(ons.vmap(f)(batch), loop, 1e-10, "vmap")
    close(ons.stage(ons.vmap(f), batch)(batch), loop, 1e-10, "staged vmap")
    gradient = ons.grad(lambda x: np.sum(np.sin(f(x))))
    close(ons.vmap(gradient)(batch), np.stack([gradient(x) for x in batch]), 1e-9, "vmap of gradient")
    total = ons.grad(lambda b: np.sum(np.sin(ons.vmap(f)(b))))(batch)
    close(total, np.stack([gradient(x) for x in batch]), 1e-9, "gradient of vmap")
