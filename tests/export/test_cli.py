"""The verbs of the command line: export, check, diff, inspect, bench, run."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import onstage as ons
from onstage.export.cli import main
from onstage.export.cli.console import table
from onstage.export.cli.target import nested, read_spec
from onstage.export.cli.weights import write_arrays

USER_CODE = """
import numpy as np
import onstage as ons


def predict(params, x):
    h = np.maximum(x @ params["w1"] + params["b1"], 0)
    return h @ params["w2"]


def loss(params, x, y):
    return ons.nn.cross_entropy(predict(params, x), y)


def with_more(params, x, y):
    return loss(params, x, y), predict(params, x)


def cubes(x, scale=2.0):
    return np.sum(x**3) * scale


def power(x, n):
    return x**n


def layered(layers, x):
    for w in layers:
        x = x @ w
    return x


def broken(x):
    return np.busday_count(x, x)


def bug(x):
    return x + undefined_name


def branch(x):
    if x > 0:
        return x
    return -x


class Model:
    @staticmethod
    def half(x):
        return x / 2


square = ons.stage(lambda x: x * x, specs=(ons.ArraySpec(("B",), "f32"),), name="square")
not_a_function = 3


@ons.primitive
def wrong(x):
    return x + 1


wrong.def_abstract(lambda x: x)
wrong.def_onnx(lambda b, x: b.op("Add", x, b.const(np.asarray(2, "f4"))))


def departs(x):
    return wrong(x)
"""

FEW = ["--arg", "x=f32[B,16]", "--arg", "y=i64[B]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with the user's code and weights, as working directory."""
    (tmp_path / "train.py").write_text(USER_CODE)
    np.savez(tmp_path / "weights.npz", **weights())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("train", "pkg", "pkg.inner", "syntax", "raises"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "w1": rng.normal(size=(16, 8)).astype("f4"),
        "b1": rng.normal(size=8).astype("f4"),
        "w2": rng.normal(size=(8, 4)).astype("f4"),
    }


def command(*words: str) -> Result:
    result = CliRunner().invoke(main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ok(*words: str) -> Any:
    """The JSON of a verb that succeeds."""
    result = command(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def failed(code: int, *words: str) -> Any:
    result = command(*words, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def run_file(path: str, **inputs: Any) -> list[Any]:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)


def reference(x: Any) -> Any:
    w = weights()
    return np.maximum(x @ w["w1"] + w["b1"], 0) @ w["w2"]


# ---- export


def test_export_writes_a_verified_file_and_one_line_a_file(folder: Path) -> None:
    result = command("export", "train.py:predict", "--arg", "x=f32[B,16]", "--params", "weights.npz", "-o", "p.onnx")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    digest = hashlib.sha256((folder / "p.onnx").read_bytes()).hexdigest()
    size = (folder / "p.onnx").stat().st_size
    assert lines[0].startswith(f"p.onnx  sha256 {digest}  {size:,} bytes  4 nodes  worst error ")
    assert lines[1].startswith("p.onnx.report.json  sha256 ") and len(lines) == 2
    assert result.stderr == ""  # progress is for terminals
    x = np.random.default_rng(1).normal(size=(3, 16)).astype("f4")
    np.testing.assert_allclose(run_file("p.onnx", x=x)[0], reference(x), rtol=1e-5, atol=1e-5)
    assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")]


def test_export_json(folder: Path) -> None:
    data = ok("export", "train.py:predict", "--arg", "x=f32[B,16]", "--params", "weights.npz", "-o", "p.onnx", "--external", "always")
    assert [f["path"] for f in data["files"]] == ["p.onnx", "p.onnx.report.json"]
    assert data["ok"] is True and len(data["hash"]) == 64 and data["warnings"] == []
    assert data["files"][0]["nodes"] == 4 and data["files"][0]["worst_error"] >= 0
    assert data["verification"]["outputs"][0]["verified"] is True
    for entry in data["files"]:
        assert entry["sha256"] == hashlib.sha256((folder / entry["path"]).read_bytes()).hexdigest()


def test_export_of_large_constants_beside_the_model(folder: Path) -> None:
    np.savez("big.npz", w=np.random.default_rng(0).normal(size=(64, 64)).astype("f4"))
    (folder / "m.py").write_text("def f(w, x):\n    return x @ w\n")
    data = ok("export", "m.py:f", "--arg", "x=f32[B,64]", "--params", "w=big.npz", "-o", "m.onnx", "--external", "always")
    assert [f["path"] for f in data["files"]] == ["m.onnx", "m.onnx.data", "m.onnx.report.json"]
    failed(2, "run", "m.onnx", "--inputs", "big.npz")
    assert ok("check", "m.onnx")["checks"][2]["detail"].startswith("1 of 1 outputs verified, 1 equations")
    assert ok("run", "m.onnx", "--dim", "B=2")["outputs"]["out"]["spec"] == "f32[2,64]"
    assert ok("inspect", "m.onnx")["external_data"] is True


def test_quiet_prints_nothing() -> None:
    result = command("export", "train.py:cubes", "--arg", "x=f64[N]", "-o", "c.onnx", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_export_of_a_module_by_name(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "inner.py").write_text("def double(x):\n    return x * 2\n")
    ok("export", "pkg.inner:double", "--arg", "x=i32[2]", "-o", "d.onnx")
    assert run_file("d.onnx", x=np.array([1, -3], "i4"))[0].tolist() == [2, -6]


@pytest.mark.parametrize(
    ("options", "inputs", "outputs"),
    [
        (["--grad", "0"], ["params.b1", "params.w1", "params.w2", "x", "y"], ["out.b1", "out.w1", "out.w2"]),
        (["--grad", "x"], ["params.b1", "params.w1", "params.w2", "x", "y"], ["out"]),
        (["--grad", "0,1"], ["params.b1", "params.w1", "params.w2", "x", "y"], ["out.0.b1", "out.0.w1", "out.0.w2", "out.1"]),
        (["--value-and-grad"], ["params.b1", "params.w1", "params.w2", "x", "y"], ["out.0", "out.1.b1", "out.1.w1", "out.1.w2"]),
        (["--value-and-grad", "--wrt", "x"], ["params.b1", "params.w1", "params.w2", "x", "y"], ["out.0", "out.1"]),
    ],
)
def test_gradients_with_parameters_as_inputs(options: list[str], inputs: list[str], outputs: list[str]) -> None:
    ok("export", "train.py:loss", *FEW, "--params", "weights.npz", "--params-as-inputs", *options, "-o", "g.onnx")
    graph = onnx.load("g.onnx").graph
    assert [v.name for v in graph.input] == inputs
    assert [v.name for v in graph.output] == outputs


def test_gradient_at_constant_parameters_is_right() -> None:
    ok("export", "train.py:loss", *FEW, "--params", "weights.npz", "--grad", "params", "-o", "g.onnx")
    x, y = np.random.default_rng(2).normal(size=(5, 16)).astype("f4"), np.array([0, 1, 2, 3, 0])

    def loss(params: Any) -> Any:
        h = np.maximum(x @ params["w1"] + params["b1"], 0)
        return ons.nn.cross_entropy(h @ params["w2"], y)

    expected = ons.grad(loss)(weights())
    for got, name in zip(run_file("g.onnx", x=x, y=y), ("b1", "w1", "w2"), strict=True):
        np.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-6)


def test_has_aux() -> None:
    ok("export", "train.py:with_more", *FEW, "--params", "weights.npz", "--value-and-grad", "--has-aux", "-o", "g.onnx")
    names = [v.name for v in onnx.load("g.onnx").graph.output]
    assert names == ["out.0.0", "out.0.1", "out.1.b1", "out.1.w1", "out.1.w2"]


def test_jvp_vjp_and_hvp_are_right() -> None:
    x, t = np.array([1.0, -2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    for option in ("--jvp", "--vjp", "--hvp"):
        ok("export", "train.py:cubes", "--arg", "x=f64[N]", option, "-o", f"{option[2:]}.onnx")
    value, tangent = run_file("jvp.onnx", x=x, x_tangent=t)
    np.testing.assert_allclose([value, tangent], [2 * np.sum(x**3), np.sum(6 * x**2 * t)])
    value, cotangent = run_file("vjp.onnx", x=x, ct=np.array(0.5))
    np.testing.assert_allclose(cotangent, 3 * x**2)
    np.testing.assert_allclose(run_file("hvp.onnx", x=x, x_tangent=t)[0], 12 * x * t)


def test_hvp_beside_integer_arguments() -> None:
    ok("export", "train.py:loss", *FEW, "--params", "weights.npz", "--hvp", "-o", "h.onnx")
    assert [v.name for v in onnx.load("h.onnx").graph.output] == ["out.0.b1", "out.0.w1", "out.0.w2", "out.1"]


def test_static_arguments_defaults_and_nested_names() -> None:
    ok("export", "train.py:power", "--arg", "x=f32[3]", "--static", "n=3", "-o", "p.onnx")
    np.testing.assert_allclose(run_file("p.onnx", x=np.array([1, 2, 3], "f4"))[0], [1, 8, 27])
    ok("export", "train.py:cubes", "--arg", "x=f32[3]", "--arg", "scale=float", "-o", "c.onnx")
    assert [v.name for v in onnx.load("c.onnx").graph.input] == ["x", "scale"]
    ok("export", "train.py:layered", "--arg", "layers.0=f32[4,3]", "--arg", "layers.1=f32[3,2]", "--arg", "x=f32[B,4]", "-o", "l.onnx")
    assert [v.name for v in onnx.load("l.onnx").graph.input] == ["layers.0", "layers.1", "x"]


def test_staged_programs_and_attributes() -> None:
    ok("export", "train.py:square", "--jvp", "-o", "s.onnx")
    out, tangent = run_file("s.onnx", x=np.array([3.0], "f4"), x_tangent=np.array([1.0], "f4"))
    assert (out.tolist(), tangent.tolist()) == ([9.0], [6.0])
    ok("export", "train.py:Model.half", "--arg", "x=f64[]", "-o", "h.onnx")
    assert "staged already" in failed(2, "export", "train.py:square", "--arg", "x=f32[3]", "-o", "s.onnx")["error"]["message"]


def test_opset_and_target() -> None:
    for opset in (18, 23):
        ok("export", "train.py:cubes", "--arg", "x=f32[3]", "--opset", str(opset), "-o", "c.onnx")
        assert onnx.load("c.onnx").opset_import[0].version == opset
        assert ok("check", "c.onnx")["warnings"] == []
    ok("export", "train.py:cubes", "--arg", "x=f32[3]", "--target", "onnxruntime", "-o", "c.onnx")
    assert command("export", "train.py:cubes", "--arg", "x=f32[3]", "--opset", "17", "-o", "c.onnx").exit_code == 2


def test_parameters_from_safetensors(folder: Path) -> None:
    arrays = {"layers.0": np.eye(4, dtype="f4") * 2, "layers.1": np.ones((4, 2), ml_dtypes.bfloat16)}
    write_safetensors(folder / "w.safetensors", arrays)
    ok("export", "train.py:layered", "--arg", "x=f32[B,4]", "--params", "w.safetensors", "-o", "l.onnx")
    np.testing.assert_array_equal(run_file("l.onnx", x=np.ones((1, 4), "f4"))[0], [[8, 8]])


def write_safetensors(path: Path, arrays: dict[str, Any], change: Callable[[dict[str, Any]], None] | None = None) -> None:
    names = {"float32": "F32", "bfloat16": "BF16"}
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    data = b""
    for name, array in arrays.items():
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    if change is not None:
        change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_damaged_weights_are_refused(folder: Path) -> None:
    words = ["export", "train.py:layered", "--arg", "x=f32[B,4]", "-o", "l.onnx", "--params"]
    cases: dict[str, Callable[[dict[str, Any]], None]] = {
        "lies outside": lambda h: h["w"].update(data_offsets=[0, 1 << 40]),
        "another size": lambda h: h["w"].update(shape=[3, 4]),
        "of safetensors' types": lambda h: h["w"].update(dtype="F8_E4M3"),
        "header is damaged": lambda h: h["w"].pop("shape"),
    }
    for text, change in cases.items():
        write_safetensors(folder / "w.safetensors", {"w": np.ones((4, 4), "f4")}, change)
        assert text in failed(2, *words, "w.safetensors")["error"]["message"]
    for content, text in ((b"", "truncated"), (b"\xff" * 40, "truncated"), (b"\x02" + bytes(7) + b"[]", "header is damaged")):
        (folder / "w.safetensors").write_bytes(content)
        assert text in failed(2, *words, "w.safetensors")["error"]["message"]
    np.savez("objects.npz", w=np.array([{}], dtype=object))
    assert "plain arrays" in failed(2, *words, "objects.npz")["error"]["message"]
    (folder / "weights.bin").write_bytes(b"")
    assert ".npz and .safetensors" in failed(2, *words, "weights.bin")["error"]["message"]
    assert "no file" in failed(2, *words, "missing.npz")["error"]["message"]


def test_weights_named_after_their_arguments(folder: Path) -> None:
    np.savez("named.npz", **{f"params/{k}": v for k, v in weights().items()})
    ok("export", "train.py:predict", "--arg", "x=f32[B,16]", "--params", "named.npz", "-o", "p.onnx")
    assert [v.name for v in onnx.load("p.onnx").graph.input] == ["x"]


def test_an_unsupported_operation_is_exit_3_with_the_users_line(folder: Path) -> None:
    data = failed(3, "export", "train.py:broken", "--arg", "x=f32[16]", "-o", "b.onnx")
    line = USER_CODE.splitlines().index("    return np.busday_count(x, x)") + 1
    assert data["exit_code"] == 3 and data["error"]["type"] == "UnsupportedError"
    assert (data["error"]["file"], data["error"]["line"]) == (str(folder / "train.py"), line)
    result = command("export", "train.py:broken", "--arg", "x=f32[16]", "-o", "b.onnx")
    assert "np.busday_count" in result.stderr
    assert f"at train.py:{line}: return np.busday_count(x, x)" in result.stderr
    assert result.stdout == "" and not (folder / "b.onnx").exists()


def test_errors_in_the_users_code_have_his_line_and_no_traceback(folder: Path) -> None:
    result = command("export", "train.py:bug", "--arg", "x=f32[16]", "-o", "b.onnx")
    assert result.exit_code == 1
    assert "NameError: name 'undefined_name' is not defined" in result.stderr and "return x + undefined_name" in result.stderr
    assert failed(1, "export", "train.py:branch", "--arg", "x=f32[]", "-o", "b.onnx")["error"]["type"] == "ConcretizationError"
    (folder / "raises.py").write_text("import numpy as np\n\nx = 1 / 0\n")
    (folder / "syntax.py").write_text("def f(x:\n    return x\n")
    for name, line in (("raises", 3), ("syntax", 1)):
        for target in (f"{name}.py:f", f"{name}:f"):
            sys.modules.pop(name, None)
            error = failed(1, "export", target, "--arg", "x=f32[]", "-o", "b.onnx")["error"]
            assert error["line"] == line and error["file"].endswith(f"{name}.py")


def test_a_wrong_lowering_leaves_no_file(folder: Path) -> None:
    data = failed(1, "export", "train.py:departs", "--arg", "x=f32[4]", "-o", "d.onnx")
    assert data["error"]["type"] == "VerificationError"
    assert data["error"]["line"] == USER_CODE.splitlines().index("    return wrong(x)") + 1
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["train.py", "weights.npz"]
    result = command("export", "train.py:departs", "--arg", "x=f32[4]", "-o", "d.onnx", "--no-verify")
    assert result.exit_code == 0 and "warning: d.onnx was not verified" in result.stderr and "not verified" in result.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train.py", "--arg", "x=f32[]"], "names no function"),
        (["missing.py:f", "--arg", "x=f32[]"], "there is no file missing.py"),
        (["missing.module:f", "--arg", "x=f32[]"], "there is no module 'missing'"),
        (["train.py:missing", "--arg", "x=f32[]"], "has no 'missing'; it has Model, branch"),
        (["train.py:not_a_function"], "is int, not a function"),
        (["train.py:predict", "--arg", "x=f32[B,16]"], "no spec for params; write --arg params=f32[...]"),
        (["train.py:cubes", "--arg", "x=f32[3"], "is no spec"),
        (["train.py:cubes", "--arg", "x=f33[3]"], "is no spec"),
        (["train.py:cubes", "--arg", "x=f32[3,,4]"], "empty dim"),
        (["train.py:cubes", "--arg", "x=f32[-3]"], "is no spec"),
        (["train.py:cubes", "--arg", "x"], "write name=value"),
        (["train.py:cubes", "--arg", "x=f32[3]", "--arg", "x=f32[3]"], "is given twice"),
        (["train.py:power", "--arg", "x=f32[3]", "--static", "n=y+1"], "not a Python literal"),
        (["train.py:power", "--arg", "x=f32[3]", "--arg", "n=i64[]", "--static", "n=1"], "by --arg and by --static"),
        (["train.py:cubes", "--arg", "x=f32[3]", "--jvp", "--vjp"], "--jvp and --vjp exclude each other"),
        (["train.py:cubes", "--arg", "x=f32[3]", "--jvp", "--has-aux"], "--has-aux goes with"),
        (["train.py:cubes", "--arg", "x=f32[3]", "--grad", "0", "--wrt", "x"], "--wrt goes with"),
        (["train.py:cubes", "--arg", "x=f32[3]", "--grad", "x y"], "numbers or names"),
        (["train.py:cubes", "--arg", "x=f32[3]", "--params", "weights.npz"], "every argument is given by --arg"),
        (["train.py:layered", "--arg", "x.a=f32[3]", "--arg", "x=f32[3]"], "both an array and a group"),
    ],
)
def test_usage_errors_are_exit_2(folder: Path, words: list[str], text: str) -> None:
    assert text in failed(2, "export", *words, "-o", "u.onnx")["error"]["message"]
    assert not (folder / "u.onnx").exists()


def test_arguments_that_do_not_exist(folder: Path) -> None:
    assert (
        failed(1, "export", "train.py:cubes", "--arg", "x=f32[3]", "--arg", "z=f32[]", "-o", "u.onnx")["error"]["type"] == "StagingFailed"
    )
    assert "no directory" in failed(2, "export", "train.py:cubes", "--arg", "x=f32[3]", "-o", "nowhere/u.onnx")["error"]["message"]
    assert command("export", "train.py:cubes", "--arg", "x=f32[3]").exit_code == 2


def test_a_failed_export_leaves_what_stood_there(folder: Path) -> None:
    (folder / "d.onnx").write_bytes(b"before")
    failed(1, "export", "train.py:departs", "--arg", "x=f32[4]", "-o", "d.onnx")
    assert (folder / "d.onnx").read_bytes() == b"before" and not (folder / "d.onnx.report.json").exists()


def test_the_file_does_not_depend_on_the_command(folder: Path) -> None:
    ok("export", "train.py:cubes", "--arg", "x=f64[N]", "--hvp", "-o", "a.onnx")
    text = (folder / "a.onnx").read_bytes()
    assert b"core.py" not in text and b"testing.py" not in text and b"train.py" in text


def test_read_spec_and_nested() -> None:
    assert read_spec("f32[B, 784]") == ons.ArraySpec(("B", 784), "float32")
    assert read_spec("int64[]") == ons.ArraySpec((), "int64")
    assert read_spec("bf16[max(B, 2), 2*B + 1]") == ons.ArraySpec(("max(B, 2)", "2*B + 1"), "bfloat16")
    assert (read_spec("int"), read_spec("float")) == (0, 0.0)
    assert nested({"a.0.w": 1, "a.1.w": 2, "b": 3}, "x") == {"a": [{"w": 1}, {"w": 2}], "b": 3}
    assert nested({"a.1": 1, "a.3": 2}, "x") == {"a": {"1": 1, "3": 2}}


# ---- check


@pytest.fixture
def predict(folder: Path) -> str:
    ok("export", "train.py:predict", "--arg", "x=f32[B,16]", "--params", "weights.npz", "-o", "predict.onnx")
    return "predict.onnx"


@pytest.fixture
def foreign(predict: str) -> str:
    """The same graph without what onstage wrote into it."""
    model = onnx.load(predict)
    del model.metadata_props[:]
    model.producer_name = "another"
    onnx.save(model, "foreign.onnx")
    return "foreign.onnx"


def statuses(data: Any) -> dict[str, str]:
    return {row["check"]: row["status"] for row in data["checks"]}


def test_check_of_our_file(predict: str) -> None:
    data = ok("check", predict)
    assert statuses(data) == {
        "structure": "passed",
        "metadata": "passed",
        "verification": "passed",
        "optimiser": "skipped",
        "lints": "passed",
    }
    assert "1 of 1 outputs verified, 4 equations" in data["checks"][2]["detail"]
    text = command("check", predict).stdout
    assert text.splitlines()[0] == "passed   structure     4 nodes, opset 21"
    assert statuses(ok("check", predict, "--no-verify"))["verification"] == "skipped"


def test_check_on_given_inputs(predict: str) -> None:
    np.savez("in.npz", x=np.ones((2, 16), "f4"))
    assert ok("check", predict, "--inputs", "in.npz")["checks"][2]["status"] == "passed"
    np.savez("in.npz", x=np.ones((2, 15), "f4"))
    assert failed(2, "check", predict, "--inputs", "in.npz")["error"]["message"].startswith("in.npz: x is f32[2,15]")


def test_check_of_a_foreign_file(foreign: str) -> None:
    data = ok("check", foreign, "--dim", "B=2")
    assert statuses(data) == {"structure": "passed", "metadata": "skipped", "optimiser": "passed", "lints": "passed"}


def test_check_finds_an_edited_file(predict: str) -> None:
    model = onnx.load(predict)
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    onnx.save(model, "edited.onnx")
    data = failed(1, "check", "edited.onnx")
    assert statuses(data)["metadata"] == "failed" and data["ok"] is False
    assert "was changed after it was written" in data["checks"][1]["detail"]


def test_check_verifies_a_file_that_was_not(folder: Path) -> None:
    command("export", "train.py:departs", "--arg", "x=f32[4]", "-o", "d.onnx", "--no-verify", "-q")
    result = command("check", "d.onnx")
    assert result.exit_code == 1 and "failed   verification" in result.stdout
    assert "saved with verify=False" in result.stderr


def test_check_of_a_broken_structure(foreign: str) -> None:
    model = onnx.load(foreign)
    model.graph.node[0].input[0] = "nobody"
    onnx.save(model, "broken.onnx")
    data = failed(1, "check", "broken.onnx")
    assert statuses(data)["structure"] == "failed"


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x0a"], ids=["empty", "text", "no graph"])
@pytest.mark.parametrize("verb", ["check", "inspect", "run", "bench"])
def test_files_that_are_no_models(folder: Path, verb: str, content: bytes) -> None:
    (folder / "junk.onnx").write_bytes(content)
    assert failed(1, verb, "junk.onnx")["error"]["type"] == "ArtifactError"
    assert command(verb, "missing.onnx").exit_code == 2


def make(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, tuple[int, list[Any]]], weights: Any = ()) -> Any:
    """A model of another tool."""
    values = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in group.items()] for group in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *values, initializer=list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def lints_of(model: Any) -> list[str]:
    onnx.save(model, "lint.onnx")
    return [f["rule"] for f in ok("check", "lint.onnx", "--no-verify")["lints"]]


F16, F32, F64, I64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def test_lints() -> None:
    node = helper.make_node
    half = {"x": (F16, ["n"])}
    assert "f16-overflow" in lints_of(make([node("Exp", ["x"], ["y"], "e")], half, {"y": (F16, ["n"])}))
    stable = [node("Neg", ["x"], ["m"]), node("Exp", ["m"], ["y"])]
    assert "f16-overflow" not in lints_of(make(stable, half, {"y": (F16, ["n"])}))
    zero = numpy_helper.from_array(np.zeros((), "f4"), "zero")
    leaky = [node("Greater", ["x", "zero"], ["c"]), node("Log", ["x"], ["l"]), node("Where", ["c", "l", "zero"], ["y"], "w")]
    single = {"x": (F32, ["n"])}
    assert lints_of(make(leaky, single, {"y": (F32, ["n"])}, [zero])) == ["where-nan-gradient"]
    one = numpy_helper.from_array(np.ones((), "f4"), "one")
    guarded = [leaky[0], node("Where", ["c", "x", "one"], ["s"]), node("Log", ["s"], ["l"]), leaky[2]]
    assert lints_of(make(guarded, single, {"y": (F32, ["n"])}, [zero, one])) == []
    ids = {"i": (I64, ["m", 1]), "u": (F32, ["m"])}
    race = [node("ScatterND", ["x", "i", "u"], ["y"])]
    assert lints_of(make(race, {**single, **ids}, {"y": (F32, ["n"])})) == ["scatter-race"]
    added = [node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")]
    assert lints_of(make(added, {**single, **ids}, {"y": (F32, ["n"])})) == ["scatter-order"]
    assert lints_of(make([node("Acosh", ["x"], ["y"])], single, {"y": (F32, ["n"])})) == ["no-cuda-kernel"]
    assert command("check", "lint.onnx", "--no-verify", "--strict").exit_code == 1


def test_a_where_inside_of_an_operation_is_no_finding(folder: Path) -> None:
    (folder / "w.py").write_text(
        "import numpy as np\n\ndef inside(x):\n    return np.expm1(x)\n\ndef leaks(x):\n    return np.where(x > 0, np.log(x), 0)\n"
    )
    for name, rules in (("inside", []), ("leaks", ["where-nan-gradient"])):
        ok("export", f"w.py:{name}", "--arg", "x=f32[N]", "-o", "w.onnx")
        assert [f["rule"] for f in ok("check", "w.onnx", "--no-verify")["lints"]] == rules


# ---- diff


def test_equal_files(predict: str, foreign: str) -> None:
    data = ok("diff", predict, foreign, "--strict")
    assert (data["signature"], data["nodes"], data["weights"]) == ([], [], [])
    assert data["outputs"] == [{"name": "out", "agrees": True, "error": 0.0, "tolerance": data["outputs"][0]["tolerance"], "problem": ""}]
    assert command("diff", predict, predict).stdout.splitlines()[:3] == ["signature: equal", "nodes: equal", "weights: equal"]


def test_other_weights(predict: str) -> None:
    np.savez("other.npz", **{**weights(), "w2": weights()["w2"] * np.float32(1.5)})
    ok("export", "train.py:predict", "--arg", "x=f32[B,16]", "--params", "other.npz", "-o", "other.onnx")
    data = failed(1, "diff", predict, "other.onnx")
    assert data["nodes"] == [] and len(data["weights"]) == 1 and "32 of 32 elements differ" in data["weights"][0]
    assert "elements differ, the worst at" in data["outputs"][0]["problem"]
    assert ok("diff", predict, "other.onnx", "--rtol", "10")["outputs"][0]["agrees"] is True
    assert command("diff", predict, "other.onnx", "--rtol", "10", "--strict").exit_code == 1


def test_other_nodes_and_signatures(predict: str, foreign: str) -> None:
    model = onnx.load(foreign)
    model.graph.node[0].name = "renamed"
    onnx.save(model, "renamed.onnx")
    data = ok("diff", foreign, "renamed.onnx")
    assert [line[0] for line in data["nodes"]] == ["-", "+"] and data["outputs"][0]["agrees"]
    ok("export", "train.py:cubes", "--arg", "x=f64[N]", "-o", "c.onnx")
    data = failed(1, "diff", predict, "c.onnx")
    assert "~ input x: f32[B,16] against f64[N]" in data["signature"] and data["outputs_compared"] is False


# ---- inspect


def test_inspect_of_our_file(predict: str) -> None:
    data = ok("inspect", predict, "--dim", "B=10")
    assert data["inputs"] == {"x": "f32[B,16]"} and data["outputs"] == {"out": "f32[B,4]"}
    assert data["operators"] == {"MatMul": 2, "Add": 1, "Max": 1} and data["nodes"] == 4
    assert data["parameters"] == 16 * 8 + 8 + 8 * 4 + 1
    assert data["parameter_bytes"] == 4 * data["parameters"]
    assert data["flops"] == 2 * 10 * 16 * 8 + 10 * 8 + 10 * 8 + 2 * 10 * 8 * 4
    # x and two values of [10, 8] at once, beside the parameters
    assert data["peak_bytes"] == data["parameter_bytes"] + 4 * (10 * 16 + 2 * 10 * 8)
    first = USER_CODE.splitlines().index('    h = np.maximum(x @ params["w1"] + params["b1"], 0)') + 1
    assert data["source_lines"][0] == {"line": f"train.py:{first}", "nodes": 3, "flops": 2 * 10 * 16 * 8 + 160}
    assert data["onstage"]["arguments"] == {"x": "f32[B,16]"} and data["onstage"]["verified"] is True
    text = command("inspect", predict).stdout
    for part in ("operator  nodes", "parameters: 169", "source line", "verified: True", "at B=1"):
        assert part in text


def test_inspect_of_a_foreign_file_and_of_loops(foreign: str, folder: Path) -> None:
    data = ok("inspect", foreign)
    assert "onstage" not in data and data["producer"] == "another"
    (folder / "loop.py").write_text("import onstage as ons\n\ndef f(x):\n    return ons.fori_loop(0, 5, lambda i, c: c * 2, x)\n")
    ok("export", "loop.py:f", "--arg", "x=f32[3]", "-o", "loop.onnx")
    data = ok("inspect", "loop.onnx")
    assert data["bodies_not_counted"] == 1 and "Mul" in data["operators"]


# ---- run


def test_run_from_file_to_file(predict: str) -> None:
    x = np.random.default_rng(3).normal(size=(5, 16)).astype("f4")
    np.savez("in.npz", x=x)
    data = ok("run", predict, "--inputs", "in.npz", "--outputs", "out.npz")
    assert data["outputs"]["out"]["spec"] == "f32[5,4]" and data["written"] == "out.npz"
    with np.load("out.npz") as written:
        np.testing.assert_allclose(written["out"], reference(x), rtol=1e-5, atol=1e-5)
    assert "written to out.npz" in command("run", predict, "-i", "in.npz", "-o", "out.npz").stdout


def test_run_with_bfloat16_and_odd_names(folder: Path) -> None:
    (folder / "half.py").write_text("def f(file):\n    return file + file\n")
    ok("export", "half.py:f", "--arg", "file=bf16[N]", "-o", "h.onnx")
    values = np.array([1, 2.5], ml_dtypes.bfloat16)
    write_arrays("in.npz", {"file": values})
    ok("run", "h.onnx", "-i", "in.npz", "-o", "out.npz")
    with np.load("out.npz") as written:
        assert written["out"].view(ml_dtypes.bfloat16).astype("f4").tolist() == [2, 5]


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.ones((2, 16))}, "x is f64[2,16], the model takes f32[B,16]"),
        ({"x": np.ones((2, 15), "f4")}, "x is f32[2,15], the model takes f32[B,16]"),
        ({"x": np.ones(16, "f4")}, "x is f32[16], the model takes f32[B,16]"),
        ({}, "lacks x"),
        ({"x": np.ones((2, 16), "f4"), "z": np.ones(1)}, "has z, which is no input"),
    ],
)
def test_inputs_that_do_not_fit(predict: str, arrays: dict[str, Any], text: str) -> None:
    np.savez("in.npz", **arrays)
    assert text in failed(2, "run", predict, "--inputs", "in.npz")["error"]["message"]


def test_dims_of_made_up_inputs(predict: str) -> None:
    assert ok("run", predict)["inputs"] == {"x": "f32[1,16]"}
    assert ok("run", predict, "--dim", "B=0")["outputs"]["out"]["spec"] == "f32[0,4]"
    assert "has B" in failed(2, "run", predict, "--dim", "C=2")["error"]["message"]
    assert "NAME=SIZE" in failed(2, "run", predict, "--dim", "B")["error"]["message"]
    np.savez("in.npz", x=np.ones((2, 16), "f4"))
    assert "not with --inputs" in failed(2, "run", predict, "--dim", "B=2", "--inputs", "in.npz")["error"]["message"]


def test_outputs_that_cannot_be_written(predict: str) -> None:
    error = failed(2, "run", predict, "--outputs", "missing/out.npz")["error"]
    assert error["message"].startswith("missing: ")


def test_weights_outside_of_the_models_folder_are_refused(predict: str, folder: Path) -> None:
    model = onnx.load(predict)
    del model.metadata_props[:]
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (folder / "evil.onnx").write_bytes(model.SerializeToString())
    assert failed(1, "diff", "evil.onnx", predict)["error"]["type"] == "ArtifactError"
    assert "cannot load the model" in failed(1, "run", "evil.onnx")["error"]["message"]


def test_a_run_that_fails(folder: Path) -> None:
    model = make([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (F32, ["n"]), "s": (I64, [1])}, {"y": (F32, ["m"])})
    onnx.save(model, "r.onnx")
    np.savez("in.npz", x=np.ones(3, "f4"), s=np.array([2]))
    error = failed(1, "run", "r.onnx", "--inputs", "in.npz")["error"]
    assert "ONNX Runtime failed" in error["message"] and "file" not in error


def test_values_that_are_no_arrays_of_numbers(folder: Path) -> None:
    onnx.save(
        make([helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [1])}, {"y": (TensorProto.STRING, [1])}), "s.onnx"
    )
    assert "x is a tensor of STRING" in failed(3, "run", "s.onnx")["error"]["message"]
    assert ok("inspect", "s.onnx")["inputs"] == {"x": "tensor of STRING"}


# ---- bench


def test_bench(predict: str) -> None:
    data = ok("bench", predict, "--dim", "B=4", "--runs", "7", "--threads", "1", "--provider", "cpu")
    assert data["runs"] == 7 and data["providers"] == ["CPUExecutionProvider"] and data["threads"] == 1
    latency = data["latency_ms"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert data["rows_per_second"] == pytest.approx(4 * data["runs_per_second"])
    assert sum(row["nodes"] for row in data["operators"]) >= 2
    text = command("bench", predict, "--runs", "2").stdout
    assert "latency  p50 " in text and "throughput  " in text and "operator" in text
    assert ok("bench", predict, "--runs", "2", "--top", "0")["operators"] == []


# ---- the command itself


@pytest.mark.parametrize("verb", ["export", "check", "diff", "inspect", "bench", "run", "demo", "doctor"])
def test_help_has_examples_and_exit_codes(verb: str) -> None:
    text = command(verb, "--help").stdout
    assert f"  onstage {verb}" in text.split("Usage:", 1)[1].split("\n", 1)[1]
    for part in ("--json", "--quiet", "Exit codes: 0 ok"):
        assert part in text


def test_doctor_json() -> None:
    data = ok("doctor")
    assert data["packages"]["onnx"] == onnx.__version__ and data["missing"] == [] and data["threads"] >= 1
    assert set(data["cuda"]) == {"works", "problem"}


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom onstage.export.cli import main\n"
        "try:\n    main(['export', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'onnx', 'onnxruntime', 'onnxscript', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")
def test_progress_on_a_terminal(folder: Path) -> None:
    pty = pytest.importorskip("pty")
    outer, inner = pty.openpty()
    console = str(Path(sys.executable).with_name("onstage"))
    words = [console, "export", "train.py:cubes", "--arg", "x=f32[3]", "-o", "c.onnx"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=inner, text=True, check=False)
    os.close(inner)
    progress = os.read(outer, 65536).decode()
    os.close(outer)
    assert done.returncode == 0
    for phase in ("importing train.py:cubes ...", "staging ...", "lowering ...", "verifying ...", "writing ..."):
        assert phase in progress
    assert done.stdout.startswith("c.onnx  sha256 ")


def test_table() -> None:
    assert table(("a", "n"), [("xyz", 1), ("b", 20)]) == "a     n\nxyz   1\nb    20"
