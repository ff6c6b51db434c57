"""Updates in place on traced arrays: what rebinds the handle, and what is refused since it could not be recorded."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons

x34 = np.arange(12.0).reshape(3, 4)


def fine(update: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that copies its argument, changes the copy and returns it, on NumPy arrays and tracers alike."""

    def function(x: Any) -> Any:
        x = x * 1.0
        result = update(x)
        return x if result is None else result

    return function


def set_row(x: Any) -> None:
    x[1] = 5.0


def set_element(x: Any) -> None:
    x[1, -1] = x[0, 0] + 1


def set_slice(x: Any) -> None:
    x[1:, ::-2] = x[:2, :2] * 2


def set_all(x: Any) -> None:
    x[...] = 3
    x[:] += x


def set_mask(x: Any) -> None:
    x[x > 5] = -1.0


def set_rows(x: Any) -> None:
    x[[2, 0, 2]] = np.arange(12.0).reshape(3, 4)


def add_row(x: Any) -> None:
    x[1] += 1.0
    x[1:] *= 2
    x[:, 0] -= x[:, 1]
    x[0] **= 2
    x[-1, 1:3] /= 4


def add_rows(x: Any) -> None:
    x[[0, 2]] += 1.0


def add_whole(x: Any) -> None:
    x += 1.0
    x *= x
    x -= 3
    x /= 2
    x //= 1
    x %= 7


def matmul_in_place(x: Any) -> None:
    x @= np.eye(4) * 2


def shift(x: Any) -> None:
    x[1:] = x[:-1]


def copy_row(x: Any) -> None:
    x[0] = x[2]


def loop(x: Any) -> None:
    for i in range(1, 3):
        x[i] = x[i - 1] * 2 + x[i]


def fill(x: Any) -> None:
    x.fill(2.5)


def sort(x: Any) -> None:
    x *= -1
    x.sort()
    x.sort(axis=0)


def scalars_are_copies(x: Any) -> Any:
    total = x[0, 0]
    total += x[1, 1]
    x[0, 0] = 100.0
    return x + total


def swap_elements(x: Any) -> None:
    x[0, 0], x[1, 1] = x[1, 1], x[0, 0]


def index_arrays_are_copies(x: Any) -> Any:
    rows = x[[0, 1]]
    rows += 1
    x[0] = 0
    return x[[0, 1]] + rows


def copies_are_their_own(x: Any) -> Any:
    y = x.copy()
    z = +x
    w = x.astype(x.dtype)
    y += 1
    z *= 2
    w[0] = 7
    return x + y + z + w


def results_of_rounding_are_their_own(x: Any) -> Any:
    i = x.astype(np.int64)
    j = np.floor(i) if False else np.positive(i)
    j += 1
    return i + j


def a_dead_view_does_not_matter(x: Any) -> None:
    v = x[1:]
    y = v + 1
    del v
    x[0] = y[0]


def a_view_whose_base_is_gone(x: Any) -> Any:
    v = (x * 2)[1:]
    v += 1
    v[0] = 5
    return v


def two_names(x: Any) -> Any:
    y = x
    y += 1
    y[0] = 3
    return x


def whole_slices_are_the_array(x: Any) -> Any:
    y = x[...]
    y += 1
    return x


GOOD = [
    set_row, set_element, set_slice, set_all, set_mask, set_rows, add_row, add_rows, add_whole, matmul_in_place, shift, copy_row, loop, fill, sort,
    scalars_are_copies, swap_elements, index_arrays_are_copies, copies_are_their_own, results_of_rounding_are_their_own,
    a_dead_view_does_not_matter, a_view_whose_base_is_gone, two_names, whole_slices_are_the_array,
]  # fmt: skip


@pytest.mark.parametrize("update", GOOD, ids=lambda f: f.__name__)
def test_what_gives_what_numpy_gives(agree: Any, update: Any) -> None:
    agree(fine(update), x34)


@pytest.mark.parametrize("update", [set_row, add_row, shift, loop, set_mask], ids=lambda f: f.__name__)
def test_updates_are_differentiable(slopes: Any, update: Any) -> None:
    slopes(lambda x: fine(update)(x) ** 2, x34 + 0.3)


def input_row(x: Any) -> Any:
    x[0] = 1.0
    return x


def input_whole(x: Any) -> Any:
    x += 1.0
    return x


def input_row_in_place(x: Any) -> Any:
    x[0] += 1.0
    return x


def input_view(x: Any) -> Any:
    y = x[1:]
    y += 1.0
    return y


def input_view_row(x: Any) -> Any:
    y = x[1:]
    y[0] = 1.0
    return y


def input_fill(x: Any) -> Any:
    x.fill(0)
    return x


def input_transposed(x: Any) -> Any:
    y = x.T
    y += 1
    return y


@pytest.mark.parametrize(
    "function",
    [input_row, input_whole, input_row_in_place, input_view, input_view_row, input_fill, input_transposed],
    ids=lambda f: f.__name__,
)
def test_inputs_are_not_changed(function: Any) -> None:
    for call in (lambda: ons.stage(function, x34), lambda: ons.grad(lambda x: function(x).sum())(x34)):
        with pytest.raises(ons.MutationError, match=r"input of the traced function|in use"):
            call()
    np.testing.assert_array_equal(x34, np.arange(12.0).reshape(3, 4))


def base_under_a_view(x: Any) -> Any:
    v = x[1:]
    x[0] = 1.0
    return x, v


def base_in_place_under_a_view(x: Any) -> Any:
    v = x[0]
    x += 1.0
    return x, v


def view_over_its_base(x: Any) -> Any:
    v = x[1:]
    v[0] = 1.0
    return x, v


def view_in_place_over_its_base(x: Any) -> Any:
    v = x[1:]
    v += 1.0
    return x


def view_in_place_over_its_base_and_used(x: Any) -> Any:
    v = x[1:]
    v += 1.0
    return v


def view_of_a_view(x: Any) -> Any:
    v = x[1:]
    w = v[0]
    del v
    x[0] = 1.0
    return w


def base_of_a_dead_view(x: Any) -> Any:
    v = x[1:]
    w = v[0]
    del v
    gc.collect()
    w[1] = 1.0
    return x


def transposed_view(x: Any) -> Any:
    t = x.T
    x[0] = 1.0
    return t


def reshaped_view(x: Any) -> Any:
    r = x.reshape(-1)
    r[0] = 1.0
    return x


def row_in_a_loop(x: Any) -> Any:
    for row in x:
        row += 1.0
    return x


def nested_index(x: Any) -> Any:
    x[0][1] = 5.0
    return x


def value_used_after_a_shift(x: Any) -> Any:
    v = x[:-1]
    x[1:] = v
    return v


def stored_elsewhere(x: Any) -> Any:
    v = x[0:2]
    v += 1.0
    x[1:3] = v
    return x


BAD = [
    base_under_a_view, base_in_place_under_a_view, view_over_its_base, view_in_place_over_its_base, view_in_place_over_its_base_and_used,
    view_of_a_view, base_of_a_dead_view, transposed_view, reshaped_view, row_in_a_loop, nested_index, value_used_after_a_shift, stored_elsewhere,
]  # fmt: skip


@pytest.mark.parametrize("update", BAD, ids=lambda f: f.__name__)
def test_views_and_bases_are_not_changed_under_each_other(update: Any) -> None:
    with pytest.raises(ons.MutationError, match=r"x\.at\[i\]|x\[i\] \+= 1|copy the view first"):
        ons.stage(lambda x: update(x * 1.0), x34)


def test_the_error_names_the_line() -> None:
    with pytest.raises(ons.MutationError, match=r"test_mutation\.py:\d+: x\[0\] = 1\.0"):
        ons.stage(input_row, x34)


def test_arrays_from_outside_are_not_changed_inside() -> None:
    def function(x: Any) -> Any:
        y = x * 1.0

        def inner(z: Any) -> Any:
            y[0] = z[0]
            return z.sum()

        return ons.grad(inner)(x) + y

    with pytest.raises(ons.MutationError, match="from outside the function that is being traced"):
        ons.stage(function, x34)


def test_in_place_operators_keep_dtype_and_shape() -> None:
    with pytest.raises(TypeError, match="same_kind"):

        def into_integers(x: Any) -> Any:
            x = x + 1
            x += 0.5
            return x

        ons.stage(into_integers, np.zeros(3, np.int64))
    with pytest.raises(ons.ShapeError, match=r"the result has shape \[3, 4\], the array \[4\]"):

        def grown(x: Any) -> Any:
            y = x[0] * 1.0
            y += x
            return y

        ons.stage(grown, x34)

    def narrow(x: Any) -> Any:
        x = x * 1
        x += np.float64(0.5)
        x += np.ones(3)
        return x

    out = ons.stage(narrow, np.zeros(3, np.float32))(np.zeros(3, np.float32))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [1.5, 1.5, 1.5])


def test_updates_in_loops_of_the_program(agree: Any) -> None:
    def function(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            y = y * 1.0
            y[i] = y[i - 1] + y[i]
            return y

        return ons.fori_loop(1, 3, body, x)

    agree(function, x34, wanted=np.cumsum(x34, axis=0))


def test_put_is_refused() -> None:
    with pytest.raises(ons.MutationError, match=r"at\[indices\]\.set"):
        ons.stage(lambda x: (x * 1).put([0], 1), x34)
