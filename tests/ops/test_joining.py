"""concatenate, stack, split, tile, repeat, pad and their kin, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons

SIZES = [0, 1, 3]


def data(*shape, dtype="float32"):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(dtype)


X, Y = data(2, 3), data(2, 3) * 10


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: np.concatenate([x, y]),
        lambda x, y: np.concatenate([x, y, x], axis=-1),
        lambda x, y: np.concatenate((x, y), axis=None),
        lambda x, y: np.concatenate([x]),
        lambda x, y: np.stack([x, y]),
        lambda x, y: np.stack([x, y], axis=-1),
        lambda x, y: np.vstack([x, y[0]]),
        lambda x, y: np.hstack([x, y]),
        lambda x, y: np.hstack([x[0], y[0]]),
        lambda x, y: np.dstack([x, y]),
        lambda x, y: np.column_stack([x, y[:, 0]]),
        lambda x, y: np.append(x, y),
        lambda x, y: np.append(x, 3.0),
        lambda x, y: np.block([[x, y], [y, x]]),
        lambda x, y: np.split(x, 3, axis=1),
        lambda x, y: np.split(x, [1, 2], axis=1),
        lambda x, y: np.array_split(x, 2, axis=1),
        lambda x, y: np.array_split(x, [1, 5, 2], axis=1),
        lambda x, y: np.hsplit(x, 3),
        lambda x, y: np.vsplit(x, 2),
        lambda x, y: np.unstack(x, axis=1),
        lambda x, y: np.tile(x, 2),
        lambda x, y: np.tile(x, (2, 1, 3)),
        lambda x, y: np.tile(x, 1),
        lambda x, y: np.tile(x, (0, 2)),
        lambda x, y: np.repeat(x, 2),
        lambda x, y: np.repeat(x, 3, axis=0),
        lambda x, y: np.repeat(x, [1, 0, 2], axis=1),
        lambda x, y: x.repeat([0, 0], axis=0),
    ],
)
def test_values(agree, f):
    agree(f, X, Y)


def test_promotion(agree):
    agree(lambda x, y: np.concatenate([x, y]), np.array([1, 2], np.int32), np.array([1.5], np.float32))
    agree(lambda x, y: np.stack([x, y]), np.array([1, 2], np.int8), np.array([True, False]))
    agree(lambda x: np.concatenate([x, [1.5]]), np.array([1, 2]))
    agree(lambda x: np.hstack([x, 2]), np.array([1, 2], np.float32))
    agree(lambda x: np.concatenate([x, x], dtype=np.float16), X)
    agree(lambda x: np.stack([x, np.ones(3)]), data(3, dtype="bool"))


@pytest.mark.parametrize("n", SIZES)
def test_named_dims(agree, n):
    x = data(n, 3)
    for f in (
        lambda x: np.concatenate([x, x]),
        lambda x: np.concatenate([x, np.ones((2, 3), "float32")]),
        lambda x: np.concatenate([x, x], axis=1),
        lambda x: np.concatenate([x[:1], np.diff(x, axis=0)]),
        lambda x: ons.grad(lambda x: np.sum(np.concatenate([x[:1], np.diff(x, axis=0)]) ** 2))(x),
        lambda x: np.stack([x, x], axis=1),
        lambda x: np.vstack([x, x]),
        lambda x: np.tile(x, (2, 2)),
        lambda x: np.repeat(x, 2, axis=0),
        lambda x: np.array_split(x, 2),
        lambda x: np.split(x, 3, axis=1),
        lambda x: np.pad(x, ((1, 2), (0, 1))),
        lambda x: np.pad(x, 1, constant_values=7),
    ):
        agree(f, x, shapes=[("B", 3)])
    if n:
        agree(lambda x: np.pad(x, 1, "edge"), x, shapes=[("B", 3)])
    if n > 1:
        for mode in ("reflect", "symmetric", "wrap"):
            agree(lambda x, mode=mode: np.pad(x, 1, mode), x, shapes=[("B", 3)])
    assert ons.eval_shape(lambda x: np.concatenate([x, x]), ons.ArraySpec(("B",), "f4")).shape == (ons.ArraySpec("2*B", "f4").shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "uint16", "uint64", "bool"])
def test_dtypes(agree, dtype):
    x = data(2, 3, dtype=dtype)
    agree(lambda x: np.concatenate([x, x[:1]]), x)
    agree(lambda x: np.pad(x, ((1, 0), (0, 2))), x)
    agree(lambda x: np.pad(x, 1, constant_values=1), x)
    agree(lambda x: np.tile(x, 2), x)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "minimum", "mean"])
def test_pad_modes(agree, mode):
    x = data(4, 5, dtype="float64") ** 1.5
    for width in (0, 1, 2, (1, 3), ((0, 2), (3, 1)), ((2, 2), (1, 1)), 9):
        agree(lambda x, w=width: np.pad(x, w, mode), x)
    agree(lambda x: np.pad(x, 2, mode), data(4, 5, dtype="int32"))


def test_pad_options(agree):
    x = data(3, 4)
    agree(lambda x: np.pad(x, 1, constant_values=(1, 2)), x)
    agree(lambda x: np.pad(x, ((1, 2), (0, 1)), constant_values=((1, 2), (3, 4))), x)
    # NumPy itself takes a dict from 2.3 on
    np.testing.assert_array_equal(ons.stage(lambda x: np.pad(x, {-1: (1, 2)}), x)(x), np.pad(x, ((0, 0), (1, 2))))
    agree(lambda x: np.pad(x, 2, "linear_ramp", end_values=(5, -4)), x)
    agree(lambda x: np.pad(x, 2, "mean", stat_length=2), x)
    agree(lambda x: np.pad(x, 1, "constant", constant_values=-0.0), x)
    with pytest.raises(ValueError, match="negative"):
        ons.stage(lambda x: np.pad(x, -1), x)
    with pytest.raises(ValueError, match="not supported"):
        ons.stage(lambda x: np.pad(x, 1, "nothing"), x)


def test_gradients(slopes):
    x, y = data(2, 3, dtype="float64"), data(2, 3, dtype="float64") + 0.5
    slopes(lambda x, y: np.concatenate([x, y * 2, x], axis=1), x, y)
    slopes(lambda x, y: np.stack([x, y], axis=1), x, y)
    slopes(lambda x: np.tile(x, (2, 2)), x)
    slopes(lambda x: np.repeat(x, [1, 2, 0], axis=1), x)
    slopes(lambda x: np.split(x, 3, axis=1)[1], x)
    for mode in ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean"):
        slopes(lambda x, mode=mode: np.pad(x, ((1, 1), (2, 1)), mode), x)
    slopes(lambda x: np.pad(x, 5, "reflect"), x)
    slopes(lambda x: np.concatenate([x, x[1:]]), x, shapes=[("B", 3)])


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda x: np.concatenate([x, x[0]]), "must match exactly"),
        (lambda x: np.concatenate([]), "at least one array"),
        (lambda x: np.concatenate([x, x[:, :2]]), "must match exactly"),
        (lambda x: np.stack([x, x[:1]]), "same shape"),
        (lambda x: np.concatenate([x[0, 0], x[0, 1]]), "zero-dimensional"),
        (lambda x: np.split(x, 2, axis=1), "equal division"),
        (lambda x: np.repeat(x, -1), "negative"),
        (lambda x: np.tile(x, (-1, 2)), "negative"),
    ],
)
def test_errors(f, match):
    with pytest.raises(ValueError, match=match):
        ons.stage(f, np.ones((2, 3)))


def test_lists_of_traced_arrays():
    f = ons.stage(lambda x: ons.numpy.stack([x[0], 2 * x[1], ons.asarray([x[0] + x[1], 1.0])[0]]), np.ones(2))
    np.testing.assert_array_equal(f(np.array([1.0, 3.0])), [1, 6, 4])
