"""The type checker."""

from typing import Any

import numpy as np
import pytest

from onstage.ops.arithmetic import add_p, multiply_p, negative_p
from onstage.ops.structure import reshape_p, transpose_p
from onstage.stage.check import check
from onstage.stage.errors import ProgramError
from onstage.stage.primitive import Primitive
from onstage.stage.program import Const, Equation, Program, ProgramBuilder, Var, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, make_spec

F32, F64 = np.dtype("float32"), np.dtype("float64")
SOURCE = Source("train.py", 41)

call_p = Primitive(
    "call",
    abstract=lambda *specs, bodies: bodies[0].out_specs,
    numpy=lambda *arrays, **rest: arrays,
    nondifferentiable="toy",
    batch=lambda *a, **k: None,
    onnx=lambda *a, **k: None,
    register=False,
)


def x_var() -> Var:
    return Var(make_spec((2, 3), F32))


def equation(primitive: Primitive, inputs: Any, spec: ArraySpec | list[ArraySpec], **params: Any) -> Equation:
    specs = spec if isinstance(spec, list) else [spec]
    return Equation(primitive, tuple(inputs), params, tuple(Var(s) for s in specs), SOURCE)


def rejected(program: Program, message: str, located: bool = True) -> None:
    with pytest.raises(ProgramError) as caught:
        check(program)
    assert caught.value.message == message
    if located:
        assert caught.value.source == SOURCE


def test_good_programs() -> None:
    check(Program([], [], []))
    check(Program([], [], [constant(1.0)]))
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec(("B", 3), "float32"))
    (y,) = builder.emit(add_p, (x, constant(np.float32(1))), {}, None)
    (z,) = builder.emit(transpose_p, (y,), {"permutation": (1, 0)}, None)
    check(builder.build([z, x, z, constant(np.zeros((2, 2)))]))


def test_use_before_definition() -> None:
    x = x_var()
    second = equation(negative_p, [x], x.spec)
    first = equation(negative_p, second.outputs, x.spec)
    rejected(
        Program([x], [first, second], first.outputs, "f"),
        "f: equation 0, negative: operand 0 (f32[2,3]) is not defined before it is used",
    )


def test_undefined_output() -> None:
    x = x_var()
    rejected(
        Program([x], [], [x, x_var()], "f"),
        "f: outputs: operand 1 (f32[2,3]) is not defined before it is used",
        located=False,
    )


def test_not_an_atom() -> None:
    x = x_var()
    rejected(
        Program([x], [equation(add_p, [x, 1.0], x.spec)], []),
        "program: equation 0, add: operand 1 is a float, not a Var or Const",
    )


def test_inputs() -> None:
    x = x_var()
    rejected(Program([x, x], [], []), "program: input 1 is an earlier input again; inputs are distinct", located=False)
    rejected(
        Program([constant(1.0)], [], []),  # type: ignore[list-item]
        "program: input 0 is a Const, not a Var",
        located=False,
    )


def test_defined_twice() -> None:
    x = x_var()
    eqn = equation(negative_p, [x], x.spec)
    rejected(Program([x], [eqn, eqn], []), "program: equation 1, negative: output 0 is defined a second time")
    again = Equation(negative_p, (x,), {}, (x,), SOURCE)
    rejected(Program([x], [again], []), "program: equation 0, negative: output 0 is defined a second time")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (make_spec((2, 3), F64), "f64[2,3]"),
        (make_spec((3, 2), F32), "f32[3,2]"),
        (make_spec((2, 3), F32, True), "f32[2,3]~"),
        (ArraySpec(("B", 3), "float32"), "f32[B,3]"),
    ],
)
def test_wrong_output_spec(spec: ArraySpec, text: str) -> None:
    x = x_var()
    rejected(
        Program([x], [equation(negative_p, [x], spec)], []),
        f"program: equation 0, negative: output 0 is {text}, its abstract rule gives f32[2,3]",
    )


def test_a_sharding_is_not_inferred() -> None:
    x = x_var()
    check(Program([x], [equation(negative_p, [x], ArraySpec((2, 3), F32, sharding=("data", None)))], []))


def test_number_of_outputs() -> None:
    x = x_var()
    rejected(
        Program([x], [equation(negative_p, [x], [x.spec, x.spec])], []),
        "program: equation 0, negative: 2 outputs, its abstract rule gives 1",
    )


def test_refused_operands_and_params() -> None:
    x = x_var()
    with pytest.raises(ProgramError, match="equation 0, reshape: its operands are refused: reshape: cannot reshape") as caught:
        check(Program([x], [equation(reshape_p, [x], x.spec, shape=(5,))], []))
    assert caught.value.source == SOURCE
    with pytest.raises(ProgramError, match="equation 0, reshape: its operands or params are refused: TypeError"):
        check(Program([x], [equation(reshape_p, [x], x.spec)], []))
    y = Var(make_spec((2, 3), F64))
    with pytest.raises(ProgramError, match="equation 0, add: its operands are refused: add: operands of f64 and f32"):
        check(Program([x, y], [equation(add_p, [x, y], x.spec)], []))


def test_params_are_hashable() -> None:
    x = x_var()
    rejected(
        Program([x], [equation(reshape_p, [x], x.spec, shape=[3, 2])], []),
        "program: equation 0, reshape: the param 'shape' is not hashable: list [3, 2]",
    )
    with pytest.raises(ProgramError, match=r"not hashable: ndarray array\(.*12\.\.\."):
        check(Program([x], [Equation(reshape_p, (x,), {"shape": np.arange(99)}, (x_var(),), None)], []))


def test_constants() -> None:
    value = np.zeros((2, 3), F32)
    writeable = Const(value, make_spec((2, 3), F32))
    rejected(
        Program([], [equation(negative_p, [writeable], writeable.spec)], []),
        "program: equation 0, negative: operand 0: a constant (f32[2,3]) is writeable",
    )
    value.flags.writeable = False
    for spec, text in ((make_spec((3, 2), F32), "f32[3,2]"), (make_spec((2, 3), F64), "f64[2,3]")):
        rejected(
            Program([], [], [Const(value, spec)]),
            f"program: outputs: operand 0: a constant float32[2, 3] has the spec {text}",
            located=False,
        )


def test_programs_in_params_are_closed_and_checked() -> None:
    x, y = x_var(), x_var()
    captured = equation(multiply_p, [y, x], x.spec)
    body = Program([y], [captured], captured.outputs, "body")
    call = equation(call_p, [x], x.spec, bodies=(body, body))
    rejected(
        Program([x], [call], call.outputs, "f"),
        "body: equation 0, multiply: operand 1 (f32[2,3]) is not defined before it is used",
    )
    deeper = Program([y], [equation(call_p, [y], x.spec, bodies=(body,))], [y], "deeper")
    rejected(
        Program([x], [equation(call_p, [x], x.spec, bodies=((Program([y], [], [y])), (deeper,)))], [x]),
        "body: equation 0, multiply: operand 1 (f32[2,3]) is not defined before it is used",
    )


def test_deep_nesting_and_length() -> None:
    x = x_var()
    program = Program([x], [], [x])
    for _ in range(2000):
        program = Program([x], [equation(call_p, [x], x.spec, bodies=(program, program))], [x])
    check(program)
    builder = ProgramBuilder()
    atom: Any = builder.add_input(x.spec)
    for _ in range(10_000):
        (atom,) = builder.emit(negative_p, (atom,), {}, None)
    check(builder.build([atom]))
