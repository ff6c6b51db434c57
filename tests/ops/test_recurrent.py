"""lstm_cell and gru_cell: values against the ONNX operators' reference, gradients, through scan, dtypes, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import scipy.special
from onnx.reference import ReferenceEvaluator

import onstage as ons
from onstage import nn

N, INPUTS, UNITS = 2, 3, 4


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def weights(gates: int, dtype: Any = np.float64) -> list[Any]:
    shapes = [(gates * UNITS, INPUTS), (gates * UNITS, UNITS), (gates * UNITS,), (gates * UNITS,)]
    return [random(*s, seed=i + 5, dtype=dtype) for i, s in enumerate(shapes)]


def by_onnx(op_type: str, order: list[int], x: Any, state: list[Any], parameters: list[Any], **attributes: Any) -> list[Any]:
    """One step by the reference of ONNX's operator, whose gates stand in another order."""
    w, r, *b = [v.reshape(len(order), UNITS, *v.shape[1:])[order].reshape(v.shape) for v in parameters]
    inputs = [x[None], w[None], r[None], np.concatenate(b)[None], None, *(s[None] for s in state)]
    names = ["" if v is None else f"x{i}" for i, v in enumerate(inputs)]
    outputs = ["y", "h", "c"][: 1 + len(state)]
    node = onnx.helper.make_node(op_type, names, outputs, hidden_size=UNITS, **attributes)
    feeds = {n: v for n, v in zip(names, inputs, strict=True) if n}
    kind = onnx.TensorProto.DOUBLE
    graph = onnx.helper.make_graph(
        [node],
        "step",
        [onnx.helper.make_tensor_value_info(n, kind, None) for n in feeds],
        [onnx.helper.make_tensor_value_info(n, kind, None) for n in outputs[1:]],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    return [v[0] for v in ReferenceEvaluator(model).run(None, feeds)]


def test_lstm_is_that_of_onnx() -> None:
    x, h, c, parameters = random(N, INPUTS), random(N, UNITS, seed=1), random(N, UNITS, seed=2), weights(4)
    wanted = by_onnx("LSTM", [0, 3, 1, 2], x, [h, c], parameters)
    for got, want in zip(nn.lstm_cell(x, h, c, *parameters), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)


def test_gru_by_hand() -> None:
    x, h, (w_ih, w_hh, b_ih, b_hh) = random(N, INPUTS), random(N, UNITS, seed=1), weights(3)
    a, b = np.split(x @ w_ih.T + b_ih, 3, axis=1), np.split(h @ w_hh.T + b_hh, 3, axis=1)
    reset, update = scipy.special.expit(a[0] + b[0]), scipy.special.expit(a[1] + b[1])
    wanted = (1 - update) * np.tanh(a[2] + reset * b[2]) + update * h
    np.testing.assert_allclose(nn.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh), wanted, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 3e-3), ("float32", 1e-5), ("float64", 1e-12)])
def test_staged(dtype: str, tolerance: float, agree: Callable[..., Any]) -> None:
    x, h, c = random(N, INPUTS, dtype=dtype), random(N, UNITS, seed=1, dtype=dtype), random(N, UNITS, seed=2, dtype=dtype)
    wide = [v.astype(np.float64) for v in (x, h, c)]
    lstm, gru = weights(4, dtype), weights(3, dtype)
    wanted = nn.lstm_cell(*wide, *(w.astype(np.float64) for w in lstm))
    agree(nn.lstm_cell, x, h, c, *lstm, wanted=tuple(v.astype(dtype) for v in wanted), rtol=tolerance)
    wanted = nn.gru_cell(*wide[:2], *(w.astype(np.float64) for w in gru))
    agree(nn.gru_cell, x, h, *gru, wanted=wanted.astype(dtype), rtol=tolerance)
    agree(nn.gru_cell, x[0], h[0], *gru[:2], wanted=nn.gru_cell(x[0], h[0], *gru[:2]), rtol=tolerance)


def test_gradients(slopes: Callable[..., None]) -> None:
    x, h, c = random(N, INPUTS), random(N, UNITS, seed=1), random(N, UNITS, seed=2)
    slopes(lambda *args: np.concatenate(nn.lstm_cell(*args)), x, h, c, *weights(4))
    slopes(nn.gru_cell, x, h, *weights(3))


def test_over_time_by_scan() -> None:
    xs, h, parameters = random(5, N, INPUTS), np.zeros((N, UNITS)), weights(3)

    def loss(parameters: Any, xs: Any, h: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = nn.gru_cell(x, h, *parameters)
            return h, h

        return np.sum(ons.scan(step, h, xs)[1] ** 2)

    def unrolled(parameters: Any, xs: Any, h: Any) -> Any:
        total = 0
        for i in range(5):
            h = nn.gru_cell(xs[i], h, *parameters)
            total = total + np.sum(h**2)
        return total

    got = ons.stage(ons.grad(loss), parameters, xs, h)(parameters, xs, h)
    for g, w in zip(got, ons.grad(unrolled)(parameters, xs, h), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)


def test_named_batch(agree: Callable[..., Any]) -> None:
    x, h, parameters = random(N, INPUTS, dtype=np.float32), random(N, UNITS, seed=1, dtype=np.float32), weights(3, np.float32)
    shapes = [("B", INPUTS), ("B", UNITS), *(p.shape for p in parameters)]
    agree(nn.gru_cell, x, h, *parameters, shapes=shapes, rtol=1e-5)


def test_messages() -> None:
    x, h = np.ones((N, INPUTS)), np.ones((N, UNITS))
    w_ih, w_hh, b_ih, _ = weights(4)
    with pytest.raises(ValueError, match=r"lstm_cell: w_ih has shape \[4, 16\], \[16, 3\] is needed for 3 inputs and 4 units"):
        nn.lstm_cell(x, h, h, w_hh.T, w_hh)
    with pytest.raises(ValueError, match=r"gru_cell: w_ih has shape \[16, 3\], \[12, 3\] is needed"):
        nn.gru_cell(x, h, w_ih, w_hh)
    with pytest.raises(ValueError, match=r"b_hh has shape \[3\]"):
        nn.lstm_cell(x, h, h, w_ih, w_hh, b_ih, b_ih[:3])
    with pytest.raises(ValueError, match=r"lstm_cell: c has shape \[2, 3\], h has \[2, 4\]"):
        nn.lstm_cell(x, h, x, w_ih, w_hh)
