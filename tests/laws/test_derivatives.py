"""Laws of derivatives and of vmap, over every primitive's cases in float64.

jvp against central differences; <ct, J t> = <J^T ct, t>; forward over reverse = reverse over forward; vmap = loop; all type-checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from onstage.autodiff.batching import BatchContext, batch_program, put_axis
from onstage.autodiff.forward import jvp_transform, vjp_transform
from onstage.stage.check import check
from onstage.stage.dtypes import is_float
from onstage.stage.interpreter import evaluate
from onstage.stage.program import Program
from onstage.stage.spec import make_spec
from onstage.stage.trace import trace_program

from .sampling import Example, examples
from .test_values import program_of

_ALL = list(examples(floats_only=True))


def is_differentiable(example: Example) -> bool:
    if example.primitive.nondifferentiable is not None:
        return False
    arrays = example.arrays()
    program = example_program(example, arrays)
    return any(is_float(a.dtype) for a in arrays) and any(is_float(s.dtype) for s in program.out_specs)


def example_program(example: Example, arrays: Sequence[Any]) -> Program:
    return program_of(example, [make_spec(a.shape, a.dtype) for a in arrays])


def float_mask(arrays: Sequence[Any]) -> list[bool]:
    return [is_float(a.dtype) for a in arrays]


def directions(arrays: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    return [np.asarray(rng.uniform(-1, 1, a.shape), a.dtype) for a in arrays if is_float(a.dtype)]


def shifted(arrays: Sequence[Any], steps: Sequence[Any], scale: float) -> list[Any]:
    rest = iter(steps)
    return [a + scale * next(rest) if is_float(a.dtype) else a for a in arrays]


def close(got: Any, expected: Any, where: str, tolerance: float) -> None:
    assert got.shape == expected.shape, f"{where}: shape {got.shape}, expected {expected.shape}"
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    error = float(np.abs(got - expected).max(initial=0.0))
    assert error <= tolerance * scale, f"{where}: off by {error}:\n{got}\nexpected\n{expected}"


_DIFFERENTIABLE = [e for e in _ALL if is_differentiable(e)]


@pytest.mark.parametrize("example", _DIFFERENTIABLE, ids=lambda e: e.label)
def test_jvp_agrees_with_central_differences(example: Example) -> None:
    arrays = example.arrays()
    program = example_program(example, arrays)
    tangents = directions(arrays, np.random.default_rng(1))
    forward = jvp_transform(program, float_mask(arrays))
    check(forward)
    results = evaluate(forward, [*arrays, *tangents])
    count = len(program.outputs)
    if not example.case.smooth:
        return
    step = 1e-6
    up, down = (evaluate(program, shifted(arrays, tangents, s)) for s in (step, -step))
    float_outputs = [i for i in range(count) if is_float(program.out_specs[i].dtype)]
    for position, i in enumerate(float_outputs):
        if program.out_specs[i].dtype != np.float64 or any(a.dtype == np.float32 for a in arrays):
            continue
        close(results[count + position], (up[i] - down[i]) / (2 * step), f"{example.label}: tangent {i}", 2e-7)


@pytest.mark.parametrize("example", _DIFFERENTIABLE, ids=lambda e: e.label)
def test_vjp_is_the_transpose_of_jvp(example: Example) -> None:
    arrays = example.arrays()
    program = example_program(example, arrays)
    rng = np.random.default_rng(2)
    tangents = directions(arrays, rng)
    mask = float_mask(arrays)
    given = [is_float(s.dtype) for s in program.out_specs]
    count = len(program.outputs)
    out_tangents = evaluate(jvp_transform(program, mask), [*arrays, *tangents])[count:]
    cts = [np.asarray(rng.uniform(-1, 1, t.shape), t.dtype) for t in out_tangents]
    backward = vjp_transform(program, mask, given)
    check(backward)
    results = evaluate(backward, [*arrays, *cts])[count:]
    left = sum(float(np.vdot(np.asarray(c, float), np.asarray(t, float))) for c, t in zip(cts, out_tangents, strict=True))
    right = sum(float(np.vdot(np.asarray(c, float), np.asarray(t, float))) for c, t in zip(results, tangents, strict=True))
    if is_singular(example, left, right):
        return
    narrow = any(a.dtype != np.float64 for a in (*arrays, *out_tangents) if is_float(a.dtype))
    assert abs(left - right) <= (1e-4 if narrow else 1e-10) * max(1.0, abs(left)), f"<ct, Jt> = {left}, <J^T ct, t> = {right}"


@pytest.mark.parametrize("example", _DIFFERENTIABLE, ids=lambda e: e.label)
def test_second_order_by_all_four_modes(example: Example) -> None:
    """Directional second derivatives along one direction: ff, fr, rf, rr agree."""
    arrays = example.arrays()
    program = example_program(example, arrays)
    rng = np.random.default_rng(3)
    mask = float_mask(arrays)
    given = [is_float(s.dtype) for s in program.out_specs]
    count = len(program.outputs)
    tangents = directions(arrays, rng)
    outer = directions(arrays, rng)
    forward = jvp_transform(program, mask)
    backward = vjp_transform(program, mask, given)
    out_specs = [s for s, g in zip(program.out_specs, given, strict=True) if g]
    cts = [np.asarray(rng.uniform(-1, 1, [int(d) for d in s.shape]), s.dtype) for s in out_specs]

    # ct . d/dx [J(x) t] . outer, by jvp of jvp and by vjp of jvp
    ff = jvp_transform(forward, [*mask, *[False] * len(tangents)])
    check(ff)
    ff_out = evaluate(ff, [*arrays, *tangents, *outer])[-len(cts) :]
    a = dot(cts, ff_out)
    rf = vjp_transform(forward, [*mask, *[False] * len(tangents)], [False] * count + [True] * len(cts))
    check(rf)
    b = dot(evaluate(rf, [*arrays, *tangents, *cts])[-len(outer) :], outer)
    # d/dx [J(x)^T ct] . outer along tangents, by jvp of vjp and by vjp of vjp
    fr = jvp_transform(backward, [*mask, *[False] * len(cts)])
    check(fr)
    c = dot(evaluate(fr, [*arrays, *cts, *outer])[-len(tangents) :], tangents)
    rr = vjp_transform(backward, [*mask, *[False] * len(cts)], [False] * count + [True] * len(tangents))
    check(rr)
    d = dot(evaluate(rr, [*arrays, *cts, *tangents])[-len(outer) :], outer)
    narrow = any(x.dtype != np.float64 for x in (*arrays, *cts) if is_float(x.dtype))
    if is_singular(example, a, b, c, d):
        return
    for name, value in (("reverse over forward", b), ("forward over reverse", c), ("reverse over reverse", d)):
        assert abs(value - a) <= (1e-3 if narrow else 1e-8) * max(1.0, abs(a)), f"forward over forward {a}, {name} {value}"


def is_singular(example: Example, *sums: float) -> bool:
    """Cases at poles, infinities and NaN (never the smooth ones) may have no finite derivative: then there is nothing to compare."""
    return not example.case.smooth and not np.all(np.isfinite(sums))


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    return sum(float(np.vdot(np.asarray(x, float), np.asarray(y, float))) for x, y in zip(xs, ys, strict=True))


@pytest.mark.parametrize("example", list(examples()), ids=lambda e: e.label)
def test_vmap_equals_a_loop(example: Example) -> None:
    size = 3
    batches = [example.arrays(seed) for seed in range(size)]
    program = example_program(example, batches[0])
    if not batches[0]:
        pytest.skip("no operands to batch")
    rng = np.random.default_rng(4)
    for trial in range(3):
        mapped = [True] * len(batches[0]) if trial == 0 else list(rng.random(len(batches[0])) < 0.6)
        if not any(mapped):
            mapped[int(rng.integers(len(mapped)))] = True
        axes = [int(rng.integers(x.ndim + 1)) if m else None for x, m in zip(batches[0], mapped, strict=True)]
        stacked = [np.stack([b[i] for b in batches], axis=axis) if axis is not None else batches[0][i] for i, axis in enumerate(axes)]
        single = [[b[i] if m else batches[0][i] for i, m in enumerate(mapped)] for b in batches]
        loop = [evaluate(program, arrays) for arrays in single]

        def function(*xs: Any, axes: Any = axes) -> Any:
            outputs, found = batch_program(BatchContext(size), program, xs, axes)
            return [put_axis(x, axis, 0, size) for x, axis in zip(outputs, found, strict=True)]

        batched = trace_program(function, [make_spec(x.shape, x.dtype) for x in stacked]).program
        check(batched)
        for i, got in enumerate(evaluate(batched, stacked)):
            expected = np.stack([row[i] for row in loop])
            assert got.dtype == expected.dtype
            if expected.dtype.kind in "biu":
                assert np.array_equal(got, expected), f"axes {axes}: {got} expected {expected}"
            else:
                same = np.isclose(got.astype(float), expected.astype(float), rtol=1e-5, atol=1e-6, equal_nan=True)
                assert same.all(), f"axes {axes}: {got} expected {expected}"
