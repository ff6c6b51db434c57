"""Every dispatchable callable of NumPy is staged or excluded for a reason, and the exclusions say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.ops.exclusions import EXCLUSIONS
from onstage.ops.registry import NUMPY
from onstage.ops.support import numpy_callables

MAX_EXCLUSIONS = 60
CALLABLES = dict(numpy_callables())


def dispatchable() -> Iterator[Any]:
    """By NumPy's own signs: ufuncs, and functions that dispatch by __array_function__."""
    for module in (np, np.linalg, np.fft):
        for name in dir(module):
            value = getattr(module, name)
            if not name.startswith("_") and (isinstance(value, np.ufunc) or hasattr(value, "_implementation")):
                yield value


def test_the_catalogue_knows_every_dispatchable_callable() -> None:
    assert set(CALLABLES.values()) == set(dispatchable())
    assert len(CALLABLES) > 300


@pytest.mark.parametrize("name", CALLABLES)
def test_is_staged_or_excluded(name: str) -> None:
    is_staged, is_excluded = CALLABLES[name] in NUMPY, CALLABLES[name] in EXCLUSIONS
    assert is_staged or is_excluded, f"{name} is neither registered nor excluded for a reason"
    assert not (is_staged and is_excluded), f"{name} is registered, and excluded too"


def test_exclusions_are_few_and_give_reason_and_way_out() -> None:
    assert len(EXCLUSIONS) <= MAX_EXCLUSIONS
    assert set(EXCLUSIONS) <= set(CALLABLES.values())
    for exclusion in EXCLUSIONS.values():
        assert exclusion.kind and exclusion.reason and exclusion.way_out
        assert issubclass(exclusion.error, ons.UnsupportedError | ons.ConcretizationError | ons.MutationError)


EXAMPLES: dict[str, Any] = {
    "np.copyto": lambda x: np.copyto(x, 1),
    "np.fill_diagonal": lambda x: np.fill_diagonal(x, 0),
    "np.place": lambda x: np.place(x, [True], [1]),
    "np.put": lambda x: np.put(x, [0], 1),
    "np.put_along_axis": lambda x: np.put_along_axis(x, np.zeros((1, 2), int), 0, 0),
    "np.putmask": lambda x: np.putmask(x, True, 1),
    "np.may_share_memory": lambda x: np.may_share_memory(x, x),
    "np.shares_memory": lambda x: np.shares_memory(x, x),
    "np.save": lambda x: np.save("never", x),
    "np.savetxt": lambda x: np.savetxt("never", x),
    "np.savez": lambda x: np.savez("never", x),
    "np.savez_compressed": lambda x: np.savez_compressed("never", x),
    "np.busday_count": lambda x: np.busday_count(x, x),
    "np.busday_offset": lambda x: np.busday_offset(x, 1),
    "np.datetime_as_string": np.datetime_as_string,
    "np.is_busday": np.is_busday,
}


@pytest.mark.parametrize("name", [name for name, function in CALLABLES.items() if function in EXCLUSIONS])
def test_excluded_functions_raise_with_reason_and_way_out(name: str) -> None:
    function = EXAMPLES.get(name, CALLABLES[name])
    exclusion = EXCLUSIONS[CALLABLES[name]]
    with pytest.raises(exclusion.error) as caught:
        ons.stage(lambda x: function(x), np.ones((2, 2)))
    assert exclusion.reason in str(caught.value) and exclusion.way_out in str(caught.value)
    assert name.rpartition(".")[2] in str(caught.value)


FOLDED = [
    np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.fmod, np.float_power, np.hypot,
    np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.copysign, np.nextafter, np.heaviside,
]  # fmt: skip
FOLDED_INTEGERS = [np.add, np.subtract, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.gcd, np.lcm, np.left_shift, np.maximum, np.divide]
X = np.array([[3.0, 1.25, 2.0, 0.5], [0.5, 4.0, 1.5, 2.5], [1.0, 2.0, 0.75, 3.0]])


@pytest.mark.parametrize("ufunc", FOLDED, ids=lambda f: f.__name__)
def test_methods_of_binary_ufuncs(agree: Any, ufunc: Any) -> None:
    agree(lambda x: ufunc.reduce(x, 1), X)
    agree(lambda x: ufunc.reduce(x, keepdims=True), X)
    agree(lambda x: ufunc.accumulate(x, 1), X)
    agree(lambda x: ufunc.outer(x[0], x), X)
    agree(lambda x: ufunc.reduceat(x, [0, 2, 1, 3], axis=1), X)


@pytest.mark.parametrize("ufunc", FOLDED_INTEGERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16"])
def test_methods_of_binary_ufuncs_on_integers(agree: Any, ufunc: Any, dtype: str) -> None:
    x = np.array([[3, 1, 2, 1], [6, 4, 2, 2]], dtype)
    agree(lambda x: ufunc.reduce(x, 1), x)
    agree(lambda x: ufunc.accumulate(x, 1), x)
    agree(lambda x: ufunc.reduceat(x, [1, 0, 3], 1), x)


@pytest.mark.parametrize("ufunc", [np.power, np.arctan2], ids=lambda f: f.__name__)
def test_folds_that_numpy_itself_gets_wrong(agree: Any, ufunc: Any) -> None:
    """With AVX-512, NumPy 2.4 gives power.reduce([a, b, c]) = a ** c; by definition it is (a ** b) ** c."""
    x = X.T
    wanted = ufunc(ufunc(x[:, 0], x[:, 1]), x[:, 2])
    agree(lambda x: ufunc.reduce(x, 1), x, wanted=wanted)
    agree(lambda x: ufunc.accumulate(x, 1)[:, 2], x, wanted=wanted)


def test_long_folds_are_loops(agree: Any) -> None:
    x = np.linspace(1, 2, 40)
    agree(np.subtract.reduce, x)
    agree(lambda x: np.subtract.reduce(x, initial=3.0), x)
    agree(np.hypot.accumulate, x)
    agree(lambda x: np.hypot.reduce(x, initial=0.0), x, shapes=(("N",),))
    agree(lambda x: np.hypot.reduce(x), np.zeros(0))
    agree(lambda x: np.logical_xor.reduce(x), np.array([True, False, True, True]))


def test_errors_of_ufunc_methods() -> None:
    with pytest.raises(ValueError, match="zero-size array to reduction operation subtract"):
        ons.stage(np.subtract.reduce, np.zeros(0))
    with pytest.raises(ValueError, match="'subtract' is not reorderable"):
        ons.stage(lambda x: np.subtract.reduce(x, (0, 1)), X)
    with pytest.raises(ons.ShapeError, match=r"np\.subtract\.reduce.*give initial="):
        ons.stage(np.subtract.reduce, ons.ArraySpec(("N",), "float64"))
    with pytest.raises(ons.ConcretizationError, match=r"np\.add\.reduceat.*segment_sum"):
        ons.stage(lambda x, i: np.add.reduceat(x, i), X[0], np.array([0, 1]))
    with pytest.raises(IndexError, match=r"index 7 out-of-bounds in add\.reduceat"):
        ons.stage(lambda x: np.add.reduceat(x, [7]), X[0])
    with pytest.raises(ons.DTypeError, match="cannot be combined again"):
        ons.stage(lambda x: np.less.reduce(x), X)
    with pytest.raises(ons.MutationError, match=r"np\.add\.at changes its operand"):
        ons.stage(lambda x: np.add.at(x, 0, 1), X)
