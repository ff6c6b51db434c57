"""The passes: what each does, that the rest stays as it is, and bit-for-bit equality on random Programs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onstage  # noqa: F401, registers the primitives
from onstage.ops.arithmetic import add_p, divide_p, multiply_p, negative_p, subtract_p
from onstage.ops.exponential import exp_p, sqrt_p
from onstage.ops.structure import broadcast_to_p, cast_p, reduce_sum_p, reshape_p, transpose_p
from onstage.stage.check import check
from onstage.stage.dims import as_dim
from onstage.stage.errors import ProgramError
from onstage.stage.interpreter import evaluate
from onstage.stage.nesting import count_equations, nested_programs
from onstage.stage.passes import (
    PASSES,
    constant_folding,
    cse,
    dead_code,
    run_passes,
)
from onstage.stage.passes.cse import params_key
from onstage.stage.primitive import Primitive, Sample, registered_primitives
from onstage.stage.program import Atom, Const, Program, ProgramBuilder, Var, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, make_spec

F32, F64, I64 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64")


def toy(name: str, **rules: Any) -> Primitive:
    rules.setdefault("abstract", lambda x, **params: x)
    rules.setdefault("numpy", lambda x, **params: x)
    return Primitive(
        name,
        nondifferentiable="toy",
        batch=lambda *a, **k: None,
        onnx=lambda *a, **k: None,
        register=False,
        **rules,
    )


def _call(*arrays: Any, body: Program, **rest: Any) -> Any:
    return tuple(evaluate(body, arrays))


call_p = toy("call", abstract=lambda *specs, body, **rest: body.out_specs, numpy=_call)
tag_p = toy("tag")


class Writer:
    """Builds Programs tersely: `w(add_p, x, 1.0)` is one atom, or a tuple of several."""

    def __init__(self) -> None:
        self.builder = ProgramBuilder()
        self.line = 0

    def input(self, shape: Any, dtype: Any = F32, weak: bool = False) -> Var:
        return self.builder.add_input(ArraySpec(shape, dtype, weak=weak))

    def __call__(self, primitive: Primitive, *operands: Any, **params: Any) -> Any:
        atoms = tuple([a if isinstance(a, Var | Const) else constant(a) for a in operands])
        self.line += 1
        outputs = self.builder.emit(primitive, atoms, params, Source("user.py", self.line))
        return outputs if len(outputs) > 1 else outputs[0]

    def build(self, *outputs: Any, name: str = "program") -> Program:
        return self.builder.build([a if isinstance(a, Var | Const) else constant(a) for a in outputs], name)


def same_bits(before: Program, after: Program, arrays: Sequence[Any]) -> None:
    results = [evaluate(p, arrays) for p in (before, after)]
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def applied(one_pass: Callable[[Program], Program], program: Program) -> Program:
    """The pass's result, held against what every pass promises."""
    check(program)
    before = (program.inputs, program.equations, program.outputs)
    result = one_pass(program)
    check(result)
    assert (program.inputs, program.equations, program.outputs) == before
    assert result.name == program.name
    assert result.in_specs == program.in_specs
    assert result.out_specs == program.out_specs
    assert count_equations(result) <= count_equations(program)
    assert one_pass(result) is result
    sources = {e.source for p in nested_programs(program) for e in p.equations}
    assert {e.source for p in nested_programs(result) for e in p.equations} <= sources
    return result


def names(program: Program) -> list[str]:
    return [e.primitive.name for e in program.equations]


SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-42, 3e38], np.float32)


# dead code


def test_dead_code() -> None:
    w = Writer()
    x, y = w.input((9,)), w.input((2,))
    a = w(negative_p, x)
    w(add_p, a, a)
    w(negative_p, y)
    program = w.build(a)
    result = applied(dead_code, program)
    assert names(result) == ["negative"]
    assert result.inputs == (x, y)
    assert result.equations[0] is program.equations[0]


def test_dead_code_in_programs_of_params() -> None:
    w = Writer()
    x = w.input((9,))
    w(exp_p, x)
    body = w.build(w(negative_p, x))
    w = Writer()
    x = w.input((9,))
    first = w(call_p, x, body=body)
    second = w(call_p, first, body=body, other=(1, (body,)))
    result = applied(dead_code, w.build(second))
    inner = result.equations[0].params["body"]
    assert names(inner) == ["negative"]
    assert result.equations[1].params == {"body": inner, "other": (1, (inner,))}


def test_an_equation_with_one_live_output_stays() -> None:
    w = Writer()
    x = w.input((9,))
    body = w.build(x, x)
    w = Writer()
    x = w.input((9,))
    _, second = w(call_p, x, body=body)
    program = w.build(second)
    assert dead_code(program) is program


# constant folding


def test_folds_exact_arithmetic() -> None:
    w = Writer()
    x = w.input((3,))
    a = w(add_p, np.float32([1, 2, 3]), np.float32(0.1))
    b = w(sqrt_p, a)
    result = applied(constant_folding, w.build(w(multiply_p, x, b), b))
    assert names(result) == ["multiply"]
    folded = result.equations[0].inputs[1]
    assert isinstance(folded, Const)
    assert folded is result.outputs[1]
    assert folded.spec == make_spec((3,), F32)
    assert folded.value.dtype == F32
    assert folded.value.tobytes() == np.sqrt(np.float32([1, 2, 3]) + np.float32(0.1)).tobytes()


@pytest.mark.parametrize(
    ("primitive", "operands", "params"),
    [
        (exp_p, [np.float32(1)], {}),
        (reduce_sum_p, [np.ones(3, F32)], {"axes": (0,), "keepdims": False}),
        (cast_p, [np.float32(1.5)], {"dtype": I64, "weak": False}),
        (divide_p, [np.float32(0), np.float32(0)], {}),
        (tag_p, [np.float32(1)], {}),
    ],
    ids=["exp", "float sum", "float to int", "NaN", "undeclared"],
)
def test_does_not_fold_what_differs_between_machines(primitive: Primitive, operands: list[Any], params: dict[str, Any]) -> None:
    w = Writer()
    program = w.build(w(primitive, *operands, **params))
    assert constant_folding(program) is program


@pytest.mark.parametrize(
    ("primitive", "operands", "params"),
    [
        (reduce_sum_p, [np.arange(3)], {"axes": (0,), "keepdims": False}),
        (cast_p, [np.int64(7)], {"dtype": F32, "weak": True}),
        (cast_p, [np.float64(0.1)], {"dtype": F32, "weak": False}),
        (divide_p, [np.float32(1), np.float32(0)], {}),
        (multiply_p, [np.int32(2**31 - 1), np.int32(2)], {}),
        (tag_p, [np.int64(1)], {}),
    ],
    ids=["int sum", "int to float", "rounding", "infinity", "wrapping", "undeclared on integers"],
)
def test_folds_what_does_not(primitive: Primitive, operands: list[Any], params: dict[str, Any]) -> None:
    w = Writer()
    program = w.build(w(primitive, *operands, **params))
    result = applied(constant_folding, program)
    assert names(result) == []
    same_bits(program, result, [])


def test_declared_inexact_is_never_folded() -> None:
    never = toy("never", exact=False)
    w = Writer()
    program = w.build(w(never, np.int64(1)))
    assert constant_folding(program) is program


def test_size_is_bounded() -> None:
    w = Writer()
    small = w(broadcast_to_p, np.float32(1), shape=(128, 128))
    large = w(broadcast_to_p, np.float32(1), shape=(128, 129))
    # Larger than the bound, and yet no larger than what it is made of
    turned = w(transpose_p, np.ones((200, 300), F32), permutation=(1, 0))
    result = applied(constant_folding, w.build(small, large, turned))
    assert names(result) == ["broadcast_to"]
    assert [isinstance(a, Const) for a in result.outputs] == [True, False, True]


def test_what_raises_stays() -> None:
    def fail(x: Any, *, error: str) -> Any:
        raise {"ValueError": ValueError, "IndexError": IndexError, "ZeroDivisionError": ZeroDivisionError}[error]("no")

    fail_p = toy("fail", numpy=fail)
    for error in ("ValueError", "IndexError", "ZeroDivisionError"):
        w = Writer()
        program = w.build(w(fail_p, np.int64(1), error=error))
        assert constant_folding(program) is program


def test_a_contradicting_rule_is_an_error() -> None:
    wrong = toy("wrong", numpy=lambda x: x.astype(np.int32))
    w = Writer()
    with pytest.raises(ProgramError, match="wrong: the NumPy rule gave int32"):
        constant_folding(w.build(w(wrong, np.int64(1))))


def test_symbolic_sizes_and_programs_are_not_folded() -> None:
    w = Writer()
    w.input(("B",))
    w2 = Writer()
    i = w2.input((), I64)
    body = w2.build(i)
    y = w(broadcast_to_p, np.float32(1), shape=(as_dim("B"),))
    z = w(call_p, np.int64(1), body=body)
    program = w.build(y, z)
    assert constant_folding(program) is program


def test_folds_inside_programs_of_params() -> None:
    w = Writer()
    x = w.input((), I64)
    body = w.build(w(add_p, x, w(add_p, np.int64(1), np.int64(2))))
    w = Writer()
    x = w.input((), I64)
    result = applied(constant_folding, w.build(w(call_p, x, body=body)))
    assert names(result.equations[0].params["body"]) == ["add"]


# common subexpressions


def test_merges_equal_equations() -> None:
    w = Writer()
    x = w.input((9,))
    a, b = w(negative_p, x), w(negative_p, x)
    c, d = w(add_p, a, np.float32(1)), w(add_p, b, np.float32(1))
    result = applied(cse, w.build(c, d, b))
    assert names(result) == ["negative", "add"]
    assert result.outputs == (c, c, a)
    assert [e.source for e in result.equations] == [Source("user.py", 1), Source("user.py", 3)]


def test_constants_become_one_by_content() -> None:
    w = Writer()
    x = w.input((9,))
    a = w(add_p, x, np.float32(1))
    b = w(multiply_p, a, np.float32(1))
    result = applied(cse, w.build(b, np.float32(1), np.float32(0.0), np.float32(-0.0), np.float64(1)))
    one = result.equations[0].inputs[1]
    assert result.equations[1].inputs[1] is one
    assert result.outputs[1] is one
    assert len(set(result.outputs[2:])) == 3


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((0.0,), (-0.0,)),
        ("1", 1),
        (None, 0),
        (F32, F64),
        (as_dim("B"), as_dim("C")),
        (as_dim("B"), "B"),
        (as_dim("2*B"), as_dim("2*B + 1")),
    ],
    ids=repr,
)
def test_params_that_differ_are_not_merged(a: Any, b: Any) -> None:
    w = Writer()
    x = w.input(("B", "C"))
    program = w.build(w(tag_p, x, value=a), w(tag_p, x, value=b))
    assert cse(program) is program
    assert params_key({"value": a}) != params_key({"value": b})


@pytest.mark.parametrize("value", [float("nan"), as_dim("B // 2"), (1, ("a", -0.0)), np.dtype("int8"), None], ids=repr)
def test_equal_params_are_merged(value: Any) -> None:
    w = Writer()
    x = w.input(("B",))
    program = w.build(w(tag_p, x, value=value, a=1), w(tag_p, x, a=1, value=value))
    assert names(applied(cse, program)) == ["tag"]


def test_order_of_operands_counts() -> None:
    w = Writer()
    x, y = w.input((9,)), w.input((9,))
    program = w.build(w(subtract_p, x, y), w(subtract_p, y, x))
    assert cse(program) is program


def test_equal_programs_in_params_are_merged() -> None:
    def body(name: str, twice: bool = False) -> Program:
        w = Writer()
        x = w.input((9,))
        y = w(add_p, x, np.float32(1))
        return w.build(w(negative_p, y) if twice else y, name=name)

    w = Writer()
    x = w.input((9,))
    calls = [w(call_p, x, body=b) for b in (body("a"), body("b"), body("c", twice=True))]
    result = applied(cse, w.build(*calls))
    assert names(result) == ["call", "call"]
    assert result.outputs == (calls[0], calls[0], calls[2])


def test_nothing_is_merged_across_programs() -> None:
    w = Writer()
    x = w.input((9,))
    body = w.build(w(negative_p, x))
    w = Writer()
    x = w.input((9,))
    program = w.build(w(negative_p, x), w(call_p, x, body=body))
    assert cse(program) is program


# all together


def test_run_passes_reports() -> None:
    w = Writer()
    x = w.input((3, 2))
    w(exp_p, x)
    turned = w(transpose_p, w(transpose_p, x, permutation=(1, 0)), permutation=(1, 0))
    two = w(add_p, np.float32(1), np.float32(1))
    program = w.build(w(multiply_p, turned, two), w(multiply_p, x, np.float32(2)))
    result, report = run_passes(program)
    check(result)
    assert names(result) == ["multiply"]
    assert (report.before, report.after, report.rounds) == (6, 1, 2)
    assert [(p.name, p.before, p.after, p.changed) for p in report.passes] == [
        ("dead_code", 6, 5, True),
        ("algebra", 5, 3, True),
        ("constant_folding", 3, 2, True),
        ("cse", 2, 1, True),
        ("dead_code", 1, 1, False),
        ("algebra", 1, 1, False),
        ("constant_folding", 1, 1, False),
        ("cse", 1, 1, False),
    ]
    assert str(report).splitlines()[0] == "6 equations, 1 after 2 rounds of passes"
    again, report = run_passes(result)
    assert again is result
    assert not any(p.changed for p in report.passes)


def test_outputs_may_become_inputs_and_constants() -> None:
    w = Writer()
    x = w.input((3,))
    program = w.build(w(reshape_p, x, shape=(3,)), w(add_p, np.int64(1), np.int64(1)))
    result, _ = run_passes(program)
    assert result.outputs[0] is x
    assert isinstance(result.outputs[1], Const)
    assert result.out_specs == program.out_specs


def test_ten_thousand_equations() -> None:
    w = Writer()
    x = w.input((3, 2))
    atom: Any = x
    for i in range(2000):
        turned = w(transpose_p, atom, permutation=(1, 0))
        back = w(transpose_p, turned, permutation=(1, 0))
        step = w(add_p, np.float32(i), np.float32(1))
        w(negative_p, back)
        atom = w(add_p, back, step)
    result, report = run_passes(w.build(atom))
    assert names(result) == ["add"] * 2000
    assert report.before == 10_000


# random Programs of the real primitives

FLOAT_VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("nan"), float("inf"), -float("inf"), 1e-3]


def concrete_dtype(sample: Sample, pick: Callable[[list[str]], str]) -> np.dtype[Any]:
    kinds = {"float": ["float32", "float64"], "int": ["int32", "int64"], "any": ["float32", "int64", "bool"]}
    return np.dtype(pick(kinds.get(sample.dtype, [sample.dtype])))


CHOICES = [
    (primitive, case)
    for primitive in registered_primitives().values()
    for case in primitive.cases
    if not any(isinstance(value, Program) for value in case.params.values())
]


@st.composite
def programs(draw: Any) -> tuple[Program, list[Any]]:
    """A Program whose equations are cases of registered primitives on each other's values, and arrays for its inputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    w = Writer()
    arrays: list[Any] = []
    pool: list[Atom] = []

    def fresh(sample: Sample, dtype: np.dtype[Any]) -> Atom:
        low, high = sample.domain
        if sample.values is None:
            value = rng.uniform(low, high, sample.shape)
        else:
            value = np.asarray(sample.values, dtype if dtype.kind in "iu" else None)
        if dtype.kind == "f" and sample.values is None and sample.domain == (-2.0, 2.0) and rng.random() < 0.3:
            value = rng.choice(FLOAT_VALUES, sample.shape)
        value = value > 0 if dtype.kind == "b" and sample.values is None else value.astype(dtype)
        if rng.random() < 0.4:
            return constant(value)
        arrays.append(value)
        return w.input(sample.shape, dtype)

    for _ in range(draw(st.integers(1, 25))):
        primitive, case = CHOICES[rng.integers(len(CHOICES))]
        generic = str(rng.choice(["float32", "float64"])), str(rng.choice(["int32", "int64"]))
        dtypes = {"float": generic[0], "int": generic[1], "any": str(rng.choice([*generic, "bool"]))}
        operands: list[Atom] = []
        for sample in case.samples:
            dtype = np.dtype(dtypes.get(sample.dtype, sample.dtype))
            # Indices, shifts and the like are drawn anew; they would fail on other values
            usual = sample.dtype in ("float", "int", "any", "bool") and sample.values is None and sample.domain[0] <= -2
            fitting = [a for a in pool if usual and a.spec == make_spec(sample.shape, dtype)]
            reuse = fitting and rng.random() < 0.8
            operands.append(fitting[rng.integers(len(fitting))] if reuse else fresh(sample, dtype))
        outputs = w(primitive, *operands, **case.params)
        new = list(outputs) if isinstance(outputs, tuple) else [outputs]
        pool += new
        if rng.random() < 0.3:
            # The same once more, and things that undo each other
            atom = new[0]
            pool.append(atom)
            axes = tuple(int(i) for i in rng.permutation(len(atom.spec.shape)))
            turned = w(transpose_p, atom, permutation=axes)
            pool.append(w(transpose_p, turned, permutation=tuple(int(i) for i in np.argsort(axes))))
            flat = w(reshape_p, atom, shape=(int(np.prod(atom.spec.shape)),))
            pool.append(w(reshape_p, flat, shape=atom.spec.shape))
            if atom.spec.dtype.kind in "iuf":
                pool.append(w(multiply_p, atom, np.ones((), atom.spec.dtype)))
                pool.append(w(add_p, atom, np.zeros((), atom.spec.dtype)))
                pool.append(w(negative_p, w(negative_p, atom)))
            again = w(primitive, *operands, **case.params)
            pool += list(again) if isinstance(again, tuple) else [again]
    outputs = [pool[i] for i in rng.choice(len(pool), size=min(12, len(pool)), replace=False)]
    return w.build(*outputs), arrays


@settings(max_examples=60, deadline=None)
@given(programs())
def test_random_programs_keep_their_bits(drawn: tuple[Program, list[Any]]) -> None:
    program, arrays = drawn
    for one_pass in PASSES:
        same_bits(program, applied(one_pass, program), arrays)
    result, report = run_passes(program)
    check(result)
    same_bits(program, result, arrays)
    assert report.after == count_equations(result)
