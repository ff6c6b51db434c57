"""Bad input of onstage.random: the class and the words of each error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons

random = ons.random
KEY = random.key(0)

BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: random.uniform(42),
        ons.DTypeError,
        "uniform: the key is 42, a number; make a key with ons.random.key(seed)",
    ),
    (lambda: random.uniform(True), ons.DTypeError, "uniform: the key is True, a number"),
    (lambda: random.uniform(np.int64(3)), ons.DTypeError, "uniform: a key is a 0-d uint64 array, got i64[]"),
    (
        lambda: random.uniform(np.zeros(2, np.uint32)),
        ons.DTypeError,
        "uniform: a key is a 0-d uint64 array, got u32[2]",
    ),
    (
        lambda: random.uniform(np.random.RandomState(0)),
        ons.DTypeError,
        "uniform: the key is a NumPy generator, which has hidden state",
    ),
    (
        lambda: random.split(random.split(KEY)),
        ons.ShapeError,
        "split: one key is a 0-d uint64 array, got an array of shape [2]; take one of them, or ons.vmap",
    ),
    (lambda: random.uniform("k"), ons.DTypeError, "uniform: key: str is no array"),
    (lambda: random.uniform(None), ons.DTypeError, "uniform: key: NoneType is no array"),
    (
        lambda: random.normal(KEY, (2.5,)),
        ons.DTypeError,
        "normal: a shape is an integer, a named dim or a tuple of them, got (2.5,)",
    ),
    (
        lambda: random.normal(KEY, "B"),
        ons.DTypeError,
        "normal: a shape is an integer, a named dim or a tuple of them, got 'B'",
    ),
    (lambda: random.normal(KEY, (3, -1)), ons.ShapeError, "normal: negative size in the shape [3, -1]"),
    (lambda: random.normal(KEY, (), int), ons.DTypeError, "normal: dtype is i64, which is not floating"),
    (lambda: random.uniform(KEY, (), np.complex64), ons.DTypeError, "complex"),
    (
        lambda: random.uniform(KEY, (3,), float, np.zeros(2)),
        ons.ShapeError,
        "uniform: minval of shape [2] does not broadcast to the shape [3] that is drawn",
    ),
    (
        lambda: random.uniform(KEY, (), float, 2, 1),
        ValueError,
        "uniform: minval 2.0 is not at most maxval 1.0",
    ),
    (
        lambda: random.uniform(KEY, (), float, -1e308, 1e308),
        OverflowError,
        "uniform: the interval from -1e+308 to 1e+308 is not finite",
    ),
    (
        lambda: random.uniform(KEY, (), float, np.nan, 1),
        ValueError,
        "uniform: minval nan is not at most maxval 1.0",
    ),
    (
        lambda: random.bits(KEY, (), np.int32),
        ons.DTypeError,
        "bits: dtype is i32; uint8, uint16, uint32 and uint64 hold random bits",
    ),
    (lambda: random.key(1.5), ons.DTypeError, "key: seed is an integer, got f64"),
    (lambda: random.key(True), ons.DTypeError, "key: seed is an integer, got bool"),
    (lambda: random.key(2**64), OverflowError, "key: seed 18446744073709551616 is no 64-bit integer"),
    (
        lambda: random.key(np.arange(3)),
        ons.ShapeError,
        "key: seed is one integer, got shape [3]; ons.vmap takes many",
    ),
    (lambda: random.fold_in(KEY, 1.0), ons.DTypeError, "fold_in: data is an integer, got f64"),
    (lambda: random.split(KEY, -1), ons.ShapeError, "split: negative size in the shape [-1]"),
    (lambda: random.bernoulli(KEY, 1.5), ValueError, "bernoulli: p is a probability, in [0, 1], got 1.5"),
    (
        lambda: random.bernoulli(KEY, [0.1, -0.2]),
        ValueError,
        "bernoulli: p is a probability, in [0, 1], got -0.2",
    ),
    (lambda: random.bernoulli(KEY, np.nan), ValueError, "bernoulli: p is a probability, in [0, 1], got nan"),
    (lambda: random.bernoulli(KEY, True), ons.DTypeError, "bernoulli: p is a probability, got bool"),
    (
        lambda: random.bernoulli(KEY, np.zeros(3), (2,)),
        ons.ShapeError,
        "bernoulli: p of shape [3] does not broadcast to the shape [2]",
    ),
    (
        lambda: random.truncated_normal(KEY, 1, 1),
        ValueError,
        "truncated_normal: lower 1.0 is not below upper 1.0",
    ),
    (
        lambda: random.categorical(KEY, np.zeros((3, 4)), shape=(2,)),
        ons.ShapeError,
        "categorical: shapes [3], [2] do not broadcast",
    ),
    (
        lambda: random.categorical(KEY, np.zeros((3, 4)), shape=()),
        ons.ShapeError,
        "categorical: logits for a batch of shape [3] do not broadcast to the shape []",
    ),
    (
        lambda: random.categorical(KEY, 0.0),
        ons.ShapeError,
        "categorical: 0-d logits have no axis to choose along",
    ),
    (lambda: random.categorical(KEY, np.zeros(3), axis=1), np.exceptions.AxisError, "out of bounds"),
    (lambda: random.permutation(KEY, -1), ons.ShapeError, "permutation: -1 elements"),
    (
        lambda: random.permutation(KEY, 2.5),
        ons.DTypeError,
        "permutation: an integer, a named dim or an array with an axis is needed, got 2.5",
    ),
    (
        lambda: random.choice(KEY, 3, (4,), replace=False),
        ons.ShapeError,
        "choice: cannot take a larger sample than population when replace is False",
    ),
    (
        lambda: random.choice(KEY, 0, (4,)),
        ons.ShapeError,
        "choice: a cannot be empty unless no samples are taken",
    ),
    (lambda: random.choice(KEY, 3, p=[0.5, 0.6, 0.7]), ValueError, "choice: probabilities do not sum to 1"),
    (
        lambda: random.choice(KEY, 2, p=[1.5, -0.5]),
        ValueError,
        "choice: probabilities are not non-negative: -0.5",
    ),
    (
        lambda: random.choice(KEY, 3, p=[0.5, 0.5]),
        ons.ShapeError,
        "choice: 'a' and 'p' must have same size, got 3 and 2",
    ),
    (lambda: random.choice(KEY, 3, p=[[0.5], [0.5]]), ons.ShapeError, "choice: 'p' must be 1-dimensional"),
    (
        lambda: random.choice(KEY, 3, (2,), replace=False, p=[0, 0, 1]),
        ValueError,
        "choice: fewer non-zero entries in p than the 2",
    ),
    (
        lambda: ons.nn.dropout(np.ones(3), 1.2, KEY),
        ValueError,
        "dropout: the rate is a probability, in [0, 1], got 1.2",
    ),
    (
        lambda: ons.nn.dropout(np.ones(3), np.zeros(3), KEY),
        ons.ShapeError,
        "dropout: the rate is one number, got shape [3]",
    ),
    (
        lambda: ons.nn.dropout(np.ones(3, int), 0.2, KEY),
        ons.DTypeError,
        "dropout: x is i64, which is not floating",
    ),
    (lambda: ons.nn.dropout(np.ones(3), 0.2, 0), ons.DTypeError, "dropout: the key is 0, a number"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_input(index: int) -> None:
    call, error, message = BAD[index]
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_bad_input_while_staging() -> None:
    with pytest.raises(ons.DTypeError, match=re.escape("uniform: a key is a 0-d uint64 array, got f64[]")):
        ons.stage(random.uniform, np.float64(1))
    with pytest.raises(ons.DTypeError, match=re.escape("normal: a key is a 0-d uint64 array, got i64[]")):
        ons.stage(random.normal, 3)
    with pytest.raises(ons.TracingError):
        ons.stage(lambda k, x: random.permutation(k, x[0]), KEY, np.arange(3))
