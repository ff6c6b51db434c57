"""x[index]: NumPy's rules, its errors, gradients, named dims, vmap."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.stage.interpreter import evaluate

x34 = np.arange(12.0).reshape(3, 4)
x234 = np.arange(24.0).reshape(2, 3, 4)

BASIC = [
    np.s_[1], np.s_[-1], np.s_[1, 2], np.s_[...], np.s_[()], np.s_[:], np.s_[1:], np.s_[:-1], np.s_[::-1], np.s_[::-2], np.s_[:, 3:0:-1],
    np.s_[-100:100], np.s_[100:], np.s_[5:1], np.s_[1:1], np.s_[2:-10:-1], np.s_[None], np.s_[:, None, 1], np.s_[..., 0], np.s_[0, ..., 1:3],
    np.s_[..., None], np.s_[::2, ::-3], np.s_[np.int8(1), np.uint64(2)], np.s_[np.array(2)],
]  # fmt: skip
ARRAYS = [
    np.s_[[0, 1]], np.s_[[-1, 0, -1]], np.s_[[[0, 1], [1, 0]]], np.s_[:, [1, 2]], np.s_[[0, 1], :, [1, 2]], np.s_[:, [0, 2], [1, 3]],
    np.s_[0, :, [1, 2]], np.s_[:, 0, [1, 2]], np.s_[None, [0, 1], None, [1, 2]], np.s_[[0, 1], None, 0], np.s_[[[0], [1]], [0, 2]],
    np.s_[..., [3, 3]], np.s_[[]], np.s_[:, []], np.s_[:, 0, ..., [1, 2, 0]], np.s_[[0, 1], ..., [1, 2]], np.s_[1:, [0, 1], ::-1],
    np.s_[np.array([1, 0], np.uint8)], np.s_[np.array([1, -2], np.int16), 1:], np.s_[np.array(1), :, [0, 2]],
    np.s_[[True, False]], np.s_[:, [True, False, True]], np.s_[x234 > 7], np.s_[:, np.eye(3, 4) > 0], np.s_[np.array([[True, False, True]] * 2), 1],
    np.s_[True], np.s_[False], np.s_[True, [0]], np.s_[np.True_, ..., False], np.s_[[0, 1], True, :, [1, 2]], np.s_[np.array(True)],
]  # fmt: skip


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_indices(agree: Any, index: Any) -> None:
    agree(lambda x: x[index], x34)


@pytest.mark.parametrize("index", ARRAYS, ids=str)
def test_index_arrays_and_masks(agree: Any, index: Any) -> None:
    agree(lambda x: x[index], x234)


def _traced_parts(index: Any) -> tuple[list[int], tuple[Any, ...]]:
    items = index if isinstance(index, tuple) else (index,)
    return [i for i, v in enumerate(items) if isinstance(v, list | np.ndarray) and np.asarray(v).dtype.kind in "iu" and np.size(v)], items


@pytest.mark.parametrize("index", [i for i in ARRAYS if _traced_parts(i)[0]], ids=str)
def test_traced_index_arrays(agree: Any, index: Any) -> None:
    places, items = _traced_parts(index)

    def function(x: Any, *arrays: Any) -> Any:
        parts = list(items)
        for place, array in zip(places, arrays, strict=True):
            parts[place] = array
        return x[tuple(parts)]

    agree(function, x234, *(np.asarray(items[i]) for i in places))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64"])
def test_every_dtype_keeps_its_own(agree: Any, dtype: str) -> None:
    x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    agree(lambda x, i: (x[1:, ::-1], x[i], x[i, i], x[-1]), x, np.array([0, -1, 2]))


def test_random_index_expressions() -> None:
    rng = np.random.default_rng(4)
    choice = random.Random(4)
    for _ in range(150):
        shape = tuple(choice.choice([0, 1, 2, 3, 4]) for _ in range(choice.randrange(1, 5)))
        index = _random_index(shape, choice, rng)
        x = rng.standard_normal(shape)
        try:
            x[index]
        except IndexError:
            with pytest.raises(IndexError):
                ons.stage(lambda x, index=index: x[index], x)
            continue
        program = ons.stage(lambda x, index=index: x[index], x).program
        (got,) = evaluate(program, [x])
        assert got.shape == x[index].shape, (shape, index)
        np.testing.assert_array_equal(got, x[index], err_msg=f"{shape} {index}")


def _random_index(shape: tuple[int, ...], choice: random.Random, rng: Any) -> tuple[Any, ...]:
    block = choice.choice([(2,), (3, 1), (1, 3), (2, 3), (), (0,)])
    items: list[Any] = []
    axis = 0
    while axis < len(shape) and choice.random() < 0.9:
        n, kind = shape[axis], choice.choice("ssiaanme")
        if kind == "s":
            bounds = [choice.choice([None, *range(-n - 2, n + 3)]) for _ in range(2)]
            items.append(slice(*bounds, choice.choice([None, 1, 2, 3, -1, -2])))
        elif kind == "i" and n:
            items.append(choice.randrange(-n, n))
        elif kind == "a":
            items.append(rng.integers(-n, n, block if n else (0,)) if n else np.zeros(0, np.int64))
        elif kind == "m":
            items.append(rng.integers(0, 2, n).astype(bool))
        elif kind == "n":
            items.append(None)
            continue
        elif kind == "e" and Ellipsis not in [i for i in items if i is Ellipsis]:
            items.append(Ellipsis)
            axis += choice.randrange(len(shape) - axis + 1)
            continue
        else:
            continue
        axis += 1
    shapes = [np.shape(i) for i in items if isinstance(i, np.ndarray) and i.dtype != bool] + [
        (int(i.sum()),) for i in items if isinstance(i, np.ndarray) and i.dtype == bool
    ]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return tuple(i for i in items if not isinstance(i, np.ndarray))
    return tuple(items)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (np.s_[5], "index 5 is out of bounds for axis 0 with size 3"),
        (np.s_[:, -5], "index -5 is out of bounds for axis 1 with size 4"),
        (np.s_[[0, 7]], "index 7 is out of bounds for axis 0 with size 3"),
        (np.s_[0, 0, 0], "too many indices for array: array is 2-dimensional, but 3 were indexed"),
        (np.s_[..., ...], "single ellipsis"),
        (np.s_[0.5], "only integers, slices"),
        (np.s_["a"], "only integers, slices"),
        (np.s_[np.array([0.0])], "arrays used as indices must be of integer"),
        (np.s_[[True, False]], "boolean index did not match indexed array along axis 0; size of axis is 3"),
        (np.s_[[0, 1], [0, 1, 2]], r"could not be broadcast together with shapes \(2,\) \(3,\)"),
    ],
    ids=str,
)
def test_what_numpy_refuses_is_refused_while_staging(index: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        x34[index]
    with pytest.raises(IndexError, match=message):
        ons.stage(lambda x: x[index], x34)


def test_a_slice_step_of_zero() -> None:
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        ons.stage(lambda x: x[::0], x34)


@pytest.mark.parametrize("bad", [3, -4])
def test_traced_indices_out_of_range_fail_when_run(bad: int) -> None:
    for function, index in (
        (lambda x, i: x[i], np.array([0, bad])),
        (lambda x, i: x[i, i], np.array([0, bad])),
        (lambda x, i: x[i], np.array(bad)),
    ):
        program = ons.stage(function, x34, np.zeros_like(index))
        with pytest.raises(IndexError, match="out of bounds"):
            program(x34, index)
        with pytest.raises(IndexError, match="out of bounds"):
            evaluate(program.program, [x34, index])


def test_a_traced_mask_names_the_ways_out() -> None:
    for function in (
        lambda x: x[x > 0],
        lambda x: x[0, x[0] > 0],
        lambda x: np.compress(x[0] > 1, x, 1),
        lambda x: np.extract(x > 1, x),
    ):
        with pytest.raises(ons.ConcretizationError, match=r"np\.where\(mask.*size=n"):
            ons.stage(function, x34)


def test_a_traced_slice_bound_names_the_way_out() -> None:
    with pytest.raises(ons.ConcretizationError, match=r"x\[start \+ np\.arange\(n\)\]"):
        ons.stage(lambda x, i: x[i : i + 2], x34, np.array(0))


def test_a_window_at_a_traced_start(agree: Any) -> None:
    agree(lambda x, i: x[i + np.arange(2)], x34, np.array(1))


def test_masks_are_known_outside_staging() -> None:
    np.testing.assert_array_equal(ons.grad(lambda x: (x[x > 0] ** 2).sum())(np.array([1.0, -2.0, 3.0])), [2, 0, 6])


def test_lists_of_traced_integers(agree: Any) -> None:
    agree(lambda x, i, j: x[[i, j, i]], x34, np.array(2), np.array(-3))


def test_negative_runtime_indices(agree: Any) -> None:
    agree(lambda x, i: x[i], np.arange(5.0), np.array([-1, 0, -3]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_that_others_get_wrong(dtype: str) -> None:
    x3, x5 = np.zeros(3, dtype), np.zeros(5, dtype)
    weights = np.array([1, 2, 3, 4], dtype)
    index = np.array([0, 2, 2, -1])
    cases = [
        (lambda x: (x[index] * weights).sum(), (x3,), [1, 0, 9]),
        (lambda x, i: (x[i] * weights).sum(), (x3, index), [1, 0, 9]),
        (lambda x: (x[::-2] * weights[:3]).sum(), (x5,), [3, 0, 2, 0, 1]),
        (lambda x: np.cumsum(x)[-1], (x3,), [1, 1, 1]),
    ]
    for function, args, wanted in cases:
        for got in (ons.grad(function)(*args), ons.stage(ons.grad(function), *args)(*args)):
            assert got.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1:, ::-2], lambda x: x[[0, 2, 2]], lambda x: x[:, [1, 1]], lambda x: x[[0, 1, 1], [3, 0, 0]], lambda x: x[0, [1, 2]],
        lambda x: x[None, :, 1], lambda x: x[x34 > 4], lambda x: x[[[0], [2]], [1, 1]] ** 2, lambda x: x[-1] * x[:, :1],
    ],
)  # fmt: skip
def test_gradients(slopes: Any, function: Any) -> None:
    slopes(function, np.sin(x34))


def test_second_order() -> None:
    index = np.array([0, 2, 2])

    def function(x: Any) -> Any:
        return (x[index] ** 3).sum() + (x[::-1] * x * x[1]).sum()

    def numeric(x: Any) -> Any:
        return np.stack([(ons.grad(function)(x + d) - ons.grad(function)(x - d)) / 2e-6 for d in np.eye(3) * 1e-6])

    x = np.array([0.3, -1.2, 0.7])
    hessian = np.stack([ons.grad(lambda x, k=k: ons.grad(function)(x)[k])(x) for k in range(3)])
    np.testing.assert_allclose(hessian, numeric(x), atol=1e-6)


NAMED = {
    "x[:-1]": lambda x: x[:-1], "x[1:]": lambda x: x[1:], "x[::-1]": lambda x: x[::-1], "x[::-2]": lambda x: x[::-2], "x[-2:]": lambda x: x[-2:],
    "x[1:-1]": lambda x: x[1:-1], "diff": lambda x: x[1:] - x[:-1], "x[:, [0, 1, 1]]": lambda x: x[:, [0, 1, 1]], "x[None, ..., 1]": lambda x: x[None, ..., 1],
    "grad": ons.grad(lambda x: (x[1:] * x[:-1]).sum()), "grad of a step": ons.grad(lambda x: (x[::-2] * x[::-2]).sum()),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_named_dims_at_any_size(name: str) -> None:
    function = NAMED[name]
    program = ons.stage(function, specs=(ons.ArraySpec(("B", 3), "float64"),))
    for size in (0, 1, 2, 3, 6):
        x = np.random.default_rng(size).standard_normal((size, 3))
        wanted = ons.stage(function, x)(x)
        for got in (program(x), evaluate(program.program, [x])[0]):
            assert got.shape == wanted.shape
            np.testing.assert_array_equal(got, wanted)


def test_the_size_of_a_named_slice() -> None:
    def function(x: Any) -> Any:
        assert str(x[:-1].shape[0]) == str(x[1:].shape[0])
        assert x[::-1].shape[0] == x.shape[0]
        return x[1:]

    out = ons.stage(function, specs=(ons.ArraySpec(("B",), "float32"),)).out_specs
    assert "max(" in repr(out)


def test_integers_on_named_dims() -> None:
    program = ons.stage(
        lambda x: (x[0], x[-1], x[x.shape[0] // 2], ons.grad(lambda x: (x[-1] ** 2).sum())(x)),
        specs=(ons.ArraySpec(("B", 2), "float64"),),
    )
    for size in (1, 3):
        x = np.arange(2.0 * size).reshape(size, 2) + 1
        first, last, middle, slope = program(x)
        np.testing.assert_array_equal(np.stack([first, last, middle]), x[[0, -1, size // 2]])
        np.testing.assert_array_equal(slope, np.concatenate([np.zeros((size - 1, 2)), 2 * x[-1:]]))
    with pytest.raises(IndexError, match="out of bounds"):
        program(np.zeros((0, 2)))


def test_a_mask_on_a_named_axis_is_refused() -> None:
    with pytest.raises(ons.ShapeError, match="known only at run time"):
        ons.stage(lambda x: x[np.array([True, False])], specs=(ons.ArraySpec(("B",), "float64"),))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (1, 0), (None, 1)])
def test_vmap(axes: Any) -> None:
    rng = np.random.default_rng(0)
    x, i = rng.standard_normal((4, 4, 3)), rng.integers(-3, 3, (4, 4))

    def example(array: Any, axis: Any, k: int) -> Any:
        return array if axis is None else np.moveaxis(array, axis, 0)[k]

    functions = [
        lambda x, i: ons.asarray(x)[i],
        lambda x, i: ons.asarray(x)[:, i],
        lambda x, i: ons.asarray(x)[i, :][:, ::-1],
        lambda x, i: ons.asarray(x)[i, i],
    ]
    for function in functions:
        got = ons.vmap(function, axes)(x, i)
        wanted = np.stack([function(example(x, axes[0], k), example(i, axes[1], k)) for k in range(4)])
        np.testing.assert_array_equal(got, wanted)


def test_indices_of_constants(agree: Any) -> None:
    table = np.arange(10.0)
    agree(lambda i: ons.asarray(table)[i], np.array([1, -1]), wanted=table[[1, -1]])
    agree(lambda i: ons.numpy.take(table, i), np.array([1, -1]), wanted=table[[1, -1]])


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_take(agree: Any, mode: str, axis: Any) -> None:
    index = np.array([[0, 2], [-1, 1]]) if mode == "raise" else np.array([[5, -7], [3, 1]])
    agree(lambda x: np.take(x, index, axis, mode=mode), x34)
    agree(lambda x, i: x.take(i, axis, mode=mode), x34, index)
    agree(lambda x, i: x.take(i, axis=axis, mode=mode), x34, np.array(1, np.uint8))


def test_take_refuses_what_numpy_refuses() -> None:
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 3"):
        ons.stage(lambda x: np.take(x, [9], 0), x34)
    with pytest.raises(TypeError, match="cannot cast indices from f64"):
        ons.stage(lambda x: np.take(x, [0.5], 0), x34)
    with pytest.raises(IndexError, match="non-empty take from an empty axes"):
        ons.stage(lambda x: np.take(x, [0], 0), np.zeros((0, 2)))
    with pytest.raises(ValueError, match="clipmode"):
        ons.stage(lambda x: np.take(x, [0], 0, mode="x"), x34)


SELECTIONS = {
    "select": lambda x: np.select([x > 6, x > 2], [x, x * x], -1),
    "select promotes": lambda x: np.select([x > 6, x > 2], [x.astype(np.float32), 1.5]),
    "choose": lambda x: np.choose(np.array([0, 2, 1, 0]), x),
    "choose traced": lambda x: np.choose(x[0].astype(np.int64) % 3, [x[0], x[1], 7.0]),
    "choose wrap": lambda x: np.choose(x[0].astype(int) - 2, x, mode="wrap"),
    "choose clip": lambda x: (x[0].astype(int) - 1).choose(x, mode="clip"),
    "compress": lambda x: np.compress([True, False, True], x, axis=0),
    "compress method": lambda x: x.compress([False, True], axis=1),
    "extract": lambda x: np.extract(np.arange(12) % 3 == 0, x),
    "ix_": lambda x: x[np.ix_(x[0].astype(int) % 3, [0, 1])],
    "delete": lambda x: np.delete(x, 1, 0),
    "delete flat": lambda x: np.delete(x, [0, -1]),
    "delete slice": lambda x: np.delete(x, slice(None, None, 2), 1),
    "insert": lambda x: np.insert(x, 1, 5, axis=1),
    "insert several": lambda x: np.insert(x, [0, 2, 2], [5, 6, 7]),
    "insert column": lambda x: np.insert(x, 1, x[:, 0], axis=1),
    "insert row": lambda x: np.insert(x, 1, [1, 2, 3, 4], axis=0),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(-x, axis=1), 1),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections(agree: Any, name: str) -> None:
    agree(SELECTIONS[name], x34)


@pytest.mark.parametrize("name", ["nonzero", "argwhere", "flatnonzero", "unique"])
def test_data_dependent_sizes_name_the_bound(name: str) -> None:
    with pytest.raises(ons.ConcretizationError, match=rf"ons\.numpy\.{name}\(x, size=n\)"):
        ons.stage(lambda x: getattr(np, name)(x), x34)


def test_where_with_a_condition_alone() -> None:
    with pytest.raises(ons.ConcretizationError, match=r"np\.where\(condition, x, y\).*size=n"):
        ons.stage(lambda x: np.where(x > 0), x34)


def test_nonzero_with_a_bound(agree: Any) -> None:
    m = np.array([[0, 3, 0], [5, 0, 1]])
    for size in (0, 2, 3, 5):
        rows, columns = (np.concatenate([i, [-1] * 9])[:size] for i in np.nonzero(m))
        agree(lambda m, size=size: ons.numpy.nonzero(m, size=size, fill_value=-1), m, wanted=(rows, columns))
        agree(
            lambda m, size=size: ons.numpy.argwhere(m, size=size, fill_value=-1),
            m,
            wanted=np.stack([rows, columns], 1),
        )


def test_unique_with_a_bound(agree: Any) -> None:
    x = np.array([3.0, 1, np.nan, 3, 1, np.nan, 0])
    agree(lambda x: ons.numpy.unique(x, size=4), x, wanted=np.array([0, 1, 3, np.nan]))
    agree(lambda x: ons.numpy.unique(x, size=6, fill_value=-1), x, wanted=np.array([0, 1, 3, np.nan, -1, -1]))


def test_bincount_with_a_length(agree: Any) -> None:
    agree(lambda x: ons.numpy.bincount(x, length=5), np.array([1, 1, 3]), wanted=np.array([0, 2, 0, 1, 0]))
    agree(
        lambda x, w: ons.numpy.bincount(x, w, length=4),
        np.array([1, 1, 3]),
        np.array([1.0, 2, 4]),
        wanted=np.array([0, 3.0, 0, 4]),
    )


def test_results_on_numpy_arrays_are_arrays() -> None:
    for result in (
        ons.numpy.take(x34, [0, 1], 0),
        ons.numpy.select([x34 > 1], [x34]),
        ons.numpy.choose([0, 1], [[1, 2], [3, 4]]),
    ):
        assert type(result) is np.ndarray
    assert list(itertools.chain(*ons.numpy.nonzero(np.array([0, 1])))) == [1]
