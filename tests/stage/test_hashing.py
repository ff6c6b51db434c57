"""The structural hash: what it depends on and what it does not."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onstage.ops.arithmetic import add_p, multiply_p, negative_p, subtract_p
from onstage.ops.structure import broadcast_to_p, reshape_p, transpose_p
from onstage.stage.codec import decode, encode
from onstage.stage.dims import as_dim
from onstage.stage.hashing import program_hash, structural_text
from onstage.stage.interpreter import evaluate
from onstage.stage.primitive import Primitive
from onstage.stage.program import Program, ProgramBuilder, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, make_spec

F32 = np.dtype("float32")


def toy(name: str, version: int = 1) -> Primitive:
    return Primitive(
        name,
        abstract=lambda x, **params: params["body"].out_specs[0] if "body" in params else x,
        numpy=lambda x, **params: evaluate(params["body"], [x])[0] if "body" in params else x,
        nondifferentiable="toy",
        batch=lambda *a, **k: None,
        onnx=lambda *a, **k: None,
        version=version,
        register=False,
    )


tag_p, toy_call = toy("tag"), toy("call")


def binary(primitive: Primitive, first: int, second: int, inputs: int = 2, **changes: Any) -> Program:
    builder = ProgramBuilder()
    xs = [builder.add_input(ArraySpec((3,), "float32")) for _ in range(inputs)]
    if changes.get("dead"):
        builder.emit(negative_p, (xs[0],), {}, None)
    (y,) = builder.emit(primitive, (xs[first], xs[second]), {}, changes.get("source"))
    return builder.build([y], changes.get("name", "program"))


def tagged(value: Any, primitive: Primitive = tag_p) -> Program:
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "float32"))
    (y,) = builder.emit(primitive, (x,), {"value": value}, None)
    return builder.build([y])


def plus_constant(value: Any, spec: ArraySpec | None = None) -> Program:
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "float32"))
    return builder.build([x, constant(value, spec)])


def identity(*specs: ArraySpec) -> Program:
    builder = ProgramBuilder()
    return builder.build([builder.add_input(s) for s in specs])


def test_is_sha256_of_the_text() -> None:
    program = binary(subtract_p, 0, 1)
    value = program_hash(program)
    assert len(value) == 64
    assert set(value) <= set("0123456789abcdef")
    assert structural_text(program) == (
        '{"constants":[],"format":1,"primitives":[["subtract",1]],'
        '"programs":[{"equations":[[0,[0,1],{},[0]]],"inputs":[0,0],"outputs":[2]}],'
        '"specs":[["float32",[3],false,null]]}'
    )


DIFFERENT: dict[str, tuple[Program, Program]] = {
    "x-y, y-x": (binary(subtract_p, 0, 1), binary(subtract_p, 1, 0)),
    "x+x, x+y": (binary(add_p, 0, 0), binary(add_p, 0, 1)),
    "x+x of one or two inputs": (binary(add_p, 0, 0, 1), binary(add_p, 0, 0, 2)),
    "primitive": (binary(add_p, 0, 1), binary(subtract_p, 0, 1)),
    "primitive version": (tagged(0), tagged(0, toy("tag", 2))),
    "param": (tagged(1), tagged(2)),
    "param type": (tagged(1), tagged(True)),
    "float param": (tagged(1), tagged(1.0)),
    "param zero": (tagged(0.0), tagged(-0.0)),
    "param string": (tagged("1"), tagged(1)),
    "param nesting": (tagged(((1, 2), 3)), tagged((1, (2, 3)))),
    "dim param": (tagged(as_dim("B")), tagged("B")),
    "dtype": (identity(make_spec((3,), F32)), identity(make_spec((3,), np.dtype("float64")))),
    "shape": (identity(make_spec((3,), F32)), identity(make_spec((1, 3), F32))),
    "weak": (identity(make_spec((), F32)), identity(make_spec((), F32, True))),
    "symbolic": (identity(ArraySpec(("B",), F32)), identity(ArraySpec((3,), F32))),
    "equal dims": (identity(ArraySpec(("B", "B"), F32)), identity(ArraySpec(("B", "C"), F32))),
    "order of dims": (
        identity(ArraySpec(("A", "B"), F32), ArraySpec(("A",), F32)),
        identity(ArraySpec(("A", "B"), F32), ArraySpec(("B",), F32)),
    ),
    "constant value": (plus_constant(np.float32(1)), plus_constant(np.float32(2))),
    "constant sign": (plus_constant(np.float32(0)), plus_constant(np.float32(-0.0))),
    "constant dtype": (plus_constant(np.zeros(2, np.float32)), plus_constant(np.zeros(1, np.float64))),
    "constant shape": (plus_constant(np.zeros((2, 1))), plus_constant(np.zeros((1, 2)))),
    "constant weak": (plus_constant(2.0), plus_constant(2.0, make_spec((), np.dtype("float64"), True))),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    a, b = DIFFERENT[name]
    assert program_hash(a) != program_hash(b)


def test_output_order_and_number() -> None:
    builder = ProgramBuilder()
    x, y = (builder.add_input(make_spec((3,), F32)) for _ in range(2))
    programs = [builder.build(outputs) for outputs in ([x, y], [y, x], [x], [x, x], [x, y, y])]
    assert len({program_hash(p) for p in programs}) == 5


def test_names_sources_and_dead_code_do_not_count() -> None:
    plain = program_hash(binary(add_p, 0, 1))
    assert program_hash(binary(add_p, 0, 1, name="other")) == plain
    assert program_hash(binary(add_p, 0, 1, source=Source("x.py", 3, "layer"))) == plain
    assert program_hash(binary(add_p, 0, 1, dead=True)) == plain


def test_constants_count_by_content() -> None:
    def program(shared: bool) -> Program:
        builder = ProgramBuilder()
        x = builder.add_input(make_spec((3,), F32))
        first = constant(np.arange(3, dtype=F32))
        second = first if shared else constant(np.arange(3, dtype=F32))
        (y,) = builder.emit(add_p, (x, first), {}, None)
        return builder.build(builder.emit(multiply_p, (y, second), {}, None))

    assert program_hash(program(True)) == program_hash(program(False))


def with_dims(a: str, b: str) -> Program:
    """a appears first where it stands alone; the expressions sort differently under other names."""
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((f"{a} + 2*{b}", a), "float32"))
    builder.add_input(ArraySpec((b,), "float32"))
    (y,) = builder.emit(transpose_p, (x,), {"permutation": (1, 0)}, None)
    (z,) = builder.emit(reshape_p, (y,), {"shape": (as_dim(f"{a}*{a} + 2*{a}*{b}"),)}, None)
    (w,) = builder.emit(broadcast_to_p, (z,), {"shape": (as_dim(b), as_dim(f"{a}*{a} + 2*{a}*{b}"))}, None)
    return builder.build([w])


@pytest.mark.parametrize(("a", "b"), [("B", "A"), ("x", "y"), ("d1", "d0"), ("d0", "d1"), ("length", "A")])
def test_names_of_dims_do_not_count(a: str, b: str) -> None:
    assert structural_text(with_dims(a, b)) == structural_text(with_dims("A", "B"))


def test_dims_in_params_follow_the_inputs() -> None:
    def program(rows: str, columns: str, last: str) -> Program:
        builder = ProgramBuilder()
        x = builder.add_input(ArraySpec((rows, columns), "float32"))
        (z,) = builder.emit(tag_p, (x,), {"value": as_dim(last)}, None)
        return builder.build([z])

    assert program_hash(program("A", "B", "A")) == program_hash(program("B", "A", "B"))
    assert program_hash(program("A", "B", "A")) != program_hash(program("A", "B", "B"))


def calling(body: Callable[[], Program], other: Callable[[], Program], shared: bool) -> Program:
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((3,), F32))
    first = body()
    second = first if shared else other()
    (y,) = builder.emit(toy_call, (x,), {"body": first}, None)
    (z,) = builder.emit(toy_call, (y,), {"body": second}, None)
    return builder.build([z])


def negate(name: str = "body", dead: bool = False, twice: bool = False) -> Program:
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((3,), F32))
    if dead:
        builder.emit(add_p, (x, x), {}, None)
    (y,) = builder.emit(negative_p, (x,), {}, Source(f"{name}.py", 1))
    if twice:
        (y,) = builder.emit(negative_p, (y,), {}, None)
    return builder.build([y], name)


def test_programs_in_params_count_by_content() -> None:
    plain = program_hash(calling(negate, negate, shared=True))
    assert program_hash(calling(negate, negate, shared=False)) == plain
    assert program_hash(calling(negate, lambda: negate("other"), shared=False)) == plain
    assert program_hash(calling(negate, lambda: negate(dead=True), shared=False)) == plain
    assert program_hash(calling(negate, lambda: negate(twice=True), shared=False)) != plain


def test_deep_sharing_is_linear() -> None:
    program = negate()
    for _ in range(300):
        builder = ProgramBuilder()
        x = builder.add_input(make_spec((3,), F32))
        (y,) = builder.emit(toy_call, (x,), {"body": program, "again": program}, None)
        program = builder.build([y])
    assert len(structural_text(program)) < 100_000


def test_survives_the_codec() -> None:
    program = with_dims("A", "B")
    table: dict[str, Any] = {}
    assert program_hash(decode(encode(program, constants=table), table)) == program_hash(program)


CHILD = """
import numpy as np
from onstage.ops.arithmetic import add_p, multiply_p
from onstage.ops.structure import broadcast_to_p
from onstage.stage.dims import as_dim
from onstage.stage.hashing import program_hash
from onstage.stage.program import ProgramBuilder, constant
from onstage.stage.spec import ArraySpec
builder = ProgramBuilder()
x = builder.add_input(ArraySpec(("B", 3), "float32"))
y = builder.add_input(ArraySpec(("L",), "int32"))
a, = builder.emit(add_p, (x, constant(np.arange(3, dtype="float32"))), {}, None)
b, = builder.emit(multiply_p, (a, constant(np.float32(2))), {}, None)
c, = builder.emit(broadcast_to_p, (b,), {"shape": (as_dim("L"), as_dim("B"), 3)}, None)
print(program_hash(builder.build([c, y])))
"""


def test_equal_in_other_processes() -> None:
    hashes = {
        subprocess.run(
            [sys.executable, "-c", CHILD],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(hashes) == 1
    assert len(hashes.pop().strip()) == 64
