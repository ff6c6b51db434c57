"""Reading files back: whole ones give the program, all others an error that names the file and what is wrong with it."""

import base64
import bz2
import collections
import dataclasses
import enum
import json
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

import onstage as ons
from onstage.export import load as load_module
from onstage.export.metadata import graph_digests, metadata_digest
from onstage.stage import primitive as primitive_module
from onstage.stage.codec import canonical_text
from onstage.stage.statics import UnknownStatic, decode_static, encode_static

RNG = np.random.default_rng(6)
State = collections.namedtuple("State", "w count")


@dataclasses.dataclass
class Model:
    w: object
    b: object


class Color(enum.Enum):
    RED = 1


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def loss(params, x):
    return ((np.tanh(x @ params["w"]) + params["b"]) ** 2).sum()


ARGUMENTS = {"w": f32(5, 60), "b": f32(60)}, f32(3, 5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A frozen program with one large constant, and its files: all in one, and beside each other."""
    folder = tmp_path_factory.mktemp("saved")
    program = ons.stage(loss, *ARGUMENTS).freeze({"params": ARGUMENTS[0]})
    program.save(folder / "whole.onnx")
    program.save(folder / "split.onnx", external="always")
    return program, folder


def same_tree(a, b):
    leaves_a, tree_a = ons.tree.flatten(a)
    leaves_b, tree_b = ons.tree.flatten(b)
    assert tree_a == tree_b
    for x, y in zip(leaves_a, leaves_b, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype


def round_trip(program, path, *args, **kwargs):
    program.save(path)
    loaded = ons.load(path)
    assert loaded.hash == program.hash and loaded.name == program.name
    assert loaded.in_names == program.in_names and loaded.out_names == program.out_names
    same_tree(loaded(*args, **kwargs), program(*args, **kwargs))
    written = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == written
    return loaded


# ---- whole files


def test_loaded_program_runs_prints_and_is_saved_again(tmp_path):
    program = ons.stage(loss, *ARGUMENTS)
    loaded = round_trip(program, tmp_path / "a.onnx", *ARGUMENTS)
    assert str(loaded) == str(program)
    assert "test_load.py" in str(loaded)
    assert repr(loaded) == repr(program)
    assert loaded.in_specs == program.in_specs and loaded.out_specs == program.out_specs


def test_loaded_program_is_differentiated(tmp_path):
    program = ons.stage(loss, *ARGUMENTS)
    program.save(tmp_path / "a.onnx")
    gradient = ons.grad(ons.load(tmp_path / "a.onnx"))
    same_tree(gradient(*ARGUMENTS), ons.grad(program)(*ARGUMENTS))
    assert gradient.hash == ons.grad(program).hash
    # ... and written and read again, and once more.
    gradient.save(tmp_path / "g.onnx")
    again = ons.load(tmp_path / "g.onnx")
    same_tree(again(*ARGUMENTS), gradient(*ARGUMENTS))
    x = np.array([1.0, 2.0])
    cube = ons.stage(lambda x: (x**3).sum(), x)
    cube.save(tmp_path / "c.onnx")
    first = ons.grad(ons.load(tmp_path / "c.onnx"))
    first.save(tmp_path / "d.onnx")
    second = ons.grad(lambda x: ons.load(tmp_path / "d.onnx")(x)[1])
    np.testing.assert_allclose(second(x), [0.0, 12.0])
    value, tangent = ons.jvp(ons.load(tmp_path / "c.onnx"), (x,), (np.array([1.0, 0.0]),))
    np.testing.assert_allclose([value, tangent], [9.0, 3.0])


def test_loaded_program_is_frozen_and_inlined(tmp_path):
    program = ons.stage(loss, *ARGUMENTS)
    program.save(tmp_path / "a.onnx")
    loaded = ons.load(tmp_path / "a.onnx")
    frozen = loaded.freeze({"params": ARGUMENTS[0]})
    np.testing.assert_array_equal(frozen(ARGUMENTS[1]), program(*ARGUMENTS))
    assert frozen.hash == program.freeze({"params": ARGUMENTS[0]}).hash
    outer = ons.stage(lambda p, x: loaded(p, x) * 2, *ARGUMENTS)
    np.testing.assert_allclose(outer(*ARGUMENTS), program(*ARGUMENTS) * 2, rtol=1e-6)


def test_calls_are_checked_as_before(tmp_path):
    program = ons.stage(loss, *ARGUMENTS)
    program.save(tmp_path / "a.onnx")
    loaded = ons.load(tmp_path / "a.onnx")
    with pytest.raises(ons.SignatureValueError, match=r"loss: params\['w'\] has dtype float64, staged for float32"):
        loaded({"w": np.ones((5, 60)), "b": ARGUMENTS[0]["b"]}, ARGUMENTS[1])
    with pytest.raises(ons.SignatureTypeError, match=r"params\['b'\] is missing"):
        loaded({"w": ARGUMENTS[0]["w"]}, ARGUMENTS[1])
    with pytest.raises(ons.SignatureTypeError, match="missing a required argument: 'x'"):
        loaded(ARGUMENTS[0])


def test_kinds_of_parameters(tmp_path):
    def f(a, /, b, *rest, c, **others):
        return a + b * rest[0] - rest[1] + c / others["d"]

    x = f32(3)
    spec = ons.ArraySpec((3,), "f4")
    program = ons.stage(f, specs=(spec,) * 4, kw_specs={"c": spec, "d": spec})
    loaded = round_trip(program, tmp_path / "a.onnx", x, x, x + 1, x, c=x, d=x)
    with pytest.raises(ons.SignatureTypeError, match=r"positional.only"):
        loaded(a=x, b=x, c=x, d=x)


def test_trees_keep_their_types(tmp_path):
    x = f32(3)
    program = ons.stage(
        lambda s, m: (State(s.w + m.b, [s.count, None]), Model(m.w, {"z": m.b})),
        State(x, np.int64(3)),
        Model(x, x),
    )
    loaded = round_trip(program, tmp_path / "a.onnx", State(x, np.int64(3)), Model(x, x))
    state, model = loaded(State(x, np.int64(3)), Model(x, x))
    assert type(state) is State and type(model) is Model


def test_named_dims(tmp_path):
    spec = ons.ArraySpec(("rows", 4), "f4")
    program = ons.stage(lambda x, y: ((x * y).sum(0), x.reshape(-1)), specs=(spec, spec))
    loaded = round_trip(program, tmp_path / "a.onnx", f32(5, 4), f32(5, 4))
    for n in (0, 1, 7):
        x, y = f32(n, 4), f32(n, 4)
        same_tree(loaded(x, y), program(x, y))
    with pytest.raises(ons.SignatureValueError, match="dim rows is 2 in x and 3 in y"):
        loaded(f32(2, 4), f32(3, 4))


def test_weak_numbers(tmp_path):
    program = ons.stage(lambda x, k: x * k, f32(3), 2.0)
    loaded = round_trip(program, tmp_path / "a.onnx", f32(3), 3)
    assert loaded(np.ones(3, np.float32), 0.5).dtype == np.float32


@pytest.mark.parametrize("dtype", ["bool", "i1", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "bfloat16"])
def test_large_constants_of_every_dtype(tmp_path, dtype):
    table = RNG.integers(0, 2 if dtype == "bool" else 100, (20, 40)).astype(ons.ArraySpec((), dtype).dtype)
    program = ons.stage(lambda i: np.take(ons.numpy.asarray(table), i, axis=0), np.array([1, 2]))
    for external in ("never", "always"):
        program.save(tmp_path / "a.onnx", external=external)
        loaded = ons.load(tmp_path / "a.onnx")
        got = loaded(np.array([3, 0]))
        assert got.dtype == table.dtype
        np.testing.assert_array_equal(got, table[[3, 0]])


def test_source_lines_come_back(tmp_path):
    program = ons.stage(lambda x: np.sin(x), f32(2))
    program.save(tmp_path / "a.onnx")
    (equation,) = ons.load(tmp_path / "a.onnx").program.equations
    assert equation.source.label == program.program.equations[0].source.label
    assert "/" not in equation.source.file


def test_a_moved_file_loads(tmp_path, saved):
    program, folder = saved
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "other.onnx").write_bytes((folder / "split.onnx").read_bytes())
    (tmp_path / "new" / "split.onnx.data").write_bytes((folder / "split.onnx.data").read_bytes())
    assert ons.load(tmp_path / "new" / "other.onnx").hash == program.hash
    assert ons.load(str(tmp_path / "new" / "other.onnx")).hash == program.hash


def test_a_fresh_process_loads(tmp_path, saved):
    program, folder = saved
    np.save(tmp_path / "x.npy", ARGUMENTS[1])
    script = (
        "import sys, numpy as np, onstage as ons\n"
        "p = ons.load(sys.argv[1]); x = np.load(sys.argv[2])\n"
        "print(p.hash); print(repr(float(p(x)))); print(ons.grad(p)(x).shape)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(folder / "split.onnx"), str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split("\n")[:3] == [program.hash, repr(float(program(ARGUMENTS[1]))), "(3, 5)"]


# ---- static values


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.5,
        float("inf"),
        "text",
        b"\x00\xff",
        (1, (2.0, "x")),
        np.dtype("float16"),
        np.sin,
        np.ones,
        dict,
        Color.RED,
        2**80,
    ],
)
def test_static_values(tmp_path, value):
    def f(x, option):
        assert option is value or option == value
        return x * 2

    x = f32(3)
    loaded = round_trip(ons.stage(f, x, ons.StaticSpec(value)), tmp_path / "a.onnx", x, value)
    with pytest.raises(ons.SignatureValueError, match="static argument option was staged as"):
        loaded(x, "another")


def test_static_leaves_in_trees(tmp_path):
    x = f32(3)
    program = ons.stage(lambda c, y: c["x"] * c["k"] + y, {"x": x, "k": ons.StaticSpec(2)}, x)
    round_trip(program, tmp_path / "a.onnx", {"x": x, "k": 2}, x)


def test_static_values_that_no_file_holds(tmp_path):
    x = f32(3)
    program = ons.stage(
        lambda f, x, c: f(x) + c["y"] * c["g"](2),
        ons.StaticSpec(lambda v: v * 2),
        x,
        {"y": x, "g": ons.StaticSpec(lambda v: v + 1)},
    )
    program.save(tmp_path / "a.onnx")
    note = r"a\.onnx does not hold the static values of f \(.*lambda>\), c\['g'\] \(.*lambda>\); call the loaded program without them"
    with pytest.warns(UserWarning, match=note):
        loaded = ons.load(tmp_path / "a.onnx")
    np.testing.assert_allclose(loaded(x, {"y": x}), x * 5, rtol=1e-6)
    with pytest.raises(ons.SignatureTypeError):
        loaded(np.sin, x, {"y": x})


def test_static_codec():
    assert encode_static(float("nan"))[0] == "float"
    assert decode_static(["name", "no.such.module:f"]) == UnknownStatic("no.such.module:f")
    assert encode_static([1]) == ["unknown", "builtins:list"]
    with pytest.raises(ons.ArtifactError, match="is no static value"):
        decode_static(["call", "os:system"])
    for value in (1, "x", (True, 1), np.sin, Color.RED):
        back = decode_static(json.loads(canonical_text(encode_static(value))))
        assert type(back) is type(value) and back == value


# ---- damaged and edited files


def refused(path, message):
    with pytest.raises(ons.ArtifactError, match=message) as caught:
        ons.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def copy_of(saved, tmp_path, name="whole.onnx"):
    target = tmp_path / name
    for file in saved[1].iterdir():
        if file.name.startswith(name) and not file.name.endswith(".json"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    return target


def edited(saved, tmp_path, edit, name="whole.onnx"):
    path = copy_of(saved, tmp_path, name)
    model = onnx.load(path, load_external_data=False)
    edit(model)
    path.write_bytes(model.SerializeToString())
    return path


def resigned(saved, tmp_path, edit):
    """A file whose digests fit again after an edit, as somebody would make it who means to deceive."""

    def change(model):
        edit(model)
        properties = {p.key: p.value for p in model.metadata_props}
        digests = json.loads(properties.pop("onstage.digests"))
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for tensor in copy.graph.initializer:
            if tensor.name in digests["initializers"]:
                tensor.ClearField("raw_data")
        digests["graph"] = graph_digests(copy)
        digests["metadata"] = metadata_digest(properties, digests["graph"], digests["initializers"])
        set_property(model, "onstage.digests", canonical_text(digests))

    return edited(saved, tmp_path, change)


def set_property(model, key, value):
    for p in model.metadata_props:
        if p.key == key:
            p.value = value


def get_property(model, key):
    return next(p.value for p in model.metadata_props if p.key == key)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.onnx"):
        ons.load(tmp_path / "none.onnx")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"# Weights\nsome text about them\n", "no ONNX file"),
        (b"PK\x03\x04" + bytes(100), "no ONNX file"),
        (bytes(range(256)) * 8, "no ONNX file"),
        (b"\x08\x0a", "no ONNX file, or a truncated one: it holds no graph"),
    ],
)
def test_other_files(tmp_path, content, message):
    (tmp_path / "a.onnx").write_bytes(content)
    refused(tmp_path / "a.onnx", message)


def test_directory(tmp_path):
    refused(tmp_path, "a directory; load takes the .onnx file that program.save wrote")


def test_foreign_model(tmp_path):
    x = onnx.helper.make_tensor_value_info("x", 1, [2])
    y = onnx.helper.make_tensor_value_info("y", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph, producer_name="pytorch"), tmp_path / "a.onnx")
    refused(tmp_path / "a.onnx", r"an ONNX file that holds no onstage program \(producer: pytorch\)")
    onnx.save(ons.stage(lambda x: x, f32(2)).to_onnx(), tmp_path / "b.onnx")
    refused(
        tmp_path / "b.onnx",
        r"holds no onstage program \(producer: onstage\); load reads what program.save wrote",
    )


def test_truncated_anywhere(saved, tmp_path):
    path = copy_of(saved, tmp_path)
    whole = path.read_bytes()
    for n in {*range(0, len(whole), 97), len(whole) - 1}:
        path.write_bytes(whole[:n])
        refused(path, ".")


def test_any_changed_byte_is_noticed(saved, tmp_path):
    path = copy_of(saved, tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for i in rng.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[i] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        refused(path, ".")


def test_appended_bytes(saved, tmp_path):
    path = copy_of(saved, tmp_path)
    whole = path.read_bytes()
    for more in (b"\x00", b"more", onnx.ModelProto(doc_string="hello").SerializeToString(), whole):
        path.write_bytes(whole + more)
        refused(path, ".")


def _rename_node_output(model):
    node = model.graph.node[0]
    old = node.output[0]
    for other in model.graph.node:
        for i, name in enumerate(other.input):
            if name == old:
                other.input[i] = "renamed"
    node.output[0] = "renamed"


def _attribute(model):
    node = next(n for n in model.graph.node if n.attribute)
    node.attribute[0].i += 1


def _initializer(model):
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    tensor.raw_data = bytes(4) + tensor.raw_data[4:]


def _small_initializer(model):
    tensor = min(model.graph.initializer, key=lambda t: len(t.raw_data))
    tensor.raw_data = tensor.raw_data[:-1] + bytes([tensor.raw_data[-1] ^ 1])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_attribute, "the graph was changed after it was written: its nodes"),
        (_rename_node_output, "the graph was changed after it was written: its nodes"),
        (lambda m: setattr(m.graph.node[0], "name", "n"), "its nodes"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Identity"), "its nodes"),
        (lambda m: m.graph.node.pop(), "its nodes"),
        (lambda m: m.graph.node.add(op_type="Identity", input=["x"], output=["unused"]), "its nodes"),
        (lambda m: setattr(m.graph.input[0], "name", "z"), "its inputs"),
        (lambda m: setattr(m.graph.output[0], "name", "z"), "its outputs"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "N"), "its inputs"),
        (_initializer, r"the initializer '\w+' was changed after it was written"),
        (_small_initializer, "its initializers"),
        (lambda m: m.graph.initializer.pop(), "its initializers"),
        (lambda m: setattr(m.opset_import[0], "version", 22), "its version or name"),
        (lambda m: setattr(m, "ir_version", 9), "its version or name"),
        (lambda m: setattr(m.graph, "name", "other"), "its version or name"),
        (lambda m: setattr(m, "doc_string", "mine now"), "its version or name"),
        (lambda m: set_property(m, "onstage.hash", "0" * 64), "its metadata was changed"),
        (lambda m: set_property(m, "onstage.verification", '{"verified":true}'), "its metadata was changed"),
        (lambda m: set_property(m, "onstage.signature", get_property(m, "onstage.signature").replace('"x"', '"y"')), "its metadata was changed"),
        (lambda m: set_property(m, "onstage.version", "9.9"), "its metadata was changed"),
        (lambda m: m.metadata_props.add(key="author", value="me"), "its metadata was changed"),
        (lambda m: m.metadata_props.add(key="onstage.version", value="0"), "its metadata was changed"),
        (lambda m: m.metadata_props.pop(0), "its metadata lacks onstage.digests: truncated or edited"),
        (lambda m: m.metadata_props.pop(), "its metadata lacks onstage.version: truncated or edited"),
        (lambda m: set_property(m, "onstage.digests", "{}"), r"its metadata is damaged \(KeyError"),
        (lambda m: set_property(m, "onstage.digests", "[" * 100_000), r"its metadata is damaged"),
        (lambda m: set_property(m, "onstage.digests", "not JSON"), r"its metadata is damaged \(JSONDecodeError"),
    ],
)  # fmt: skip
def test_edited_file(saved, tmp_path, edit, message):
    refused(edited(saved, tmp_path, edit), message)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2", "artifact format '2', written by onstage .*; this onstage reads 1; a newer onstage is needed"),
        ("0", "artifact format '0', written by onstage .*; this onstage reads 1$"),
        ("one", "artifact format 'one'"),
        ("-1", "artifact format '-1'"),
    ],
)
def test_other_formats(saved, tmp_path, version, message):
    path = edited(saved, tmp_path, lambda m: set_property(m, "onstage.format", version))
    with pytest.raises(ons.ArtifactError) as caught:
        ons.load(path)
    assert re.search(message, caught.value.message)


def test_the_format_before_is_read(saved, tmp_path, monkeypatch):
    # READABLE decides, not equality with FORMAT: a later onstage still reads format 1.
    monkeypatch.setattr(load_module, "READABLE", frozenset({1, 2}))
    monkeypatch.setattr(load_module, "FORMAT", 2)
    assert ons.load(saved[1] / "whole.onnx").hash == saved[0].hash


# Whoever adjusts the digests too meets the checks of what they stand for.


def repack(model, change):
    packed = json.loads(bz2.decompress(base64.b64decode(get_property(model, "onstage.program"))))
    change(packed)
    set_property(model, "onstage.program", base64.b64encode(bz2.compress(canonical_text(packed).encode())).decode())


def _swap_outputs(packed):
    first = packed["program"]["programs"][0]["equations"][0]
    first[1].reverse()


def _drop_constant(packed):
    packed["constants"].clear()


def _other_place(packed):
    (digest,) = packed["constants"]
    packed["constants"][digest] = ["inline", base64.b64encode(bytes(5 * 60 * 4)).decode()]


def _pickle(packed):
    (digest,) = packed["constants"]
    packed["constants"][digest] = ["pickle", "x"]


def _dtype(packed):
    packed["program"]["specs"][0][0] = "complex64"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_swap_outputs, "its operands are refused|does not have the hash"),
        (_drop_constant, "a constant is missing"),
        (_other_place, "a constant .* does not have the content"),
        (_pickle, "is no place of a constant"),
        (_dtype, "complex64|damaged"),
        (lambda p: p["program"].update(format=7), "a program in format 7"),
        (lambda p: p["program"]["primitives"][0].__setitem__(1, 9), "uses version 9 of primitive"),
        (lambda p: p["sources"]["programs"].clear(), "the source lines do not belong"),
        (lambda p: p.pop("sources"), r"damaged \(KeyError"),
    ],
)
def test_inconsistent_program(saved, tmp_path, change, message):
    refused(resigned(saved, tmp_path, lambda m: repack(m, change)), message)


def resignature(**changes):
    def edit(model):
        signature = json.loads(get_property(model, "onstage.signature"))
        signature.update(changes)
        set_property(model, "onstage.signature", canonical_text(signature))

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            resignature(parameters=[["y", "POSITIONAL_OR_KEYWORD"]]),
            "the inputs in the signature are not those of the program",
        ),
        (resignature(parameters=[["not an identifier", "POSITIONAL_OR_KEYWORD"]]), "damaged"),
        (resignature(parameters=[]), "damaged|does not fit"),
        (resignature(parameters=[["x", "MAGIC"]]), r"damaged \(KeyError"),
        (resignature(tree={"tuple": ["*", "*"]}), "damaged"),
        (resignature(tree="nothing"), "damaged"),
        (resignature(out_tree={"tuple": ["*", "*"]}), "does not fit"),
        (
            resignature(outputs=[["other", "float32", [], False]]),
            "the outputs in the signature are not those of the program",
        ),
        (
            resignature(out_tree={"registered": "os:system", "aux": None, "children": ["*"]}),
            "tree type os:system is not registered here",
        ),
        (
            lambda m: setattr(m.graph.input[0], "name", "z"),
            "the inputs of the graph are not those of its program",
        ),
        (
            lambda m: set_property(m, "onstage.hash", "0" * 64),
            "does not have the hash that it was written with",
        ),
        (lambda m: set_property(m, "onstage.verification", "{}"), r"damaged \(KeyError"),
        (lambda m: set_property(m, "onstage.program", "????"), "damaged"),
        (lambda m: set_property(m, "onstage.program", base64.b64encode(b"BZh9junk").decode()), "damaged"),
    ],
)
def test_inconsistent_metadata(saved, tmp_path, edit, message):
    refused(resigned(saved, tmp_path, edit), message)


# ---- data files


def test_missing_data_file(saved, tmp_path):
    path = copy_of(saved, tmp_path, "split.onnx")
    (tmp_path / "split.onnx.data").unlink()
    refused(path, r"its data file split.onnx.data is missing; it belongs beside the model")


def test_truncated_data_file(saved, tmp_path):
    path = copy_of(saved, tmp_path, "split.onnx")
    data = tmp_path / "split.onnx.data"
    whole = data.read_bytes()
    for n in (0, 1, len(whole) - 1):
        data.write_bytes(whole[:n])
        refused(path, f"its data file split.onnx.data is truncated: {n:,} bytes, at least")


def test_edited_data_file(saved, tmp_path):
    path = copy_of(saved, tmp_path, "split.onnx")
    data = tmp_path / "split.onnx.data"
    whole = bytearray(data.read_bytes())
    whole[17] ^= 1
    data.write_bytes(whole)
    refused(path, r"the initializer '\w+' in split.onnx.data was changed after it was written")


@pytest.mark.parametrize("location", ["../split.onnx.data", "/etc/hostname", "sub/split.onnx.data", "..", ""])
def test_data_outside_the_folder_is_not_read(saved, tmp_path, location):
    def move(model):
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location

    refused(edited(saved, tmp_path, move, "split.onnx"), "is not beside it")


@pytest.mark.parametrize(("key", "value"), [("offset", "-1"), ("length", "-8"), ("length", "99999999"), ("offset", "x")])
def test_data_out_of_range(saved, tmp_path, key, value):
    def move(model):
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == key:
                    entry.value = value

    refused(edited(saved, tmp_path, move, "split.onnx"), "truncated|damaged")


# ---- custom primitives


def test_unregistered_primitive(tmp_path, monkeypatch):
    program = ons.stage(lambda x: np.sin(x), f32(2))
    program.save(tmp_path / "a.onnx")
    registry = {k: v for k, v in primitive_module._registry.items() if k != "sin"}
    monkeypatch.setattr(primitive_module, "_registry", registry)
    with pytest.raises(ons.MissingRuleError, match=r"a\.onnx: primitive 'sin' is not registered; import the module"):
        ons.load(tmp_path / "a.onnx")


def test_nothing_the_file_names_is_imported(tmp_path):
    (tmp_path / "danger.py").write_text("from dataclasses import dataclass\nprint('imported')\n@dataclass\nclass Box:\n    x: object\n")
    write = (
        "import sys, numpy as np, onstage as ons; sys.path.insert(0, sys.argv[1]); import danger\n"
        "ons.stage(lambda b, f: danger.Box(b.x * 2), danger.Box(np.ones(2)), ons.StaticSpec(danger.Box)).save(sys.argv[2])"
    )
    read = (
        "import sys, warnings, numpy as np, onstage as ons; sys.path.insert(0, sys.argv[1]); warnings.simplefilter('ignore')\n"
        "p = ons.load(sys.argv[2]); assert 'danger' not in sys.modules\n"
        "cls = type(p.in_specs[0]); r = p(cls(np.ones(2))); print(type(r).__name__, r.x, 'danger' in sys.modules)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", s, str(tmp_path), str(tmp_path / "a.onnx")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for s in (write, read)
    ]
    assert outputs == ["imported\n", "Box [2. 2.] False\n"]
