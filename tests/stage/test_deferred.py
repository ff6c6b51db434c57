"""Deferred arrays: they record, evaluate once, reuse programs by structure, and never see later edits of what they were made from."""

from __future__ import annotations

import numpy as np
import pytest

import onstage as ons
from onstage.stage import deferred


def test_operations_only_record_until_a_value_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []
    original = deferred.backend

    def counting() -> object:
        runs.append(None)
        return original()

    monkeypatch.setattr(deferred, "backend", counting)
    x = ons.array(np.arange(6.0).reshape(2, 3))
    w = ons.array(np.ones((3, 2), np.float64))
    y = (x @ w + 1.0).sum()
    assert y.shape == () and y.dtype == np.float64 and runs == []
    assert float(y) == 34.0 and len(runs) == 1
    assert float(y) == 34.0 and len(runs) == 1
    assert bool(y > 0) and len(runs) == 2


def test_values_follow_neither_later_edits_of_the_source_nor_of_results() -> None:
    source = np.ones(3)
    x = ons.array(source)
    y = x * 2 + source
    source[:] = 100.0
    assert y.tolist() == [3.0, 3.0, 3.0]
    out = y.numpy()
    out[:] = -1.0
    assert y.tolist() == [3.0, 3.0, 3.0]
    assert np.asarray(y).flags.writeable


def test_structure_is_reused_and_values_are_not_part_of_it() -> None:
    deferred._programs.clear()
    total = ons.array(np.zeros(2))
    for i in range(300):
        total = total * 0.5 + float(i)
        assert total.shape == (2,)
        _ = total.tolist()
    assert len(deferred._programs) == 1
    expected = np.zeros(2)
    for i in range(300):
        expected = expected * 0.5 + i
    np.testing.assert_allclose(total.numpy(), expected)


def test_programs_of_other_wiring_never_meet() -> None:
    a, b = ons.array(np.float64(2)), ons.array(np.float64(5))
    assert float(a + a) == 4.0
    assert float(a + b) == 7.0
    assert float(a - b) == -3.0 and float(b - a) == 3.0
    assert float(a * b + a) == 12.0 and float(a * b + b) == 15.0


def test_a_long_loop_neither_recompiles_nor_grows() -> None:
    deferred._programs.clear()
    x = ons.array(np.ones(2))
    for _ in range(10_000):
        x = x * 0.999 + 0.001
    assert len(deferred._programs) <= 2
    np.testing.assert_allclose(x.numpy(), np.ones(2))


def test_live_intermediates_are_evaluated_with_the_first_value_asked_for() -> None:
    x = ons.array(np.arange(4.0))
    middle = np.exp(x)
    last = middle.sum()
    assert float(last) == pytest.approx(float(np.exp(np.arange(4.0)).sum()))
    assert middle.node.operation is None and middle.node.value is not None


def test_transforms_and_programs_take_deferred_arrays() -> None:
    x = ons.array(np.array([1.0, 2.0]))
    assert ons.grad(lambda x: np.sum(x**3))(x).tolist() == [3.0, 12.0]
    assert ons.vmap(lambda v: v * v)(x).tolist() == [1.0, 4.0]
    assert ons.grad(lambda v: np.sum(v * x))(np.ones(2)).tolist() == [1.0, 2.0]
    program = ons.stage(lambda x: x + 1.0, np.ones(2))
    result = program(x)
    assert isinstance(result, ons.Array) and result.tolist() == [2.0, 3.0]
    assert not ons.is_traced(x) and not isinstance(x, np.ndarray)


def test_python_protocols() -> None:
    x = ons.array([1, 2, 3])
    assert x.dtype == np.int64 and len(x) == 3 and [int(v) for v in x] == [1, 2, 3]
    assert repr(x) == "ons.array([1, 2, 3], dtype=int64)" and f"{x[0] * 2.5:.2f}" == "2.50"
    assert np.from_dlpack(x).tolist() == [1, 2, 3]
    assert list(range(5))[x[1]] == 2
    x[0] = 7
    assert x.tolist() == [7, 2, 3]
    with pytest.raises(TypeError, match="strings"):
        ons.array("text")
