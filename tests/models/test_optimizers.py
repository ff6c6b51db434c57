"""Optimisers against their published formulas, on trees, staged and eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.models.optimizers import Optimizer, adam, sgd


def example() -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(3, 2)), "b": [rng.normal(size=2)]}
    return params, [ons.tree.map(lambda p: rng.normal(size=p.shape), params) for _ in range(4)]


def run(optimizer: Optimizer, params: Any, gradients: list[Any]) -> Any:
    """The parameters after all gradients, by a staged update."""
    state = optimizer.init(params)
    program = ons.stage(optimizer.update, params, gradients[0], state)
    for g in gradients:
        params, state = program(params, g, state)
    return params


def adam_by_formula(p: Any, gradients: list[Any], rate: float, b1: float, b2: float, epsilon: float, decay: float) -> Any:
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        p = p - rate * decay * p - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)
    return p


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(decay: float) -> None:
    params, gradients = example()
    got = run(adam(0.05, 0.8, 0.95, 1e-6, decay), params, gradients)
    for name, part in (("w", lambda t: t["w"]), ("b", lambda t: t["b"][0])):
        wanted = adam_by_formula(part(params), [part(g) for g in gradients], 0.05, 0.8, 0.95, 1e-6, decay)
        np.testing.assert_allclose(part(got), wanted, rtol=1e-6, err_msg=name)


def test_adam_keeps_dtypes_and_counts_steps() -> None:
    params = {"w": np.ones(3, np.float32)}
    optimizer = adam()
    new, state = ons.stage(optimizer.update, params, params, optimizer.init(params))(params, params, optimizer.init(params))
    assert new["w"].dtype == state["first"]["w"].dtype == state["second"]["w"].dtype == np.float32
    assert state["step"].dtype == np.int32 and state["step"] == 1
    np.testing.assert_allclose(new["w"], 1 - 1e-3, rtol=1e-6)


def test_sgd() -> None:
    params, gradients = example()
    got = run(sgd(0.1), params, gradients)
    np.testing.assert_allclose(got["w"], params["w"] - 0.1 * sum(g["w"] for g in gradients), rtol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_with_momentum(nesterov: bool) -> None:
    params, gradients = example()
    got = run(sgd(0.1, 0.9, nesterov), params, gradients)
    p, v = params["w"], 0.0
    for g in gradients:
        v = 0.9 * v + g["w"]
        p = p - 0.1 * (g["w"] + 0.9 * v if nesterov else v)
    np.testing.assert_allclose(got["w"], p, rtol=1e-12)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"momentum lies in \[0, 1\)"):
        sgd(0.1, 1.0)
    with pytest.raises(ValueError, match=r"beta1 and beta2 lie in \(0, 1\)"):
        adam(beta2=1.0)
