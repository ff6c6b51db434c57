"""Verification: no alarm over honest programs, and what it says of faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onstage as ons
from onstage import nn
from onstage.export.lower import Lowered, lower_program
from onstage.export.verification import exposure
from onstage.export.verification.exposure import pieces
from onstage.export.verification.precision import Tape, float_info, on_grid, random_round
from onstage.export.verification.samples import Sampler
from onstage.export.verify import VerificationReport, verify, verify_staged
from onstage.stage.primitive import find_primitive
from onstage.stage.program import Program

from .random_programs import draw

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def lowered_of(staged: Any) -> Lowered:
    return lower_program(staged.optimized[0], staged.in_names, staged.out_names)


def arrays_of(staged: Any, args: tuple[Any, ...]) -> list[Any]:
    return staged.signature.arrays(staged.signature.flatten(args, {}))


def verified(function: Callable[..., Any], *args: Any, **options: Any) -> VerificationReport:
    staged = ons.stage(function, *args)
    return verify_staged(staged, lowered_of(staged), example=arrays_of(staged, args), **options)


def verified_specs(function: Callable[..., Any], *specs: Any, **options: Any) -> VerificationReport:
    staged = ons.stage(function, specs=specs)
    return verify_staged(staged, lowered_of(staged), **options)


def edited(staged: Any, edit: Callable[[Any], None], *args: Any, **options: Any) -> VerificationReport:
    """Verify a model after an edit of its protobuf."""
    lowered = lowered_of(staged)
    model = onnx.ModelProto.FromString(lowered.model.SerializeToString())
    edit(model)
    return verify_staged(staged, lowered, model.SerializeToString(), example=arrays_of(staged, args), **options)


def normal(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def node(model: Any, op_type: str) -> Any:
    return next(n for n in model.graph.node if n.op_type == op_type)


# No false alarm ----------------------------------------------------------------------------------------------------------------


def verify_seeds(seeds: range) -> int:
    count = 0
    for seed in seeds:
        drawn = draw(seed)
        staged = ons.stage(drawn.function, *drawn.args)
        report = verify_staged(staged, lowered_of(staged), example=arrays_of(staged, drawn.args))
        assert len(report.outputs) == len(staged.out_names), drawn.name
        count += 1
    return count


def test_honest_random_programs_are_verified() -> None:
    assert verify_seeds(range(1000, 1200)) == 200


@pytest.mark.slow
def test_many_honest_random_programs_are_verified() -> None:
    assert verify_seeds(range(2000, 3000)) == 1000


MILLION = 1_000_000
BIG: dict[str, tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]] = {
    "sum and mean": (lambda x: (np.sum(x), np.mean(x)), lambda d: (normal(MILLION, dtype=d),)),
    "sum and mean of positives": (
        lambda x: (np.sum(x), np.mean(x)),
        lambda d: (np.abs(normal(MILLION, dtype=d)) + 100,),
    ),
    "sums along axes": (
        lambda x: (np.sum(x, axis=0), np.mean(x, axis=1)),
        lambda d: (normal(1000, 1000, dtype=d),),
    ),
    "matmul": (lambda a, b: a @ b, lambda d: (normal(16, 4096, dtype=d), normal(4096, 8, dtype=d, seed=1))),
    "matmul of positives": (
        lambda a, b: a @ b,
        lambda d: (np.abs(normal(16, 4096, dtype=d)), np.abs(normal(4096, 8, dtype=d, seed=1))),
    ),
    "floor of exp": (lambda x: np.floor(np.exp(x)), lambda d: (2 * normal(200_000, dtype=d),)),
    "sum of floor of exp": (
        lambda x: np.sum(np.floor(np.exp(x)) * x),
        lambda d: (2 * normal(20_000, dtype=d),),
    ),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=1), lambda d: (30 * normal(100, 1000, dtype=d),)),
    "saturated sigmoid": (lambda x: np.log(nn.sigmoid(x)), lambda d: (np.linspace(-40, 40, 101).astype(d),)),
    "sin of large numbers": (
        lambda x: np.sin(x) + np.cos(x),
        lambda d: (normal(1000, dtype=d) * d.type(1e5),),
    ),
    "cumsum": (lambda x: np.cumsum(x), lambda d: (normal(20_000, dtype=d),)),
    "log10 at its jumps": (lambda x: np.floor(np.log10(x)), lambda d: ((10.0 ** np.arange(8)).astype(d),)),
}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", BIG)
def test_long_sums_and_near_decisions_are_no_alarm(name: str, dtype: Any) -> None:
    function, make = BIG[name]
    report = verified(function, *make(dtype))
    assert report.not_verified == {}


def test_a_chaotic_iteration_is_no_alarm() -> None:
    def iterate(x: Any) -> Any:
        for _ in range(60):
            x = 3 * np.sin(3 * x) + 0.1 * np.exp(-x)
        return x

    report = verified(iterate, np.random.default_rng(0).uniform(0.1, 0.9, 50).astype(np.float32))
    assert report.verified == ("out",) and "only its equations were checked" in report.outputs[0].note


def test_ties_and_masks_survive() -> None:
    def function(x: Any) -> Any:
        top = np.max(x, axis=1, keepdims=True)
        ties = (x == top).astype(x.dtype)
        return ties / np.sum(ties, axis=1, keepdims=True), np.maximum(x - top, 0)

    x = np.round(normal(5, 4) * 2)
    report = verified(function, x)
    assert report.outputs[0].error == 0


def test_half_width_floats_and_overflow() -> None:
    report = verified(lambda x: (x * x, np.exp(x), x / (x - x)), (300 * normal(8)).astype(np.float16))
    assert report.outputs[0].verified
    assert "NaN or infinite" in report.not_verified["out.2"]


def test_named_dims_are_tried_at_other_sizes() -> None:
    spec = ons.ArraySpec(("B", 3), "float32")
    report = verified_specs(lambda x, w: (np.tanh(x @ w), np.mean(x, axis=1)), spec, ons.ArraySpec((3, "H"), "float32"))
    assert report.verified == ("out.0", "out.1")
    sizes = [text[text.index("(") :] for text in report.samples]
    assert "(B=1, H=1)" in sizes and "(B=0, H=0)" in sizes and len(set(sizes)) == 4


def test_sizes_that_the_program_does_not_take_are_said() -> None:
    report = verified_specs(lambda x: np.max(x), ons.ArraySpec(("B",), "float32"))
    assert report.verified == ("out",)
    assert any("sizes of 0" in note and "ValueError" in note for note in report.notes)


def test_a_size_that_is_built_in_is_found() -> None:
    staged = ons.stage(lambda x: x * np.mean(x), specs=(ons.ArraySpec(("B",), "float32"),))
    lowered = lowered_of(staged)
    assert node(lowered.model, "ReduceSum")

    def specialise(model: Any) -> None:
        division = next(n for n in model.graph.node if n.op_type == "Div")
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(5, np.float32), "five"))
        division.input[1] = "five"

    with pytest.raises(ons.VerificationError, match=r"divide .* on prime sizes \(B=7\)"):
        edited(staged, specialise, normal(5))


# Faults are named --------------------------------------------------------------------------------------------------------------


def sgd(params: Any, x: Any) -> Any:
    grads = ons.grad(lambda p: np.mean(np.tanh(x @ p["w"]) ** 2))(params)
    return {k: params[k] - 1e-12 * grads[k] for k in params}


def test_a_gradient_hidden_by_a_tiny_learning_rate_is_seen() -> None:
    params, x = {"w": normal(3, 2)}, normal(4, 3, seed=1)
    staged = ons.stage(sgd, params, x)

    def spoil(model: Any) -> None:
        products = [n for n in model.graph.node if n.op_type in ("MatMul", "Gemm")]
        source = products[-1].input[0]
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(3.0, np.float32), "three"))
        at = list(model.graph.node).index(products[-1])
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
        nodes[at].input[0] = "spoilt"
        nodes.insert(at, onnx.helper.make_node("Mul", [source, "three"], ["spoilt"]))
        del model.graph.node[:]
        model.graph.node.extend(nodes)

    with pytest.raises(
        ons.VerificationError,
        match=r"output 'out\.w' is wrong.*first equation that departs.*is (gemm|matmul)",
    ) as caught:
        edited(staged, spoil, params, x)
    assert caught.value.source is not None and caught.value.source.label.startswith("test_verify.py:")
    assert "np.tanh(x @ p" in str(caught.value)


def test_the_first_equation_that_departs_is_named_with_its_line() -> None:
    def function(x: Any) -> Any:
        y = np.exp(x) + 1
        z = y - x
        return np.sqrt(np.abs(z)), y * 2

    staged = ons.stage(function, normal(5))

    def swap(model: Any) -> None:
        n = node(model, "Sub")
        n.input[0], n.input[1] = n.input[1], n.input[0]

    with pytest.raises(ons.VerificationError) as caught:
        edited(staged, swap, normal(5))
    message = str(caught.value)
    assert "output 'out.0' is wrong" in message and "subtract (f32[5]), on example: 5 elements are off" in message
    assert "z = y - x" in message


def test_an_input_folded_to_a_constant_is_seen_at_the_second_input() -> None:
    staged = ons.stage(lambda x, y: x * y, normal(3), normal(3, seed=1))

    def fold(model: Any) -> None:
        model.graph.initializer.append(numpy_helper.from_array(normal(3), "folded"))
        node(model, "Mul").input[0] = "folded"

    with pytest.raises(ons.VerificationError, match="on noise"):
        edited(staged, fold, normal(3), normal(3, seed=1))


def test_a_fault_of_a_pass_is_seen_at_the_outputs() -> None:
    right = ons.stage(lambda x: np.tanh(x) - x, normal(4))
    wrong = ons.stage(lambda x: x - np.tanh(x), normal(4))
    lowered = lowered_of(wrong)
    with pytest.raises(
        ons.VerificationError,
        match=r"output 'out' is wrong at ORT_DISABLE_ALL on example.*a pass before the lowering",
    ):
        verify(
            wrong.program,
            lowered.model.SerializeToString(),
            reference=right.program,
            values=lowered.values,
            in_names=right.in_names,
            out_names=right.out_names,
            example=[normal(4)],
        )


def test_exchanged_outputs_are_seen() -> None:
    staged = ons.stage(lambda x: (np.sin(x), np.cos(x)), normal(4))

    def exchange(model: Any) -> None:
        first, second = node(model, "Sin"), node(model, "Cos")
        first.output[0], second.output[0] = second.output[0], first.output[0]

    with pytest.raises(ons.VerificationError, match=r"'out\.0'"):
        edited(staged, exchange, normal(4))


def test_integers_and_booleans_must_be_exact() -> None:
    staged = ons.stage(lambda i: (i // 3, i % 5), np.arange(-7, 7))

    def off_by_one(model: Any) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(1), "one"))
        producer = next(n for n in model.graph.node if "out.0" in n.output)
        producer.output[0] = "before"
        model.graph.node.append(onnx.helper.make_node("Add", ["before", "one"], ["out.0"]))

    with pytest.raises(ons.VerificationError, match="floor_divide"):
        edited(staged, off_by_one, np.arange(-7, 7))


def test_another_shape_or_a_model_that_does_not_load_is_a_verification_error() -> None:
    staged = ons.stage(lambda x: np.transpose(x) * 2, normal(3, 3))

    def widen(model: Any) -> None:
        n = node(model, "Mul")
        n.op_type = "Concat"
        n.attribute.append(onnx.helper.make_attribute("axis", 0))
        n.input[1] = n.input[0]

    with pytest.raises(ons.VerificationError, match=r"expected float32\[3, 3\], got float32\[6, 3\]|does not load"):
        edited(staged, widen, normal(3, 3))

    def break_it(model: Any) -> None:
        node(model, "Mul").op_type = "NoSuchOp"

    with pytest.raises(ons.VerificationError, match="does not load the model at ORT_DISABLE_ALL"):
        edited(staged, break_it, normal(3, 3))


def test_a_nan_in_place_of_a_number_is_seen() -> None:
    staged = ons.stage(lambda x: np.sqrt(np.abs(x)), normal(6))

    def drop(model: Any) -> None:
        node(model, "Abs").op_type = "Identity"

    with pytest.raises(ons.VerificationError, match="absolute"):
        edited(staged, drop, normal(6))


# Loops and branches ------------------------------------------------------------------------------------------------------------


def rnn(w: Any, h: Any, xs: Any) -> Any:
    return ons.scan(lambda c, x: (np.tanh(c @ w + x), c), h, xs)


LOOPS: dict[str, Callable[..., Any]] = {
    "scan": rnn,
    "gradient of scan": lambda w, h, xs: ons.grad(lambda w: np.mean(rnn(w, h, xs)[1] ** 2))(w),
    "branch": lambda w, h, xs: ons.cond(np.sum(w) > 0, np.exp, lambda x: x * 2, xs),
    "chaotic loop": lambda w, h, xs: ons.fori_loop(0, 80, lambda i, c: np.sin(c) * 2.9, xs),
    "while": lambda w, h, xs: ons.while_loop(lambda c: np.sum(c * c) > 0.1, lambda c: c * 0.9, xs),
    "branch in a loop": lambda w, h, xs: ons.scan(lambda c, x: (ons.cond(np.sum(x) > 0, np.tanh, np.cos, c), c), h, xs),
}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches_are_no_alarm(name: str, dtype: Any) -> None:
    report = verified(LOOPS[name], 0.5 * normal(4, 4, dtype=dtype), np.zeros(4, dtype), normal(20, 4, dtype=dtype, seed=1))
    assert report.outputs[0].verified


def test_a_fault_hidden_in_a_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(w: Any, xs: Any) -> Any:
        return ons.scan(lambda c, x: (c - 1e-12 * np.sin(c * x), x), w, xs)[0]

    args = (normal(3), normal(4, 3, seed=1))
    assert verified(function, *args).verified == ("out",)
    monkeypatch.setattr(find_primitive("sin"), "onnx", lambda b, x: b.op("Cos", x))
    with pytest.raises(ons.VerificationError, match=r"output .out. is wrong.*is sin inside of scan"):
        verified(function, *args)


# What does not count as verified -----------------------------------------------------------------------------------------------


def test_outputs_that_do_not_move_or_are_not_finite_are_reported() -> None:
    def function(x: Any) -> Any:
        return x * 2, np.log(-np.abs(x) - 1), np.sign(np.abs(x) + 1)

    report = verified(function, normal(4))
    assert report.verified == ("out.0",)
    assert "wholly NaN or infinite" in report.not_verified["out.1"]
    assert "does not change when the inputs do" in report.not_verified["out.2"]


def test_given_samples_take_the_place_of_noise() -> None:
    staged = ons.stage(lambda x: np.sign(x), normal(4))
    lowered = lowered_of(staged)
    report = verify_staged(staged, lowered, samples=[[normal(4)], [-normal(4)]])
    assert report.samples == ("samples[0]", "samples[1]") and report.not_verified == {}
    assert len(verify_staged(staged, lowered, samples=[[normal(4)]]).samples) > 1


def test_programs_without_inputs_and_without_outputs() -> None:
    assert verified(lambda: np.arange(3.0) + 1).not_verified == {}
    assert verified(lambda x: (), normal(2)).outputs == ()


def test_inputs_that_keep_their_value_are_noted() -> None:
    staged = ons.stage(lambda x, n: x[n], normal(3), np.asarray(0))
    zero = np.asarray(0)
    report = verify_staged(staged, lowered_of(staged), samples=[[normal(3), zero], [normal(3, seed=1), zero]])
    assert any("same value on every sample: n" in note for note in report.notes)


def test_slack_is_added_where_the_user_gives_it() -> None:
    staged = ons.stage(lambda x: np.exp(x), normal(4))

    def spoil(model: Any) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(1.001, np.float32), "factor"))
        node(model, "Exp").output[0] = "before"
        model.graph.node.append(onnx.helper.make_node("Mul", ["before", "factor"], ["out"]))

    with pytest.raises(ons.VerificationError):
        edited(staged, spoil, normal(4))
    report = edited(staged, spoil, normal(4), rtol=1e-2)
    assert report.rtol == 1e-2 and report.verified == ("out",)
    assert 0 < report.outputs[0].error <= report.outputs[0].tolerance


def test_a_report_is_plain_data_and_says_what_was_done() -> None:
    report = verified(sgd, {"w": normal(3, 2)}, normal(4, 3, seed=1))
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["levels"] == ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"] and data["policy"] == {
        "seed": 0,
        "rtol": None,
        "atol": None,
    }
    assert data["outputs"][0]["name"] == "out.w" and data["outputs"][0]["verified"] is True
    assert data["samples"] == ["example", "noise", "growing noise"] and data["equations"] == report.equations > 5
    assert "1 of 1 outputs verified" in repr(report) and "out.w" in str(report)


# The parts ---------------------------------------------------------------------------------------------------------------------


def test_values_are_looked_at_in_pieces_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(3)
    staged = ons.stage(drawn.function, *drawn.args)
    lowered, arrays = lowered_of(staged), arrays_of(staged, drawn.args)
    whole = verify_staged(staged, lowered, example=arrays)
    cut = pieces(staged.optimized[0], {}, 400)
    assert len(cut) > 2 and sum(len(p.equations) for p in cut) == whole.equations
    made: list[Any] = []
    real = exposure.ExposedPiece.__init__
    monkeypatch.setattr(exposure.ExposedPiece, "__init__", lambda self, c, p: (made.append(p), real(self, c, p))[1])
    monkeypatch.setattr(pieces, "__defaults__", (400,))
    assert verify_staged(staged, lowered, example=arrays).outputs == whole.outputs
    assert len(made) == len(cut)


def test_noise_keeps_signs_moves_zeros_and_permutes_integers() -> None:
    def function(x: Any, i: Any, b: Any, n: Any) -> Any:
        return x * np.sum(i), b, n

    x = np.asarray([-1.0, 0.0, 2.0], np.float32)
    args = (x, np.arange(5), np.asarray([True, False, True]), np.asarray(3))
    program: Program = ons.stage(function, *args).program
    for sample in Sampler(program, 0).all(list(args), None, few=False)[1:]:
        moved, integers, booleans, single = sample.arrays
        assert moved[0] < 0 and 0 < moved[1] < 0.01 and moved[2] > 0 and not np.array_equal(moved, x)
        assert sorted(integers) == list(range(5)) and sorted(booleans) == [False, True, True] and single == 4
        assert [a.dtype for a in sample.arrays] == [a.dtype for a in args]


def test_values_that_the_reference_refuses_are_not_used() -> None:
    report = verified(lambda t, i: t[i], normal(3), np.asarray(2))
    assert report.not_verified == {}
    report = verified_specs(lambda t, i: t[i], ons.ArraySpec((1,), "float32"), ons.ArraySpec((2,), "int64"))
    assert report.samples[0] == "normal values, zeros"


def test_perturbed_rounding_keeps_what_is_exact() -> None:
    noise = Tape(0).read((4,))
    for dtype in (np.dtype(np.float16), F32, F64):
        exact = np.asarray([0.0, 1.0, -2.5, np.inf])
        assert np.array_equal(random_round(exact, dtype, 0.1, noise), exact.astype(dtype))
        third = np.full(4, 1 / 3)
        moved = random_round(third, dtype, 4 * float_info(dtype).noise, noise)
        assert moved.dtype == dtype and np.all(moved != on_grid(third, dtype))
        assert np.array_equal(on_grid(moved.astype(np.float64), dtype), moved)
