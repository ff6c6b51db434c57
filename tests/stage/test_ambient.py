"""Ambient randomness raises while staging, and numpy.random is itself again afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.random import standard_normal

import onstage as ons

NORMAL = np.random.normal


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("normal", lambda: np.random.normal(size=2)),
        ("rand", lambda: np.random.rand(2)),
        ("seed", lambda: np.random.seed(0)),
        ("default_rng", lambda: np.random.default_rng(0).normal(size=2)),
        ("shuffle", lambda: np.random.shuffle(np.arange(3))),
    ],
)
def test_each_way_of_drawing_is_named(name: str, draw: Callable[[], Any]) -> None:
    def f(x: Any) -> Any:
        draw()
        return x

    with pytest.raises(ons.TracingError, match=rf"np\.random\.{name} while staging.*onstage\.random"):
        ons.stage(f, np.ones(2))
    assert np.random.default_rng(0).normal() == np.random.default_rng(0).normal()
    assert np.random.normal is NORMAL


def test_a_function_imported_by_name_is_found_by_the_generators_state() -> None:
    with pytest.raises(ons.TracingError, match="global generator"):
        ons.stage(lambda x: x + standard_normal(2), np.ones(2))


def test_drawing_outside_staging_is_untouched() -> None:
    assert ons.grad(lambda x: np.sum(x * np.random.default_rng(0).normal(size=2)))(np.ones(2)).shape == (2,)
