"""What NumPy cannot hand over to traced arrays: each row is an error that names the way out, and the way out works."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import onstage as ons

table = np.arange(10.0)
x3 = np.array([1.0, 2.0, 3.0])


def index(x: Any) -> Any:
    return x.astype(np.int64)


def store(x: Any) -> Any:
    buffer = np.zeros(3)
    buffer[0] = x[0]
    return buffer


def store_slice(x: Any) -> Any:
    buffer = np.zeros(3)
    buffer[1:] = x[1:]
    return buffer


VALUES = {
    "const[tracer]": (lambda x: table[index(x)], r"ons\.asarray\(table\)\[i\]"),
    "const[0-d tracer]": (lambda x: table[index(x)[0]], r"ons\.asarray\(table\)\[i\]"),
    "list[tracer]": (lambda x: [1, 2, 3][index(x)[0]], r"ons\.asarray\(table\)\[i\]"),
    "np.take(const, tracer)": (lambda x: np.take(table, index(x)), r"ons\.numpy\.take"),
    "const.take(tracer)": (lambda x: table.take(index(x)), r"ons\.numpy\.take"),
    "const.dot(tracer)": (lambda x: table[:3].dot(x), "constant @ tracer"),
    "np.array([t, t])": (lambda x: np.array([x, x]), r"ons\.numpy\.stack"),
    "np.array([t[0], t[1]])": (lambda x: np.array([x[0], x[1]]), r"ons\.numpy\.stack"),
    "np.array(t)": (lambda x: np.array(x), "which is known only when the program runs"),
    "np.asarray(t)": (lambda x: np.asarray(x), "which is known only when the program runs"),
    "np.full(s, t)": (lambda x: np.full((2,), x[0]), r"ons\.numpy\.full"),
    "np.arange(t)": (lambda x: np.arange(x[0]), "which is known only when the program runs"),
    "np.r_": (lambda x: np.r_[x, x], r"ons\.numpy\.stack"),
    "np.c_": (lambda x: np.c_[x, x], r"ons\.numpy\.stack"),
    "float(t)": (lambda x: float(x[0]), r"float\(\) needs the value"),
    "int(t)": (lambda x: int(x[0]), r"astype\('int64'\)"),
    "complex(t)": (lambda x: complex(x[0]), r"complex\(\) needs the value"),
    "bool(t)": (lambda x: x if x[0] > 0 else -x, r"ons\.cond, ons\.while_loop or np\.where"),
    "range(t)": (lambda x: list(range(index(x)[0])), r"ons\.fori_loop"),
    "math.sin(t)": (lambda x: math.sin(x[0]), r"float\(\) needs the value"),
    "t.tolist()": (lambda x: x.tolist(), "tolist"),
    "t.item()": (lambda x: x[0].item(), r"x\[i\] is a traced 0-d array"),
    "f'{t:.3f}'": (lambda x: f"{x[0]:.3f}", r"formatting \(:\.3f\)"),
    "buffer[i] = t": (store, r"ons\.at\(buffer\)\[i\]\.set\(tracer\)"),
    "buffer[1:] = t": (store_slice, r"ons\.at\(buffer\)\[i\]\.set\(tracer\)"),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_needs_a_value_says_so(name: str) -> None:
    function, message = VALUES[name]
    with pytest.raises(ons.ConcretizationError, match=message):
        ons.stage(function, x3)


def with_buffer(change: Any) -> Any:
    def function(x: Any) -> Any:
        buffer = np.zeros(3)
        change(buffer, x)
        return buffer

    return function


def in_place(buffer: Any, x: Any) -> None:
    buffer += x


MUTATIONS = {
    "ndarray += t": (with_buffer(in_place), r"ons\.at\(buffer\)\[i\]\.add"),
    "np.copyto": (
        with_buffer(lambda b, x: np.copyto(b, x)),
        r"np\.copyto changes its argument.*x\.at\[i\]\.set",
    ),
    "np.copyto(t, ..)": (lambda x: np.copyto(x * 1, x), r"np\.copyto changes its argument"),
    "np.put": (with_buffer(lambda b, x: np.put(b, [0, 1, 2], x)), r"np\.put changes its argument"),
    "np.place": (with_buffer(lambda b, x: np.place(b, [True] * 3, x)), r"np\.place changes its argument"),
    "np.putmask": (
        with_buffer(lambda b, x: np.putmask(b, [True] * 3, x)),
        r"np\.putmask changes its argument",
    ),
    "np.fill_diagonal": (
        lambda x: np.fill_diagonal(x.reshape(1, 3) * 1, 0),
        r"np\.fill_diagonal changes its argument",
    ),
    "np.put_along_axis": (
        with_buffer(lambda b, x: np.put_along_axis(b, np.arange(3), x, 0)),
        r"np\.put_along_axis changes its argument",
    ),
    "ufunc out=": (with_buffer(lambda b, x: np.add(x, x, out=b)), r"np\.add: out="),
    "function out=": (with_buffer(lambda b, x: np.cumsum(x, out=b)), r"np\.cumsum: out="),
    "out= a tracer": (lambda x: np.add(x, 1, out=x), r"np\.add: out="),
    "ufunc.at": (
        with_buffer(lambda b, x: np.add.at(b, [0, 1, 2], x)),
        r"np\.add\.at changes its operand.*x\.at\[i\]\.add",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_changes_an_array_says_so(name: str) -> None:
    function, message = MUTATIONS[name]
    with pytest.raises(ons.MutationError, match=message):
        ons.stage(function, x3)


def test_the_line_of_the_user_is_named() -> None:
    with pytest.raises(ons.ConcretizationError, match=r"test_pitfalls\.py:\d+: buffer\[0\] = x\[0\]"):
        ons.stage(store, x3)


WAYS_OUT = {
    "table": (lambda x: ons.asarray(table)[index(x)], table[[1, 2, 3]]),
    "take": (lambda x: ons.numpy.take(table, index(x)), table[[1, 2, 3]]),
    "stack": (lambda x: ons.numpy.stack([x[0], x[1]]), x3[:2]),
    "full": (lambda x: ons.numpy.full((2,), x[0]), np.full(2, 1.0)),
    "matmul": (lambda x: table[:3] @ x, np.float64(8.0)),
    "at": (lambda x: ons.at(np.zeros(3))[0].set(x[0]), np.array([1.0, 0, 0])),
    "add": (lambda x: ons.at(np.zeros(3))[:].add(x), x3),
    "concatenate": (lambda x: np.concatenate([x, x]), np.tile(x3, 2)),
    "where": (lambda x: np.where(x[0] > 0, x, -x), x3),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_the_ways_out_work(agree: Any, name: str) -> None:
    function, wanted = WAYS_OUT[name]
    agree(function, x3, wanted=wanted)


def test_outside_staging_integers_and_conditions_have_values() -> None:
    def function(x: Any) -> Any:
        return x * table[int(index(x)[2])] if x[0] > 0 else -x

    np.testing.assert_array_equal(ons.grad(lambda x: function(x).sum())(x3), [3, 3, 3])
