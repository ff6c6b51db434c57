"""Laws of values: NumPy rule = ONNX Runtime without optimisation = with all of it, value and dtype; abstract = actual."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onstage as ons
from onstage.export.lower import lower
from onstage.export.runtime.binding import Executable
from onstage.stage.check import check
from onstage.stage.program import Program, ProgramBuilder
from onstage.stage.spec import ArraySpec, make_spec

from .sampling import Example, examples

_LEVELS = {"none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL, "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL}


def program_of(example: Example, specs: list[ArraySpec]) -> Program:
    builder = ProgramBuilder()
    inputs = tuple(builder.add_input(s) for s in specs)
    outputs = builder.emit(example.primitive, inputs, example.params, None)
    return builder.build(outputs, example.primitive.name)


def run(model: bytes, arrays: list[Any], level: str, program: Program) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = _LEVELS[level]
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [[x.name for x in xs] for xs in (session.get_inputs(), session.get_outputs())]
    return Executable(session, *names, [*program.in_specs, *program.out_specs])(arrays, program.name)


def tolerance(dtype: np.dtype[Any], expected: Any) -> float:
    eps = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13}.get(dtype.name)
    if eps is None:
        return 0.0
    finite = np.abs(np.asarray(expected, np.float64))
    finite = finite[np.isfinite(finite)]
    return 8 * eps * max(1.0, float(finite.max(initial=0.0)))


def assert_same(got: Any, expected: Any, where: str) -> None:
    assert got.dtype == expected.dtype, f"{where}: dtype {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: shape {got.shape}, expected {expected.shape}"
    if expected.dtype.kind in "biu":
        assert np.array_equal(got, expected), f"{where}:\n{got}\nexpected\n{expected}"
        return
    a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert np.array_equal(np.isnan(a), np.isnan(b)), f"{where}: NaN at other places:\n{a}\nexpected\n{b}"
    assert np.array_equal(np.where(np.isinf(a), a, 0), np.where(np.isinf(b), b, 0)), f"{where}: infinities differ:\n{a}\nexpected\n{b}"
    finite = np.isfinite(b)
    error = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)).max(initial=0.0)
    assert error <= tolerance(expected.dtype, b), f"{where}: off by {error}:\n{a}\nexpected\n{b}"


@pytest.mark.parametrize("example", list(examples(wide=True)), ids=lambda e: e.label)
def test_numpy_rule_equals_onnx_runtime_at_both_levels(example: Example) -> None:
    arrays = example.arrays()
    specs = [make_spec(a.shape, a.dtype) for a in arrays]
    try:
        program = program_of(example, specs)
    except ons.DTypeError:
        pytest.skip("the abstract rule does not take this dtype")
    check(program)
    expected = example.primitive.evaluate(arrays, example.params, program.out_specs)
    names = [f"x{i}" for i in range(len(arrays))]
    out_names = [f"out.{i}" for i in range(len(program.outputs))]
    model = lower(program, names, out_names)
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString()
    for level in _LEVELS:
        for i, (got, wanted) in enumerate(zip(run(data, arrays, level, program), expected, strict=True)):
            assert_same(got, wanted, f"{example.label} output {i} at level {level}")


_NAMED = [e for e in examples() if e.case.named is not None and e.dtype in ("float32", "int32", "fixed")]


@pytest.mark.parametrize("example", _NAMED, ids=lambda e: e.label)
def test_named_dims_run_at_every_size(example: Example) -> None:
    assert example.case.named is not None
    arrays = example.arrays()
    specs = [ArraySpec(shape, a.dtype) for shape, a in zip(example.case.named, arrays, strict=True)]
    program = program_of(example, specs)
    check(program)
    out_names = [f"out.{i}" for i in range(len(program.outputs))]
    data = lower(program, [f"x{i}" for i in range(len(arrays))], out_names).SerializeToString()
    rng = np.random.default_rng(0)
    for size in (0, 1, 2, 5):
        sized = []
        for spec, array in zip(specs, arrays, strict=True):
            shape = [d if isinstance(d, int) else size for d in spec.shape]
            flat = array.reshape(-1)
            sized.append(np.ascontiguousarray(rng.choice(flat, shape)).astype(array.dtype))
        concrete = program_of(example, [make_spec(a.shape, a.dtype) for a in sized])
        expected = example.primitive.evaluate(sized, example.params, concrete.out_specs)
        for level in _LEVELS:
            for got, wanted in zip(run(data, sized, level, program), expected, strict=True):
                assert_same(got, wanted, f"{example.label} at B={size}, level {level}")
