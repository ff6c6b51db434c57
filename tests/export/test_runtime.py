"""Programs run on ONNX Runtime as they do on NumPy, and what a caller holds never changes."""

import itertools
import threading
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onstage as ons
from onstage.export.backend import OnnxBackend
from onstage.export.runtime import session as session_module
from onstage.export.runtime.checked import NumericsError
from onstage.export.runtime.provider import cuda_problem
from onstage.export.runtime.session import OptimizerWarning, automatic_level, make_session
from onstage.stage.config import ConfigError, Options, config, current_options, read_environment
from onstage.stage.dtypes import bfloat16
from onstage.stage.errors import OnstageError, ProviderError

SPEC = ons.ArraySpec


def f32(values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.float32)


def f64(values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.float64)


@pytest.fixture
def backend() -> OnnxBackend:
    return OnnxBackend()


def run(backend: OnnxBackend, program: Any, *arrays: Any) -> list[np.ndarray]:
    return backend.run(program, [np.asarray(a) for a in arrays])


# results and inputs


def test_results_are_fresh_writable_and_share_nothing(backend: OnnxBackend):
    table = np.arange(3, dtype=np.float32)

    def f(x: Any, y: Any) -> Any:
        return x, x + y, x, x.reshape(2, 2), table, table * 2

    program = ons.stage(f, specs=(SPEC((4,), "f32"), SPEC((4,), "f32")))
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    first = run(backend, program, x, y)
    kept = [a.copy() for a in first]
    for a in first:
        assert a.flags.writeable and not np.shares_memory(a, x) and not np.shares_memory(a, table)
    for a, b in itertools.combinations(first, 2):
        assert not np.shares_memory(a, b)
    second = run(backend, program, x + 10, y)
    for a, b, before in zip(first, second, kept, strict=True):
        assert not np.shares_memory(a, b)
        np.testing.assert_array_equal(a, before)
    for a in first + second:
        a[...] = -7
    for a, expected in zip(run(backend, program, x, y), kept, strict=True):
        np.testing.assert_array_equal(a, expected)


def test_inputs_of_every_layout(backend: OnnxBackend):
    program = ons.stage(lambda x, s: x * 2 + s, specs=(SPEC((3, 4), "f32"), SPEC((), "f32")))
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    read_only = base.copy()
    read_only.flags.writeable = False
    layouts = [
        np.asfortranarray(base),
        np.repeat(base, 2, axis=1)[:, ::2],
        base[::-1, ::-1].copy()[::-1, ::-1],
        base.astype(">f4"),
        np.broadcast_to(base[:1], (3, 4)),
        read_only,
        np.frombuffer(b"x" + base.tobytes(), dtype=np.float32, offset=1).reshape(3, 4),
    ]
    for x in layouts:
        (got,) = run(backend, program, x, np.array(5, dtype=">f4"))
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, x.astype("f4") * 2 + 5)
    np.testing.assert_array_equal(read_only, base)


def test_zero_sizes_scalars_no_inputs_and_constants(backend: OnnxBackend):
    program = ons.stage(lambda x: (x + 1, x.sum()), specs=(SPEC(("B", 3), "f64"),))
    for n in (0, 1, 5):
        y, s = run(backend, program, np.ones((n, 3)))
        assert y.shape == (n, 3) and s.shape == () and s == 3 * n
    constant = ons.stage(lambda: {"a": np.arange(3), "b": np.float32(2)}, specs=())
    a, b = run(backend, constant)
    np.testing.assert_array_equal(a, [0, 1, 2])
    assert b.shape == () and b.dtype == np.float32 and b == 2
    nothing = ons.stage(lambda x: (), specs=(SPEC((2,), "f32"),))
    assert run(backend, nothing, np.zeros(2, "f4")) == []


def test_bfloat16_in_and_out(backend: OnnxBackend):
    dtype = bfloat16()
    program = ons.stage(
        lambda x, y: (x * y, x.astype("f4"), y.astype(dtype)),
        specs=(SPEC(("B", 3), dtype), SPEC((3,), "f32")),
    )
    x = np.arange(6).reshape(2, 3).astype(dtype)
    y = f32([1.5, 2.0, 1 / 3])
    for value in (x, x[::-1], x[:0], np.asfortranarray(x)):
        product, wide, half = run(backend, program, value, y)
        assert product.dtype == np.float32 and wide.dtype == np.float32 and half.dtype == dtype
        np.testing.assert_array_equal(product, value.astype("f4") * y)
        np.testing.assert_array_equal(wide, value.astype("f4"))
        np.testing.assert_array_equal(half, y.astype(dtype))
        half[...] = 0
    scalar = ons.stage(lambda x: x + x, specs=(SPEC((), dtype),))
    (got,) = run(backend, scalar, np.array(1.5, dtype))
    assert got.shape == () and got.dtype == dtype and got == 3


def test_threads_calling_one_program_while_earlier_results_are_held(backend: OnnxBackend):
    program = ons.stage(lambda x, w: np.tanh(x @ w).sum(axis=1), specs=(SPEC(("B", 16), "f64"), SPEC((16, 16), "f64")))
    w = np.random.default_rng(0).normal(size=(16, 16))
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(50):
            x = rng.normal(size=(int(rng.integers(1, 9)), 16))
            held.append((x, backend.run(program, [x, w])[0]))
        for x, y in held:
            if not np.allclose(y, np.tanh(x @ w).sum(axis=1), rtol=1e-12):
                failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    assert len(backend._entries) == 1


# sessions


def test_programs_of_one_hash_share_a_session(backend: OnnxBackend):
    f = ons.stage(lambda x: x * 2, specs=(SPEC((3,), "f32"),))
    g = ons.stage(lambda other: other * 2, specs=(SPEC((3,), "f32"),))
    assert f.hash == g.hash
    run(backend, f, np.zeros(3, "f4"))
    run(backend, g, np.zeros(3, "f4"))
    assert len(backend._entries) == 1
    with config(optimization="none"):
        run(backend, f, np.zeros(3, "f4"))
    assert len(backend._entries) == 2


def test_the_least_recently_used_session_goes_first(backend: OnnxBackend):
    programs = [ons.stage(lambda x, k=k: x * (k + 2.0), specs=(SPEC((3,), "f32"),)) for k in range(4)]
    x = np.ones(3, "f4")
    with config(sessions=2):
        for program in programs[:2]:
            run(backend, program, x)
        run(backend, programs[0], x)
        run(backend, programs[2], x)
        assert len(backend._entries) == 2 and len(backend._bound) == 2
        assert programs[0].program in backend._bound and programs[1].program not in backend._bound
        for k, program in enumerate(programs):
            np.testing.assert_array_equal(run(backend, program, x)[0], x * (k + 2))


def test_a_program_that_is_gone_is_not_kept_alive_by_the_binding(backend: OnnxBackend):
    program = ons.stage(lambda x: x + 1, specs=(SPEC((3,), "f32"),))
    run(backend, program, np.zeros(3, "f4"))
    assert len(backend._bound) == 1
    del program
    assert len(backend._bound) == 0


def test_sessions_of_other_code_still_work_in_this_process(backend: OnnxBackend):
    program = ons.stage(lambda x: x + 1, specs=(SPEC((3,), "f32"),))
    run(backend, program, np.zeros(3, "f4"))
    model = backend.to_onnx(program)
    (got,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.zeros(3, "f4")})
    np.testing.assert_array_equal(got, [1, 1, 1])


def test_levels_by_size():
    assert [automatic_level(n) for n in (10, 5_000, 5_001, 20_000)] == ["all", "all", "basic", "none"]


def test_an_optimizer_failure_is_reported_and_survived(monkeypatch: pytest.MonkeyPatch):
    # FuseReluClip of ONNX Runtime fails on float64; the lowering avoids it, this model does not.
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Clip", ["r", "lo", "hi"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", double, [3])],
        [helper.make_tensor_value_info("y", double, [3])],
        [
            onnx.numpy_helper.from_array(np.array(0.5), "lo"),
            onnx.numpy_helper.from_array(np.array(1.0), "hi"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    with pytest.warns(OptimizerWarning, match="failed at level 'all' and the model runs at 'none'"):
        session = make_session(model, Options(provider="cpu"), level="all")
    np.testing.assert_array_equal(session.run(None, {"x": f64([-1, 0.7, 3])})[0], [0.5, 0.7, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_session(model, Options(provider="cpu"), level="none")


def test_a_model_that_is_wrong_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    made: list[str] = []
    original = session_module._session_options
    monkeypatch.setattr(session_module, "_session_options", lambda level, *rest: made.append(level) or original(level, *rest))
    with pytest.raises(OnstageError, match="cannot load the model"):
        make_session(b"no model", Options(provider="cpu"), level="all")
    assert made == ["all"]
    assert capfd.readouterr().out == ""


def test_large_constants_are_handed_over_not_copied_into_the_model(backend: OnnxBackend):
    table = np.random.default_rng(0).normal(size=(600, 500)).astype("f4")
    program = ons.stage(lambda x: x @ table + 1, specs=(SPEC(("B", 600), "f32"),))
    x = np.random.default_rng(1).normal(size=(2, 600)).astype("f4")
    expected = x @ table + 1
    table[...] = 0
    for level in ("none", "all"):
        with config(optimization=level):
            np.testing.assert_allclose(run(backend, program, x)[0], expected, rtol=1e-4, atol=1e-4)


def test_a_profile_names_operators_and_lines(backend: OnnxBackend):
    def f(x: Any, w: Any) -> Any:
        with ons.scope("layer1"):
            h = np.tanh(x @ w)
        return h + 1

    program = ons.stage(f, specs=(SPEC((64, 64), "f64"), SPEC((64, 64), "f64")))
    profile = backend.profile(program, [np.ones((64, 64)), np.ones((64, 64))])
    assert {row.name for row in profile.by_operator} == {"MatMul", "Tanh", "Add"}
    assert sum(row.share for row in profile.by_operator) == pytest.approx(1)
    assert any(row.name.startswith("test_runtime.py:") and row.name.endswith(" layer1/tanh") for row in profile.by_line)
    assert "Tanh" in str(profile) and "us in kernels on CPUExecutionProvider" in str(profile)


# failures at run time


def test_a_failed_run_names_the_node(backend: OnnxBackend):
    program = ons.stage(lambda x, y: x + y, specs=(SPEC(("B",), "f32"), SPEC(("B",), "f32")))
    with pytest.raises(OnstageError, match=r"ONNX Runtime failed(.|\n)*add@test_runtime\.py"):
        run(backend, program, np.zeros(2, "f4"), np.zeros(3, "f4"))


# providers


def test_cuda_asked_for_in_vain(backend: OnnxBackend):
    if cuda_problem(0) is None:
        pytest.skip("this machine has CUDA")
    program = ons.stage(lambda x: x + 1, specs=(SPEC((3,), "f32"),))
    with (
        config(provider="cuda"),
        pytest.raises(ProviderError, match="CUDA device 0 was asked for and cannot be used: "),
    ):
        run(backend, program, np.zeros(3, "f4"))
    with config(provider="cuda", fallback=True):
        np.testing.assert_array_equal(run(backend, program, np.zeros(3, "f4"))[0], [1, 1, 1])


# checks


def test_numerics_are_checked_by_line(backend: OnnxBackend):
    def f(x: Any) -> Any:
        y = x - 1
        z = np.log(y)
        return z * 2

    program = ons.stage(f, specs=(SPEC((3,), "f64"),))
    with config(check_numerics=True):
        with pytest.raises(NumericsError, match=r"log gave a value that is NaN(.|\n)*z = np\.log\(y\)"):
            run(backend, program, [0.5, 2, 3])
        np.testing.assert_allclose(run(backend, program, [2.0, 3, 4])[0], np.log([1.0, 2, 3]) * 2)
    assert np.isnan(run(backend, program, [0.5, 2, 3])[0][0])


def test_shapes_are_checked(backend: OnnxBackend):
    program = ons.stage(lambda x: (x + 1).reshape(-1), specs=(SPEC(("B", 3), "f64"),))
    with config(verify_shapes=True):
        np.testing.assert_array_equal(run(backend, program, np.zeros((2, 3)))[0], np.ones(6))


# options


def test_options_nest_and_end():
    assert current_options().threads is None
    with config(threads=1, provider="cpu"):
        assert (config.threads, config.provider) == (1, "cpu")
        with config(threads=2):
            assert (config.threads, config.provider) == (2, "cpu")
            config.threads = 3
            assert config.threads == 3
        assert config.threads == 1
    assert current_options() is current_options() and config.threads is None
    config.fallback = True
    assert config.fallback
    config.fallback = False


def test_options_of_a_block_are_the_threads_own():
    seen: list[Any] = []
    with config(threads=5):
        thread = threading.Thread(target=lambda: seen.append(config.threads))
        thread.start()
        thread.join()
    assert seen == [None]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("provider", "tpu"),
        ("threads", 0),
        ("threads", True),
        ("device", -1),
        ("optimization", "O3"),
        ("fallback", 1),
        ("sessions", 0),
    ],
)
def test_wrong_options_are_named(name: str, value: Any):
    with pytest.raises(ConfigError, match=f"ons.config: {name} is "):
        setattr(config, name, value)
    with pytest.raises(ConfigError, match="has no option 'treads'; it has provider, device"):
        config(treads=1).__enter__()
    with pytest.raises(AttributeError, match="treads"):
        _ = config.treads


def test_options_from_the_environment():
    assert read_environment({}) == Options()
    environment = {
        "ONSTAGE_PROVIDER": "cpu",
        "ONSTAGE_THREADS": "2",
        "ONSTAGE_FALLBACK": "yes",
        "ONSTAGE_CACHE_DIR": "/tmp/x",
        "ONSTAGE_DEVICE": "",
    }
    assert read_environment(environment) == Options(provider="cpu", threads=2, fallback=True, cache_dir="/tmp/x")
    for variable, text in (
        ("ONSTAGE_THREADS", "many"),
        ("ONSTAGE_PROVIDER", "tpu"),
        ("ONSTAGE_FALLBACK", "maybe"),
    ):
        with pytest.raises(ConfigError, match=f"{variable}='{text}' is wrong"):
            read_environment({variable: text})
