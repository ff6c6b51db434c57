"""stage(): forms, signatures, static values, weak numbers, named dims, freezing, and calls from many threads."""

from __future__ import annotations

import threading
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import onstage as ons


def test_forms() -> None:
    spec = ons.ArraySpec((2,), "f32")
    x = np.ones(2, np.float32)
    by_example = ons.stage(lambda x: x + 1, x)
    by_spec = ons.stage(lambda x: x + 1, specs=(spec,))

    @ons.stage(specs=(spec,), name="plus")
    def decorated(x: Any) -> Any:
        return x + 1

    assert by_example.hash == by_spec.hash == decorated.hash and decorated.name == "plus"
    for program in (by_example, by_spec, decorated):
        assert program(x).tolist() == [2.0, 2.0] and program(x).dtype == np.float32
    keyword = ons.stage(lambda x, *, scale: x * scale, specs=(spec,), kw_specs={"scale": ons.ArraySpec((), "f32")})
    assert keyword(x, scale=np.float32(3)).tolist() == [3.0, 3.0]
    assert ons.stage(lambda: np.arange(3.0))().tolist() == [0.0, 1.0, 2.0]
    assert ons.stage(lambda *xs: xs[0] + xs[1], x, x).in_names == ("xs.0", "xs.1")
    assert ons.stage(lambda x, n=2: x * n, x)(x).tolist() == [2.0, 2.0]


@dataclass
class State:
    position: Any
    rest: Any


def test_result_trees_keep_their_types() -> None:
    def f(state: State) -> Any:
        return {"state": State(state.position * 2, (state.rest["k"], None)), "n": 3}

    state = State(np.ones(2), {"k": np.arange(2)})
    out = ons.stage(f, state)(state)
    assert isinstance(out["state"], State) and out["state"].rest[1] is None
    assert out["state"].position.tolist() == [2.0, 2.0] and int(out["n"]) == 3
    assert ons.stage(f, state).in_names == ("state.position", "state.rest.k")
    assert ons.stage(f, state).out_names == ("out.n", "out.state.position", "out.state.rest.0")


def test_static_values() -> None:
    program = ons.stage(lambda x, cfg: x ** cfg["n"], np.full(2, 2.0), {"n": ons.StaticSpec(3)})
    assert program(np.full(2, 2.0), {"n": 3}).tolist() == [8.0, 8.0]
    with pytest.raises(ValueError, match="static argument cfg\\['n'\\] was staged as 3, got 4"):
        program(np.full(2, 2.0), {"n": 4})


def test_weak_numbers_follow_nep_50() -> None:
    x = np.ones(2, np.float32)
    assert ons.stage(lambda x, a: x * a, x, 2.0)(x, 3.0).dtype == np.float32
    assert ons.stage(lambda x, a: x * (a * 2.0), x, 2.0)(x, 3.0).dtype == np.float32
    assert ons.stage(lambda x, a: x * np.sqrt(a), x, 2.0)(x, 4.0).dtype == np.float64
    assert ons.stage(lambda x: x * np.float64(2), x)(x).dtype == np.float64
    small = ons.stage(lambda x, a: x + a, np.ones(2, np.int8), 2)
    assert small(np.ones(2, np.int8), 100).tolist() == [101, 101]
    with pytest.raises(OverflowError, match="a: Python integer 300 out of bounds for int8"):
        small(np.ones(2, np.int8), 300)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_named_dims_at_every_size(size: int) -> None:
    spec = ons.ArraySpec(("B", 4), "f64")
    x = np.arange(4.0 * size).reshape(size, 4)
    cases: list[tuple[Any, Any]] = [
        (lambda x: x.reshape(x.shape[0], -1), x),
        (lambda x: x + ons.numpy.arange(x.shape[0])[:, None], x + np.arange(size)[:, None]),
        (lambda x: x[::-1], x[::-1]),
        (lambda x: np.concatenate([x, x]), np.concatenate([x, x])),
        (lambda x: x[1:], x[1:]),
        (lambda x: x * x.shape[0], x * size),
        (lambda x: x.sum(0) / x.size if False else x.sum(0), x.sum(0)),
        (lambda x: x.T @ x, x.T @ x),
    ]
    for f, expected in cases:
        # staged at size 1: the size must not stick
        for program in (ons.stage(f, specs=(spec,)),):
            got = program(x)
            assert got.shape == expected.shape and got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


def test_dims_that_cannot_be_told_or_compared() -> None:
    b, c = ons.ArraySpec(("B",), "f64"), ons.ArraySpec(("C",), "f64")
    with pytest.raises(ons.ShapeError, match="a name must stand alone as a dim of some input"):
        ons.stage(lambda x: x, specs=(ons.ArraySpec(("B + 1",), "f64"),))
    with pytest.raises(ons.ShapeError, match="cannot broadcast dims B and C"):
        ons.stage(lambda x, y: x + y, specs=(b, c))
    with pytest.raises(ons.ConcretizationError, match="cannot decide B == 1"):
        ons.stage(lambda x: x if x.shape[0] == 1 else 2 * x, specs=(b,))
    with pytest.raises(ons.ConcretizationError, match=r"ons\.numpy\.arange"):
        ons.stage(lambda x: np.zeros(x.shape), specs=(b,))
    program = ons.stage(lambda x, y: x * y, specs=(b, b))
    with pytest.raises(ValueError, match="dim B is 1 in x and 4 in y"):
        program(np.ones(1), np.ones(4))


def test_freeze() -> None:
    params = {"w": np.full((2, 2), 3.0), "b": np.ones(2)}
    program = ons.stage(lambda params, x: x @ params["w"] + params["b"], params, np.ones((4, 2)))
    frozen = program.freeze({"params": params})
    assert frozen.in_names == ("x",)
    np.testing.assert_array_equal(frozen(np.ones((4, 2))), program(params, np.ones((4, 2))))
    np.testing.assert_array_equal(frozen(x=np.ones((4, 2))), program(params, np.ones((4, 2))))
    part = program.freeze({"params.w": params["w"]})
    assert part.in_names == ("params.b", "x")
    np.testing.assert_array_equal(part({"b": params["b"]}, np.ones((4, 2))), program(params, np.ones((4, 2))))
    with pytest.raises(ValueError, match="no input 'q' to freeze; there are params"):
        program.freeze({"q": 1.0})
    with pytest.raises(ValueError, match="has shape"):
        program.freeze({"params.w": np.ones(3)})


def test_a_program_called_while_tracing_is_inlined_and_specialised() -> None:
    inner = ons.stage(lambda x: x * x.shape[0], specs=(ons.ArraySpec(("B",), "f64"),))
    outer = ons.stage(lambda y: inner(y) + inner(y[:1])[0], np.ones(3))
    assert outer(np.ones(3)).tolist() == [4.0, 4.0, 4.0]
    assert not outer.program.symbolic


def test_eight_threads_and_results_that_are_held() -> None:
    program = ons.stage(lambda x: (np.cumsum(x * 2.0), x), np.ones(1000))
    held: list[tuple[float, Any]] = []
    failures: list[str] = []

    def work(k: int) -> None:
        for i in range(50):
            scale = float(k * 50 + i)
            x = np.full(1000, scale)
            total, same = program(x)
            held.append((scale, total))
            if same.tobytes() != x.tobytes() or np.shares_memory(same, x):
                failures.append("the returned input is not a copy of it")
            x[:] = -1.0
            if same[0] != scale:
                failures.append("a held result followed an edit")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for scale, total in held:
        np.testing.assert_array_equal(total, np.cumsum(np.full(1000, scale * 2.0)))


def test_inputs_of_every_layout() -> None:
    program = ons.stage(lambda x: x * 2, np.ones((2, 3)))
    base = np.arange(6.0).reshape(3, 2)
    for x in (base.T, np.asfortranarray(base.T), base.T.astype(">f8"), np.broadcast_to(1.0, (2, 3))):
        got = program(x)
        np.testing.assert_array_equal(got, np.asarray(x, np.float64) * 2)
        assert got.flags.writeable


def test_ten_thousand_equations_stage_lower_and_scale_linearly() -> None:
    def chain(n: int) -> Any:
        def f(x: Any) -> Any:
            for i in range(n):
                x = x * 0.5 + 1.0 if i % 2 else np.tanh(x)
            return np.sum(x)

        return f

    gradient = ons.stage(ons.grad(chain(6667)), np.ones(3, np.float32))
    assert len(gradient.program.equations) > 20_000
    assert len(gradient.to_onnx().graph.node) > 20_000


def test_the_example_is_kept_for_verification(tmp_path: Any) -> None:
    x = np.arange(4.0)
    program = ons.stage(lambda x, n: x * 2, x, ons.StaticSpec(3))
    x[:] = -1.0
    assert program.example is not None and program.example[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert ons.stage(lambda x: x, specs=(ons.ArraySpec((2,), "f64"),)).example is None
    large = np.zeros(3_000_000)
    program = ons.stage(lambda x: x.sum(), large)
    assert program.example is not None and program.example[0] is large
    del large
    assert program.example is None


def test_copies_of_a_traced_array_are_arrays_of_their_own() -> None:
    def f(params: Any) -> Any:
        new, other = deepcopy(params), copy(params["w"])
        new["w"][0] = 9
        other[1] = 8
        return new["w"], other, params["w"]

    x = np.array([1.0, 2.0])
    for got, wanted in zip(ons.stage(f, {"w": x})({"w": x}), f({"w": x}), strict=True):
        np.testing.assert_array_equal(got, wanted)
