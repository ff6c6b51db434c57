"""The algebra pass: the rules of the structural primitives, and what a rule sees and may do."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import onstage  # noqa: F401, registers the primitives
from onstage.ops.arithmetic import add_p, divide_p, multiply_p, negative_p, subtract_p, where_p
from onstage.ops.exponential import exp_p, sqrt_p
from onstage.ops.structure import broadcast_to_p, cast_p, reduce_sum_p, reshape_p, transpose_p
from onstage.stage.check import check
from onstage.stage.dims import as_dim
from onstage.stage.errors import ProgramError
from onstage.stage.interpreter import evaluate
from onstage.stage.nesting import count_equations, nested_programs
from onstage.stage.passes import algebra
from onstage.stage.primitive import Primitive
from onstage.stage.program import Atom, Const, Program, ProgramBuilder, Var, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, make_spec

F32, F64 = np.dtype("float32"), np.dtype("float64")


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


def unary_chain(shape: Any, dtype: Any, *steps: tuple[Primitive, dict[str, Any]]) -> Program:
    w = Writer()
    atom = w.input(shape, dtype)
    for primitive, params in steps:
        atom = w(primitive, atom, **params)
    return w.build(atom)


def permute(*axes: int) -> tuple[Primitive, dict[str, Any]]:
    return transpose_p, {"permutation": axes}


def reshape(*shape: Any) -> tuple[Primitive, dict[str, Any]]:
    return reshape_p, {"shape": shape}


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (unary_chain((2, 3), F32, permute(0, 1)), []),
        (unary_chain((2, 3), F32, permute(1, 0), permute(1, 0)), []),
        (unary_chain((2, 3, 4), F32, permute(1, 2, 0), permute(1, 2, 0)), ["transpose"]),
        (unary_chain((2, 3, 4), F32, *[permute(1, 2, 0)] * 3), []),
        (unary_chain((2, 3), F32, *[permute(1, 0)] * 7), ["transpose"]),
        (unary_chain((2, 3), F32, reshape(2, 3)), []),
        (unary_chain((2, 3), F32, reshape(6), reshape(3, 2)), ["reshape"]),
        (unary_chain((2, 3), F32, reshape(6), reshape(3, 2), reshape(2, 3)), []),
        (unary_chain((0, 3), F32, reshape(0), reshape(5, 0)), ["reshape"]),
        (unary_chain(("B", 4), F32, reshape(as_dim("4*B")), reshape(as_dim("B"), 4)), []),
        (unary_chain((2, 3), F32, (negative_p, {}), (negative_p, {})), []),
        (unary_chain((2, 3), np.dtype("uint8"), *[(negative_p, {})] * 3), ["negative"]),
        (unary_chain((2, 3), F32, (cast_p, {"dtype": F32, "weak": False})), []),
        (unary_chain((2, 3), F32, (broadcast_to_p, {"shape": (2, 3)})), []),
        (unary_chain((2, 3), np.dtype("uint8"), (reduce_sum_p, {"axes": (), "keepdims": False})), []),
        (unary_chain((2, 3), F32, (reduce_sum_p, {"axes": (), "keepdims": False})), ["reduce_sum"]),
        (unary_chain((), F32, (exp_p, {}), permute(), (exp_p, {})), ["exp", "exp"]),
    ],
)
def test_chains(program: Program, left: list[str]) -> None:
    result = applied(algebra, program)
    assert names(result) == left
    shape = tuple(3 if type(d) is not int else d for d in program.in_specs[0].shape)
    values = SPECIAL if program.in_specs[0].dtype == F32 else np.arange(250, 256, dtype=np.uint8)
    x = np.resize(values, shape)
    same_bits(program, result, [x])


@pytest.mark.parametrize(
    ("primitive", "constant_first", "value", "removed"),
    [
        (multiply_p, False, 1.0, True),
        (multiply_p, True, 1.0, True),
        (divide_p, False, 1.0, True),
        (divide_p, True, 1.0, False),
        (multiply_p, False, 0.0, False),
        (multiply_p, False, -1.0, False),
        (add_p, False, 0.0, False),
        (add_p, True, 0.0, False),
        (subtract_p, True, 0.0, False),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_neutral_constants(primitive: Primitive, constant_first: bool, value: float, removed: bool, shape: tuple[int, ...]) -> None:
    w = Writer()
    x = w.input((9,))
    c = constant(np.full(shape, value, np.float32))
    program = w.build(w(primitive, c, x) if constant_first else w(primitive, x, c))
    result = applied(algebra, program)
    assert (names(result) == []) is removed
    same_bits(program, result, [SPECIAL])


def test_neutral_constant_that_gives_the_shape_stays() -> None:
    w = Writer()
    x = w.input((3,))
    program = w.build(w(multiply_p, x, np.ones((1, 1), F32)), w(multiply_p, x, np.ones((3,), F32)))
    assert len(algebra(program).equations) >= 1
    assert algebra(program).out_specs == program.out_specs
    x0 = w.input((), F32)
    program = w.build(w(multiply_p, x0, np.ones((1,), F32)))
    assert algebra(program) is program


def test_weakness_is_kept() -> None:
    w = Writer()
    x = w.input((), F32, weak=True)
    one = constant(1.0, make_spec((), F32))
    program = w.build(w(multiply_p, x, one), w(reduce_sum_p, x, axes=(), keepdims=False))
    assert program.out_specs == (make_spec((), F32),) * 2
    assert applied(algebra, program) is program
    w = Writer()
    x = w.input((), F32, weak=True)
    program = w.build(w(multiply_p, x, constant(1.0, make_spec((), F32, True))))
    assert names(applied(algebra, program)) == []


def test_broadcasts_are_pushed_into_elementwise_readers() -> None:
    w = Writer()
    x, y = w.input(("B", 3)), w.input((3,))
    wide = w(broadcast_to_p, y, shape=(as_dim("B"), 3))
    one = w(broadcast_to_p, np.float32(2), shape=(as_dim("B"), 3))
    both = w(broadcast_to_p, np.float32(5), shape=(4, 3))
    condition = w.input((1, 3), np.dtype(bool))
    a = w(multiply_p, w(add_p, x, wide), one)
    b = w(where_p, condition, both, w(broadcast_to_p, y, shape=(4, 3)))
    program = w.build(a, b)
    result = applied(algebra, program)
    # In the last one something must still stretch to (4, 3)
    assert names(result) == ["add", "multiply", "broadcast_to", "where"]
    arrays = [np.ones((2, 3), F32), np.arange(3, dtype=F32), np.array([[True, False, True]])]
    same_bits(program, result, arrays)


def test_algebra_reaches_programs_of_params() -> None:
    body = unary_chain((2, 3), F32, permute(1, 0), permute(1, 0))
    w = Writer()
    x = w.input((2, 3))
    result = applied(algebra, w.build(w(call_p, x, body=body)))
    assert names(result.equations[0].params["body"]) == []


# the context of the rules


def run_rule(rule: Callable[..., Any], build: Callable[[Writer, Primitive], Program]) -> Program:
    return algebra(build(Writer(), toy("rule", simplify=rule)))


def on_input(w: Writer, primitive: Primitive) -> Program:
    x = w.input((3,))
    return w.build(w(primitive, w(negative_p, x)))


def test_context_tells_about_the_surroundings() -> None:
    seen: list[Any] = []

    def rule(ctx: Any, x: Atom, c: Atom) -> None:
        seen.append((ctx.spec(x), ctx.producer(x).primitive, ctx.producer(c), ctx.constant(x), ctx.constant(c)))
        seen.append((ctx.uses(x), ctx.uses(c)))
        seen.append(ctx.infer(add_p, x, x))

    def build(w: Writer, primitive: Primitive) -> Program:
        x = w.input((3,))
        y = w(negative_p, x)
        w(exp_p, y)
        return w.build(w(primitive, y, np.float32([1, 2, 3])), y)

    primitive = toy("rule", simplify=rule, abstract=lambda x, c: x)
    program = build(Writer(), primitive)
    assert algebra(program) is program
    spec, producer, no_producer, no_constant, value = seen[0]
    assert (spec, producer, no_producer, no_constant) == (make_spec((3,), F32), negative_p, None, None)
    assert value.tolist() == [1, 2, 3]
    assert seen[1] == (2, 1)
    assert seen[2] == make_spec((3,), F32)


def test_emitted_equations_carry_the_source() -> None:
    def rule(ctx: Any, x: Atom) -> Any:
        return ctx.emit(exp_p, ctx.emit(add_p, x, ctx.const(np.float32(1))))

    result = run_rule(rule, on_input)
    assert names(result) == ["negative", "add", "exp"]
    assert [e.source for e in result.equations] == [Source("user.py", n) for n in (1, 2, 2)]
    check(result)


def test_what_a_declining_rule_emitted_is_dropped() -> None:
    def rule(ctx: Any, x: Atom) -> None:
        ctx.emit(exp_p, ctx.emit(add_p, x, x))

    w = Writer()
    program = on_input(w, toy("rule", simplify=rule))
    assert algebra(program) is program


def test_emitted_equations_are_simplified() -> None:
    def rule(ctx: Any, x: Atom) -> Any:
        return ctx.emit(negative_p, x)

    assert names(run_rule(rule, on_input)) == []


def test_inline() -> None:
    branch = unary_chain((3,), F32, (exp_p, {}), (sqrt_p, {}))

    def rule(ctx: Any, x: Atom) -> Any:
        return ctx.inline(branch, x)

    result = run_rule(rule, on_input)
    assert names(result) == ["negative", "exp", "sqrt"]
    assert {e.source for e in result.equations[1:]} == {Source("user.py", 2)}


def test_uses_follow_replacements() -> None:
    seen: list[int] = []

    def rule(ctx: Any, x: Atom) -> None:
        seen.append(ctx.uses(x))

    primitive = toy("rule", simplify=rule)
    w = Writer()
    x = w.input((3,))
    y = w(exp_p, x)
    same = w(reshape_p, y, shape=(3,))
    algebra(w.build(w(primitive, same), same, same))
    # In the first round, with the reshape gone; then in the second
    assert seen == [3, 3]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda ctx, x: ctx.const(np.float32(1)), r"gave f32\[\] for an output f32\[3\]"),
        (lambda ctx, x: ctx.emit(cast_p, x, dtype=F64, weak=False), r"gave f64\[3\] for an output f32\[3\]"),
        (lambda ctx, x: ctx.emit(cast_p, x, dtype=F32, weak=True), r"gave f32\[3\]~ for an output f32\[3\]"),
        (lambda ctx, x: (x, x), "gave 2 atoms for 1 outputs"),
    ],
)
def test_a_replacement_of_another_type_is_an_error(rule: Callable[..., Any], message: str) -> None:
    with pytest.raises(ProgramError, match=f"^rule: the simplify rule {message}") as caught:
        run_rule(rule, on_input)
    assert caught.value.source == Source("user.py", 2)


def test_shardings_do_not_move() -> None:
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "float32", sharding=("data",)))
    (y,) = builder.emit(reshape_p, (x,), {"shape": (3,)}, None)
    program = builder.build([y])
    assert applied(algebra, program) is program


def test_a_rule_that_never_ends_is_cut_off() -> None:
    def rule(ctx: Any, x: Atom, n: int) -> Any:
        return ctx.emit(again, x, n=n + 1)

    again = toy("again", simplify=rule)
    w = Writer()
    x = w.input((3,))
    result = algebra(w.build(w(again, x, n=0)))
    check(result)
    assert names(result) == ["again"]


def test_equations_are_reused_where_nothing_changes() -> None:
    w = Writer()
    x = w.input((3,))
    y = w(exp_p, x)
    program = w.build(w(reshape_p, y, shape=(3,)))
    kept = algebra(program).equations[0]
    assert kept is program.equations[0]
