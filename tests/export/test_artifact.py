"""Files: what `save` writes, under which names, with which bytes, and what is left when it fails."""

import base64
import bz2
import collections
import dataclasses
import errno
import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onstage as ons
from onstage.export import artifact, save, writing
from onstage.export.lower import lower
from onstage.stage.names import file_names, input_roots
from onstage.stage.tree import structure

RNG = np.random.default_rng(5)
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Layer:
    w: object
    b: object


def dense_step(params, x, y):
    def loss(params):
        h = np.maximum(x @ params["w1"] + params["b1"], 0)
        return ((h @ params["w2"] - y) ** 2).mean()

    value, grads = ons.value_and_grad(loss)(params)
    return {k: params[k] - 0.1 * grads[k] for k in params}, value


def dense_arguments():
    params = {
        "w1": RNG.normal(size=(6, 50)).astype(np.float32),
        "b1": np.zeros(50, np.float32),
        "w2": RNG.normal(size=(50, 2)).astype(np.float32),
    }
    return params, RNG.normal(size=(5, 6)).astype(np.float32), RNG.normal(size=(5, 2)).astype(np.float32)


def dense_program():
    return ons.stage(dense_step, *dense_arguments())


def frozen_program():
    params, x, _ = dense_arguments()
    program = ons.stage(
        lambda params, x: np.maximum(x @ params["w1"] + params["b1"], 0) @ params["w2"],
        params,
        x,
        name="predict",
    )
    return program.freeze({"params": params})


def named_dim_program():
    spec = ons.ArraySpec(("B", 3), "float32")
    return ons.stage(lambda x, y: {"sum": (x + y).sum(0), "rows": x.reshape(x.shape[0], -1) * 2}, specs=(spec, spec))


def names_in(path):
    graph = onnx.load(path).graph
    return [v.name for v in graph.input], [v.name for v in graph.output]


def metadata(path):
    return {p.key: p.value for p in onnx.load(path, load_external_data=False).metadata_props}


# ---- names


def test_pytree_paths_name_inputs_and_outputs(tmp_path):
    leaf = np.ones(2, np.float32)
    program = ons.stage(
        lambda params, xs, cfg: {
            "loss": (params["layer"]["w"] * xs[0]).sum(),
            "new": [xs[1] + cfg.w, Pair(cfg.b, 1.0)],
        },
        {"layer": {"w": leaf, "b": leaf}},
        [leaf, leaf],
        Layer(leaf, leaf),
    )
    program.save(tmp_path / "a.onnx")
    inputs, outputs = names_in(tmp_path / "a.onnx")
    assert inputs == ["params.layer.b", "params.layer.w", "xs.0", "xs.1", "cfg.w", "cfg.b"]
    assert outputs == ["out.loss", "out.new.0", "out.new.1.left", "out.new.1.right"]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "inputs", "outputs"),
    [
        (lambda *args: args[0] + args[1], 2, {}, ["args.0", "args.1"], ["out"]),
        (lambda x, *, k: x + k, 1, {"k": 1}, ["x", "k"], ["out"]),
        (lambda **kw: kw["a.b"] * 2, 0, {"a.b": 1}, [r"kw.a\.b"], ["out"]),
        (lambda out: (out, out * 2), 1, {}, ["out_"], ["out.0", "out.1"]),
        (lambda out, out_: out - out_, 2, {}, ["out__", "out_"], ["out"]),
        (lambda v, v1: v + v1, 2, {}, ["v", "v1"], ["out"]),
    ],
)
def test_arguments_name_inputs(tmp_path, function, args, kwargs, inputs, outputs):
    x = np.ones(3, np.float32)
    program = ons.stage(function, specs=(x,) * args, kw_specs=dict.fromkeys(kwargs, x))
    program.save(tmp_path / "a.onnx")
    assert names_in(tmp_path / "a.onnx") == (inputs, outputs)


def test_keys_that_need_escapes_or_read_alike_stay_apart(tmp_path):
    x = np.ones(3, np.float32)
    keys = ["a.b", "a\\", "a", "", 1, "1", 1.5, None, "None", (1, 2), "1~2"]
    tree = {k: x * (i + 1) for i, k in enumerate(keys)} | {"a": {"b": x * 100}}
    program = ons.stage(lambda p: p, tree)
    program.save(tmp_path / "a.onnx")
    inputs, outputs = names_in(tmp_path / "a.onnx")
    assert len(set(inputs)) == len(inputs) == len(keys)
    expected = {
        "p.a\\.b",
        "p.a\\\\",
        "p.a.b",
        "p.",
        "p.1",
        "p.1~3",
        "p.1~2",
        "p.1\\.5",
        "p.None",
        "p.None~2",
        "p.(1, 2)",
    }
    assert set(inputs) == expected
    assert [n.replace("p.", "out.", 1) for n in inputs] == outputs
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    paths = structure(tree).paths()
    feed = {name: np.full(3, i, np.float32) for i, name in enumerate(inputs)}
    for i, (value, _) in enumerate(zip(session.run(outputs, feed), paths, strict=True)):
        np.testing.assert_array_equal(value, np.full(3, i, np.float32))


def test_names_do_not_depend_on_the_order_of_insertion():
    x = np.ones(3, np.float32)
    one = ons.stage(lambda p: p, {1: x, "1": x, "b": x, "a": x})
    other = ons.stage(lambda p: p, {"a": x, "1": x, 1: x, "b": x})
    assert one.in_names == other.in_names == ("p.1", "p.1~2", "p.a", "p.b")


def test_names_by_themselves():
    assert input_roots(("x", "out")) == ("x", "out_")
    assert input_roots(("out", "out_", "out__")) == ("out___", "out_", "out__")
    assert file_names([("out", ())]) == ("out",)
    (path,) = structure({"": 0}).paths()
    assert file_names([("out", path)]) == ("out.",)


def test_every_pass_keeps_the_names():
    # What folds away, is dead or is computed twice is still listed under its own name.
    def f(used, unused, same):
        return {
            "folded": np.float32(2) * 3 + 0 * np.float32(1),
            "same": same,
            "twice": (used * 1 + 0, used * 1 + 0),
        }

    x = np.ones(3, np.float32)
    model = ons.stage(f, x, x, x).to_onnx()
    assert [v.name for v in model.graph.input] == ["used", "unused", "same"]
    assert [v.name for v in model.graph.output] == ["out.folded", "out.same", "out.twice.0", "out.twice.1"]
    onnx.checker.check_model(model, full_check=True)


# ---- bytes


PROGRAMS = {"step": dense_program, "frozen": frozen_program, "dims": named_dim_program}


@pytest.mark.parametrize("name", PROGRAMS)
def test_file_passes_the_full_checker(tmp_path, name):
    path = tmp_path / "a.onnx"
    PROGRAMS[name]().save(path)
    onnx.checker.check_model(str(path), full_check=True)
    assert onnx.load(path).ir_version == 10


_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib, numpy as np, onstage as ons
def step(params, x):
    loss = lambda p: (np.maximum(x @ p["w"] + p["b"], 0) ** 2).sum()
    value, grads = ons.value_and_grad(loss)(params)
    return {k: params[k] - 0.1 * grads[k] for k in params}, value
params = {"b": np.zeros(60, np.float32), "w": np.arange(360, dtype=np.float32).reshape(6, 60)}
folder = pathlib.Path(sys.argv[2])
program = ons.stage(step, params, np.ones((2, 6), np.float32))
program.save(folder / "step.onnx", verify=False)
predict = ons.stage(lambda params, x: x @ params["w"], specs=(params, ons.ArraySpec(("B", 6), "f4")), name="predict")
frozen = predict.freeze({"params": params})
frozen.save(folder / "frozen.onnx")
frozen.save(folder / "beside.onnx", external="always")
"""


def test_equal_programs_give_equal_bytes_in_other_processes_and_folders(tmp_path):
    script_text = _WRITER
    root = str(Path(ons.__file__).parent.parent)
    written = []
    for seed in ("1", "2"):
        folder = tmp_path / f"place{seed}"
        folder.mkdir()
        script = folder / "writer.py"
        script.write_text(script_text)
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, str(script), root, str(folder)], check=True, env=env, cwd=folder)
        written.append({p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".onnx", ".data")})
    assert sorted(written[0]) == ["beside.onnx", "beside.onnx.data", "frozen.onnx", "step.onnx"]
    assert written[0] == written[1]
    for content in written[0].values():
        assert str(tmp_path).encode() not in content and root.encode() not in content


def test_file_holds_neither_folders_nor_times(tmp_path):
    path = tmp_path / "a.onnx"
    dense_program().save(path)
    packed = bz2.decompress(base64.b64decode(metadata(path)["onstage.program"]))
    assert b"test_artifact.py" in packed
    for text in (path.read_bytes(), packed):
        assert str(Path(__file__).parent).encode() not in text
    before = path.read_bytes()
    os.utime(path, (0, 0))
    dense_program().save(path)
    assert path.read_bytes() == before


def test_metadata_says_what_the_file_is(tmp_path):
    path = tmp_path / "a.onnx"
    program = dense_program()
    program.save(path)
    found = metadata(path)
    keys = ["digests", "format", "hash", "program", "signature", "verification", "version"]
    assert list(found) == [f"onstage.{k}" for k in keys]
    assert found["onstage.format"] == "1" and found["onstage.hash"] == program.hash
    signature = json.loads(found["onstage.signature"])
    assert signature["inputs"][1] == ["params.w1", "float32", [6, 50], False]
    assert [row[0] for row in signature["outputs"]] == ["out.0.b1", "out.0.w1", "out.0.w2", "out.1"]
    verification = json.loads(found["onstage.verification"])
    assert verification["verified"] is True and verification["seed"] == 0 and verification["rtol"] is None
    # It reaches whoever runs the file.
    session = onnxruntime.InferenceSession(path)
    assert session.get_modelmeta().custom_metadata_map["onstage.hash"] == program.hash


def test_large_constants_are_in_the_file_once(tmp_path):
    noise = RNG.normal(size=(64, 64)).astype(np.float32)
    program = ons.stage(lambda x: x @ noise + np.tanh(x @ noise), np.ones((2, 64), np.float32))
    program.save(tmp_path / "a.onnx")
    size = (tmp_path / "a.onnx").stat().st_size
    assert noise.nbytes < size < noise.nbytes * 1.3


def folding_program(table):
    """A program whose one large constant is folded into another by the passes, so that the graph does not have it."""
    program = ons.stage(lambda table, x: x * (table + 1)[:3], table, np.ones(3, np.int64))
    return program.freeze({"table": table})


@pytest.mark.parametrize("external", ["never", "always"])
def test_constants_that_passes_fold_away_are_kept(tmp_path, external):
    table = np.arange(4096, dtype=np.int64)
    program = folding_program(table)
    program.save(tmp_path / "a.onnx", external=external)
    tensors = onnx.load(tmp_path / "a.onnx", load_external_data=False).graph.initializer
    assert all(len(t.raw_data) < table.nbytes or t.raw_data != table.tobytes() for t in tensors)
    packed = json.loads(bz2.decompress(base64.b64decode(metadata(tmp_path / "a.onnx")["onstage.program"])))
    (place,) = packed["constants"].values()
    assert place[0] == ("data" if external == "always" else "inline")
    loaded = ons.load(tmp_path / "a.onnx")
    assert loaded.hash == program.hash
    np.testing.assert_array_equal(loaded(np.arange(3)), [0, 2, 6])


# ---- external data


@pytest.mark.parametrize("external", ["never", "auto", "always"])
def test_external_data(tmp_path, external, monkeypatch):
    path = tmp_path / "folder" / "a.onnx"
    path.parent.mkdir()
    program = frozen_program()
    program.save(path, external=external)
    beside = external == "always"
    assert (tmp_path / "folder" / "a.onnx.data").exists() == beside
    x = RNG.normal(size=(5, 6)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    session = onnxruntime.InferenceSession("folder/a.onnx")
    (got,) = session.run(None, {"x": x})
    np.testing.assert_allclose(got, program(x), rtol=1e-6)
    onnx.checker.check_model("folder/a.onnx", full_check=True)
    loaded = ons.load("folder/a.onnx")
    assert loaded.hash == program.hash
    np.testing.assert_array_equal(loaded(x), program(x))
    report = json.loads((tmp_path / "folder" / "a.onnx.report.json").read_text())
    assert report["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert ("data" in report) == beside
    if beside:
        data = (tmp_path / "folder" / "a.onnx.data").read_bytes()
        assert report["data"] == {"file": "a.onnx.data", "sha256": hashlib.sha256(data).hexdigest()}
        # small constants (the bias, 200 bytes) stay where shape inference reads them
        tensors = onnx.load(path, load_external_data=False).graph.initializer
        outside = [t.name for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL]
        assert len(outside) == 1 and len(data) == 6 * 50 * 4


def test_auto_goes_beside_the_model_above_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact, "_AUTO_ABOVE", 1000)
    program = frozen_program()
    program.save(tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx.data").exists()
    assert ons.load(tmp_path / "a.onnx").hash == program.hash


def test_what_protobuf_cannot_hold_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact, "_PROTOBUF_LIMIT", 1000)
    with pytest.raises(
        ons.UnsupportedError,
        match=r"constants take 1,\d+ bytes and a file holds at most 1,000; save with external=\"auto\"",
    ):
        frozen_program().save(tmp_path / "a.onnx", external="never")
    assert list(tmp_path.iterdir()) == []


def test_large_tensors_begin_at_pages(tmp_path):
    big = RNG.normal(size=(600, 512)).astype(np.float32)
    wide = RNG.normal(size=(512, 600)).astype(np.float32)
    program = ons.stage(lambda x: x @ big @ wide, np.ones((1, 600), np.float32))
    program.save(tmp_path / "a.onnx", external="always", verify=False)
    offsets = []
    for tensor in onnx.load(tmp_path / "a.onnx", load_external_data=False).graph.initializer:
        offsets += [int(e.value) for e in tensor.external_data if e.key == "offset"]
    assert len(offsets) == 2 and all(o % 65536 == 0 for o in offsets)


# ---- the report and verification


def test_report_file(tmp_path):
    path = tmp_path / "a.onnx"
    program = dense_program()
    report = program.save(path)
    assert report.verified == program.out_names
    written = json.loads((tmp_path / "a.onnx.report.json").read_text())
    assert written["format"] == 1 and written["file"] == "a.onnx" and written["hash"] == program.hash
    assert written["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [o["name"] for o in written["verification"]["outputs"]] == list(program.out_names)
    assert all(o["verified"] for o in written["verification"]["outputs"])
    assert set(written["versions"]) == {"onstage", "python", "numpy", "onnx", "onnxruntime"}
    assert set(written["machine"]) == {"system", "machine", "cpus"}


def test_unverified_file_says_so(tmp_path):
    path = tmp_path / "a.onnx"
    report = dense_program().save(path, verify=False)
    assert report.verified == () and set(report.not_verified.values()) == {"saved with verify=False"}
    assert json.loads(metadata(path)["onstage.verification"]) == {"verified": False}
    written = json.loads((tmp_path / "a.onnx.report.json").read_text())
    assert not any(o["verified"] for o in written["verification"]["outputs"])
    with pytest.warns(UserWarning, match=r"a\.onnx was saved with verify=False"):
        ons.load(path)


def test_the_file_that_is_written_is_the_one_that_was_verified(tmp_path, monkeypatch):
    verified = []

    def recording(staged, lowered, model, **options):
        verified.append(model)
        return original(staged, lowered, model, **options)

    original = save.verify_staged
    monkeypatch.setattr(save, "verify_staged", recording)
    dense_program().save(tmp_path / "a.onnx")
    assert verified == [(tmp_path / "a.onnx").read_bytes()]


def test_a_wrong_model_leaves_no_file(tmp_path, monkeypatch):
    original = artifact.lower_program

    def swapped(*args, **kwargs):
        lowered = original(*args, **kwargs)
        node = next(n for n in lowered.model.graph.node if n.op_type == "Sub")
        node.input[0], node.input[1] = node.input[1], node.input[0]
        return lowered

    monkeypatch.setattr(artifact, "lower_program", swapped)
    program = ons.stage(lambda x, y: x - y, np.ones(3, np.float32), np.ones(3, np.float32))
    with pytest.raises(ons.VerificationError, match="subtract"):
        program.save(tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_samples(tmp_path):
    program = ons.stage(lambda x, *, k: x * k, specs=(ons.ArraySpec((3,), "f4"),), kw_specs={"k": ons.ArraySpec((3,), "f4")})
    one = {"x": np.arange(3, dtype=np.float32), "k": np.ones(3, np.float32)}
    two = {"x": np.arange(3, dtype=np.float32) + 1, "k": np.full(3, 2, np.float32)}
    report = program.save(tmp_path / "a.onnx", samples=[one, two])
    assert report.verified == ("out",)
    assert json.loads(metadata(tmp_path / "a.onnx")["onstage.verification"])["samples"] == "given"
    with pytest.raises(TypeError, match="samples is a list with one tuple of arguments"):
        program.save(tmp_path / "b.onnx", samples=[np.ones(3)])
    with pytest.raises(ons.SignatureValueError, match="x has dtype float64, staged for float32"):
        program.save(tmp_path / "b.onnx", samples=[one | {"x": np.ones(3)}])
    assert not (tmp_path / "b.onnx").exists()


@pytest.mark.parametrize(("option", "value"), [("external", "sometimes"), ("rtol", -1.0), ("atol", float("nan"))])
def test_options_are_checked(tmp_path, option, value):
    with pytest.raises(ValueError, match=f"save: {option} is"):
        dense_program().save(tmp_path / "a.onnx", **{option: value})
    assert list(tmp_path.iterdir()) == []


# ---- writing


class Interrupts:
    """Raises an exception at the n-th call of some functions of `os`."""

    def __init__(self, monkeypatch, error, at):
        self.error, self.at = error, at
        self.functions = []
        for name in ("open", "fsync", "replace"):
            monkeypatch.setattr(writing.os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name, function):
        def call(*args, **kwargs):
            self.functions.append(name)
            if len(self.functions) == self.at:
                raise self.error
            return function(*args, **kwargs)

        return call


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("existing", [False, True])
def test_interrupted_at_any_step_it_leaves_all_as_it_was(tmp_path, monkeypatch, error, existing):
    path = tmp_path / "a.onnx"
    if existing:
        ons.stage(lambda x: x + 1, np.ones(3, np.float32)).save(path, verify=False)
        (tmp_path / "a.onnx.data").write_bytes(b"older data")
    before = contents(tmp_path)
    program = frozen_program()
    for steps in itertools.count(1):
        with monkeypatch.context() as patch:
            watch = Interrupts(patch, error, steps)
            with pytest.raises(type(error)):
                program.save(path, verify=False, external="always")
        if contents(tmp_path) != before:
            # All is there already, and only the folder was to be synced.
            assert watch.functions == ["open", "fsync"] * 3 + ["replace"] * (5 if existing else 3) + ["open"]
            break
    assert sorted(contents(tmp_path)) == ["a.onnx", "a.onnx.data", "a.onnx.report.json"]
    with pytest.warns(UserWarning):
        assert ons.load(path).hash == program.hash


def test_interrupt_during_verification_leaves_nothing(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(save, "verify_staged", stop)
    with pytest.raises(KeyboardInterrupt):
        dense_program().save(tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_users_permissions(tmp_path):
    ons.stage(lambda x: x + 1, np.ones(3, np.float32)).save(tmp_path / "a.onnx")
    (tmp_path / "plain").write_text("")
    for name in ("a.onnx", "a.onnx.report.json"):
        assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_threads_may_save_to_one_path(tmp_path):
    path = tmp_path / "a.onnx"
    programs = [ons.stage(lambda x, k=k: x * np.float32(k), np.ones(3, np.float32)) for k in range(4)]
    errors = []

    def work(program):
        try:
            program.save(path, verify=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(p,)) for p in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(contents(tmp_path)) == ["a.onnx", "a.onnx.report.json"]
    with pytest.warns(UserWarning):
        assert ons.load(path).hash in {p.hash for p in programs}


# ---- cost


def calls_of(function):
    """How many Python calls a function makes: a measure of work that no other load on the machine changes."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("what", ["lower", "build"])
def test_four_times_the_equations_cost_about_four_times(what):
    def chain(n):
        def f(x, y):
            for i in range(n):
                x = np.sin(x * y) + np.float32(i)
            return x

        return ons.stage(f, np.ones(3, np.float32), np.ones(3, np.float32))

    def cost(n):
        program = chain(n)
        if what == "lower":
            return calls_of(lambda: lower(program.program, program.in_names, program.out_names))
        return calls_of(lambda: artifact.build(program, "a.onnx", {"verified": False}))

    cost(10)  # tables are filled
    small, large = cost(150), cost(600)
    assert 3.0 < large / small < 4.6


# ---- a process without onstage

_RUNNER = """
import pathlib, sys
import numpy as np, onnxruntime
ran = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    cases = np.load(path.with_suffix(".npz"))
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(path, options)
        assert [i.name for i in session.get_inputs()] == [n[3:] for n in cases.files if n.startswith("in:")], path
        names = [n[4:] for n in cases.files if n.startswith("out:")]
        got = session.run(names, {n[3:]: cases[n] for n in cases.files if n.startswith("in:")})
        for name, value in zip(names, got):
            want = cases["out:" + name]
            assert value.dtype == want.dtype and value.shape == want.shape, (path, name)
            np.testing.assert_allclose(value, want, rtol=2e-6, atol=1e-6, err_msg=f"{path} {name} {level}")
        ran += 1
assert not any(n.split(".")[0] in ("onstage", "onnx") for n in sys.modules)
print(ran)
"""


def test_files_run_in_a_process_without_onstage(tmp_path):
    def f32(*shape):
        return RNG.normal(size=shape).astype(np.float32)

    runs = {
        "step": (dense_program(), dense_arguments()),
        "frozen": (frozen_program(), (f32(5, 6),)),
        "rows_4": (named_dim_program(), (f32(4, 3), f32(4, 3))),
        "rows_1": (named_dim_program(), (f32(1, 3), f32(1, 3))),
        "rows_0": (named_dim_program(), (f32(0, 3), f32(0, 3))),
        "passed_through": (ons.stage(lambda x: (x, x, x.T, 3.5), f32(2, 3)), (f32(2, 3),)),
        "integers": (
            ons.stage(lambda x: (x * 2, x // 3, x % 3), np.array([7, -7, 2**40])),
            (np.array([7, -7, 2**40]),),
        ),
        "weak": (ons.stage(lambda x, k: x * k, f32(3), 2.0), (f32(3), 0.5)),
        "scalar": (ons.stage(lambda x: (x + 1, x.reshape(1, 1)), np.float32(2)), (np.float32(2),)),
        "unused": (ons.stage(lambda x, unused: x + 1, f32(2), f32(3)), (f32(2), f32(3))),
    }
    for name, (program, args) in runs.items():
        program.save(tmp_path / f"{name}.onnx")
        leaves = program.signature.arrays(program.signature.flatten(args, {}))
        arrays = {f"in:{n}": a for n, a in zip(program.in_names, leaves, strict=True)}
        outputs = ons.tree.leaves(program(*args))
        arrays |= {f"out:{n}": a for n, a in zip(program.out_names, outputs, strict=True)}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    result = subprocess.run([sys.executable, "-c", _RUNNER, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(4 * len(runs))]
