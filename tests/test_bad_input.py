"""Bad input: every kind gives an error of the right class that names the argument path or the user's line, and leaves nothing behind."""

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onstage as ons
from onstage.export import writing
from onstage.stage.trace import is_tracing

X = np.arange(3, dtype=np.float32)
PARAMS = {"w": X, "b": X}


def scaled(params: Any, x: Any) -> Any:
    return (params["w"] * x).sum()


@pytest.fixture(scope="module")
def program() -> ons.StagedProgram:
    return ons.stage(scaled, PARAMS, X)


@pytest.fixture(autouse=True)
def nothing_half_done(tmp_path: Path) -> Iterator[None]:
    """After each test: no trace is live, NumPy is as it was, a program can be staged and run, and no temporary file is about."""
    drawers = (np.random.rand, np.random.default_rng)
    yield
    assert not is_tracing()
    assert (np.random.rand, np.random.default_rng) == drawers
    np.testing.assert_array_equal(ons.stage(lambda x: x + 1, X)(X), X + 1)
    assert [p for p in tmp_path.rglob("*") if p.name.endswith(".tmp")] == []


def refused(call: Callable[[], object], error: type[Exception], builtin: type[Exception], message: str) -> None:
    """The call raises exactly `error`, which is a `builtin` too, with a message that holds `message` and names this file's line."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error and issubclass(error, builtin) and issubclass(error, ons.OnstageError)
    assert message in str(caught.value)
    assert re.search(r"\n  at test_bad_input\.py:\d+: \S", str(caught.value))


# ---- calls


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "builtin", "message"),
    [
        (({"w": np.ones(4, np.float32), "b": X}, X), {}, ons.SignatureValueError, ValueError, "scaled: params['w'] has shape (4,), staged for f32[3]"),
        (({"w": np.ones((1, 3), np.float32), "b": X}, X), {}, ons.SignatureValueError, ValueError, "params['w'] has shape (1, 3), staged for f32[3]"),
        ((PARAMS, np.ones(3)), {}, ons.SignatureValueError, ValueError, "scaled: x has dtype float64, staged for float32"),
        ((PARAMS, 1.0), {}, ons.SignatureValueError, ValueError, "scaled: x is a number, staged for f32[3]"),
        ((PARAMS, np.arange(3)), {}, ons.SignatureValueError, ValueError, "x has dtype int64, staged for float32"),
        (([X, X], X), {}, ons.SignatureTypeError, TypeError, "scaled: params: expected dict of 2, got list of 2"),
        (({"w": X}, X), {}, ons.SignatureTypeError, TypeError, "scaled: params['b'] is missing"),
        (({"w": X, "b": X, "c": X}, X), {}, ons.SignatureTypeError, TypeError, "scaled: params['c'] was not expected"),
        (({"w": [1.0, 2.0, 3.0], "b": X}, X), {}, ons.SignatureTypeError, TypeError, "params['w']: expected a leaf, got list of 3"),
        (({"w": None, "b": X}, X), {}, ons.SignatureTypeError, TypeError, "params['w']: expected a leaf, got None"),
        (({"w": "text", "b": X}, X), {}, ons.SignatureTypeError, TypeError, "scaled: params['w'] is str, not an array"),
        (({"w": np.array([object()]), "b": X}, X), {}, ons.SignatureTypeError, TypeError, "params['w']: objects (object) cannot be staged"),
        (({"w": np.array(["a"]), "b": X}, X), {}, ons.SignatureTypeError, TypeError, "params['w']: strings (str32) cannot be staged"),
        (({"w": np.ones(3, complex), "b": X}, X), {}, ons.SignatureTypeError, TypeError, "params['w']: complex numbers (complex128) are not supported yet"),
        ((PARAMS,), {}, ons.SignatureTypeError, TypeError, "scaled: missing a required argument: 'x'; it was staged for (params, x)"),
        ((PARAMS, X, X), {}, ons.SignatureTypeError, TypeError, "scaled: too many positional arguments; it was staged for (params, x)"),
        ((PARAMS,), {"x": X, "z": X}, ons.SignatureTypeError, TypeError, "got an unexpected keyword argument 'z'"),
        ((PARAMS, X), {"x": X}, ons.SignatureTypeError, TypeError, "multiple values for argument 'x'"),
    ],
)  # fmt: skip
def test_calls(program, args, kwargs, error, builtin, message):
    refused(lambda: program(*args, **kwargs), error, builtin, message)
    np.testing.assert_array_equal(program(PARAMS, X), 5.0)


def test_calls_with_numbers():
    counted = ons.stage(lambda n: n * 2, 3)
    refused(lambda: counted(1.5), ons.SignatureValueError, ValueError, "n is float 1.5, staged for i64")
    with pytest.raises(OverflowError, match="n: Python integer 1180591620717411303424 out of bounds for int64"):
        counted(2**70)


def test_static_arguments():
    powered = ons.stage(lambda x, n: x**n, X, ons.StaticSpec(2))
    refused(lambda: powered(X, 3), ons.SignatureValueError, ValueError, "static argument n was staged as 2, got 3")
    refused(
        lambda: powered(X, True),
        ons.SignatureValueError,
        ValueError,
        "static argument n was staged as 2, got True",
    )


# ---- control flow that hangs on data


def branch(x):
    return x if x.sum() > 0 else -x


def loop(x):
    while x[0] < 10:
        x = x * 2
    return x


def counted_loop(x):
    for _ in range(x.astype(int)[0]):
        x = x * 2
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (branch, "a Python condition (bool()) needs the value of a traced array (bool[])"),
        (loop, "use ons.cond, ons.while_loop or np.where"),
        (counted_loop, "range(), or a size needs the value of a traced array (i64[])"),
        (lambda x: float(x[0]), "float() needs the value"),
        (lambda x: int(x[0]), "int() needs the value"),
        (lambda x: x[0].item(), ".item() needs the value"),
        (lambda x: x.tolist(), ".tolist() needs the value"),
        (lambda x: np.asarray(x), "ons.at(buffer)[i].set(tracer)"),
        (lambda x: np.arange(3)[x.astype(int)[0]], "use ons.asarray(table)[i]"),
        (lambda x: np.array([x[0], x[1]]), "ons.numpy.stack"),
        (lambda x: x[x > 0], "a boolean mask of shape [3] is traced"),
        (lambda x: np.nonzero(x), "ons.numpy.nonzero(x, size=n)"),
        (lambda x: f"{x[0]:.3f}" and x, "formatting (:.3f)"),
    ],
)
def test_control_flow_on_data(function, message):
    refused(lambda: ons.stage(function, X), ons.ConcretizationError, TypeError, message)


def test_the_users_line_is_named():
    with pytest.raises(ons.ConcretizationError, match=r"at test_bad_input\.py:\d+: return x if x\.sum\(\) > 0 else -x$"):
        ons.stage(branch, X)
    with pytest.raises(ons.ConcretizationError, match=r"at test_bad_input\.py:\d+: while x\[0\] < 10:$"):
        ons.stage(ons.grad(lambda x: loop(x).sum()), X)


# ---- tracers that escape


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: t.sum(),
        lambda t: np.sin(t),
        lambda t: bool(t[0] > 0),
        lambda t: np.asarray(t),
        lambda t: float(t),
        lambda t: ons.stage(lambda x: x + t, X),
        lambda t: ons.stage(scaled, PARAMS, X)(PARAMS, t),
        lambda t: ons.grad(lambda x: (x * t).sum())(X),
    ],
)
def test_leaked_tracers(use):
    kept = []

    def leaks(x):
        kept.append(x * 2)
        return x

    ons.stage(leaks, X)
    refused(
        lambda: use(kept[0]),
        ons.EscapedTracerError,
        TypeError,
        "return it from the traced function instead of storing it outside",
    )


def test_tracer_on_another_thread():
    errors = []

    def hands_over(x):
        def work():
            try:
                x + 1
            except ons.OnstageError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    ons.stage(hands_over, X)
    (error,) = errors
    assert type(error) is ons.EscapedTracerError and "on another thread" in str(error)


# ---- mutation


def writes_input(x):
    x[0] = 1
    return x


def adds_to_input(x):
    x += 1
    return x


def writes_under_a_view(x):
    y = x * 1
    view = y[1:]
    y[0] = 5
    return y, view


def fills_buffer(x):
    buffer = np.zeros(3, np.float32)
    buffer[0] = x[0]
    return buffer


def adds_to_buffer(x):
    buffer = np.zeros(3, np.float32)
    buffer += x
    return buffer


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (writes_input, ons.MutationError, "write x = x.at[i].set(v), or copy first: x = x.copy()"),
        (adds_to_input, ons.MutationError, "write x = x + v, or copy first: x = x.copy()"),
        (writes_under_a_view, ons.MutationError, "an array of which a view is still in use"),
        (fills_buffer, ons.ConcretizationError, "use buffer = ons.at(buffer)[i].set(tracer)"),
        (adds_to_buffer, ons.MutationError, "ons.at(buffer)[i].add(v)"),
        (lambda x: np.add(x, 1, out=np.zeros(3, np.float32)), ons.MutationError, "np.add: out="),
        (lambda x: np.copyto(x, 0), ons.MutationError, "np.copyto changes its argument"),
        (lambda x: np.put(x, [0], 1), ons.MutationError, "np.put changes its argument"),
        (lambda x: np.place(x, [True, False, False], 1), ons.MutationError, "np.place changes its argument"),
        (lambda x: np.fill_diagonal(x, 0), ons.MutationError, "np.fill_diagonal changes its argument"),
        (lambda x: x.sort(), ons.MutationError, "changes an input of the traced function"),
    ],
)
def test_mutation(function, error, message):
    kept = X.copy()
    refused(lambda: ons.stage(function, kept), error, TypeError, message)
    np.testing.assert_array_equal(kept, X)


# ---- dtypes


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ({"name": np.array(["a", "b"])}, ons.DTypeError, "p['name']: strings (str32) cannot be staged"),
        ([X, np.array([b"a"])], ons.DTypeError, "p[1]: bytes (bytes8) cannot be staged"),
        ({"o": np.array([object()])}, ons.DTypeError, "p['o']: objects (object) cannot be staged"),
        (np.array(["2020-01-01"], "M8[D]"), ons.DTypeError, "p: dates (datetime64[D]) cannot be staged"),
        (np.ones(2, [("a", "f4")]), ons.DTypeError, "p: records (void32) cannot be staged"),
        (
            {"z": np.ones(2, np.complex64)},
            ons.DTypeError,
            "p['z']: complex numbers (complex64) are not supported yet",
        ),
        ((1j,), ons.DTypeError, "p[0]: complex numbers (1j) are not supported yet"),
        (
            {"name": "a"},
            ons.SignatureTypeError,
            "p['name'] is str 'a', which is neither an array nor a number",
        ),
        ({"f": len}, ons.SignatureTypeError, "pass compile-time values as ons.StaticSpec(value)"),
    ],
)
def test_dtypes_of_examples(argument, error, message):
    refused(lambda: ons.stage(lambda p: p, argument), error, TypeError, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ons.stage(lambda x: x * 1j, X), "complex numbers (1j) are not supported yet"),
        (lambda: ons.stage(lambda x: x, np.ma.array(X, mask=X > 1)), "x: masked arrays are not supported, their mask would be lost"),
        (lambda: ons.stage(lambda x: x * np.ma.array(X), X), "masked arrays are not supported, their mask would be lost"),
        (lambda: ons.grad(np.sum)(np.ma.array(X)), "argument 0: masked arrays are not supported, their mask would be lost"),
        (lambda: ons.array(np.ma.array(X)), "ons.array: masked arrays are not supported, their mask would be lost"),
        (lambda: ons.stage(lambda x: x * np.eye(3).view(np.matrix), X), "np.matrix is not supported, its * is a matrix product"),
        (
            lambda: ons.stage(lambda x: x.astype(complex), X),
            "complex numbers (complex128) are not supported yet",
        ),
        (
            lambda: ons.stage(lambda x: x + np.ones(3, complex), X),
            "complex numbers (complex128) are not supported yet",
        ),
        (lambda: ons.ArraySpec((3,), "complex128"), "complex numbers (complex128) are not supported yet"),
        (lambda: ons.ArraySpec((3,), "float33"), "'float33' is not a dtype"),
        (lambda: ons.stage(lambda x: x.astype(str), X), "strings"),
    ],
)
def test_dtypes_inside(call, message):
    refused(call, ons.DTypeError, TypeError, message)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"r": object()}, "out['r'] is object, which is no array"),
        ("text", "out is str, which is no array"),
        ([X, len], "out[1] is builtin"),
    ],
)
def test_results_that_are_no_arrays(result, message):
    def answers(x):
        return result

    refused(lambda: ons.stage(answers, X), ons.TracingError, TypeError, message)


# ---- operations without a rule


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.linalg.eigvals(x), "np.linalg.eigvals"),
        (lambda x: np.busday_count(x, x), "np.busday_count"),
    ],
)
def test_operations_without_a_rule(function, message):
    refused(lambda: ons.stage(function, np.ones((3, 3))), ons.UnsupportedError, NotImplementedError, message)


def test_custom_primitive_without_a_rule(tmp_path):
    @ons.primitive(name="bad_input_opaque")
    def opaque(x):
        return np.asarray(x) * 2

    @opaque.def_abstract
    def shape_of(x):
        return x.spec

    def uses(x):
        return opaque(x)

    with pytest.raises(ons.MissingRuleError, match="bad_input_opaque") as caught:
        ons.stage(uses, X).save(tmp_path / "a.onnx")
    assert isinstance(caught.value, NotImplementedError)
    with pytest.raises(ons.MissingRuleError, match="bad_input_opaque"):
        ons.stage(ons.grad(lambda x: opaque(x).sum()), X)
    assert list(tmp_path.iterdir()) == []


# ---- gradients


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ons.grad(lambda x: x * 2)(X),
            ons.TracingError,
            "the function must return a scalar, got f32[3]",
        ),
        (
            lambda: ons.stage(ons.grad(lambda x: x * 2), X),
            ons.TracingError,
            "the function must return a scalar, got f32[3]",
        ),
        (
            lambda: ons.grad(ons.stage(lambda x: x * 2, X)),
            ons.TracingError,
            "the function must return a scalar, got f32[3]",
        ),
        (
            lambda: ons.grad(lambda x: {"a": x.sum()})(X),
            ons.TracingError,
            "must return a scalar, got a tree of 1: {'a': *}",
        ),
        (
            lambda: ons.grad(lambda x: (x.sum(), x.sum()))(X),
            ons.TracingError,
            "must return a scalar, got a tree of 2: (*, *)",
        ),
        (
            lambda: ons.grad(lambda x: (x > 0).sum())(X),
            ons.DTypeError,
            "must return a real floating scalar, got i64[]",
        ),
        (
            lambda: ons.grad(lambda x: x.sum())(np.arange(3)),
            ons.DTypeError,
            "argument 0 is i64[3]; only floating arrays have derivatives",
        ),
        (
            lambda: ons.grad(lambda p: p["n"].sum() * 1.0)({"n": np.arange(3)}),
            ons.DTypeError,
            "argument 0['n'] is i64[3]",
        ),
        (
            lambda: ons.grad(lambda x: x.sum(), argnums=3)(X),
            ons.SignatureTypeError,
            "argnums names argument 3, but 1 positional",
        ),
        (lambda: ons.grad(lambda x: x.sum(), argnames="q")(X), ons.SignatureTypeError, "argnames names 'q'"),
    ],
)
def test_gradients(call, error, message):
    refused(call, error, TypeError, message)


# ---- ambient randomness


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x + np.random.rand(3), "np.random.rand"),
        (lambda x: x + np.random.normal(size=3), "np.random.normal"),
        (lambda x: x + np.random.default_rng().normal(size=3), "np.random.default_rng"),
        (lambda x: np.random.shuffle(x), "np.random.shuffle"),
    ],
)
def test_ambient_randomness(function, name):
    state = np.random.get_state(legacy=False)["state"]["pos"]
    refused(
        lambda: ons.stage(function, X),
        ons.TracingError,
        TypeError,
        f"{name} while staging: the value would be drawn once",
    )
    assert np.random.get_state(legacy=False)["state"]["pos"] == state


# ---- dims


def rows_program() -> ons.StagedProgram:
    spec = ons.ArraySpec(("B", 3), "float32")
    return ons.stage(lambda x, y: x * y, specs=(spec, spec), name="rows")


def test_two_sizes_for_one_dim_at_a_call():
    call = rows_program()
    for n, m in ((2, 3), (1, 4), (0, 1)):
        message = f"rows: dim B is {n} in x and {m} in y; equal names mean equal sizes"
        refused(
            lambda n=n, m=m: call(np.ones((n, 3), np.float32), np.ones((m, 3), np.float32)),
            ons.SignatureValueError,
            ValueError,
            message,
        )


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_two_sizes_for_one_dim_in_the_file(tmp_path, level):
    rows_program().save(tmp_path / "a.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", options)
    ones = {n: np.ones((n, 3), np.float32) for n in (0, 1, 4)}
    for n in (0, 1, 4):
        np.testing.assert_array_equal(session.run(None, {"x": ones[n], "y": ones[n]})[0], ones[n])
    for n, m in ((1, 4), (4, 1), (0, 1), (1, 0)):
        with pytest.raises(Exception, match="axis 0 of y must have size B as in x"):
            session.run(None, {"x": ones[n], "y": ones[m]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ons.stage(lambda x: x, ons.ArraySpec(("2*B",), "f4")),
            "x: the size of B in dim 2*B cannot be told",
        ),
        (
            lambda: ons.stage(lambda x, y: x + y, specs=(ons.ArraySpec(("A",), "f4"), ons.ArraySpec(("B",), "f4"))),
            "cannot broadcast dims A and B",
        ),
        (lambda: ons.stage(lambda x: x + np.ones(4), X), "add: shapes [3], [4] do not broadcast"),
        (lambda: ons.stage(lambda x: x @ np.ones((4, 4)), X), "matmul: inner dimensions differ"),
    ],
)
def test_shapes_that_do_not_fit(call, message):
    refused(call, ons.ShapeError, ValueError, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ons.stage(lambda x, y: x, X),
            "missing a required argument: 'y'; give an example or spec for each argument",
        ),
        (lambda: ons.stage(lambda x: x, X, X), "too many positional arguments"),
        (lambda: ons.stage(lambda x: x, X, specs=(X,)), "give example arguments or specs, not both"),
        (lambda: ons.stage(X), "ndarray is not callable"),
    ],
)
def test_staging_itself(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()


def test_the_users_own_errors_pass_through():
    with pytest.raises(ZeroDivisionError):
        ons.stage(lambda x: x * (1 // 0), X)


# ---- files that are no artifacts (all kinds: tests/export/test_load.py)


def test_bad_artifacts(tmp_path, program):
    path = tmp_path / "a.onnx"
    with pytest.raises(FileNotFoundError, match=r"a\.onnx"):
        ons.load(path)
    program.save(path)
    whole = path.read_bytes()
    edited = onnx.load(path)
    edited.graph.node[0].op_type = "Add"
    foreign = onnx.ModelProto(producer_name="other", graph=onnx.GraphProto(name="g"))
    for content, message in (
        (whole[: len(whole) // 2], ""),
        (whole[:50] + b"\xff" + whole[51:], ""),
        (edited.SerializeToString(), "the graph was changed after it was written: its nodes"),
        (foreign.SerializeToString(), "an ONNX file that holds no onstage program (producer: other)"),
        (b"", "an empty file"),
    ):
        path.write_bytes(content)
        refused(lambda: ons.load(path), ons.ArtifactError, ValueError, f"{path}: {message}")
        assert path.read_bytes() == content


# ---- places that cannot be written


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """The superuser may write anywhere; give that up for the test."""
    if os.name != "posix" or os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def listing(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may reach, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.name != "posix", reason="the permissions of folders are POSIX's")
def test_read_only_directory(public_folder, program, request):
    program.save(public_folder / "a.onnx")
    before = listing(public_folder)
    public_folder.chmod(0o555)
    request.getfixturevalue("unprivileged")
    for name in ("a.onnx", "new.onnx"):
        with pytest.raises(PermissionError, match="cannot save: the directory is not writable") as caught:
            program.save(public_folder / name)
        assert caught.value.filename == str(public_folder)
    assert listing(public_folder) == before


def test_full_disk(tmp_path, program, monkeypatch):
    program.save(tmp_path / "a.onnx")
    before = listing(tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    for name in ("a.onnx", "new.onnx"):
        with pytest.raises(OSError, match="cannot save: No space left on device") as caught:
            program.save(tmp_path / name)
        assert caught.value.errno == errno.ENOSPC and str(tmp_path / name) in str(caught.value)
    assert listing(tmp_path) == before


_LIMITED = """
import resource, signal, sys, numpy as np, onstage as ons
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
program = ons.stage(lambda x: x @ table, np.ones((1, 200), np.float32))
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
for external in ("never", "always"):
    try:
        program.save(sys.argv[1], external=external, verify=False)
    except OSError as error:
        print(type(error).__name__, error.errno, error.strerror)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits on the size of files are POSIX's")
def test_a_write_that_stops_half_way(tmp_path):
    target = tmp_path / "a.onnx"
    result = subprocess.run([sys.executable, "-c", _LIMITED, str(target)], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [f"OSError {errno.EFBIG} cannot save: {os.strerror(errno.EFBIG)}"] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("missing/a.onnx", FileNotFoundError, "missing"),
        ("file/a.onnx", NotADirectoryError, "cannot save: not a directory"),
        ("folder", IsADirectoryError, "cannot save: this is a directory"),
        ("folder/", IsADirectoryError, "cannot save: a file name is needed"),
        ("report.onnx", IsADirectoryError, "report.onnx.report.json"),
        ("data.onnx", IsADirectoryError, "data.onnx.data"),
    ],
)
def test_targets_that_are_no_files(tmp_path, program, target, error, message):
    for name in ("folder", "report.onnx.report.json", "data.onnx.data"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("text")
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    with pytest.raises(error, match=re.escape(message)):
        program.save(os.path.join(tmp_path, target))
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before


def test_wrong_types_of_paths(program):
    with pytest.raises(TypeError):
        program.save(3)
    with pytest.raises(TypeError):
        ons.load(None)
