"""onstage.testing: each check passes right rules and says which wrong one is wrong, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

X = np.array([1.5, -2.0])
Y = np.array([0.5, 3.0])
ALL = ("abstract", "jvp", "transpose", "nested", "stage", "batch", "onnx")


def make(**rules: Any) -> Any:
    """x**p * y and sum(y), with some rules attached."""

    @ons.primitive(name="test.checked", static_argnames="p")
    def f(x: Any, y: Any, *, p: int = 2) -> Any:
        return {"a": x**p * y, "b": np.sum(y)}

    for kind, rule in rules.items():
        getattr(f, f"def_{kind}")(rule)
    return f


def jvp_rule(output: Any, primals: Any, tangents: Any, *, p: int) -> Any:
    (x, y), (dx, dy) = primals, tangents
    terms = [*([p * x ** (p - 1) * dx * y] if dx is not None else []), *([x**p * dy] if dy is not None else [])]
    return {"a": sum(terms[1:], terms[0]), "b": None if dy is None else np.sum(dy)}


def transpose_rule(ct: Any, primals: Any, output: Any, *, p: int) -> Any:
    x, y = primals
    a = np.zeros_like(x) if ct["a"] is None else ct["a"]
    b = 0.0 if ct["b"] is None else ct["b"]
    return a * p * x ** (p - 1) * y, a * x**p + b


RIGHT: dict[str, Any] = {
    "abstract": lambda x, y, *, p: {"a": x, "b": ons.AbstractValue((), y.dtype)},
    "jvp": jvp_rule,
    "transpose": transpose_rule,
    "onnx": lambda b, x, y, *, p: {"a": b.op("Mul", b.op("Pow", x, b.const(p, b.dtype(x))), y), "b": b.op("ReduceSum", y, keepdims=0)},
}


@pytest.mark.parametrize("kind", ["none", *RIGHT, "all"])
def test_right_rules_pass(kind: str) -> None:
    rules = {} if kind == "none" else RIGHT if kind == "all" else {kind: RIGHT[kind]}
    ons.testing.check_primitive(make(**rules), (X, Y), static={"p": 3}, check=ALL)
    ons.testing.check_primitive(make(**rules), [X.astype(np.float32), Y.astype(np.float32)], check=ALL)


@pytest.mark.parametrize(
    ("kind", "rules", "message"),
    [
        ("abstract", {"abstract": lambda x, y, *, p: {"a": ons.AbstractValue((3,), x.dtype), "b": y}},
         r"the abstract rule is wrong: .* the implementation gave f64\[2\], def_abstract says for leaf 0 of the output f64\[3\]: the shapes differ"),
        ("abstract", {"abstract": lambda x, y, *, p: {"a": x}}, r"the abstract rule is wrong: .* another tree for the output: \['b'\]"),
        ("jvp", {"jvp": lambda o, pr, t, *, p: {"a": None if t[0] is None else p * pr[0] ** (p - 1) * t[0] * pr[1], "b": None}},
         r"the jvp rule is wrong: the tangent of output\['a'\] along y is 0 at \[1\], expected .*: off by \d.* \(tolerance .*\); expected is what central differences"),
        ("jvp", {"jvp": lambda *args, **static: {**jvp_rule(*args, **static), "b": None}}, r"the jvp rule is wrong: the tangent of output\['b'\] along y is 0, expected"),
        ("transpose", {"jvp": jvp_rule, "transpose": lambda *args, **static: (transpose_rule(*args, **static)[0], args[0]["a"] * args[1][0] ** 3)},
         r"the transpose rule is wrong for y: <ct, J t> = .* by the jvp rule, <J\^T ct, t> = .*: off by"),
        ("transpose", {"transpose": lambda *args, **static: (transpose_rule(*args, **static)[0] * 1.01, transpose_rule(*args, **static)[1])},
         "the transpose rule is wrong for x: "),
        ("nested", {"jvp": jvp_rule, "transpose": lambda *args, **static: (transpose_rule(*args, **static)[0], ons.stop_gradient(transpose_rule(*args, **static)[1]))},
         "the rules of second order are wrong: "),
        ("stage", {"onnx": lambda b, x, y, *, p: {"a": b.op("Mul", x, y), "b": b.op("ReduceSum", y, keepdims=0)}},
         r"the staged program is wrong: output\['a'\] is .*, expected .*: off by"),
        ("onnx", {"onnx": lambda b, x, y, *, p: {"a": b.op("Mul", x, y), "b": b.op("ReduceSum", y, keepdims=0)}},
         r"the onnx rule is wrong: output\['a'\] is .* off by .*ORT_DISABLE_ALL"),
        ("batch", {"batch": lambda ctx, args, axes, *, p: ({"a": args[0], "b": np.sum(args[1])}, {"a": axes[0], "b": None})},
         r"the batch rule is wrong: output\['a'\], batched over x, y, "),
    ],
)  # fmt: skip
def test_the_wrong_rule_is_named(kind: str, rules: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=f"test.checked: {message}") as caught:
        ons.testing.check_primitive(make(**rules), (X, Y), static={"p": 3}, check=kind)
    assert isinstance(caught.value, ons.testing.CheckError)


def test_a_wrong_dtype_in_narrow_arrays_is_seen() -> None:
    f = ons.primitive(lambda x: x * 2, name="test.narrow")
    f.def_jvp(lambda o, p, t: 2.1 * t[0])
    with pytest.raises(ons.testing.CheckError, match=r"test.narrow: the jvp rule is wrong"):
        ons.testing.check_primitive(f, (X.astype(np.float32),), check="jvp")


def test_an_implementation_that_changes_its_argument_is_named() -> None:
    @ons.primitive(name="test.changes")
    def f(x: Any) -> Any:
        values = np.asarray(x)
        values += 1
        return values * 2

    f.def_abstract(lambda x: x)
    f.def_onnx(lambda b, x: b.op("Mul", b.op("Add", x, b.const(1, b.dtype(x))), b.const(2, b.dtype(x))))
    with pytest.raises(ons.testing.CheckError, match=r"test.changes"):
        ons.testing.check_primitive(f, (X.copy(),), check="stage")


def test_missing_rules_and_bad_calls() -> None:
    opaque = ons.primitive(lambda x: np.asarray(x) * 2, name="test.opaque")
    for kind in ("jvp", "transpose", "nested", "stage", "batch", "onnx", "abstract"):
        with pytest.raises(ons.MissingRuleError, match=r"test.opaque: it is opaque"):
            ons.testing.check_primitive(opaque, (X,), check=kind)
    with pytest.raises(ValueError, match=r"there is no check 'complex'; there are abstract, jvp, transpose, nested, stage, batch, onnx"):
        ons.testing.check_primitive(opaque, (X,), check=("abstract", "complex"))
    with pytest.raises(TypeError, match=r"a primitive of ons.primitive, onnx_op, custom_jvp or custom_vjp is needed, got ufunc"):
        ons.testing.check_primitive(np.sin, (X,))
    with pytest.raises(TypeError, match=r"primals is a tuple"):
        ons.testing.check_primitive(opaque, X)
    with pytest.raises(ValueError, match=r"test.opaque has 1 arguments that are not static, got 2"):
        ons.testing.check_primitive(opaque, (X, X))
    with pytest.raises(ValueError, match=r"has no differentiable operand or no floating output here, so 'jvp' checks nothing"):
        ons.testing.check_primitive(ons.primitive(lambda x: x + 1, name="test.ints"), (np.array([1, 2]),), check="jvp")


def test_custom_derivatives_are_checked() -> None:
    f = ons.custom_jvp(lambda x: np.sin(x))
    f.def_jvp(lambda p, t: (f(*p), np.cos(p[0]) * t[0]))
    ons.testing.check_primitive(f, (X,), check=ALL)
    g = ons.custom_vjp(lambda x: np.sin(x))
    g.def_vjp(lambda x: (np.sin(x), x), lambda x, ct: (np.cos(x) * ct,))
    ons.testing.check_primitive(g, (X,), check=("abstract", "transpose", "nested", "stage", "batch", "onnx"))
    g.def_vjp(lambda x: (np.sin(x), x), lambda x, ct: (np.sin(x) * ct,))
    with pytest.raises(ons.testing.CheckError, match=r"the transpose rule is wrong for x: <ct, J t> = .* by central differences"):
        ons.testing.check_primitive(g, (X,), check="transpose")


def test_check_gradient_passes() -> None:
    ons.testing.check_gradient(lambda p, n: np.sum(np.sin(p["w"]) ** n), {"w": np.ones((2, 3), np.float32)}, 2)
    ons.testing.check_gradient(lambda x, y: {"a": x * y, "b": np.tanh(x)}, X, Y)
    ons.testing.check_gradient(lambda x: np.sin(x) @ x, np.linspace(-1, 1, 300))
    ons.testing.check_gradient(lambda x: 1e6 * x**2, np.float64(1e4))


def test_check_gradient_names_the_element() -> None:
    f = ons.custom_jvp(lambda x: x * x)
    f.def_jvp(lambda p, t: (f(*p), 2 * p[0] * t[0] * np.array([1.0, 1.01])))
    loss = lambda params: np.sum(f(params["w"]))
    with pytest.raises(
        AssertionError,
        match=r"the gradient of <lambda> is wrong in argument 0\['w'\]\[1\]: grad gives -4.04, central differences -4: off by 0.04",
    ):
        ons.testing.check_gradient(loss, {"w": X})
    with pytest.raises(AssertionError, match=r"is wrong along random direction 0"):
        ons.testing.check_gradient(lambda x: np.sum(f(x.reshape(-1, 2))), np.ones(300))
    with pytest.raises(ValueError, match=r"has no floating argument"):
        ons.testing.check_gradient(loss, 1)
    with pytest.raises(TypeError, match=r"returns int64; floating results are needed"):
        ons.testing.check_gradient(lambda x: np.sum(x > 0), X)
