"""nn.dropout: which elements stay, by how much they grow, rates 0 and 1, its gradient in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import onstage as ons

random = ons.random
KEY = random.key(0)
FLOATS = ("float16", "bfloat16", "float32", "float64")


def test_dropout() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (40, 50))
    for kind in FLOATS:
        a = x.astype(ons.ArraySpec((), kind).dtype)
        y = ons.nn.dropout(a, 0.25, KEY)
        assert y.dtype == a.dtype and y.shape == a.shape
        kept = y != 0
        assert abs(np.mean(kept) - 0.75) < 0.03
        np.testing.assert_allclose(
            y[kept].astype(np.float64),
            a[kept].astype(np.float64) / 0.75,
            rtol=2e-2 if kind == "bfloat16" else 2e-3,
        )
    assert np.array_equal(ons.nn.dropout(x, 0, KEY), x)
    assert np.array_equal(ons.nn.dropout(x, 1, KEY), np.zeros_like(x))
    assert np.array_equal(ons.nn.dropout(np.array([np.inf, np.nan]), 1.0, KEY), [0, 0])


def test_dropout_staged_with_its_gradient(tmp_path: Path) -> None:
    def loss(x: Any, rate: Any, key: Any) -> Any:
        return np.sum(ons.nn.dropout(x, rate, key) * 3)

    x = np.random.default_rng(0).uniform(1, 2, (20, 6))
    program = ons.stage(ons.value_and_grad(loss), x, 0.5, KEY)
    for rate in (0.0, 0.4, 1.0):
        value, gradient = program(x, rate, random.key(3))
        kept = random.bernoulli(random.key(3), 1 - rate, x.shape)
        scale = 3 / (1 - rate) if rate < 1 else 0.0
        np.testing.assert_allclose(gradient, kept * scale, rtol=1e-12)
        np.testing.assert_allclose(value, np.sum(x * kept * scale), rtol=1e-12)
    path = tmp_path / "dropout.onnx"
    program.save(path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {i.name: np.asarray(v) for i, v in zip(session.get_inputs(), (x, 0.4, random.key(3)), strict=True)}
    np.testing.assert_allclose(session.run(None, feeds)[1], program(x, 0.4, random.key(3))[1], rtol=1e-12)
