"""x.at[index].set/add/...: values, dtypes, duplicates, gradients, named dims, vmap, many threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onstage as ons
from onstage.ops.scatter import SCATTER
from onstage.stage.interpreter import evaluate

x34 = np.sin(np.arange(12.0)).reshape(3, 4) + 1.5
UFUNCS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "power": np.power,
}
INDICES = [
    np.s_[1], np.s_[-1, 2], np.s_[...], np.s_[1:], np.s_[:-1], np.s_[::-2], np.s_[:, 3:0:-2], np.s_[1:2, 1:3], np.s_[None, :, 1], np.s_[5:],
    np.s_[[0, 2]], np.s_[[0, -1, 1]], np.s_[:, [1, 3]], np.s_[[0, 1], [3, 3]], np.s_[1:, [0, 2]], np.s_[[[0], [2]], [1, 3]], np.s_[0, [1, 2]],
    np.s_[[]], np.s_[x34 > 1.5], np.s_[[True, False, True]], np.s_[True], np.s_[False], np.s_[::2, None, [0, 3]], np.s_[..., [0], ::2][1:],
]  # fmt: skip


def updated(x: Any, index: Any, name: str, values: Any) -> Any:
    result = np.array(x)
    if name == "set":
        result[index] = values
    else:
        UFUNCS[name].at(result, index, values)
    return result


@pytest.mark.parametrize("name", ["set", *UFUNCS])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_every_update_at_every_kind_of_index(agree: Any, index: Any, name: str) -> None:
    values = np.cos(np.arange(np.size(x34[index]), dtype=float)).reshape(np.shape(x34[index])) + 2
    agree(lambda x, v: getattr(x.at[index], name)(v), x34, values, wanted=updated(x34, index, name, values))
    agree(lambda x: getattr(x.at[index], name)(3), x34, wanted=updated(x34, index, name, 3))
    np.testing.assert_allclose(getattr(ons.at(x34)[index], name)(values), updated(x34, index, name, values), rtol=1e-14)


DUPLICATES = [
    ((np.array([1, 1, -1]),), 4),
    ((np.array([[0, 2], [2, 0]]),), 4),
    ((np.array([0, 0, 1]), np.array([1, 1, -1])), None),
]


@pytest.mark.parametrize("name", ["set", "add", "subtract", "multiply", "divide", "min", "max"])
@pytest.mark.parametrize("case", DUPLICATES, ids=str)
def test_duplicates(agree: Any, case: Any, name: str) -> None:
    index, row = case
    shape = (*index[0].shape, *([row] if row else []))
    values = np.cos(np.arange(np.prod(shape))).reshape(shape) + 2
    wanted = updated(x34, index, name, values)
    agree(lambda x, v, *i: getattr(x.at[tuple(i)], name)(v), x34, values, *index, wanted=wanted)
    agree(lambda x, v: getattr(x.at[index], name)(v), x34, values, wanted=wanted)


def test_the_last_write_wins_and_adds_accumulate(agree: Any) -> None:
    x, i = np.zeros(3), np.array([1, 1, -1])
    for dtype in ("float32", "float64", "int32", "int64", "float16"):
        agree(lambda x: x.at[[1, 1, -1]].add([5, 7, 9]), x.astype(dtype), wanted=np.array([0, 12, 9], dtype))
        agree(lambda x, i: x.at[i].add([5, 7, 9]), x.astype(dtype), i, wanted=np.array([0, 12, 9], dtype))
        agree(lambda x, i: x.at[i].set([5, 7, 9]), x.astype(dtype), i, wanted=np.array([0, 7, 9], dtype))


def test_integers_wrap(agree: Any) -> None:
    agree(
        lambda x, i: x.at[i].add(200),
        np.array([1, 2], np.uint8),
        np.array([0, 0]),
        wanted=np.array([401 % 256, 2], np.uint8),
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("add", [True, True]), ("multiply", [False, False]), ("max", [True, True]), ("min", [False, False])],
)
def test_booleans(agree: Any, name: str, wanted: Any) -> None:
    x, i, v = np.array([True, False]), np.array([0, 1, 1, 0]), np.array([False, True, False, True])
    agree(lambda x, i, v: getattr(x.at[i], name)(v), x, i, v, wanted=np.array(wanted))


def test_nan_is_an_extreme(agree: Any) -> None:
    x, i, v = (
        np.array([1, np.nan, 3, 4]),
        np.array([0, 1, 2, 2, 3, 3]),
        np.array([np.nan, 5, 1, 9, 9, np.nan]),
    )
    agree(lambda x, i, v: x.at[i].max(v), x, i, v, wanted=np.array([np.nan, np.nan, 9, np.nan]))
    agree(lambda x, i, v: x.at[i].min(v), x, i, v, wanted=np.array([np.nan, np.nan, 1, np.nan]))


def test_infinities_stay_in_their_rows(agree: Any) -> None:
    v = np.array([[np.inf, 1], [np.nan, -np.inf], [2, 3]])
    agree(
        lambda v, i: np.zeros((4, 2)) + ons.at(np.zeros((4, 2)))[i].add(v),
        v,
        np.array([0, 1, 3]),
        wanted=np.array([v[0], v[1], [0, 0], v[2]]),
    )


def test_values_are_cast_as_numpy_assigns(agree: Any) -> None:
    agree(
        lambda x, v: x.at[1:].set(v),
        np.zeros(3, np.int32),
        np.array([1.7, -1.7]),
        wanted=np.array([0, 1, -1], np.int32),
    )
    agree(lambda x: x.at[0].set(2.9), np.zeros(2, np.int64), wanted=np.array([2, 0]))
    agree(
        lambda x, v: x.at[0].add(v),
        np.zeros(2, np.float32),
        np.array(0.5),
        wanted=np.array([0.5, 0], np.float32),
    )
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        ons.stage(lambda x: x.at[0].set(300), np.zeros(2, np.int8))
    for name in ("add", "multiply", "divide"):
        with pytest.raises(TypeError, match="cannot put f64 results into an array of i64"):
            ons.stage(lambda x, name=name: getattr(x.at[0], name)(0.5), np.zeros(2, np.int64))


def test_values_broadcast_as_numpy_assigns(agree: Any) -> None:
    agree(
        lambda x, v: x.at[1:, 0].set(v),
        x34,
        np.ones((1, 1, 2)),
        wanted=updated(x34, np.s_[1:, 0], "set", np.ones(2)),
    )
    with pytest.raises(ValueError, match=r"could not broadcast input array from shape \(3,\) into shape \(4,\)"):
        ons.stage(lambda x: x.at[0].set(np.ones(3)), x34)


def test_out_of_range() -> None:
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
        ons.stage(lambda x: x.at[5].set(1), x34)
    for shape in ((), (2,), (3,)):
        for bad in (3, -4):
            for name in ("set", "add", "max"):
                index = np.zeros(shape, np.int64)
                program = ons.stage(lambda x, i, name=name: getattr(x.at[i, i], name)(1.0), x34, index)
                with pytest.raises(IndexError, match="out of bounds"):
                    program(x34, index + bad)
                with pytest.raises(IndexError, match="out of bounds"):
                    evaluate(program.program, [x34, index + bad])


def test_an_index_out_of_range_does_not_name_another_row() -> None:
    program = ons.stage(lambda x, i, j: x.at[i, j].add(1.0), np.zeros((3, 4)), np.zeros(2, int), np.zeros(2, int))
    with pytest.raises(IndexError, match="out of bounds"):
        program(np.zeros((3, 4)), np.array([0, 0]), np.array([0, 5]))


def test_traced_masks(agree: Any) -> None:
    x = x34 - 1.5
    agree(lambda x: x.at[x > 0].set(0), x, wanted=np.where(x > 0, 0, x))
    agree(lambda x: x.at[x > 0].power(0.5), x, wanted=np.where(x > 0, np.abs(x) ** 0.5, x))
    agree(
        lambda x: x.at[x[:, 0] > 0].add(np.arange(4.0)),
        x,
        wanted=np.where(x[:, :1] > 0, x + np.arange(4.0), x),
    )
    slope = ons.stage(ons.grad(lambda x: x.at[x > 0].power(0.5).sum()), x)(x)
    np.testing.assert_allclose(slope, np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)), 1))
    with pytest.raises(ons.ConcretizationError, match=r"x\.at\[mask\]\.set\(value\)"):
        ons.stage(lambda x: x.at[x > 0].set(np.arange(12.0)), x)


def test_other_ways_to_update(agree: Any) -> None:
    agree(lambda x: x.at[1].apply(np.sqrt), x34, wanted=updated(x34, 1, "power", 0.5))
    agree(lambda x, i: x.at[i].get(), x34, np.array([0, -1]), wanted=x34[[0, -1]])
    part = ons.at(x34)[1:].get()
    assert type(part) is np.ndarray and not np.shares_memory(part, x34)
    with pytest.raises(ons.UnsupportedError, match="may name an element twice"):
        ons.stage(lambda x: x.at[[0, 0]].power(2), x34)


def test_updates_of_constants_with_traced_values_and_indices(agree: Any) -> None:
    agree(
        lambda v, i: ons.at(np.zeros(4))[i].set(v),
        np.array([1.0, 2]),
        np.array([3, 0]),
        wanted=np.array([2.0, 0, 0, 1]),
    )
    agree(lambda v: ons.at([0.0, 0.0])[1].set(v), np.array(5.0), wanted=np.array([0.0, 5.0]))


def test_the_array_itself_is_left_alone() -> None:
    x = np.zeros(3)
    for update in (
        lambda: ons.at(x)[1].set(5),
        lambda: ons.at(x)[:].set(np.ones(3)),
        lambda: ons.at(x)[[0, 0]].add(1),
    ):
        result = update()
        result += 1
        np.testing.assert_array_equal(x, np.zeros(3))
    v = np.ones(3)
    ons.at(x)[:].set(v)[0] = 7
    np.testing.assert_array_equal(v, np.ones(3))


GRADIENTS = {
    "set slice": lambda x, v: ons.at(x)[1:].set(v[:2] ** 2) * x,
    "set step": lambda x, v: ons.at(x)[::-2].set(v[:2]) * x,
    "set rows": lambda x, v: ons.at(x)[[0, 2]].set(v[:2]) * x,
    "set duplicates": lambda x, v: ons.at(x)[[0, 2, 2]].set(v) * x,
    "set duplicates, batched": lambda x, v: ons.vmap(lambda r, u: ons.at(r)[[0, 2, 2, 0]].set(u))(x, v) * x,
    "add duplicates": lambda x, v: ons.at(x)[[0, 2, 2]].add(v * v) * x,
    "add columns": lambda x, v: ons.at(x)[:, [1, 1, 3]].add(v[:, :3]) * x,
    "multiply": lambda x, v: ons.at(x)[[0, 2]].multiply(v[:2]),
    "divide": lambda x, v: ons.at(x)[1].divide(v[0] + 3),
    "max": lambda x, v: ons.at(x)[[0, 2, 2]].max(v),
    "min": lambda x, v: ons.at(x)[[0, 2, 2]].min(v),
    "mixed": lambda x, v: ons.at(x)[1:, [0, 2]].set(v[1:, :2]) * x,
    "one element": lambda x, v: ons.at(x)[1, 2].add(v[0, 0]) * x,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(slopes: Any, name: str) -> None:
    slopes(GRADIENTS[name], x34, np.cos(np.arange(12.0) * 3).reshape(3, 4) + 1.7)


def test_gradients_with_traced_indices() -> None:
    x, v, i = np.zeros(3), np.array([5.0, 7, 9]), np.array([1, 1, -1])
    weights = np.array([10.0, 20, 30])
    for name, to_x, to_v in (("set", [10, 0, 0], [0, 20, 30]), ("add", [10, 20, 30], [20, 20, 30])):
        function = ons.grad(lambda x, v, i, name=name: (getattr(x.at[i], name)(v) * weights).sum(), argnums=(0, 1))
        for got in (function(x, v, i), ons.stage(function, x, v, i)(x, v, i)):
            np.testing.assert_array_equal(got[0], to_x)
            np.testing.assert_array_equal(got[1], to_v)


def test_ties_of_extremes_share_equally() -> None:
    function = ons.grad(lambda x, v: x.at[[0, 0, 1]].max(v).sum(), argnums=(0, 1))
    to_x, to_v = function(np.array([2.0, 1.0]), np.array([2.0, 2.0, 0.0]))
    np.testing.assert_allclose(to_x, [1 / 3, 1])
    np.testing.assert_allclose(to_v, [1 / 3, 1 / 3, 0])


def test_the_gradient_of_repeated_factors_is_refused() -> None:
    x, v = np.ones(3), np.ones(2)
    np.testing.assert_array_equal(ons.grad(lambda x: (x.at[[0, 0]].multiply(2.0 * v)).sum())(x), [4, 1, 1])
    with pytest.raises(ons.UnsupportedError, match="no element is multiplied twice"):
        ons.grad(lambda v: (ons.at(x)[[0, 0]].multiply(v)).sum())(v)


NAMED = {
    "set": lambda x: x.at[1:].set(2.0), "step": lambda x: x.at[::-2].set(2.0), "last": lambda x: x.at[:-1, 1].add(2.0),
    "backwards": lambda x: x.at[::-1].set(x), "columns": lambda x: x.at[:, [0, 1, 1]].add(x), "mask": lambda x: x.at[x > 0].set(0.0),
    "grad of step": ons.grad(lambda x: (x.at[::2].multiply(x[::2] * 3)).sum()), "inner": lambda x: x.at[1:-1, ::-2].set(x[1:-1, :2]),
    "traced": lambda x: x.at[(x[0:1, 0] * 0).astype(int)].set(5.0),
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


@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, 0), (None, 1, 0), (0, 1, None), (None, None, 1)])
def test_vmap(axes: Any, name: str) -> None:
    rng = np.random.default_rng(0)
    x, i, v = rng.standard_normal((4, 4, 4)), rng.integers(-4, 4, (4, 4)), rng.standard_normal((4, 4, 4))

    def example(array: Any, axis: Any, k: int) -> Any:
        shared = array[0] if axis is None else None
        return shared if axis is None else np.moveaxis(array, axis, 0)[k]

    args = [array[0] if axis is None else array for array, axis in zip((x, i, v), axes, strict=True)]
    got = ons.vmap(lambda x, i, v: getattr(ons.at(x)[i], name)(v), axes)(*args)
    wanted = np.stack([updated(example(x, axes[0], k), example(i, axes[1], k), name, example(v, axes[2], k)) for k in range(4)])
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_duplicates_do_not_race() -> None:
    rng = np.random.default_rng(0)
    i, v = rng.integers(0, 8, 20000), rng.standard_normal((20000, 16)).astype(np.float32)
    program = ons.stage(
        lambda i, v: (
            ons.at(np.zeros((8, 16), np.float32))[i].add(v),
            ons.at(np.zeros((8, 16), np.float32))[i].set(v),
        ),
        i,
        v,
    )
    last = np.zeros((8, 16), np.float32)
    last[i] = v
    total = np.zeros((8, 16))
    np.add.at(total, i, v)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 4
    session = ort.InferenceSession(program.to_onnx().SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(5):
        added, written = session.run(None, {"i": i, "v": v})
        np.testing.assert_allclose(added, total, atol=2e-3)
        np.testing.assert_array_equal(written, last)


def test_no_program_holds_large_zeros() -> None:
    table, i = np.zeros((5000, 8), np.float32), np.array([1, 2, 2])
    program = ons.stage(ons.grad(lambda t, i: (t[i] ** 2).sum()), table, i)
    assert len(program.to_onnx().SerializeToString()) < 20000
    program = ons.stage(lambda t: t.at[1:].set(0.0), table)
    assert len(program.to_onnx().SerializeToString()) < 20000


def test_every_kind_has_its_primitive() -> None:
    assert [p.name for p in SCATTER.values()] == [
        "scatter",
        "scatter_add",
        "scatter_multiply",
        "scatter_min",
        "scatter_max",
    ]
