"""The classifier: its forward pass, its gradient, and that a staged step learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.models.classifier import mlp, mlp_init, mlp_loss, predict, training_step
from onstage.models.layers import dense, embedding, embedding_init, layer_norm, layer_norm_init
from onstage.models.optimizers import adam


def blobs(count: int = 90) -> tuple[Any, Any]:
    """Points around three centres, and the number of the centre."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, count)
    centres = np.array([[2.0, 0.0], [-2.0, 1.0], [0.0, -2.0]])
    return (centres[labels] + 0.5 * rng.normal(size=(count, 2))).astype(np.float32), labels


def test_forward_is_the_formula() -> None:
    params = mlp_init(np.random.default_rng(0), (2, 5, 4, 3))
    assert {k: (v["w"].shape, v["b"].shape, v["w"].dtype) for k, v in params.items()} == {
        "layer1": ((2, 5), (5,), np.float32),
        "layer2": ((5, 4), (4,), np.float32),
        "layer3": ((4, 3), (3,), np.float32),
    }
    x, _ = blobs(6)
    h = x
    for name in ("layer1", "layer2"):
        h = np.maximum(h @ params[name]["w"] + params[name]["b"], 0)
    scores = h @ params["layer3"]["w"] + params["layer3"]["b"]
    np.testing.assert_allclose(ons.stage(mlp, params, x)(params, x), scores, rtol=1e-5, atol=1e-6)
    result = ons.stage(predict, params, x)(params, x)
    np.testing.assert_array_equal(result["label"], scores.argmax(-1))
    np.testing.assert_allclose(result["probability"].sum(-1), 1, rtol=1e-6)


def test_gradient_against_central_differences() -> None:
    params = mlp_init(np.random.default_rng(1), (2, 4, 3), np.float64)
    x, y = blobs(7)
    gradient = ons.stage(ons.grad(mlp_loss), params, x.astype(np.float64), y)(params, x.astype(np.float64), y)
    leaves, treedef = ons.tree.flatten(params)
    for i, (leaf, got) in enumerate(zip(leaves, ons.tree.leaves(gradient), strict=True)):
        direction = np.random.default_rng(i).normal(size=leaf.shape)
        values = []
        for e in (1e-6, -1e-6):
            moved = [v + e * direction if i == j else v for j, v in enumerate(leaves)]
            values.append(mlp_loss(ons.tree.unflatten(treedef, moved), x.astype(np.float64), y))
        np.testing.assert_allclose(np.sum(got * direction), (values[0] - values[1]) / 2e-6, rtol=1e-5, atol=1e-8)


def test_a_staged_step_learns_with_batches_of_any_size() -> None:
    x, y = blobs()
    params = mlp_init(np.random.default_rng(0), (2, 16, 3))
    optimizer = adam(0.01)
    state = optimizer.init(params)
    batch = (ons.ArraySpec(("B", 2), "float32"), ons.ArraySpec(("B",), "int64"))
    program = ons.stage(training_step(mlp_loss, optimizer), specs=(params, state, *batch))
    losses = []
    for _ in range(40):
        for start in (0, 64):
            out = program(params, state, x[start : start + 64], y[start : start + 64])
            params, state = out["params"], out["state"]
            losses.append(float(out["loss"]))
    assert losses[0] > 0.7
    assert losses[-1] < 0.1
    assert state["step"] == 80
    assert np.mean(predict(params, x)["label"] == y) > 0.97


def test_scopes_name_the_nodes_of_the_file() -> None:
    params = mlp_init(np.random.default_rng(0), (2, 4, 3))
    model = ons.stage(predict, params, blobs(3)[0]).to_onnx()
    assert any(n.name.startswith("layer1/matmul@") for n in model.graph.node)


def test_layers() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4)).astype(np.float32)
    params = {"w": np.ones((4, 5), np.float32), "b": np.ones(5, np.float32)}
    assert dense(params, x).shape == (2, 3, 5)
    np.testing.assert_allclose(dense(params, x)[0, 0], x[0, 0].sum() + 1, rtol=1e-5)
    np.testing.assert_allclose(layer_norm(layer_norm_init(4), x).mean(-1), 0, atol=1e-6)
    table = embedding_init(rng, 7, 4)
    assert table["table"].shape == (7, 4)
    np.testing.assert_array_equal(embedding(table, np.array([[1, 6]])), table["table"][[[1, 6]]])
    with pytest.raises(ValueError, match="an input and an output size at least"):
        mlp_init(rng, (4,))
