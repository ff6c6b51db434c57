"""The text form of Programs."""

from typing import Any

import numpy as np
import pytest

from onstage.ops.arithmetic import add_p, negative_p
from onstage.ops.matmul import matmul_p
from onstage.ops.structure import cast_p, reshape_p
from onstage.stage.dims import as_dim
from onstage.stage.dtypes import bfloat16
from onstage.stage.errors import ProgramError
from onstage.stage.primitive import Primitive
from onstage.stage.printer import constant_text, program_text
from onstage.stage.program import Program, ProgramBuilder, Var, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, make_spec

F32 = np.dtype("float32")

call_p = Primitive(
    "call",
    abstract=lambda *specs, bodies, **rest: bodies[0].out_specs,
    numpy=lambda *arrays, **rest: arrays,
    nondifferentiable="toy",
    batch=lambda *a, **k: None,
    onnx=lambda *a, **k: None,
    register=False,
)


def step() -> Program:
    builder = ProgramBuilder()
    w = builder.add_input(ArraySpec((784, 512), "float32"))
    x = builder.add_input(ArraySpec(("B", 784), "float32"))
    (h,) = builder.emit(matmul_p, (x, w), {}, Source("/somewhere/train.py", 41))
    (h,) = builder.emit(add_p, (h, constant(2.0, make_spec((), F32, True))), {}, Source("/somewhere/train.py", 42, "layer1"))
    (r,) = builder.emit(reshape_p, (h,), {"shape": (as_dim("B"), 8, 64)}, None)
    (c,) = builder.emit(cast_p, (r,), {"dtype": np.dtype("float64"), "weak": False}, None)
    return builder.build([c, w, constant(np.zeros((10, 10), F32))], "step")


def test_named() -> None:
    digest = constant(np.zeros((10, 10), F32)).digest[:8]
    assert program_text(step(), names=["params.w1", "x"]) == (
        "program step(%params.w1: f32[784,512], %x: f32[B,784]) -> (f64[B,8,64], f32[784,512], f32[10,10]):\n"
        "  %2: f32[B,512] = matmul(%x, %params.w1)   # train.py:41\n"
        "  %3: f32[B,512] = add(%2, 2.0~:f32)   # layer1@train.py:42\n"
        "  %4: f32[B,8,64] = reshape(%3)[shape=(B, 8, 64)]\n"
        "  %5: f64[B,8,64] = cast(%4)[dtype=f64, weak=False]\n"
        f"  return %5, %params.w1, const[f32[10,10] {digest}]"
    )


def test_numbered_without_sources() -> None:
    lines = program_text(step(), sources=False).splitlines()
    assert lines[0] == "program step(%0: f32[784,512], %1: f32[B,784]) -> (f64[B,8,64], f32[784,512], f32[10,10]):"
    assert lines[1] == "  %2: f32[B,512] = matmul(%1, %0)"


def test_wrong_number_of_names() -> None:
    with pytest.raises(ProgramError, match="step: 1 names for 2 inputs"):
        program_text(step(), names=["x"])


def test_nothing_at_all() -> None:
    assert program_text(Program([], [], [])) == "program program() -> ():\n  return"


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (2.0, make_spec((), np.dtype("float64"), True), "2.0~"),
        (3, make_spec((), np.dtype("int64"), True), "3~"),
        (2.0, make_spec((), F32, True), "2.0~:f32"),
        (np.float32(-0.0), None, "-0.0:f32"),
        (np.float64(np.inf), None, "inf:f64"),
        (np.bool_(True), None, "True"),
        (np.array([1, 2], np.int64), None, "[1, 2]:i64"),
        (np.array([True, False]), None, "[True, False]"),
        (np.zeros(0, np.uint8), None, "[]:u8"),
        (np.array([1.5, np.nan], bfloat16()), None, "[1.5, nan]:bf16"),
    ],
)
def test_small_constants(value: Any, spec: ArraySpec | None, text: str) -> None:
    assert constant_text(constant(value, spec)) == text


@pytest.mark.parametrize(("shape", "text"), [((5,), "f32[5]"), ((2, 2), "f32[2,2]"), ((0, 3), "f32[0,3]")])
def test_large_constants(shape: tuple[int, ...], text: str) -> None:
    const = constant(np.ones(shape, F32))
    assert constant_text(const) == f"const[{text} {const.digest[:8]}]"


def test_programs_in_params() -> None:
    def body(name: str, inner: Program | None = None) -> Program:
        builder = ProgramBuilder()
        x = builder.add_input(make_spec((3,), F32))
        if inner is None:
            return builder.build(builder.emit(negative_p, (x,), {}, None), name)
        return builder.build(builder.emit(call_p, (x,), {"bodies": (inner,)}, None), name)

    leaf = body("leaf")
    outer = body("outer", leaf)
    other_leaf = body("leaf")
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((3,), F32))
    (y,) = builder.emit(call_p, (x,), {"bodies": (outer, leaf), "length": 4}, None)
    (z,) = builder.emit(call_p, (y,), {"bodies": (other_leaf, outer)}, None)
    assert program_text(builder.build([z], "main")) == (
        "program main(%0: f32[3]) -> (f32[3]):\n"
        "  %1: f32[3] = call(%0)[bodies=(@outer, @leaf), length=4]\n"
        "    program @outer(%0: f32[3]) -> (f32[3]):\n"
        "      %1: f32[3] = call(%0)[bodies=(@leaf,)]\n"
        "      return %1\n"
        "    program @leaf(%0: f32[3]) -> (f32[3]):\n"
        "      %1: f32[3] = negative(%0)\n"
        "      return %1\n"
        "  %2: f32[3] = call(%1)[bodies=(@leaf.2, @outer)]\n"
        "    program @leaf.2(%0: f32[3]) -> (f32[3]):\n"
        "      %1: f32[3] = negative(%0)\n"
        "      return %1\n"
        "  return %2"
    )


def test_shared_programs_are_written_once() -> None:
    program = step()
    for level in range(100):
        builder = ProgramBuilder()
        x = builder.add_input(make_spec((3,), F32))
        (y,) = builder.emit(call_p, (x,), {"bodies": (program, program)}, None)[:1]
        program = builder.build([y], f"level{level}")
    assert program_text(program).count("program @step(") == 1


def test_broken_programs_print_too() -> None:
    stray = Var(make_spec((), F32))
    assert program_text(Program([], [], [stray])) == "program program() -> (f32[]):\n  return %?"
