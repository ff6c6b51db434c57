"""Programs become ONNX models that say what they say, in every ONNX Runtime, at every optimisation level."""

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onstage as ons
from onstage.export.builder import Builder
from onstage.export.lower import lower, lower_program
from onstage.stage.dims import as_dim
from onstage.stage.dims import evaluate as evaluate_dim
from onstage.stage.dtypes import as_dtype, bfloat16
from onstage.stage.errors import ProgramError, ShapeError, UnsupportedError
from onstage.stage.primitive import Primitive
from onstage.stage.program import ProgramBuilder, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, make_spec
from onstage.stage.trace import bind

LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]


def f32(values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.float32)


def i64(values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def toy(name: str, abstract: Any, numpy: Any, onnx: Any = None, **rules: Any) -> Primitive:
    """A primitive that only lowering knows."""
    return Primitive(
        name,
        abstract=abstract,
        numpy=numpy,
        onnx=onnx,
        batch=lambda *args: None,
        nondifferentiable="a toy",
        register=False,
        **rules,
    )


def node(op_type: str, abstract: Any = None, **attributes: Any) -> Primitive:
    """A primitive that is one ONNX node, elementwise unless `abstract` says otherwise."""
    return toy(
        op_type.lower(),
        abstract or (lambda *specs: make_spec(max((s.shape for s in specs), key=len), specs[-1].dtype)),
        None,
        lambda b, *names: b.op(op_type, *names, **attributes),
    )


def program_of(primitive: Primitive, *specs: ArraySpec, **params: Any) -> Any:
    builder = ProgramBuilder()
    return builder.build(list(builder.emit(primitive, tuple(builder.add_input(s) for s in specs), params, None)))


def session(model: Any, level: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: Any, *arrays: Any) -> list[np.ndarray]:
    """The outputs, equal at every level."""
    onnx.checker.check_model(model, full_check=True)
    feeds = {i.name: a for i, a in zip(model.graph.input, arrays, strict=True)}
    results = [session(model, level).run(None, feeds) for level in LEVELS]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    return results[0]


def single(primitive: Primitive, *specs: ArraySpec, **options: Any) -> Any:
    program = program_of(primitive, *specs)
    return lower(
        program,
        [f"x{i}" for i in range(len(specs))],
        [f"y{i}" for i in range(len(program.outputs))],
        **options,
    )


# names


def test_inputs_and_outputs_keep_the_names_they_are_given():
    builder = ProgramBuilder()
    x, unused = builder.add_input(ArraySpec((3,), "f32")), builder.add_input(ArraySpec((2,), "i64"))
    (y,) = builder.emit(node("Add"), (x, x), {}, None)
    program = builder.build([y, x, y, constant(np.arange(3)), x])
    names = ["out.0", "out.1", "out.2", "out.3", "out.4"]
    model = lower(program, ["p.w", "unused"], names)
    assert [i.name for i in model.graph.input] == ["p.w", "unused"]
    assert [o.name for o in model.graph.output] == names
    a = f32([1, 2, 3])
    results = run(model, a, i64([1, 2]))
    for got, expected in zip(results, [a + a, a, a + a, np.arange(3), a], strict=True):
        np.testing.assert_array_equal(got, expected)
    assert unused.spec.shape == (2,)


def test_names_that_look_like_inner_names_do_not_collide():
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f32"))
    y = builder.add_input(ArraySpec((3,), "f32"))
    (a,) = builder.emit(node("Add"), (x, y), {}, None)
    (b,) = builder.emit(node("Mul"), (a, x), {}, None)
    (c,) = builder.emit(node("Mul"), (b, constant(np.float32(2))), {}, None)
    model = lower(builder.build([c]), ["v1", "v2"], ["v3"])
    np.testing.assert_array_equal(run(model, f32([1, 2, 3]), f32([4, 5, 6]))[0], [10, 28, 54])


def test_nodes_are_named_after_the_users_lines():
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f32"))
    line = Source("/some/where/train.py", 41, "layer1")
    (a,) = builder.emit(node("Add"), (x, x), {}, line)
    (b,) = builder.emit(node("Add"), (a, x), {}, line)
    (c,) = builder.emit(node("Mul"), (b, b), {}, Source("/some/where/train.py", 42))
    (d,) = builder.emit(node("Mul"), (c, b), {}, None)
    model = lower(builder.build([d]), ["x"], ["y"])
    assert [n.name for n in model.graph.node] == [
        "layer1/add@train.py:41",
        "layer1/add@train.py:41_2",
        "mul@train.py:42",
        "mul",
    ]


def test_duplicate_and_empty_names_are_refused():
    program = program_of(node("Neg"), ArraySpec((2,), "f32"))
    with pytest.raises(ProgramError, match="unique"):
        lower(program, ["x"], ["x"])
    with pytest.raises(ProgramError, match="not empty"):
        lower(program, [""], ["y"])


def test_dead_equations_are_left_out():
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f32"))
    builder.emit(node("Exp"), (x,), {}, None)
    (y,) = builder.emit(node("Neg"), (x,), {}, None)
    assert [n.op_type for n in lower(builder.build([y]), ["x"], ["y"]).graph.node] == ["Neg"]


def test_values_are_listed_for_those_who_look_inside():
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f32"))
    (y,) = builder.emit(node("Exp"), (x,), {}, None)
    (z,) = builder.emit(node("Neg"), (y,), {}, None)
    lowered = lower_program(builder.build([z]), ["x"], ["z"])
    assert lowered.values[x] == "x" and lowered.values[z] == "z"
    assert lowered.model.graph.node[0].output[0] == lowered.values[y]
    assert lowered.opset == 21


# bytes

BYTES = """
import hashlib, numpy as np, onstage as ons
from onstage.export.lower import lower
def f(p, x):
    h = np.tanh(x @ p["w"] + p["b"])
    return {"y": h * 2.5, "s": h.sum()}
s = ons.ArraySpec
program = ons.stage(f, specs=({"w": s((4, 3), "f32"), "b": s((3,), "f32")}, s(("B", 4), "f32")))
model = lower(program.program, program.in_names, program.out_names)
print(hashlib.sha256(model.SerializeToString()).hexdigest())
"""


def test_bytes_are_the_same_in_every_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", BYTES],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64


def test_the_model_states_ir_opset_and_types():
    model = single(node("Neg"), ArraySpec(("B", "2*B + 1", 3), "f32"), guards=False)
    assert model.ir_version == 10
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 21)]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["B", "2*B + 1", 3]
    scalar = single(node("Neg"), ArraySpec((), "f32"))
    assert scalar.graph.input[0].type.tensor_type.HasField("shape")


def test_equal_constants_are_one_initializer():
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f32"))
    big = np.arange(300, dtype=np.float32).reshape(100, 3)
    (y,) = builder.emit(node("Add"), (x, constant(np.float32(2))), {}, None)
    (y,) = builder.emit(node("Add"), (y, constant(np.float32(2))), {}, None)
    (y,) = builder.emit(node("Add"), (y, constant(big)), {}, None)
    (y,) = builder.emit(node("Add"), (y, constant(big.copy())), {}, None)
    (y,) = builder.emit(node("Add"), (y, constant(big + 1)), {}, None)
    (y,) = builder.emit(node("Mul"), (y, constant(np.float32(0.0))), {}, None)
    (y,) = builder.emit(node("Mul"), (y, constant(np.float32(-0.0))), {}, None)
    model = lower(builder.build([y]), ["x"], ["y"])
    assert len(model.graph.initializer) == 5


# opsets and targets


def test_an_op_of_a_later_opset_raises_the_opset():
    gelu = toy(
        "swish",
        lambda x: x,
        None,
        lambda b, x: b.op("RMSNormalization", x, b.const(np.ones(4, np.float32)), axis=-1),
    )
    model = single(gelu, ArraySpec((2, 4), "f32"))
    assert model.opset_import[0].version == 23
    with pytest.raises(UnsupportedError, match="RMSNormalization exists from opset 23 on; the opset asked for is 18"):
        single(gelu, ArraySpec((2, 4), "f32"), opset=18)


def test_opset_and_target_are_checked():
    spec = ArraySpec((2,), "f32")
    assert single(node("Neg"), spec, opset=18).opset_import[0].version == 18
    with pytest.raises(UnsupportedError, match="opset 20 is not one"):
        single(node("Neg"), spec, opset=20)
    with pytest.raises(UnsupportedError, match="target 'tflite' is unknown"):
        single(node("Neg"), spec, target="tflite")
    contrib = toy("quick", lambda x: x, None, lambda b, x: b.op("QuickGelu", x, domain="com.microsoft", alpha=1.0))
    with pytest.raises(UnsupportedError, match="QuickGelu is an op of ONNX Runtime alone"):
        single(contrib, spec)
    model = single(contrib, spec, target="onnxruntime")
    assert {o.domain: o.version for o in model.opset_import} == {"": 21, "com.microsoft": 1}
    (result,) = [session(model, LEVELS[0]).run(None, {"x0": f32([0, 1])})]
    np.testing.assert_allclose(result[0], [0, 1 / (1 + np.exp(-1))], rtol=1e-6)


def test_a_rule_may_require_an_opset():
    def rule(b: Builder, x: str) -> str:
        b.require(24)
        return b.op("Neg", x)

    assert single(toy("late", lambda x: x, None, rule), ArraySpec((2,), "f32")).opset_import[0].version == 24


# wrong rules


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda b, x: (x, x), "gave 2 values for 1 outputs"),
        (lambda b, x: b.cast(x, "f64"), "gave float64 where f32"),
        (lambda b, x: b.op("Neg", "nowhere"), "'nowhere' is no value"),
        (lambda b, x: b.op("Neg", x, axis=1), "Neg has no attribute 'axis'"),
        (lambda b, x: b.op("Add", x, b.const(1)), "operand 1 is i64, needed float32"),
        (lambda b, x: b.op("Neg", x, x), "takes 1 inputs"),
    ],
)
def test_a_wrong_rule_is_named(rule: Any, message: str):
    with pytest.raises(ProgramError, match=message):
        single(toy("bad", lambda x: x, None, rule), ArraySpec((2,), "f32"))


def test_what_cannot_be_lowered_names_primitive_dtype_and_line():
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f64"))
    (y,) = builder.emit(node("Erf"), (x,), {}, Source("train.py", 7))
    with pytest.raises(UnsupportedError, match=r"erf: ONNX Runtime has no kernel for Erf on f64(.|\n)*train\.py:7"):
        lower(builder.build([y]), ["x"], ["y"])


# dtypes without a kernel

NUMERIC = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16"]


def sample(dtype: np.dtype[Any], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size=(4, 4), dtype=dtype, endpoint=True)
    return rng.normal(size=(4, 4)).astype(dtype)


def run_any(model: Any, *arrays: np.ndarray) -> np.ndarray:
    """As `run`, for bfloat16 too: through casts at the model's ends."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value, array in zip(model.graph.input, arrays, strict=True):
        if array.dtype == bfloat16():
            wide = f"{value.name}_wide"
            result.graph.node.insert(0, onnx.helper.make_node("Cast", [wide], [value.name], to=onnx.TensorProto.BFLOAT16))
            for i in result.graph.input:
                if i.name == value.name:
                    i.name, i.type.tensor_type.elem_type = wide, onnx.TensorProto.FLOAT
    output = result.graph.output[0]
    half = output.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    if half:
        result.graph.node.append(onnx.helper.make_node("Cast", [output.name], ["wide"], to=onnx.TensorProto.FLOAT))
        output.name, output.type.tensor_type.elem_type = "wide", onnx.TensorProto.FLOAT
    feeds = [a.astype(np.float32) if a.dtype == bfloat16() else a for a in arrays]
    (array,) = run(result, *feeds)
    return array.astype(bfloat16()) if half else array


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "MatMul"])
def test_ring_ops_on_every_dtype(op: str, name: str):
    dtype = as_dtype(name)
    x, y = sample(dtype, 0), sample(dtype, 1)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "MatMul": np.matmul}[op]
    with np.errstate(all="ignore"):
        expected = function(x, y) if dtype != bfloat16() else function(x.astype("f4"), y.astype("f4")).astype(dtype)
    got = run_any(single(node(op), ArraySpec((4, 4), dtype), ArraySpec((4, 4), dtype)), x, y)
    assert got.dtype == dtype
    if dtype.kind in "iu":
        np.testing.assert_array_equal(got, expected)
    else:
        tolerance = {"f16": 4e-3, "bf16": 2e-2, "f32": 1e-6, "f64": 1e-14}[name]
        np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["bool", *NUMERIC])
def test_where_and_equal_on_every_dtype(name: str):
    dtype = as_dtype(name)
    x, y = (sample(np.dtype("i8"), s) > 0 if name == "bool" else sample(dtype, s) for s in (0, 1))
    mask = np.random.default_rng(2).integers(0, 2, size=(4, 4)).astype(bool)
    spec = ArraySpec((4, 4), dtype)
    got = run_any(single(node("Where"), ArraySpec((4, 4), "bool"), spec, spec), mask, x, y)
    np.testing.assert_array_equal(got, np.where(mask, x, y))
    equal = node("Equal", lambda a, b: make_spec(a.shape, np.dtype(bool)))
    y = np.where(mask, x, y)
    np.testing.assert_array_equal(run_any(single(equal, spec, spec), x, y), x == y)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_floats_round_after_every_op(name: str):
    dtype = as_dtype(name)
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), dtype))
    (y,) = builder.emit(node("Mul"), (x, x), {}, None)
    (z,) = builder.emit(node("Sqrt"), (y,), {}, None)
    value = np.array([300.0, 1.001, 3.3], dtype=dtype)
    with np.errstate(all="ignore"):
        product = (value.astype("f4") * value.astype("f4")).astype(dtype)
    got = run_any(lower(builder.build([z]), ["x"], ["z"]), value)
    np.testing.assert_array_equal(got, np.sqrt(product.astype("f4")).astype(dtype))
    assert np.isinf(got[0].astype("f4")) == (name == "f16")


def test_unsigned_64_bits_only_where_the_sign_does_not_matter():
    spec = ArraySpec((4, 4), "u64")
    x = sample(np.dtype("u8"), 0).astype("u8")
    big = np.full((4, 4), 2**63 + 5, np.uint64) + x
    (got,) = run(single(node("ReduceSum", lambda a: make_spec((), a.dtype), keepdims=0), spec), big)
    assert got == big.sum()
    with pytest.raises(UnsupportedError, match="no kernel for ReduceMax on u64"):
        single(node("ReduceMax", lambda a: make_spec((), a.dtype), keepdims=0), spec)


@pytest.mark.parametrize("name", ["bool", "bf16", "f16", "i8", "u32", "f64"])
def test_an_output_dtype_said_by_an_attribute(name: str):
    dtype = as_dtype(name)
    spec = make_spec((2, 2), dtype)
    eye = toy("eye", lambda: spec, None, lambda b: b.op("EyeLike", b.const(np.zeros((2, 2), "f4")), dtype=dtype))
    np.testing.assert_array_equal(run_any(single(eye)), np.eye(2).astype(dtype))
    fill = np.array([1], dtype=dtype)
    full = toy("full", lambda: spec, None, lambda b: b.op("ConstantOfShape", b.shape((2, 2)), value=fill))
    np.testing.assert_array_equal(run_any(single(full)), np.ones((2, 2)).astype(dtype))


@pytest.mark.parametrize("name", ["bool", "i8", "i64", "u64", "bf16"])
def test_large_and_odd_constants_keep_their_bits(name: str):
    dtype = as_dtype(name)
    value = (np.arange(600).reshape(20, 30) % 251).astype(dtype)
    builder = ProgramBuilder()
    got = run_any(lower(builder.build([constant(value)]), [], ["y"]))
    np.testing.assert_array_equal(got, value)


def test_casts_are_not_folded_together():
    def rule(b: Builder, x: str) -> str:
        return b.cast(b.cast(x, np.dtype(np.int32)), np.dtype(bool))

    model = single(toy("truncated", lambda x: make_spec(x.shape, np.dtype(bool)), None, rule), ArraySpec((5,), "f32"))
    np.testing.assert_array_equal(run(model, f32([-0.2, -0.1, 0, 0.1, 0.2]))[0], [False] * 5)


# what ONNX Runtime's optimiser gets wrong


def scaled(kind: str) -> Any:
    def rule(b: Builder, x: str, w: str) -> str:
        c = b.const(0.3)
        if kind == "after":
            return b.op("Mul", b.op("MatMul", x, w), c)
        if kind == "after, swapped":
            return b.op("Mul", c, b.op("MatMul", x, w))
        if kind == "divided":
            return b.op("Div", b.op("MatMul", x, w), b.const(3.0))
        if kind == "before":
            return b.op("MatMul", b.op("Mul", x, c), w)
        if kind == "through transposes":
            return b.op("MatMul", x, b.op("Transpose", b.op("Transpose", b.op("Mul", w, c), perm=[1, 0]), perm=[1, 0]))
        if kind == "folded":
            return b.op("Mul", b.op("MatMul", x, w), b.op("Sqrt", b.const(0.3)))
        if kind == "product of two":
            half = float(np.float32(0.3))
            return b.op("Mul", b.op("Mul", b.op("MatMul", x, w), b.const(half)), b.const(half))
        return b.op(
            "MatMul",
            b.op("Mul", x, b.const(float(np.float32(0.3)))),
            b.op("Mul", w, b.const(float(np.float32(0.7)))),
        )

    return toy("scaled", lambda x, w: make_spec((x.shape[0], w.shape[1]), x.dtype), None, rule)


KINDS = [
    "after",
    "after, swapped",
    "divided",
    "before",
    "through transposes",
    "folded",
    "product of two",
    "on both sides",
]


@pytest.mark.parametrize("kind", KINDS)
def test_scalar_factors_of_float64_matmuls_stay_exact(kind: str):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(5, 4)), rng.normal(size=(4, 3))
    exact = float(np.float32(0.3))
    factor = {
        "divided": 1 / 3,
        "folded": np.sqrt(0.3),
        "product of two": exact * exact,
        "on both sides": exact * float(np.float32(0.7)),
    }.get(kind, 0.3)
    model = single(scaled(kind), ArraySpec(("B", 4), "f64"), ArraySpec((4, 3), "f64"))
    onnx.checker.check_model(model, full_check=True)
    for level in LEVELS:
        (got,) = session(model, level).run(None, {"x0": x, "x1": w})
        np.testing.assert_allclose(got, (x @ w) * factor, rtol=1e-14, atol=1e-15)


def test_a_factor_that_float32_holds_costs_nothing():
    rule = lambda b, x, w: b.op("Mul", b.op("MatMul", x, w), b.const(0.25))
    model = single(
        toy("quarter", lambda x, w: make_spec((5, 3), x.dtype), None, rule),
        ArraySpec((5, 4), "f64"),
        ArraySpec((4, 3), "f64"),
    )
    assert [n.op_type for n in model.graph.node] == ["MatMul", "Mul"]


def test_float64_normalisation_keeps_its_epsilon():
    def rule(b: Builder, x: str) -> str:
        axis = b.const([-1])
        centred = b.op("Sub", x, b.op("ReduceMean", x, axis))
        variance = b.op("ReduceMean", b.op("Pow", centred, b.const(2.0)), axis)
        deviation = b.op("Sqrt", b.op("Add", variance, b.const(1e-5)))
        return b.op("Add", b.op("Mul", b.op("Div", centred, deviation), b.const(np.full(4, 1.5))), b.const(np.ones(4)))

    x = np.random.default_rng(0).normal(size=(5, 4)) * 1e-3
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * 1.5 + 1
    (got,) = run(single(toy("norm", lambda x: x, None, rule), ArraySpec((5, 4), "f64")), x)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["f16", "f32", "f64", "i32", "i64"])
def test_relu_then_clip_loads(name: str):
    dtype = as_dtype(name)

    def rule(b: Builder, x: str) -> str:
        return b.op("Clip", b.op("Relu", x), b.const(1, dtype), b.const(3, dtype))

    x = np.arange(-3, 6).astype(dtype)
    (got,) = run(single(toy("clipped", lambda x: x, None, rule), ArraySpec((9,), dtype)), x)
    np.testing.assert_array_equal(got, np.clip(np.maximum(x, 0), 1, 3))


@pytest.mark.parametrize(("given", "wanted"), [((1, 2), (0, 2)), ((2,), (0, 2)), ((3, 1, 1), (0, 2)), ((), (0,))])
@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "i8"])
def test_expanding_to_nothing(name: str, given: tuple[int, ...], wanted: tuple[int, ...]):
    dtype = as_dtype(name)
    shape = np.broadcast_shapes(given, wanted)
    expand = toy("e", lambda x: make_spec(shape, dtype), None, lambda b, x: b.op("Expand", x, b.shape(wanted)))
    builder = ProgramBuilder()
    (y,) = builder.emit(expand, (builder.add_input(ArraySpec(given, dtype)),), {}, None)
    (z,) = builder.emit(node("Neg"), (y,), {}, None)
    got = run_any(lower(builder.build([z]), ["x"], ["z"]), np.ones(given, dtype))
    assert got.shape == shape and got.dtype == dtype


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("B", 1, 2, 3), (4, 3, 2)),
        ((4, 2, 3), ("B", 1, 3, 2)),
        (("B", 2, 3), (1, 3, 2)),
        (("B", 2, 3), (3, 2)),
    ],
)
def test_matmuls_of_empty_batches(left: Any, right: Any):
    matmul = node("MatMul", lambda x, y: ArraySpec((*(["B", 4] if 4 in left + right else ["B"]), 2, 2), x.dtype))
    model = single(matmul, ArraySpec(left, "f64"), ArraySpec(right, "f64"))
    for size in (0, 1, 3):
        x, y = (np.random.default_rng(0).normal(size=[size if d == "B" else d for d in shape]) for shape in (left, right))
        np.testing.assert_allclose(run(model, x, y)[0], x @ y, rtol=1e-12)


# symbolic dims

EXPRESSIONS = [
    "B",
    "2*B + 1",
    "B*C",
    "B // 2",
    "(B - 5) // 3",
    "(B - 5) % 3",
    "C - B",
    "max(B, C, 3)",
    "min(B, C)",
    "(B + 3) // (C + 1) * 7 - B*B",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_dims_are_computed_as_python_would(text: str):
    dim = as_dim(text)
    size = toy("size", lambda x, y: make_spec((), np.dtype(np.int64)), None, lambda b, x, y: b.dim(dim))
    model = single(size, ArraySpec(("B", "C"), "f32"), ArraySpec(("C",), "i8"))
    sessions = [session(model, level) for level in LEVELS]
    for b in (0, 1, 2, 4, 7):
        for c in (0, 1, 3):
            expected = evaluate_dim(dim, {"B": b, "C": c})
            for s in sessions:
                (got,) = s.run(None, {"x0": np.zeros((b, c), "f4"), "x1": np.zeros(c, "i1")})
                assert got.shape == () and got.dtype == np.int64 and got == expected


def test_a_dim_is_lowered_once():
    def rule(b: Builder, x: str) -> tuple[str, ...]:
        return (
            b.shape((as_dim("B"), 3, as_dim("2*B"), 4, 5)),
            b.shape((as_dim("2*B"),)),
            b.dim(as_dim("2*B")),
            b.dim(7),
        )

    int64 = np.dtype(np.int64)
    specs = tuple(make_spec(s, int64) for s in ((5,), (1,), (), ()))
    model = single(toy("sizes", lambda x: specs, None, rule), ArraySpec(("B",), "f32"))
    assert [n.op_type for n in model.graph.node].count("Shape") == 1
    assert [n.op_type for n in model.graph.node].count("Mul") == 1
    results = run(model, np.zeros(3, "f4"))
    assert [r.tolist() for r in results] == [[3, 3, 6, 4, 5], [6], 6, 7]


def test_a_name_that_no_input_gives():
    with pytest.raises(ShapeError, match="dim 'C' stands alone in no input"):
        single(
            toy("size", lambda x: make_spec((), np.dtype("i8")), None, lambda b, x: b.dim(as_dim("C + 1"))),
            ArraySpec(("B",), "f32"),
        )


def fails(model: Any, feeds: dict[str, np.ndarray]) -> list[str]:
    """The messages with which the model fails at each level; "" where it runs."""
    messages = []
    for level in LEVELS:
        try:
            session(model, level).run(None, feeds)
            messages.append("")
        except Exception as error:
            messages.append(str(error))
    return messages


@pytest.mark.parametrize("kind", ["broadcast", "scalar result", "unused", "constant result"])
def test_sizes_that_disagree_fail_in_plain_onnxruntime(kind: str):
    builder = ProgramBuilder()
    x, y = builder.add_input(ArraySpec(("B", 2), "f32")), builder.add_input(ArraySpec((1, "B", 1), "f32"))
    (z,) = builder.emit(node("Mul", lambda a, b: make_spec((1, *a.shape), a.dtype)), (x, y), {}, None)
    if kind == "scalar result":
        (z,) = builder.emit(node("ReduceSum", lambda a: make_spec((), a.dtype), keepdims=0), (z,), {}, None)
    outputs = {"unused": [x], "constant result": [constant(f32([1, 2]))]}.get(kind, [z])
    model = lower(builder.build(outputs), ["x", "y"], ["z"])
    onnx.checker.check_model(model, full_check=True)
    for a, b in ((1, 4), (4, 1), (0, 1), (1, 0)):
        messages = fails(model, {"x": np.ones((a, 2), "f4"), "y": np.ones((1, b, 1), "f4")})
        assert all("axis 1 of y must have size B as in x" in m for m in messages), messages
    for n in (0, 1, 4):
        (got,) = run(model, np.ones((n, 2), "f4"), np.ones((1, n, 1), "f4"))
        if kind == "broadcast":
            assert got.shape == (1, n, 2)


def test_an_input_of_a_computed_size_is_guarded():
    builder = ProgramBuilder()
    x, y = builder.add_input(ArraySpec(("B",), "f32")), builder.add_input(ArraySpec(("2*B + 1",), "f32"))
    (z,) = builder.emit(node("Neg"), (y,), {}, None)
    model = lower(builder.build([z, x]), ["x", "y"], ["z", "w"])
    for size in (0, 6, 8):
        assert all("axis 0 of y must have size 2*B + 1" in m for m in fails(model, {"x": np.ones(3, "f4"), "y": np.ones(size, "f4")}))
    np.testing.assert_array_equal(run(model, np.ones(3, "f4"), np.ones(7, "f4"))[0], -np.ones(7))


def test_guards_can_be_left_out():
    program = program_of(node("Mul"), ArraySpec(("B",), "f32"), ArraySpec(("B",), "f32"))
    assert [n.op_type for n in lower(program, ["x", "y"], ["z"], guards=False).graph.node] == ["Mul"]


# programs inside


def test_a_primitive_without_onnx_rule_is_decomposed():
    square = node("Mul")
    cube = toy("cube", lambda x: x, None, decompose=lambda x: bind(square, bind(square, x, x), x))
    line = Source("train.py", 3)
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec((3,), "f32"))
    (y,) = builder.emit(cube, (x,), {}, line)
    (z,) = builder.emit(cube, (y,), {}, line)
    model = lower(builder.build([z]), ["x"], ["z"])
    assert [n.name for n in model.graph.node] == [
        "cube@train.py:3",
        *[f"cube@train.py:3_{i}" for i in (2, 3, 4)],
    ]
    np.testing.assert_array_equal(run(model, f32([1, 2, -1]))[0], [1, 512, -1])


def test_if_with_branches_that_capture():
    add, mul = (
        program_of(node("Add"), ArraySpec(("B",), "f32"), ArraySpec((), "f32")),
        program_of(node("Mul"), ArraySpec(("B",), "f32"), ArraySpec((), "f32")),
    )
    builder = ProgramBuilder()
    same = builder.build([builder.add_input(ArraySpec(("B",), "f32"))])

    def rule(b: Builder, flag: str, x: str) -> tuple[str, str]:
        two = b.const(np.float32(2))
        first = b.op("If", flag, then_branch=b.subgraph(add, [x, two]), else_branch=b.subgraph(mul, [x, two]))
        second = b.op("If", flag, then_branch=b.subgraph(same, [x]), else_branch=b.subgraph(mul, [x, two]))
        return first, second

    choose = toy("choose", lambda f, x: (x, x), None, rule)
    model = single(choose, ArraySpec((), "bool"), ArraySpec(("B",), "f32"))
    x = f32([1, 2, 5])
    for flag in (True, False):
        first, second = run(model, np.array(flag), x)
        np.testing.assert_array_equal(first, x + 2 if flag else x * 2)
        np.testing.assert_array_equal(second, x if flag else x * 2)


def test_loop_with_formal_inputs_and_sizes_of_the_outer_program():
    int64 = np.dtype(np.int64)
    add = node("Add")
    sized = toy(
        "plus_size",
        lambda x: x,
        None,
        lambda b, x: b.op("Add", x, b.cast(b.dim(as_dim("3*B")), x.dtype if False else b.dtype(x))),
    )
    builder = ProgramBuilder()
    carry = builder.add_input(ArraySpec(("B",), "f32"))
    outer = builder.add_input(ArraySpec(("B",), "f32"))
    (t,) = builder.emit(add, (carry, outer), {}, None)
    (t,) = builder.emit(sized, (t,), {}, None)
    body_program = builder.build([t])

    def rule(b: Builder, x: str, y: str) -> tuple[str, str]:
        spec = b.in_specs[0]
        with b.graph("body") as body:
            body.input(make_spec((), int64))
            condition = body.input(make_spec((), np.dtype(bool)))
            state = body.input(spec)
            (new,) = b.lower(body_program, [state, y])
            body.output(condition, make_spec((), np.dtype(bool)))
            body.output(new, spec)
            body.output(new, spec)
        return b.op("Loop", b.const(3), "", x, outputs=2, body=body.proto)

    loop = toy("loop", lambda x, y: (x, make_spec((3, *x.shape), x.dtype)), None, rule)
    model = single(loop, ArraySpec(("B",), "f32"), ArraySpec(("B",), "f32"))
    x, y = f32([1, 2]), f32([10, 20])
    final, stacked = run(model, x, y)
    np.testing.assert_array_equal(final, x + 3 * y + 18)
    np.testing.assert_array_equal(stacked, [x + k * y + 6 * k for k in (1, 2, 3)])


# scale


def test_ten_thousand_equations_make_ten_thousand_nodes():
    builder = ProgramBuilder()
    x = y = builder.add_input(ArraySpec((4,), "f32"))
    add = node("Add")
    for _ in range(10_000):
        (y,) = builder.emit(add, (y, x), {}, Source("train.py", 1))
    model = lower(builder.build([y]), ["x"], ["y"])
    assert len(model.graph.node) == 10_000
    assert len({n.name for n in model.graph.node}) == 10_000


def test_staged_functions_lower_with_their_pytree_names():
    def f(params: Any, x: Any) -> Any:
        return {"y": x @ params["w"] + params["b"], "same": x}

    spec = ons.ArraySpec
    program = ons.stage(f, specs=({"w": spec((4, 3), "f32"), "b": spec((3,), "f32")}, spec(("B", 4), "f32")))
    model = lower(program.program, program.in_names, program.out_names)
    assert {i.name for i in model.graph.input} == {"params.w", "params.b", "x"}
    assert {o.name for o in model.graph.output} == {"out.y", "out.same"}


# integers, which ONNX Runtime reduces through float64


@pytest.mark.parametrize("name", ["i32", "i64", "u32", "u64", "i8"])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("middle", ["N", 5])
def test_integer_reductions_wrap_exactly(name: str, op: str, axes: tuple[int, ...], middle: Any):
    dtype = as_dtype(name)
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, size=(3, 5, 4), dtype=dtype, endpoint=True)
    for keepdims in (0, 1):
        rule = lambda b, x, k=keepdims: b.op(op, x, b.const(list(axes)), keepdims=k)
        expected = getattr(x, "sum" if op == "ReduceSum" else "prod")(axis=axes, keepdims=bool(keepdims), dtype=dtype)
        spec = ArraySpec([middle if n == 5 else n for n in expected.shape], dtype)
        model = single(toy("r", lambda x, s=spec: s, None, rule), ArraySpec((3, middle, 4), dtype))
        np.testing.assert_array_equal(run(model, x)[0], expected)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd"])
def test_integer_reductions_of_nothing(op: str):
    for size in (0, "N"):
        reduce = toy("r", lambda x: make_spec((3,), x.dtype), None, lambda b, x: b.op(op, x, b.const([1]), keepdims=0))
        (got,) = run(single(reduce, ArraySpec((3, size), "i64")), np.zeros((3, 0), np.int64))
        np.testing.assert_array_equal(got, [op == "ReduceProd"] * 3)


# int64, whose order ONNX Runtime mistakes where only the low 32 bits differ

HALVES = np.array([h * 2**32 + low for h in (-(2**31), -2, -1, 0, 1, 2**31 - 1) for low in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)])


@pytest.mark.parametrize("name", ["i64", "u32", "i32"])
@pytest.mark.parametrize("op", ["Max", "Min", "Sign", "Clip"])
def test_integers_are_compared_exactly(op: str, name: str):
    x = HALVES.astype(as_dtype(name))
    arrays = {"Sign": (x,), "Clip": (x, np.array(x[7]), np.array(x[22]))}.get(op, (x[:, None], x, x[::-1].copy()))
    with np.errstate(all="ignore"):
        expected = {
            "Max": lambda: np.maximum(np.maximum(x[:, None], x), x[::-1]),
            "Min": lambda: np.minimum(np.minimum(x[:, None], x), x[::-1]),
            "Sign": lambda: np.sign(x),
            "Clip": lambda: np.minimum(np.maximum(x, x[7]), x[22]),
        }[op]()
    result = make_spec(expected.shape, expected.dtype)
    rule = toy("r", lambda *specs: result, None, lambda b, *xs: b.op(op, *xs))
    np.testing.assert_array_equal(run(single(rule, *[ArraySpec(a.shape, a.dtype) for a in arrays]), *arrays)[0], expected)


@pytest.mark.parametrize("name", ["i64", "u32", "i32", "i8"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_integer_extremes_are_exact(name: str, op: str, axes: tuple[int, ...]):
    x = np.random.default_rng(0).choice(HALVES, size=(4, 5, 6)).astype(as_dtype(name))
    for keepdims in (0, 1):
        rule = lambda b, x, k=keepdims: b.op(op, x, b.const(list(axes)), keepdims=k)
        expected = (np.max if op == "ReduceMax" else np.min)(x, axis=axes, keepdims=bool(keepdims))
        spec = make_spec(expected.shape, x.dtype)
        for given in (x, np.abs(x // 2), np.zeros_like(x) + x.dtype.type(7)):
            wanted = (np.max if op == "ReduceMax" else np.min)(given, axis=axes, keepdims=bool(keepdims))
            model = single(toy("r", lambda x, s=spec: s, None, rule), ArraySpec(x.shape, x.dtype))
            np.testing.assert_array_equal(run(model, given)[0], wanted)


@pytest.mark.parametrize("name", ["i32", "i64", "u64", "i8"])
def test_integer_powers_wrap_exactly(name: str):
    dtype = as_dtype(name)
    x, y = (
        np.arange(7).astype(dtype)[:, None] - dtype.type(0 if dtype.kind == "u" else 3),
        np.arange(0, 70, 3).astype(dtype),
    )
    power = toy("p", lambda x, y: make_spec((7, 24), x.dtype), None, lambda b, x, y: b.op("Pow", x, y))
    (got,) = run(single(power, ArraySpec((7, 1), dtype), ArraySpec((24,), dtype)), x, y)
    np.testing.assert_array_equal(got, x**y)
    for n in (0, 1, 2, 19):
        fixed = toy("p", lambda x: x, None, lambda b, x, n=n: b.op("Pow", x, b.const(n, dtype)))
        np.testing.assert_array_equal(run(single(fixed, ArraySpec((7, 1), dtype)), x)[0], x ** dtype.type(n))


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize(
    ("name", "reduction"),
    [(n, r) for n in ("f16", "bf16", "f32", "f64", "i32", "i64", "u8") for r in ("none", "add", "max")]
    + [("bool", "none"), ("bool", "max")],
)
def test_scatters_on_every_dtype(op: str, name: str, reduction: str):
    dtype = as_dtype(name)
    x = np.array([1, 0, 1, 0] if name == "bool" else [1, 2, 3, 4]).astype(dtype)
    updates, where = np.array([1, 1, 0] if name == "bool" else [5, 7, 2]).astype(dtype), np.array([1, 1, 3])
    if reduction == "none":
        updates[0] = updates[1]

    def rule(b: Builder, x: str, u: str) -> str:
        i = b.const(where if op == "ScatterElements" else where[:, None])
        return b.op(op, x, i, u, reduction=reduction)

    expected = x.astype("f8")
    function = {"none": lambda a, i, v: a.__setitem__(i, v), "add": np.add.at, "max": np.maximum.at}[reduction]
    function(expected, where, updates.astype("f8"))
    scatter = toy("s", lambda x, u: x, None, rule)
    got = run_any(single(scatter, ArraySpec((4,), dtype), ArraySpec((3,), dtype)), x, updates)
    np.testing.assert_array_equal(got, expected.astype(dtype))
