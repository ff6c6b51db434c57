"""What the catalogue says is staged also runs: every row's call, in every dtype of the row, on ONNX Runtime as on the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onstage as ons
from onstage.export.runtime.binding import Executable
from onstage.export.support import callables, fitting_call, lowered, traced
from onstage.stage.dtypes import as_dtype
from onstage.stage.interpreter import evaluate
from onstage.stage.program import Program

FLOATS = np.array([[0.25, 0.5, 0.75], [0.625, 0.875, 0.125], [0.375, 0.9375, 0.3125]])
WHOLE = np.array([[0, 1, 2], [2, 1, 0], [1, 1, 2]])
TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 1e-5, "float64": 1e-12}
CALLABLES = dict(callables())


def run(program: Program, x: Any) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(lowered(program).SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [[v.name for v in vs] for vs in (session.get_inputs(), session.get_outputs())]
    return Executable(session, *names, [*program.in_specs, *program.out_specs])([x], program.name)


@pytest.mark.parametrize("name", CALLABLES)
def test_runs_in_every_dtype(name: str) -> None:
    row = ons.support([name])[0]
    if not row.stages:
        assert row.note
        return
    found = fitting_call(name, CALLABLES[name])
    assert found is not None
    for dtype in sorted(row.dtypes):
        wanted_kind = as_dtype(dtype)
        x = (WHOLE if wanted_kind.kind in "iub" else FLOATS).astype(wanted_kind)
        program = traced(found[0], dtype, x.shape)
        for got, wanted in zip(run(program, x), evaluate(program, [x]), strict=True):
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, (name, dtype)
            tolerance = TOLERANCE.get(wanted.dtype.name, 0.0)
            a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{name} {dtype}")
