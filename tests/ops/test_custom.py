"""User primitives: declaration, calls, rules, staging, residuals, custom derivatives, ONNX operators."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import onnxscript
import pytest
from onnxscript import opset18

import onstage as ons

X = np.array([0.5, -1.5, 2.0])


class Pair(NamedTuple):
    left: Any
    right: Any


def opaque(x: Any) -> Any:
    """What no trace can look into."""
    return np.asarray(x)


@ons.primitive(name="test.power", static_argnames=("n",))
def power(x: Any, *, n: int = 2) -> Any:
    return opaque(x) ** n


@power.def_abstract
def _(x: Any, *, n: int) -> Any:
    return x


@power.def_jvp
def _(output: Any, primals: Any, tangents: Any, *, n: int) -> Any:
    return n * primals[0] ** (n - 1) * tangents[0]


@power.def_onnx
def _(b: Any, x: str, *, n: int) -> str:
    return b.op("Pow", x, b.const(n, b.dtype(x)))


# ---------------------------------------------------------------------------------------------------------------- declaration


def test_decorator_with_and_without_arguments() -> None:
    def f(x: Any) -> Any:
        """Doc."""
        return x * 2

    assert ons.primitive(f)(X).tolist() == (X * 2).tolist()
    assert ons.primitive()(f)(X).tolist() == (X * 2).tolist()
    named = ons.primitive(f, name="test.named", version=3)
    assert (named.name, named.version, named.__doc__, named.__name__) == ("test.named", 3, "Doc.", "f")
    assert ons.primitive(f).name == f"{f.__module__}.{f.__qualname__}"


def test_variable_and_positional_only_parameters_are_rejected() -> None:
    def positional(x: Any, /) -> Any: ...
    def variable(*xs: Any) -> Any: ...
    def keywords(**xs: Any) -> Any: ...

    with pytest.raises(TypeError, match=r"primitive .*positional.*: the implementation has the positional-only parameter 'x'; fixed named"):
        ons.primitive(positional)
    with pytest.raises(TypeError, match=r"the implementation has \*xs; fixed named parameters are needed"):
        ons.primitive(variable)
    with pytest.raises(TypeError, match=r"the implementation has \*\*xs"):
        ons.primitive(static_argnames=())(keywords)


def test_bad_declarations() -> None:
    def f(x: Any, y: Any) -> Any: ...

    with pytest.raises(ValueError, match=r"static_argnames has 'z', which is no parameter; there are x, y"):
        ons.primitive(f, static_argnames=("z",))
    with pytest.raises(ValueError, match=r"y in static_argnames and nondiff_argnames both"):
        ons.primitive(f, static_argnames="y", nondiff_argnames=("x", "y"))
    with pytest.raises(ValueError, match=r"version is 0, not an int from 1"):
        ons.primitive(f, version=0)
    with pytest.raises(ValueError, match=r"'sin': a built-in primitive has this name"):
        ons.primitive(f, name="sin")
    with pytest.raises(TypeError, match=r"the implementation must be a function, got str"):
        ons.primitive("name")  # type: ignore[call-overload]


def test_definitions_return_the_function_unchanged() -> None:
    p = ons.primitive(lambda x: x, name="test.unchanged")
    for define in (p.def_abstract, p.def_jvp, p.def_transpose, p.def_batch, p.def_sharding, p.def_onnx):
        rule = lambda *args, **static: None
        assert define(rule) is rule


def test_a_newer_primitive_of_one_name_takes_its_place() -> None:
    first = ons.primitive(lambda x: x + 1, name="test.redefined")
    old = ons.stage(lambda x: first(x), X)
    assert np.array_equal(old(X), X + 1)
    second = ons.primitive(lambda x: x + 2, name="test.redefined")
    new = ons.stage(lambda x: second(x), X)
    assert np.array_equal(new(X), X + 2)
    assert np.array_equal(old(X), X + 1)


# ---------------------------------------------------------------------------------------------------------------------- calls


def test_calls_follow_the_python_signature() -> None:
    @ons.primitive(static_argnames="scale")
    def f(x: Any, y: Any = 1.0, *, scale: float = 2.0) -> Any:
        return (x + y) * scale

    for call in (lambda x: f(x), lambda x: f(x, 3.0), lambda x: f(y=x, x=x, scale=0.5), lambda x: f(x, scale=1)):
        assert np.array_equal(ons.stage(call, X)(X), call(X))
        assert np.array_equal(ons.eval_shape(call, X).shape, (3,))
    with pytest.raises(TypeError, match=r"missing a required argument: 'x'"):
        f()
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'z'"):
        f(X, z=1)


def test_python_numbers_stay_weak() -> None:
    f = ons.primitive(lambda x, y: x * y, name="test.weak")
    x = X.astype(np.float32)
    assert f(x, 2.0).dtype == np.float32
    staged = ons.stage(lambda x: f(x, 2.0), x)
    assert staged(x).dtype == np.float32
    assert ons.grad(lambda x: f(x, 2.0).sum())(x).dtype == np.float32


def test_static_arguments() -> None:
    seen: list[Any] = []

    @ons.primitive(static_argnames=("mode", "k"))
    def f(x: Any, mode: Any, k: Any = 1) -> Any:
        seen.append((mode, k))
        return x * k

    program = ons.stage(lambda x: f(x, "a") + f(x, ("b", None), k=True) + f(x, np.dtype("int32"), k=2.0), X)
    assert np.allclose(program(X), 4 * X)
    assert all(not ons.is_traced(m) and not ons.is_traced(k) for m, k in seen)
    with pytest.raises(TypeError, match=r"the static argument 'mode' is not hashable \(list\)"):
        f(X, [1])
    with pytest.raises(TypeError, match=r"x is str, which is no array; name its argument in static_argnames"):
        f("text", "a")


def test_static_values_that_python_finds_equal_are_kept_apart() -> None:
    f = ons.primitive(lambda x, n: x**n, name="test.equal", static_argnames="n")
    i = np.array([1, 2, 3])
    program = ons.stage(lambda x: (f(x, 2), f(x, 2.0)), i)
    assert [y.dtype for y in program(i)] == [np.int64, np.float64]


def test_static_objects() -> None:
    g = lambda x: x * 3
    f = ons.primitive(lambda x, g: g(x), name="test.function_argument", static_argnames="g")
    assert np.array_equal(ons.stage(lambda x: f(x, g), X)(X), X * 3)
    assert np.allclose(ons.stage(lambda x: f(x, np.sin), X)(X), np.sin(X), atol=1e-15)


def test_trees_of_arguments_and_results() -> None:
    @ons.primitive
    def f(a: Any, b: Any) -> Any:
        return {"sum": a["x"] + b.left, "rest": Pair(b.right * 2, [a["y"], None])}

    a, b = {"y": X * 2, "x": X}, Pair(X + 1, X - 1)
    call = lambda a, b: f(a, b)
    result = ons.stage(call, a, b)(a, b)
    assert isinstance(result["rest"], Pair) and result["rest"].right[1] is None
    assert np.array_equal(result["rest"].left, (X - 1) * 2)
    ga, gb = ons.grad(lambda a, b: np.sum(f(a, b)["rest"].left ** 2) + np.sum(f(a, b)["sum"]), argnums=(0, 1))(a, b)
    assert np.array_equal(ga["x"], np.ones(3)) and np.array_equal(ga["y"], np.zeros(3))
    assert np.allclose(gb.right, 8 * (X - 1)) and isinstance(gb, Pair)


def test_rules_get_flat_leaves_in_parameter_and_tree_order() -> None:
    seen: dict[str, Any] = {}

    @ons.primitive(static_argnames="s", nondiff_argnames="w")
    def f(t: Any, s: Any, w: Any, *, z: Any) -> Any:
        return opaque(t["b"]) * opaque(w) + opaque(t["a"]) + opaque(z)

    @f.def_abstract
    def _(t: Any, s: Any, w: Any, *, z: Any) -> Any:
        seen["abstract"] = (t, s, w, z)
        return ons.ArraySpec(w.shape, w.dtype)

    @f.def_jvp
    def _(output: Any, primals: Any, tangents: Any, *, s: Any) -> Any:
        seen["jvp"] = ([p.shape for p in primals], [t is None for t in tangents], s)
        w = primals[2]
        terms = [tangents[0], None if tangents[1] is None else tangents[1] * w, tangents[3]]
        total = [t for t in terms if t is not None]
        return sum(total[1:], total[0])

    t, w = {"b": X, "a": np.ones((3,))}, np.array([1.0, 2.0, 3.0])
    g = ons.grad(lambda t, w, z: np.sum(f(t, "static", w, z=z)), argnums=(0, 1))(t, w, np.zeros(3))
    assert np.array_equal(g[0]["b"], w) and np.array_equal(g[1], np.zeros(3))
    assert seen["jvp"] == ([(3,)] * 4, [False, False, True, True], "static")
    tree, static, weight, z = seen["abstract"]
    assert static == "static" and set(tree) == {"a", "b"}
    assert all(isinstance(v, ons.AbstractValue) for v in (tree["a"], weight, z))
    assert weight.shape == (3,) and weight.dtype == np.float64 and weight.spec == ons.ArraySpec((3,), "float64")


def test_deferred_arrays_and_jit() -> None:
    f = ons.primitive(lambda x, y: {"out": np.sin(x) * y}, name="test.deferred")
    a = ons.array(X)
    assert np.allclose(f(a, 2.0)["out"].numpy(), np.sin(X) * 2)
    g = ons.primitive(lambda x: opaque(x) * 2, name="test.deferred_opaque")
    result = g(a + 1)
    assert isinstance(result, ons.Array) and np.array_equal(result.numpy(), (X + 1) * 2)
    assert np.allclose(ons.jit(lambda x: f(x, 2.0))(X)["out"], np.sin(X) * 2)


def test_an_implementation_takes_no_traced_array_from_outside() -> None:
    make = lambda x: ons.primitive(lambda y: y * x, name="test.closure")
    with pytest.raises(ons.TracingError, match=r"test.closure: its output hangs on a traced array from outside; pass it as an argument"):
        ons.grad(lambda x: np.sum(make(x)(x)))(X)
    with pytest.raises(
        ons.TracingError, match=r"test.closure: its implementation uses a traced array from outside; pass it as an argument"
    ):
        ons.stage(lambda x: make(x)(x), X)


def test_integer_operands() -> None:
    f = ons.primitive(lambda x, i: x[i], name="test.take")
    i = np.array([0, 0, 2])
    for _ in range(2):
        assert np.array_equal(ons.grad(lambda x: np.sum(f(x, i)))(X), [2.0, 0.0, 1.0])
        program = ons.stage(ons.grad(lambda x, i: np.sum(f(x, i))), X, i)
        assert np.array_equal(program(X, np.array([0, 1, 1])), [1.0, 2.0, 0.0])
        f.def_jvp(lambda o, p, t: t[0][p[1]])


def test_abstract_value() -> None:
    value = ons.AbstractValue(("B", 2), "float32")
    assert value.spec == ons.ArraySpec(("B", 2), "float32") and value.ndim == 2 and str(value.shape[0]) == "B"
    assert ons.AbstractValue(value.spec).dtype == np.float32


# ---------------------------------------------------------------------------------------------------- traceable implementations


def test_a_traceable_implementation_needs_no_rules() -> None:
    f = ons.primitive(lambda x, y: np.tanh(x) * y, name="test.traceable")
    ons.testing.check_primitive(f, (X, X + 1), check=("abstract", "jvp", "transpose", "nested", "stage", "batch", "onnx"))
    nodes = ons.stage(lambda x, y: f(x, y), X, X).to_onnx().graph.node
    assert [n.op_type for n in nodes] == ["Tanh", "Mul"]
    assert all(n.name.startswith("test.traceable") for n in nodes)


def test_named_dims() -> None:
    f = ons.primitive(lambda x: x.reshape(x.shape[0], -1) * 2, name="test.named_dims")
    spec = ons.ArraySpec(("B", 2, 3), "float64")
    program = ons.stage(ons.grad(lambda x: np.sum(f(x) ** 2)), specs=(spec,))
    for size in (0, 1, 4):
        x = np.arange(size * 6.0).reshape(size, 2, 3)
        assert np.array_equal(program(x), 8 * x)
    cube = ons.primitive(lambda x: x**3, name="test.batched_dims")
    cube.def_jvp(lambda o, p, t: 3 * p[0] ** 2 * t[0])
    batched = ons.stage(ons.grad(lambda x: np.sum(ons.vmap(cube)(x))), specs=(spec,))
    assert np.allclose(batched(np.ones((2, 2, 3)) * 2), 12)


# --------------------------------------------------------------------------------------------------------------- derivatives


def test_jvp_rule_in_both_modes_and_again() -> None:
    call = lambda x: power(x, n=4)
    assert np.allclose(ons.grad(lambda x: np.sum(call(x)))(X), 4 * X**3)
    assert np.allclose(ons.jvp(call, (X,), (X,))[1], 4 * X**4)
    assert np.allclose(ons.grad(lambda x: np.sum(ons.grad(lambda x: np.sum(call(x)))(x)))(X), 12 * X**2)
    assert np.allclose(np.diag(ons.hessian(lambda x: np.sum(call(x)))(X)), 12 * X**2)
    program = ons.stage(ons.grad(lambda x: np.sum(call(x))), X)
    assert np.allclose(program(X), 4 * X**3)
    ons.testing.check_primitive(power, (X,), static={"n": 3}, check=("abstract", "jvp", "transpose", "nested", "stage", "batch", "onnx"))


def test_an_opaque_primitive_outside_staging() -> None:
    calls: list[int] = []

    @ons.primitive
    def f(x: Any) -> Any:
        calls.append(1)
        return np.sort(opaque(x)) if opaque(x)[0] > 0 else opaque(x) * 2.0

    @f.def_jvp
    def _(output: Any, primals: Any, tangents: Any) -> Any:
        return 2.0 * tangents[0]

    assert np.array_equal(f(X), np.sort(X))
    calls.clear()
    assert np.array_equal(ons.grad(lambda x: np.sum(f(x)))(X), np.full(3, 2.0))
    assert calls == [1]
    with pytest.raises(NotImplementedError, match=r"f: it is opaque: staging it needs def_abstract and def_onnx.*\n  at test_custom.py"):
        ons.stage(lambda x: f(x), X)
    f.def_abstract(lambda x: x)
    with pytest.raises(ons.MissingRuleError, match=r"f: it is opaque: staging it needs def_abstract and def_onnx"):
        ons.stage(lambda x: f(x), X)
    assert np.array_equal(ons.vmap(f)(np.stack([X, -X])), np.stack([np.sort(X), -2 * X]))
    assert np.array_equal(ons.grad(lambda x: np.sum(ons.vmap(f)(x)))(np.stack([X, -X])), np.full((2, 3), 2.0))


def test_missing_derivative_rules() -> None:
    f = ons.primitive(lambda x: opaque(x) * 2, name="test.no_rules")
    with pytest.raises(ons.MissingRuleError, match=r"test.no_rules: it is opaque: .*differentiating it def_jvp or def_transpose"):
        ons.grad(lambda x: np.sum(f(x)))(X)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda o, p, t: t[0] * t[0], ons.NonlinearRuleError, "test.bad_jvp: the jvp rule is not linear in its tangents: multiply is not jointly linear in operand 0, 1"),
        (lambda o, p, t: np.sin(t[0]), ons.NonlinearRuleError, "test.bad_jvp: the jvp rule is not linear in its tangents: sin is not linear in operand 0"),
        (lambda o, p, t: t[0] + 1.0, ons.NonlinearRuleError, "add takes a tangent together with operand 1 .*, which is not zero"),
        (lambda o, p, t: p[0] * 2, ons.NonlinearRuleError, "does not depend on the tangents; a zero tangent is None"),
        (lambda o, p, t: 1.0, ons.NonlinearRuleError, "test.bad_jvp: the jvp rule: output: a constant that is not zero"),
        (lambda o, p, t: np.sum(t[0]), ons.ShapeError, r"test.bad_jvp: the jvp rule: output: the tangent is f64\[\], its primal f64\[3\]: the shapes differ"),
        (lambda o, p, t: t[0].astype(np.float32), ons.DTypeError, r"the tangent is f32\[3\], its primal f64\[3\]: the dtypes differ"),
        (lambda o, p, t: (t[0], t[0]), TypeError, "test.bad_jvp: the jvp rule gave a tangent of another tree than the output: output: expected a leaf, got tuple of 2"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_bad_jvp_rules(rule: Any, error: Any, message: str, mode: str) -> None:
    f = ons.primitive(lambda x: x * 2, name="test.bad_jvp")
    f.def_jvp(rule)
    with pytest.raises(error, match=message):
        if mode == "forward":
            ons.jvp(f, (X,), (X,))
        else:
            ons.grad(lambda x: np.sum(f(x)))(X)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda ct, p, o: ct, TypeError, "test.bad_transpose: the transpose rule must give a tuple with one cotangent for each of 2 operands, got Tracer"),
        (lambda ct, p, o: (ct,), TypeError, "one cotangent for each of 2 operands, got 1"),
        (lambda ct, p, o: (np.sum(ct), ct), ons.ShapeError, r"test.bad_transpose: the transpose rule: operand 0: the cotangent is f64\[\], its operand f64\[3\]"),
        (lambda ct, p, o: (ct, ct.astype("f4")), ons.DTypeError, r"operand 1: the cotangent is f32\[3\], its operand f64\[3\]: the dtypes differ"),
    ],
)  # fmt: skip
def test_bad_transpose_rules(rule: Any, error: Any, message: str) -> None:
    f = ons.primitive(lambda x, y: x * y, name="test.bad_transpose")
    f.def_transpose(rule)
    with pytest.raises(error, match=message):
        ons.grad(lambda x, y: np.sum(f(x, y)), argnums=(0, 1))(X, X)


def test_bad_abstract_rules() -> None:
    f = ons.primitive(lambda x: opaque(x) * 2, name="test.bad_abstract")
    f.def_abstract(lambda x: ons.AbstractValue((2,), x.dtype))
    with pytest.raises(
        ons.ShapeError, match=r"test.bad_abstract: the implementation gave f64\[3\], def_abstract says for leaf 0 of the output f64\[2\]"
    ):
        ons.grad(lambda x: np.sum(f(x)))(X)
    f.def_abstract(lambda x: (x,))
    with pytest.raises(TypeError, match=r"def_abstract says, the implementation gave another tree for the output"):
        ons.grad(lambda x: np.sum(f(x)))(X)
    f.def_abstract(lambda x: x.shape)
    with pytest.raises(TypeError, match=r"its abstract rule gives int for output\[0\], not an ArraySpec or AbstractValue"):
        ons.grad(lambda x: np.sum(f(x)))(X)


def test_zero_tangents_may_be_none_or_zeros() -> None:
    f = ons.primitive(lambda x, y: {"a": x * 2, "b": y * 3}, name="test.zeros")
    f.def_jvp(lambda o, p, t: {"a": np.zeros_like(p[0]) if t[0] is None else 2 * t[0], "b": None if t[1] is None else 3 * t[1]})
    loss = lambda x, y: np.sum(f(x, y)["a"]) + np.sum(f(x, y)["b"])
    assert np.array_equal(ons.grad(loss, argnums=1)(X, X), np.full(3, 3.0))
    assert np.array_equal(ons.grad(loss, argnums=0)(X, X), np.full(3, 2.0))
    assert ons.jvp(loss, (X, X), (X, X))[1] == pytest.approx(5 * X.sum())


def test_active_input_indices() -> None:
    seen: list[Any] = []

    @ons.primitive(nondiff_argnames="z")
    def f(x: Any, y: Any, z: Any) -> Any:
        return opaque(x) * opaque(y) * opaque(z)

    @f.def_transpose
    def _(ct: Any, primals: Any, output: Any, *, active_input_indices: Any = None) -> Any:
        seen.append(active_input_indices)
        x, y, z = primals
        return (ct * y * z if 0 in active_input_indices else None, ct * x * z if 1 in active_input_indices else None, None)

    loss = lambda x, y, z: np.sum(f(x, y, z))
    assert np.allclose(ons.grad(loss, argnums=1)(X, X + 1, X), X * X)
    gx, gz = ons.grad(loss, argnums=(0, 2))(X, X + 1, X)
    assert np.allclose(gx, (X + 1) * X) and np.array_equal(gz, np.zeros(3))
    assert seen == [(1,), (0,)]
    with pytest.raises(ons.MissingRuleError, match=r"opaque"):
        ons.jvp(lambda x: f(x, X, X), (X,), (X,))


def test_a_linear_primitive_in_the_rule_of_another() -> None:
    double = ons.primitive(lambda x: opaque(x) * 2, name="test.double")
    double.def_abstract(lambda x: x)
    f = ons.primitive(lambda x: opaque(x) * 2, name="test.uses_double")
    f.def_jvp(lambda o, p, t: double(t[0]))
    assert np.array_equal(ons.jvp(f, (X,), (X,))[1], 2 * X)
    with pytest.raises(
        ons.NonlinearRuleError, match=r"test.uses_double: the jvp rule passes a tangent through test.double, which is opaque and has no"
    ):
        ons.grad(lambda x: np.sum(f(x)))(X)
    double.def_transpose(lambda ct, p, o: (double(ct),))
    g = ons.primitive(lambda x: opaque(x) * 2, name="test.uses_double")
    g.def_jvp(lambda o, p, t: double(t[0]))
    assert np.array_equal(ons.grad(lambda x: np.sum(g(x)))(X), np.full(3, 2.0))
    double.def_transpose(lambda ct, p, o: (ct * p[0],))
    h = ons.primitive(lambda x: opaque(x) * 2, name="test.uses_double")
    h.def_jvp(lambda o, p, t: double(t[0]))
    with pytest.raises(ons.NonlinearRuleError, match=r"test.double, whose transpose rule reads the value"):
        ons.grad(lambda x: np.sum(h(x)))(X)


# ------------------------------------------------------------------------------------------------------------------ residuals


def make_solve(name: str) -> Any:
    """A linear solve whose backward pass takes the inverse that the forward pass has made."""
    calls: list[int] = []

    @ons.primitive(name=name, residual=True)
    def solve(a: Any, b: Any) -> Any:
        calls.append(1)
        inverse = np.linalg.inv(opaque(a))
        return ons.PrimitiveResult(inverse @ opaque(b), {"inverse": inverse})

    @solve.def_transpose
    def _(ct: Any, primals: Any, output: Any, residual: Any, *, active_input_indices: Any = None) -> Any:
        y = residual["inverse"].T @ ct
        return (-np.outer(y, output) if 0 in active_input_indices else None, y)

    return solve, calls


A = np.array([[2.0, 1.0], [0.5, 3.0]])
B = np.array([1.0, -2.0])


def test_residual_outside_staging() -> None:
    solve, calls = make_solve("test.solve")
    assert np.allclose(solve(A, B), np.linalg.solve(A, B))
    calls.clear()
    ga, gb = ons.grad(lambda a, b: np.sum(solve(a, b) ** 2), argnums=(0, 1))(A, B)
    assert calls == [1]
    x = np.linalg.solve(A, B)
    y = np.linalg.solve(A.T, 2 * x)
    assert np.allclose(gb, y) and np.allclose(ga, -np.outer(y, x))
    ons.testing.check_primitive(solve, (A, B), check="transpose")
    with pytest.raises(ons.MissingRuleError, match=r"test.solve: it is opaque"):
        ons.grad(lambda b: np.sum(ons.grad(lambda b: np.sum(solve(A, b) ** 2))(b)))(B)
    solve.def_abstract(lambda a, b: ons.PrimitiveResult(b, {"inverse": a}))
    ons.testing.check_primitive(solve, (A, B), check=("abstract", "transpose", "batch"))
    with pytest.raises(ons.MissingRuleError, match=r"test.solve: it is opaque"):
        ons.stage(ons.vmap(solve), np.stack([A, A]), np.stack([B, B]))


def test_residual_needs_specs_in_stage() -> None:
    solve, _ = make_solve("test.staged_solve")

    @solve.def_onnx
    def _(b: Any, a: str, v: str) -> Any:
        pick = lambda i, j: b.op("Gather", b.op("Gather", a, b.const(i)), b.const(j))
        row = lambda p, q: b.op("Concat", b.op("Unsqueeze", p, b.const([0])), b.op("Unsqueeze", q, b.const([0])), axis=0)
        rows = [row(pick(1, 1), b.op("Neg", pick(0, 1))), row(b.op("Neg", pick(1, 0)), pick(0, 0))]
        det = b.op("Sub", b.op("Mul", pick(0, 0), pick(1, 1)), b.op("Mul", pick(0, 1), pick(1, 0)))
        adjugate = b.op("Concat", *[b.op("Unsqueeze", r, b.const([0])) for r in rows], axis=0)
        inverse = b.op("Div", adjugate, det)
        return ons.PrimitiveResult(b.op("MatMul", inverse, v), {"inverse": inverse})

    loss = lambda a, b: np.sum(solve(a, b) ** 2)
    solve.def_abstract(lambda a, b: b)
    assert np.isclose(ons.stage(loss, A, B)(A, B), loss(A, B))
    assert np.allclose(ons.grad(loss, argnums=1)(A, B), np.linalg.solve(A.T, 2 * np.linalg.solve(A, B)))
    with pytest.raises(
        ons.MissingRuleError, match=r"staging its gradient needs the specs of its residual; let def_abstract return ons.PrimitiveResult"
    ):
        ons.stage(ons.grad(loss, argnums=(0, 1)), A, B)
    solve.def_abstract(lambda a, b: ons.PrimitiveResult(b, {"inverse": a}))
    program = ons.stage(ons.grad(loss, argnums=(0, 1)), A, B)
    for got, expected in zip(program(A, B), ons.grad(loss, argnums=(0, 1))(A, B), strict=True):
        assert np.allclose(got, expected)
    ons.testing.check_primitive(solve, (A, B), check=("abstract", "transpose", "stage", "onnx"))
    # The file of the forward pass alone does not make the residual.
    assert len(ons.stage(loss, A, B).optimized[0].equations[0].outputs) == 1


def test_residual_of_a_traceable_implementation_is_differentiated_again() -> None:
    @ons.primitive(residual=True, name="test.square_with_residual")
    def f(x: Any) -> Any:
        return ons.PrimitiveResult(x * x * x, 3 * x * x)

    f.def_transpose(lambda ct, p, o, residual: (ct * residual,))
    g = ons.grad(lambda x: np.sum(f(x)))
    assert np.allclose(g(X), 3 * X**2)
    assert np.allclose(np.diag(ons.hessian(lambda x: np.sum(f(x)))(X)), 6 * X)
    assert np.allclose(ons.stage(ons.grad(lambda x: np.sum(g(x))), X)(X), 6 * X)
    ons.testing.check_primitive(f, (X,), check=("abstract", "jvp", "transpose", "nested", "stage", "batch", "onnx"))


def test_gradient_with_a_residual_in_a_file(tmp_path: Path) -> None:
    @ons.primitive(residual=True, name="test.normalize")
    def normalize(x: Any) -> Any:
        norm = np.sqrt(np.sum(x * x, axis=-1, keepdims=True))
        return ons.PrimitiveResult(x / norm, norm)

    @normalize.def_transpose
    def _(ct: Any, primals: Any, output: Any, norm: Any) -> Any:
        return ((ct - output * np.sum(ct * output, axis=-1, keepdims=True)) / norm,)

    loss = lambda x, w: np.sum(normalize(x) * w)
    spec = ons.ArraySpec(("B", 3), "float64")
    program = ons.stage(ons.grad(loss), specs=(spec, ons.ArraySpec((3,), "float64")))
    path = tmp_path / "gradient.onnx"
    assert program.save(path).verified == ("out",)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in (0, 1, 4):
        x = np.random.default_rng(size).normal(size=(size, 3))
        expected = ons.grad(loss)(x, X) if size else np.zeros((0, 3))
        assert np.allclose(session.run(None, {"x": x, "w": X})[0], expected)
    ons.testing.check_gradient(loss, np.random.default_rng(5).normal(size=(4, 3)), X)


def test_residual_is_declared() -> None:
    with pytest.raises(
        TypeError, match=r"declared with residual=True, so the implementation must return PrimitiveResult\(output, residual\); got ndarray"
    ):
        ons.primitive(lambda x: x, residual=True)(X)
    with pytest.raises(TypeError, match=r"declared with residual=False, so the implementation must return the output; got PrimitiveResult"):
        ons.primitive(lambda x: ons.PrimitiveResult(x, x))(X)


# ----------------------------------------------------------------------------------------------------------- batch, loops, files


def test_batch_rule() -> None:
    @ons.primitive(static_argnames="scale", name="test.batch_rule")
    def f(x: Any, y: Any, *, scale: float) -> Any:
        return {"sum": np.sum(opaque(x)) * scale, "y": opaque(y)}

    @f.def_batch
    def _(ctx: Any, args: Any, axes: Any, *, scale: float) -> Any:
        assert ctx.size == 4 and axes == (1, None)
        return {"sum": np.sum(args[0], axis=0) * scale, "y": args[1]}, {"sum": 0, "y": None}

    f.def_abstract(lambda x, y, *, scale: {"sum": ons.AbstractValue((), x.dtype), "y": y})
    x = np.arange(12.0).reshape(3, 4)
    result = ons.vmap(lambda x, y: f(x, y, scale=2.0), in_axes=(1, None))(x, X)
    assert np.array_equal(result["sum"], x.sum(0) * 2) and np.array_equal(result["y"], np.broadcast_to(X, (4, 3)))


def test_in_loops_and_branches() -> None:
    def loss(x: Any) -> Any:
        carry, _ = ons.scan(lambda c, t: (power(c, n=2) + t, None), x[0], x)
        return ons.cond(carry > 0, lambda c: power(c, n=3), lambda c: c, carry)

    x = np.array([0.5, 0.25, 0.125])
    ons.testing.check_gradient(loss, x)
    assert np.allclose(ons.stage(ons.grad(loss), x)(x), ons.grad(loss)(x))


def test_a_file_with_a_user_primitive(tmp_path: Path) -> None:
    path = tmp_path / "power.onnx"
    program = ons.stage(lambda x: power(x, n=3) + power(x), X)
    program.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(None, {"x": X})[0], X**3 + X**2)
    loaded = ons.load(path)
    assert loaded.hash == program.hash
    assert np.allclose(ons.grad(lambda x: np.sum(loaded(x)))(X), 3 * X**2 + 2 * X)


def test_hash_has_the_version_and_static_arguments() -> None:
    make = lambda version: ons.primitive(lambda x, n: x * n, name="test.hashed", static_argnames="n", version=version)
    hashes = {ons.stage(lambda x, f=f, n=n: f(x, n), X).hash for f in (make(1), make(2)) for n in (1, 1.0, 2)}
    assert len(hashes) == 6


def test_onnxscript_function() -> None:
    @onnxscript.script(onnxscript.values.Opset("test.functions", 1))
    def scaled_tanh(x: Any, alpha: float = 0.5) -> Any:
        return opset18.Tanh(x) * opset18.CastLike(alpha, x)

    @ons.primitive(static_argnames="alpha", name="test.onnxscript")
    def f(x: Any, *, alpha: float) -> Any:
        return np.tanh(opaque(x)) * alpha

    f.def_abstract(lambda x, *, alpha: x)
    assert f.def_onnx(scaled_tanh) is scaled_tanh
    program = ons.stage(lambda x: f(x, alpha=2.0) + f(x, alpha=3.0), X)
    assert np.allclose(program(X), 5 * np.tanh(X))
    model = program.to_onnx()
    assert [g.name for g in model.functions] == ["scaled_tanh"] and [n.op_type for n in model.graph.node][:2] == ["scaled_tanh"] * 2
    ons.testing.check_primitive(f, (X.astype(np.float32),), static={"alpha": 0.25}, check=("abstract", "stage", "onnx"))


def test_onnx_rule_with_the_wrong_number_of_names() -> None:
    f = ons.primitive(lambda x: (x, x), name="test.two")
    f.def_onnx(lambda b, x: x)
    with pytest.raises(TypeError, match=r"test.two: the onnx rule gave 1 names for 2 outputs"):
        ons.stage(lambda x: f(x), X).to_onnx()


# ---------------------------------------------------------------------------------------------------------- custom_jvp, custom_vjp


def test_custom_jvp() -> None:
    @ons.custom_jvp
    def log1pexp(x: Any, scale: Any) -> Any:
        return scale * np.log(1 + np.exp(x))

    @log1pexp.def_jvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, scale), (dx, dscale) = primals, tangents
        return log1pexp(x, scale), scale * dx * (1 - 1 / (1 + np.exp(x))) + dscale * log1pexp(x, 1.0)

    x = np.array([0.0, 100.0, 1000.0])
    with np.errstate(over="ignore"):
        assert np.allclose(ons.grad(lambda x: np.sum(log1pexp(x, 2.0)))(x), [1.0, 2.0, 2.0])
    both = lambda x, s: np.sum(log1pexp(x, s))
    ons.testing.check_gradient(both, X, 2.0)
    assert np.allclose(ons.grad(lambda x: np.sum(ons.vmap(log1pexp, in_axes=(0, None))(x, 2.0)))(X), ons.grad(both)(X, 2.0))
    assert np.allclose(ons.stage(ons.vmap(ons.grad(both), in_axes=(0, None)), X, 2.0)(X, 2.0), ons.grad(both)(X, 2.0))
    assert np.allclose(np.diag(ons.hessian(both)(X, 2.0)), 2 * np.exp(X) / (1 + np.exp(X)) ** 2)


def test_custom_vjp() -> None:
    @ons.custom_vjp
    def clip_gradient(x: Any, bound: Any) -> Any:
        return x

    clip_gradient.def_vjp(lambda x, bound: (clip_gradient(x, bound), bound), lambda bound, ct: (np.clip(ct, -bound, bound), None))
    loss = lambda x: np.sum(clip_gradient(x * 1.0, 0.5) ** 2)
    expected = np.clip(2 * X, -0.5, 0.5)
    assert np.array_equal(ons.grad(loss)(X), expected)
    assert np.array_equal(ons.stage(ons.grad(loss), X)(X), expected)
    assert np.array_equal(ons.vmap(ons.grad(loss))(X[:, None]), expected[:, None])
    assert np.array_equal(ons.grad(lambda x: np.sum(ons.vmap(clip_gradient, in_axes=(0, None))(x, 0.5) ** 2))(X), expected)
    with pytest.raises(ons.MissingRuleError, match=r"clip_gradient: no forward mode, since only def_vjp was given; use ons.custom_jvp"):
        ons.jvp(loss, (X,), (X,))


def test_custom_vjp_twice() -> None:
    f = ons.custom_vjp(lambda x: {"y": x**3})
    f.def_vjp(lambda x: ({"y": x**3}, x), lambda x, ct: (3 * x**2 * ct["y"],))
    loss = lambda x: np.sum(f(x)["y"])
    for hessian in (ons.hessian(loss), ons.jacrev(ons.grad(loss)), ons.jacfwd(ons.grad(loss))):
        assert np.allclose(np.diag(hessian(X)), 6 * X)


def test_custom_derivative_errors() -> None:
    f = ons.custom_jvp(lambda x: x)
    with pytest.raises(ons.MissingRuleError, match=r"no derivative rule yet; attach it with .def_jvp\(rule\)"):
        f(X)
    f.def_jvp(lambda p, t: t[0])
    with pytest.raises(TypeError, match=r"the jvp rule returns \(out, tangent\), got Tracer"):
        ons.grad(lambda x: np.sum(f(x)))(X)
    g = ons.custom_vjp(lambda x, y: x * y)
    g.def_vjp(lambda x, y: (x * y, x), lambda x, ct: (ct,))
    with pytest.raises(TypeError, match=r"backward returns a tuple with one cotangent for each of 2 arguments, got 1"):
        ons.grad(lambda x: np.sum(g(x, x)))(X)
    g.def_vjp(lambda x, y: (x * y, x), lambda x, ct: (ct, {"a": ct}))
    with pytest.raises(TypeError, match=r"backward gave cotangents of another tree than the arguments"):
        ons.grad(lambda x: np.sum(g(x, x)))(X)


# --------------------------------------------------------------------------------------------------------------- ONNX operators


def test_contrib_operator() -> None:
    gelu = ons.onnx_op("com.microsoft", "QuickGelu", version=1, abstract=lambda x, *, alpha: x)
    x = X.astype(np.float32)
    expected = x / (1 + np.exp(-2.0 * x))
    assert np.allclose(gelu(x, alpha=2.0), expected, rtol=1e-6)
    program = ons.stage(lambda x: gelu(x, alpha=2.0), x)
    assert np.allclose(program(x), expected, rtol=1e-6)
    with pytest.raises(ons.UnsupportedError, match='QuickGelu is an op of ONNX Runtime alone; lower with target="onnxruntime"'):
        program.to_onnx()
    assert {d.domain for d in program.to_onnx(target="onnxruntime").opset_import} == {"", "com.microsoft"}
    gelu.def_jvp(lambda o, p, t, *, alpha: t[0] * (1 / (1 + np.exp(-alpha * p[0])) + alpha * o * (1 - 1 / (1 + np.exp(-alpha * p[0])))))
    ons.testing.check_primitive(gelu, (x,), static={"alpha": 2.0}, check=("abstract", "jvp", "transpose", "stage", "onnx"))


def test_standard_operator_with_several_outputs_and_optional_operands() -> None:
    top_k = ons.onnx_op(
        "", "TopK", version=11, abstract=lambda x, k, *, axis: (ons.AbstractValue((2,), x.dtype), ons.AbstractValue((2,), "int64"))
    )
    k = np.array([2])
    for values, indices in (top_k(X, k, axis=0), ons.stage(lambda x: top_k(x, k, axis=0), X)(X)):
        assert values.tolist() == [2.0, 0.5] and indices.tolist() == [2, 0]
    clip = ons.onnx_op("", "Clip", version=13, abstract=lambda x, low, high: x)
    assert clip(X, None, np.float64(1)).tolist() == [0.5, -1.5, 1.0]
    assert ons.stage(lambda x: clip(x, None, np.float64(1)), X)(X).tolist() == [0.5, -1.5, 1.0]


def test_operator_errors(tmp_path: Path) -> None:
    unknown = ons.onnx_op("", "NoSuchOp", version=13, abstract=lambda x: x)
    with pytest.raises(ons.UnsupportedError, match=r"NoSuchOp is no standard ONNX operator; give the domain it is from"):
        ons.stage(lambda x: unknown(x), X).to_onnx()
    old = ons.onnx_op("", "Softmax", version=11, abstract=lambda x: x)
    with pytest.raises(ons.UnsupportedError, match=r"Softmax of opset 11 was last changed in opset 11, and in 13 for opset 21"):
        ons.stage(lambda x: old(x), X).to_onnx()
    with pytest.raises(FileNotFoundError, match=r"onnx_op Triple: there is no library"):
        ons.onnx_op("test.ops", "Triple", version=1, abstract=lambda x: x, library=tmp_path / "missing.so")
    relu = ons.onnx_op("", "Relu", version=14, abstract=lambda x: x)
    with pytest.raises(ons.MissingRuleError, match=r"onnx_op.ai.onnx.Relu.14: it is opaque: .*differentiating it def_jvp or def_transpose"):
        ons.grad(lambda x: np.sum(relu(x)))(X)
    with pytest.raises(TypeError, match=r"the attribute 'axis' is ndarray; attributes are numbers, strings and lists of them"):
        relu(X, axis=X)


@pytest.fixture(scope="module")
def triple_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to build a custom-operator library")
    path = tmp_path_factory.mktemp("library") / "triple.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, Path(__file__).with_name("triple_op.c")], check=True)
    return path


def test_operator_of_a_custom_library(triple_library: Path, tmp_path: Path) -> None:
    triple = ons.onnx_op("test.ops", "Triple", version=1, abstract=lambda x: x, library=triple_library)
    triple.def_transpose(lambda ct, p, o: (triple(ct),))
    x = X.astype(np.float32)
    assert np.array_equal(triple(x), 3 * x)
    loss = lambda x: np.sum(triple(x) ** 2)
    program = ons.stage(ons.grad(loss), x)
    assert np.array_equal(ons.grad(loss)(x), 18 * x) and np.array_equal(program(x), 18 * x)
    path = tmp_path / "triple.onnx"
    report = program.save(path)
    assert report.verified
    assert np.array_equal(ons.load(path)(x), 18 * x)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(triple_library))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": x})[0], 18 * x)
    assert np.array_equal(ons.vmap(triple)(x[:, None]), 3 * x[:, None])
