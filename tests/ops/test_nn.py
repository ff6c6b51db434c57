"""onstage.nn: values against formulas in float64, kinks, gradients of first and second order, axes, named dims, empty batches, messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import onstage as ons
from onstage import nn

RTOL = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-12}
Function = Callable[..., Any]


def softmax_of(x: Any, axis: int = -1) -> Any:
    return scipy.special.softmax(x, axis=axis)


def log_softmax_of(x: Any, axis: int = -1) -> Any:
    return scipy.special.log_softmax(x, axis=axis)


def normalized(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + epsilon)


def by_root_mean_square(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    return x / np.sqrt((x * x).mean(axis=axis, keepdims=True) + epsilon)


def gated_by_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


SELU = (1.6732632423543772, 1.0507009873554805)
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "relu": (nn.relu, lambda x: np.where(x > 0, x, 0)),
    "relu6": (nn.relu6, lambda x: np.clip(x, 0, 6)),
    "sigmoid": (nn.sigmoid, scipy.special.expit),
    "hard_sigmoid": (nn.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "log_sigmoid": (nn.log_sigmoid, scipy.special.log_expit),
    "softplus": (nn.softplus, lambda x: np.logaddexp(x, 0)),
    "silu": (nn.silu, lambda x: x * scipy.special.expit(x)),
    "hard_silu": (nn.hard_silu, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "mish": (nn.mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "gelu": (nn.gelu, lambda x: x * scipy.special.ndtr(x)),
    "gelu_tanh": (lambda x: nn.gelu(x, approximate=True), gated_by_tanh),
    "elu": (nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    "elu_alpha": (lambda x: nn.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "celu": (lambda x: nn.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
    "selu": (nn.selu, lambda x: SELU[1] * np.where(x > 0, x, SELU[0] * np.expm1(x))),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "hard_tanh": (nn.hard_tanh, lambda x: np.clip(x, -1, 1)),
    "soft_sign": (nn.soft_sign, lambda x: x / (1 + np.abs(x))),
    "glu": (nn.glu, lambda x: x[..., :2] * scipy.special.expit(x[..., 2:])),
    "softmax": (nn.softmax, softmax_of),
    "log_softmax": (nn.log_softmax, log_softmax_of),
    "layer_norm": (nn.layer_norm, normalized),
    "rms_norm": (nn.rms_norm, by_root_mean_square),
}


def example(shape: tuple[int, ...] = (3, 4), dtype: str = "float64", seed: int = 0) -> Any:
    return (2 * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, dtype: str, agree: Function) -> None:
    function, formula = FUNCTIONS[name]
    x = example(dtype=dtype)
    agree(function, x, wanted=formula(x.astype(np.float64)).astype(dtype), rtol=RTOL[dtype])
    eager = function(x)
    assert isinstance(eager, np.ndarray) and eager.dtype == dtype
    np.testing.assert_allclose(eager, formula(x.astype(np.float64)), rtol=RTOL[dtype], atol=RTOL[dtype])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bfloat16_is_computed_in_float32(name: str) -> None:
    function, formula = FUNCTIONS[name]
    spec = ons.ArraySpec((3, 4), "bfloat16")
    x = example().astype(spec.dtype)
    y = ons.stage(function, specs=(spec,))(x)
    assert y.dtype == spec.dtype
    np.testing.assert_allclose(y.astype(np.float64), formula(x.astype(np.float64)), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str, slopes: Function) -> None:
    slopes(FUNCTIONS[name][0], example())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_order(name: str) -> None:
    function = FUNCTIONS[name][0]
    x, w, v = example((2, 4)), np.random.default_rng(1).normal(size=function(example((2, 4))).shape), example((2, 4), seed=2)
    gradient = ons.grad(lambda x: np.sum(function(x) * w))
    product = ons.grad(lambda x: np.sum(gradient(x) * v))(x)
    numeric = (gradient(x + 1e-6 * v) - gradient(x - 1e-6 * v)) / 2e-6
    np.testing.assert_allclose(product, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_named_and_empty_batches(name: str) -> None:
    function, formula = FUNCTIONS[name]
    program = ons.stage(function, specs=(ons.ArraySpec(("B", 4), "float32"),))
    gradient = ons.stage(ons.grad(lambda x: np.sum(function(x) ** 2)), specs=(ons.ArraySpec(("B", 4), "float32"),))
    for size in (0, 1, 3):
        x = example((size, 4), "float32")
        y = program(x)
        assert y.shape == formula(x).shape and y.dtype == np.float32
        np.testing.assert_allclose(y, formula(x.astype(np.float64)), rtol=3e-6, atol=3e-6)
        assert gradient(x).shape == x.shape


@pytest.mark.parametrize("name", FUNCTIONS)
def test_far_from_zero_nothing_overflows(name: str) -> None:
    function, formula = FUNCTIONS[name]
    x = np.array([[-90.0, -20.0, 20.0, 90.0], [-1e4, -30.0, 1.0, 1e4]], np.float32)
    with np.errstate(all="ignore"):
        wanted = formula(x.astype(np.float64))
    np.testing.assert_allclose(ons.stage(function, x)(x), wanted, rtol=1e-4 if "norm" not in name else 1e-3, atol=1e-5)
    slope = ons.stage(ons.grad(lambda x: np.sum(function(x))), x)(x)
    assert np.isfinite(slope).all()


# -------------------------------------------------------------------------------------------------------- activations


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (nn.relu, 0.0),
        (nn.relu6, 1.0),
        (nn.leaky_relu, 0.01),
        (nn.elu, 1.0),
        (lambda x: np.maximum(x, 0), 0.5),
        (nn.gelu, 0.5),
        (nn.softplus, 0.5),
    ],
)
def test_slopes_at_zero(function: Function, slope: float) -> None:
    assert ons.grad(lambda x: np.sum(function(x)))(np.zeros(2)).tolist() == [slope, slope]


def test_relu_keeps_integers_and_nan() -> None:
    x = np.array([-3, 0, 5], np.int32)
    y = ons.stage(nn.relu, x)(x)
    assert y.dtype == np.int32 and y.tolist() == [0, 0, 5]
    z = np.array([np.nan, -np.inf, np.inf])
    np.testing.assert_array_equal(ons.stage(nn.relu, z)(z), [np.nan, 0, np.inf])
    with pytest.raises(TypeError, match="booleans have no negative part"):
        nn.relu(np.array([True]))


def test_an_infinite_cotangent_does_not_leak_through_relu() -> None:
    x = np.array([-1.0, 4.0])
    gradient = ons.grad(lambda x: np.sum(np.sqrt(nn.relu(x))))
    assert gradient(x).tolist() == [0.0, 0.25]
    assert ons.stage(gradient, x)(x).tolist() == [0.0, 0.25]


def test_sigmoid_is_accurate_in_its_tail() -> None:
    for dtype, rtol in ((np.float32, 1e-5), (np.float64, 1e-12)):
        x = np.array([-50.0, -20.0, -1e-3, 20.0], dtype)
        np.testing.assert_allclose(ons.stage(nn.sigmoid, x)(x), scipy.special.expit(x.astype(np.float64)), rtol=rtol)


def test_python_numbers_and_integers() -> None:
    assert nn.sigmoid(0).dtype == np.float64
    x = np.array([1, 2], np.int32)
    assert ons.stage(nn.softmax, x)(x).dtype == np.float64
    np.testing.assert_allclose(ons.stage(nn.gelu, x)(x), x * scipy.special.ndtr(x.astype(np.float64)))


def test_prelu(agree: Function, slopes: Function) -> None:
    x, slope = example(), np.array([0.1, 0.2, 0.3, 0.4])
    agree(nn.prelu, x, slope, wanted=np.where(x > 0, x, x * slope))
    slopes(nn.prelu, x, slope)


# ------------------------------------------------------------------------------------------------------------- softmax


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("function", "formula"), [(nn.softmax, softmax_of), (nn.log_softmax, log_softmax_of)])
def test_softmax_axes(function: Function, formula: Function, axis: int, agree: Function, slopes: Function) -> None:
    x = example((2, 3, 4))
    agree(lambda x: function(x, axis), x, wanted=formula(x, axis))
    slopes(lambda x: function(x, axis), x)


def test_softmax_is_one_node_in_the_differentiated_program_too() -> None:
    model = ons.stage(ons.value_and_grad(lambda x: np.sum(nn.softmax(x) ** 2)), example(dtype="float32")).to_onnx()
    assert [n.op_type for n in model.graph.node].count("Softmax") == 1
    model = ons.stage(ons.value_and_grad(lambda x: np.sum(nn.layer_norm(x) ** 2)), example(dtype="float32")).to_onnx()
    assert [n.op_type for n in model.graph.node].count("LayerNormalization") == 1


def test_softmax_of_infinities_and_empty_slices() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([[-np.inf, 0.0, 0.0], [np.inf, 1.0, 2.0], [-np.inf] * 3, [np.nan, 1.0, 2.0]], dtype)
        for function in (nn.softmax, nn.log_softmax):
            y = ons.stage(function, x)(x)
            np.testing.assert_array_equal(np.isnan(y), [[False] * 3, [True] * 3, [True] * 3, [True] * 3])
            np.testing.assert_allclose(y[0], function(x)[0], rtol=1e-6)
        empty = np.zeros((2, 0), dtype)
        assert ons.stage(nn.softmax, empty)(empty).shape == (2, 0)


def test_softmax_axis_errors() -> None:
    with pytest.raises(np.exceptions.AxisError):
        nn.softmax(np.ones(3), axis=1)
    with pytest.raises(np.exceptions.AxisError):
        ons.stage(nn.log_softmax, np.float32(1))


def test_self_attention_gradient(slopes: Function) -> None:
    slopes(lambda x: nn.softmax(x @ x.T) @ x, example((3, 2)) / 2)


# -------------------------------------------------------------------------------------------------------- normalisation


@pytest.mark.parametrize("dtype", RTOL)
def test_layer_norm_with_scale_and_bias(dtype: str, agree: Function, slopes: Function) -> None:
    x, scale, bias = example((2, 3, 4), dtype), example((4,), dtype, 1), example((4,), dtype, 2)
    wide = [v.astype(np.float64) for v in (x, scale, bias)]
    agree(nn.layer_norm, x, scale, bias, wanted=(normalized(wide[0]) * wide[1] + wide[2]).astype(dtype), rtol=4 * RTOL[dtype])
    agree(lambda x, b: nn.layer_norm(x, None, b), x, bias, wanted=(normalized(wide[0]) + wide[2]).astype(dtype), rtol=4 * RTOL[dtype])
    if dtype == "float64":
        slopes(nn.layer_norm, x, scale, bias)


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 2), (-1, 0)], ids=str)
def test_normalisation_over_axes(axis: Any, agree: Function, slopes: Function) -> None:
    x = example((2, 3, 4))
    axes = sorted(a % 3 for a in (axis if isinstance(axis, tuple) else (axis,)))
    scale = example(tuple(x.shape[a] for a in axes), seed=1)
    full = np.expand_dims(scale, tuple(a for a in range(3) if a not in axes))
    for function, formula in ((nn.layer_norm, normalized), (nn.rms_norm, by_root_mean_square)):
        agree(lambda x, s, f=function: f(x, s, axis=axis, epsilon=0.1), x, scale, wanted=formula(x, tuple(axes), 0.1) * full)
        slopes(lambda x, s, f=function: f(x, s, axis=axis, epsilon=0.1), x, scale)


def test_layer_norm_on_ill_conditioned_rows() -> None:
    x = (1e3 + np.random.default_rng(0).normal(size=(4, 64))).astype(np.float32)
    np.testing.assert_allclose(ons.stage(nn.layer_norm, x)(x), normalized(x.astype(np.float64)), atol=2e-3)
    y = np.array([[1e-9, 2e-9, 4e-9]])
    np.testing.assert_allclose(ons.stage(nn.layer_norm, y)(y), normalized(y), rtol=1e-9)


def test_layer_norm_of_named_and_empty_features() -> None:
    program = ons.stage(nn.layer_norm, specs=(ons.ArraySpec((2, "F"), "float32"),))
    for size in (0, 1, 5):
        x = example((2, size), "float32")
        np.testing.assert_allclose(program(x), normalized(x.astype(np.float64)) if size else x, atol=1e-5)


def test_vmap_of_layer_norm() -> None:
    x, scale = example((5, 3, 4)), example((5, 4), seed=1)
    np.testing.assert_allclose(ons.vmap(nn.layer_norm)(x, scale), normalized(x) * scale[:, None], rtol=1e-9)
    np.testing.assert_allclose(ons.vmap(nn.layer_norm, in_axes=(None, 0))(x[0], scale), normalized(x[0]) * scale[:, None], rtol=1e-9)
    np.testing.assert_allclose(ons.vmap(nn.softmax, in_axes=1)(x), softmax_of(np.moveaxis(x, 1, 0)), rtol=1e-9)


def test_normalisation_messages() -> None:
    with pytest.raises(ons.ShapeError, match=r"scale has shape \[3\], which does not broadcast to the normalised axes \[4\]"):
        nn.layer_norm(example(), np.ones(3))
    with pytest.raises(ValueError, match="names no axis, or one twice"):
        nn.layer_norm(example(), axis=(0, -2))
    with pytest.raises(np.exceptions.AxisError):
        nn.rms_norm(example(), axis=2)


# --------------------------------------------------------------------------------------------------------------- losses


def losses_of(logits: Any, labels: Any) -> Any:
    return -np.take_along_axis(log_softmax_of(logits.astype(np.float64)), labels[..., None], -1)[..., 0]


@pytest.mark.parametrize("dtype", RTOL)
def test_cross_entropy_with_integer_labels(dtype: str, agree: Function) -> None:
    logits, labels = example((5, 4), dtype), np.array([0, 3, 1, 2, 0])
    wanted = losses_of(logits, labels)
    for reduction, value in (("none", wanted), ("mean", wanted.mean()), ("sum", wanted.sum())):
        agree(
            lambda x, y, r=reduction: nn.cross_entropy(x, y, reduction=r),
            logits,
            labels,
            wanted=np.asarray(value, dtype),
            rtol=4 * RTOL[dtype],
        )


@pytest.mark.parametrize("label_dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_gradient_of_the_mean_over_a_batch(label_dtype: str) -> None:
    x, w, labels = example((6, 3)), example((3, 4), seed=1), np.array([0, 3, 1, 2, 0, 3], label_dtype)
    gradient = ons.stage(ons.grad(lambda w, x, y: nn.cross_entropy(x @ w, y)), w, x, labels)
    for scale in (1.0, -0.5):
        v = w * scale
        wanted = x.T @ (softmax_of(x @ v) - np.eye(4)[labels.astype(int)]) / 6
        np.testing.assert_allclose(gradient(v, x, labels), wanted, rtol=1e-10, atol=1e-12)


def test_cross_entropy_along_an_axis_is_the_mean_over_all_others(agree: Function, slopes: Function) -> None:
    logits, labels = example((2, 3, 4)), np.array([[0, 1, 2, 1], [2, 2, 0, 0]])
    agree(lambda x, y: nn.cross_entropy(x, y, axis=1), logits, labels, wanted=losses_of(np.moveaxis(logits, 1, 2), labels).mean())
    slopes(lambda x: nn.cross_entropy(x, labels, axis=1), logits)


def test_cross_entropy_with_probabilities(agree: Function, slopes: Function) -> None:
    logits, p = example(), softmax_of(example(seed=1))
    agree(nn.cross_entropy, logits, p, wanted=-(p * log_softmax_of(logits)).sum(-1).mean())
    slopes(nn.cross_entropy, logits, p)
    hot = np.eye(4)[[0, 2, 1]]
    masked = logits.copy()
    masked[hot == 0] = -np.inf
    value, gradient = ons.value_and_grad(nn.cross_entropy)(masked, hot)
    assert value == 0
    assert np.all(gradient == 0)


def test_cross_entropy_of_large_logits() -> None:
    x, y = np.array([[1000.0, 0.0], [-1000.0, 1000.0]], np.float32), np.array([0, 0])
    value, gradient = ons.stage(ons.value_and_grad(nn.cross_entropy), x, y)(x, y)
    assert value == 1000.0
    assert gradient.tolist() == [[0.0, 0.0], [-0.5, 0.5]]


def test_labels_out_of_range_give_nan() -> None:
    x, y = example((3, 4), "float32"), np.array([-1, 1, 4])
    for result in (nn.cross_entropy(x, y, reduction="none"), ons.stage(lambda x, y: nn.cross_entropy(x, y, reduction="none"), x, y)(x, y)):
        assert np.isnan(result).tolist() == [True, False, True]
    gradient = ons.stage(ons.grad(lambda x, y: nn.cross_entropy(x, y, reduction="sum")), x, y)(x, y)
    assert np.isnan(gradient).all(1).tolist() == [True, False, True]


def test_cross_entropy_of_an_empty_batch() -> None:
    program = ons.stage(ons.value_and_grad(nn.cross_entropy), specs=(ons.ArraySpec(("B", 4), "float32"), ons.ArraySpec(("B",), "int64")))
    value, gradient = program(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    assert np.isnan(value)
    assert gradient.shape == (0, 4)


@pytest.mark.parametrize(
    ("labels", "options", "error", "text"),
    [
        (np.array([0, 1]), {}, ons.ShapeError, r"integer labels have shape \[3\], got \[2\]"),
        (np.zeros((3, 4), int), {}, ons.ShapeError, "probabilities of logits' shape must be floats"),
        (np.zeros(3), {}, ons.ShapeError, "probabilities have the shape of the logits"),
        (np.zeros(3, bool), {}, ons.DTypeError, "labels are booleans"),
        (np.zeros(3, int), {"reduction": "average"}, ValueError, "reduction is 'mean', 'sum' or 'none'"),
        (np.zeros(3, int), {"axis": 2}, np.exceptions.AxisError, "axis 2 is out of bounds"),
    ],
)
def test_cross_entropy_messages(labels: Any, options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        nn.cross_entropy(example(), labels, **options)


# ------------------------------------------------------------------------------------------------ one_hot, embedding, top_k


def test_one_hot(agree: Function) -> None:
    ids = np.array([[0, 3], [-1, 4]])
    wanted = np.array([[[1, 0, 0, 0], [0, 0, 0, 1]], [[0, 0, 0, 0], [0, 0, 0, 0]]])
    for dtype in ("float32", "float64", "int32", "bool", "float16"):
        agree(lambda i, d=dtype: nn.one_hot(i, 4, dtype=d), ids, wanted=wanted.astype(dtype))
        agree(lambda i, d=dtype: nn.one_hot(i, 4, dtype=d, axis=0), ids.astype(np.int8), wanted=np.moveaxis(wanted, 2, 0).astype(dtype))
    assert nn.one_hot(2, 3).tolist() == [0, 0, 1]
    with pytest.raises(TypeError, match="one_hot: ids are integers, got f64"):
        nn.one_hot(np.zeros(2), 3)


def test_one_hot_of_a_named_number_of_classes() -> None:
    program = ons.stage(lambda i, x: nn.one_hot(i, x.shape[0]), specs=(ons.ArraySpec((2,), "int64"), ons.ArraySpec(("C",), "float32")))
    assert program(np.array([0, 2]), np.zeros(3, np.float32)).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_embedding_adds_up_equal_rows(agree: Function) -> None:
    table, ids = example((4, 3)), np.array([[0, 2, 2], [-1, 0, 0]])
    agree(nn.embedding, table, ids, wanted=table[ids])
    w = example((2, 3, 3), seed=1)
    wanted = np.zeros_like(table)
    np.add.at(wanted, ids, w)
    for gradient in (
        ons.grad(lambda t: np.sum(nn.embedding(t, ids) * w))(table),
        ons.stage(ons.grad(lambda t, i: np.sum(nn.embedding(t, i) * w)), table, ids)(table, ids),
    ):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12)
    with pytest.raises(TypeError, match="embedding: ids are integers"):
        nn.embedding(table, np.zeros(2))


def test_the_gradient_of_a_large_embedding_loses_nothing() -> None:
    rng = np.random.default_rng(0)
    ids, w = rng.integers(0, 8, 20000), rng.normal(size=(20000, 64))
    program = ons.stage(ons.grad(lambda t, i, w: np.sum(nn.embedding(t, i) * w)), np.zeros((8, 64)), ids, w)
    wanted = np.zeros((8, 64))
    np.add.at(wanted, ids, w)
    for _ in range(3):
        np.testing.assert_allclose(program(np.zeros((8, 64)), ids, w), wanted, rtol=1e-9, atol=1e-9)


def test_top_k_and_logsumexp_are_here_too() -> None:
    values, indices = nn.top_k(np.array([1.0, 3.0, 2.0, 3.0]), 2)
    assert values.tolist() == [3.0, 3.0] and indices.tolist() == [1, 3]
    assert nn.logsumexp(np.array([1000.0, 1000.0])) == 1000 + math.log(2)
