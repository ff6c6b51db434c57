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
    assert (CALLABLES[name] in NUMPY) != (CALLABLES[name] in EXCLUSIONS)


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


def test_ufuncs_reduce_accumulate_and_outer_as_numpy_does() -> None:
    x = np.array([[3.0, 1.0, 2.0], [0.5, 4.0, 1.5]])
    for ufunc in (np.add, np.multiply, np.maximum, np.minimum):
        for call in (
            lambda x, f=ufunc: f.reduce(x, 1),
            lambda x, f=ufunc: f.accumulate(x, 1),
            lambda x, f=ufunc: f.outer(x[0], x[1]),
        ):
            assert np.allclose(ons.stage(call, x)(x), call(x)), ufunc.__name__
