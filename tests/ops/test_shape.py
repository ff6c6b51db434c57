"""reshape, transpose, broadcasting, flip, roll, slices and their kin, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons
from onstage.ops.slicing import slice_axes

SIZES = [0, 1, 3]


def data(*shape, dtype="float32"):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(dtype)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.reshape(x, (4, 6)),
        lambda x: x.reshape(-1, 2),
        lambda x: x.reshape((3, -1, 2)),
        lambda x: np.reshape(x, 24, order="F"),
        lambda x: np.reshape(x, (6, -1), order="F"),
        np.ravel,
        lambda x: x.ravel(order="F"),
        lambda x: x.flatten(),
        np.transpose,
        lambda x: x.transpose(1, 0, 2),
        lambda x: x.transpose((2, -3, 1)),
        lambda x: x.T,
        lambda x: x.mT,
        lambda x: x.swapaxes(0, -1),
        lambda x: np.moveaxis(x, [0, 1], [-1, 0]),
        lambda x: np.moveaxis(x, 2, 0),
        lambda x: np.rollaxis(x, 2),
        lambda x: np.expand_dims(x, (0, -1)),
        lambda x: np.squeeze(np.expand_dims(x, (0, -1)), axis=0),
        lambda x: np.squeeze(x[:1]),
        lambda x: np.broadcast_to(x, (2, 2, 3, 4)),
        lambda x: np.broadcast_arrays(x, np.ones((5, 1, 1, 1)))[0],
        np.flip,
        lambda x: np.flip(x, 1),
        lambda x: np.flip(x, (0, 2)),
        np.fliplr,
        np.flipud,
        np.rot90,
        lambda x: np.rot90(x, -1, (1, 2)),
        lambda x: np.rot90(x, 2),
        lambda x: np.rot90(x, 3, (2, 0)),
        lambda x: np.roll(x, 5),
        lambda x: np.roll(x, -1, axis=1),
        lambda x: np.roll(x, (1, 2), axis=(0, 2)),
        lambda x: np.roll(x, 3, axis=(0, 1)),
        lambda x: np.roll(x, 0, axis=0),
        lambda x: np.atleast_3d(x[0, 0]),
        lambda x: np.atleast_2d(x[0, 0]),
        lambda x: np.meshgrid(x[0, 0], x[0, :, 0]),
        lambda x: np.meshgrid(x[0, 0], x[0, :, 0], x[:, 0, 0], indexing="ij", sparse=True),
        lambda x: np.meshgrid(x[0, 0], x[0, :, 0], x[:, 0, 0]),
        lambda x: np.matrix_transpose(x),
    ],
)
def test_values(agree, f):
    agree(f, data(2, 3, 4))
    agree(f, data(2, 3, 4, dtype="bool"))


def test_scalars_and_empty(agree):
    agree(lambda x: x.reshape(1, 1), np.float32(2))
    agree(lambda x: x.reshape(0, 0, 4), np.zeros((0, 8, 2)))
    agree(np.ravel, np.zeros((0, 3)))
    agree(np.flip, np.zeros((0, 3)))
    agree(np.transpose, np.float64(3))
    agree(np.atleast_1d, np.float64(3))
    agree(lambda x: np.roll(x, 2, 0), np.zeros((0, 2)))


@pytest.mark.parametrize("n", SIZES)
def test_named_dims(agree, n):
    x = data(n, 2, 3)
    # NumPy itself refuses the -1 of an empty array.
    agree(lambda x: x.reshape(x.shape[0], -1), x, shapes=[("B", 2, 3)], wanted=x.reshape(n, 6))
    for f in (
        lambda x: x.reshape(-1, 3),
        lambda x: x.reshape(2 * x.shape[0], 3),
        lambda x: np.ravel(x),
        lambda x: x.T,
        lambda x: np.broadcast_to(x, (4, *x.shape)),
        lambda x: np.flip(x, 0),
        lambda x: np.flip(x),
        lambda x: np.roll(x, 1, axis=0),
        lambda x: np.roll(x, -2, axis=0),
        lambda x: np.roll(x, 7, axis=0),
        lambda x: np.roll(x, 1),
        lambda x: np.squeeze(np.expand_dims(x, 1), 1),
        lambda x: np.rot90(x, 1, (0, 2)),
        lambda x: np.roll(x, 2, axis=(0, 1)),
    ):
        agree(f, x, shapes=[("B", 2, 3)])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
def test_slices_of_named_dims(agree, n):
    x = data(n, 2)
    bounds = [None, 0, 1, 2, 4, -1, -2, -4]
    rng = np.random.default_rng(n)
    for _ in range(12):
        start, stop = rng.choice(np.array(bounds, dtype=object), 2)
        for step in (1, 2, -1, -3):
            s = slice(start, stop, step)
            agree(lambda x, s=s: slice_axes(x, {0: s}) if hasattr(x, "spec") else x[s], x, shapes=[("B", 2)])


@pytest.mark.parametrize(
    "bound",
    [
        lambda n: slice(None, n - 1),
        lambda n: slice(n // 2, None),
        lambda n: slice(n - 2, None),
        lambda n: slice(None, n - 3),
        lambda n: slice(n - 1, None, -2),
        lambda n: slice(None, n // 2, -1),
        lambda n: slice(-n, n + 3),
        lambda n: slice(n - 4, n - 1),
        lambda n: slice(2 - n, None),
    ],
)
def test_slices_bounded_by_dims(agree, bound):
    for n in (0, 1, 2, 3, 5):
        agree(
            lambda x: slice_axes(x, {0: bound(x.shape[0])}) if hasattr(x, "spec") else x[bound(len(x))],
            data(n, 2),
            shapes=[("B", 2)],
        )


def test_neighbours_have_equal_dims(agree):
    for n in SIZES:
        agree(lambda x: x[1:] - x[:-1], data(n, 2), shapes=[("B", 2)])


def test_gradients(slopes):
    x = data(2, 3, 4, dtype="float64")
    for f in (
        lambda x: x.reshape(4, 6).T * 2,
        lambda x: np.broadcast_to(x, (2, 2, 3, 4)),
        lambda x: np.flip(x, 1),
        lambda x: np.roll(x, 2, axis=2),
        lambda x: np.moveaxis(x, 0, 2),
        lambda x: x[::-1, 1:, 3:0:-2],
        lambda x: np.rot90(x),
    ):
        slopes(f, x)
    slopes(lambda x: np.roll(np.flip(x, 0), 1, 0)[::2], data(5, 2, dtype="float64"), shapes=[("B", 2)])


def test_strided_slice_gradient():
    gradient = ons.grad(lambda x: np.sum(x[::-2] * np.array([1.0, 2.0, 3.0])))
    for f in (gradient, ons.stage(gradient, np.zeros(5))):
        np.testing.assert_array_equal(f(np.zeros(5)), [3, 0, 2, 0, 1])


def test_views_are_known():
    def through_a_view(x):
        y = x + 1
        z = y.T
        y[0] = 0
        return z

    with pytest.raises(ons.MutationError, match="view"):
        ons.stage(through_a_view, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (lambda x: x.reshape(4, 2), ValueError, "cannot reshape"),
        (lambda x: x.reshape(-1, -1), ValueError, "one unknown dimension"),
        (lambda x: x.transpose(0, 0), ValueError, "repeated axis"),
        (lambda x: x.transpose(0), ValueError, "axes don't match"),
        (lambda x: x.swapaxes(0, 2), np.exceptions.AxisError, "out of bounds"),
        (lambda x: np.squeeze(x, 0), ValueError, "size not equal to one"),
        (lambda x: np.broadcast_to(x, (3, 3)), ValueError, "broadcast"),
        (lambda x: np.expand_dims(x, 5), np.exceptions.AxisError, "out of bounds"),
        (lambda x: np.moveaxis(x, (0, 1), 0), ValueError, "same number"),
        (lambda x: np.rot90(x, axes=(0, 0)), ValueError, "different"),
        (lambda x: x.reshape(x[0, 0].astype(int)), TypeError, "known only when"),
    ],
)
def test_errors(f, error, match):
    with pytest.raises(error, match=match):
        ons.stage(f, np.ones((2, 3)))


def test_mismatching_dims_are_named():
    with pytest.raises(ons.ShapeError, match="B"):
        ons.stage(lambda x: x.reshape(3, -1, 7), specs=(ons.ArraySpec(("B", 2), "float32"),))
