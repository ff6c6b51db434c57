"""Programs as JSON-able objects and back."""

import copy
import json
import math
import struct
from typing import Any

import numpy as np
import pytest

from onstage.ops.arithmetic import add_p, multiply_p, negative_p
from onstage.ops.structure import broadcast_to_p, cast_p, reshape_p, transpose_p
from onstage.stage import tree
from onstage.stage.check import check
from onstage.stage.codec import (
    canonical_text,
    constant_digest,
    decode,
    encode,
    encode_sources,
    float_text,
    register_value,
)
from onstage.stage.dims import as_dim
from onstage.stage.dtypes import bfloat16
from onstage.stage.errors import ArtifactError, MissingRuleError, ProgramError
from onstage.stage.interpreter import evaluate
from onstage.stage.primitive import Primitive
from onstage.stage.program import Const, Program, ProgramBuilder, constant
from onstage.stage.source import Source
from onstage.stage.spec import ArraySpec, StaticSpec, make_spec

F32 = np.dtype("float32")

call_p = Primitive(
    "test_codec_call",
    abstract=lambda *specs, body, **rest: body.out_specs,
    numpy=lambda *arrays, body, **rest: tuple(evaluate(body, arrays)),
    nondifferentiable="toy",
    batch=lambda *a, **k: None,
    onnx=lambda *a, **k: None,
)
tag_p = Primitive(
    "test_codec_tag",
    abstract=lambda x, **params: x,
    numpy=lambda x, **params: x,
    nondifferentiable="toy",
    batch=lambda *a, **k: None,
    onnx=lambda *a, **k: None,
)


class Unknown:
    def __repr__(self) -> str:
        return "Unknown()"


class Pair:
    def __init__(self, a: int, b: str) -> None:
        self.a, self.b = a, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and (self.a, self.b) == (other.a, other.b)

    def __repr__(self) -> str:
        return f"Pair({self.a!r}, {self.b!r})"

    def __hash__(self) -> int:
        return hash((self.a, self.b))


def _pair(plain: tuple[int, str]) -> Pair:
    return Pair(*plain)


register_value("test_codec_pair", Pair, lambda p: (p.a, p.b), _pair)


def roundtrip(program: Program, **options: Any) -> Program:
    """Through real JSON text, with the same text on the way back."""
    table: dict[str, Any] = {}
    encoded = encode(program, constants=table, **options)
    text = canonical_text(encoded)
    decoded = decode(json.loads(text), table, sources=json.loads(json.dumps(encode_sources(program))))
    check(decoded)
    again: dict[str, Any] = {}
    assert canonical_text(encode(decoded, constants=again, **options)) == text
    assert again.keys() == table.keys()
    return decoded


def with_param(value: Any) -> Program:
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((2,), F32))
    (y,) = builder.emit(tag_p, (x,), {"value": value}, None)
    return builder.build([y])


def param_after_roundtrip(value: Any) -> Any:
    return roundtrip(with_param(value)).equations[0].params["value"]


def with_constant(value: Any, spec: ArraySpec | None = None) -> Program:
    builder = ProgramBuilder()
    builder.add_input(make_spec((), F32))
    return builder.build([constant(value, spec)])


def constant_of(program: Program) -> Const:
    (output,) = program.outputs
    assert isinstance(output, Const)
    return output


def sample() -> Program:
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec(("B", 4), "float32"))
    builder.add_input(ArraySpec((), "int64", weak=True))
    (y,) = builder.emit(transpose_p, (x,), {"permutation": (1, 0)}, Source("/home/someone/train.py", 41, "layer1"))
    (z,) = builder.emit(add_p, (y, constant(np.arange(4, dtype=F32).reshape(4, 1))), {}, None)
    (w,) = builder.emit(reshape_p, (z,), {"shape": (as_dim("B"), 2, 2)}, Source("/home/someone/train.py", 42, ""))
    return builder.build([w, x, constant(1.5)], "sample")


def test_form_is_as_documented() -> None:
    table: dict[str, Any] = {}
    encoded = encode(sample(), constants=table, inline_limit=8)
    number, vector = constant(1.5), constant(np.arange(4, dtype=F32).reshape(4, 1))
    assert encoded == {
        "format": 1,
        "primitives": [["transpose", 1], ["add", 1], ["reshape", 1]],
        "specs": [
            ["float32", ["B", 4], False, None],
            ["int64", [], True, None],
            ["float32", [4, "B"], False, None],
            ["float32", [4, 1], False, None],
            ["float32", ["B", 2, 2], False, None],
            ["float64", [], False, None],
        ],
        "constants": [[3, constant_digest(vector), None], [5, constant_digest(number), "AAAAAAAA+D8="]],
        "programs": [
            {
                "name": "sample",
                "inputs": [0, 1],
                "equations": [
                    [0, [0], {"permutation": ["tuple", 1, 0]}, [2]],
                    [1, [2, -1], {}, [2]],
                    [2, [3], {"shape": ["tuple", ["dim", "B"], 2, 2]}, [4]],
                ],
                "outputs": [4, 0, -2],
            }
        ],
    }
    assert list(table) == [constant_digest(vector)]
    assert encode_sources(sample()) == {
        "lines": [["train.py", 41, "layer1"], ["train.py", 42, ""]],
        "programs": [[0, None, 1]],
    }


def test_roundtrip_keeps_everything() -> None:
    program = sample()
    decoded = roundtrip(program)
    assert decoded.name == "sample"
    assert decoded.in_specs == program.in_specs
    assert decoded.out_specs == program.out_specs
    assert decoded.in_specs[1].weak
    assert [e.primitive for e in decoded.equations] == [e.primitive for e in program.equations]
    assert [dict(e.params) for e in decoded.equations] == [dict(e.params) for e in program.equations]
    assert [e.source for e in decoded.equations] == [
        Source("train.py", 41, "layer1"),
        None,
        Source("train.py", 42, ""),
    ]
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(F32)
    for a, b in zip(evaluate(program, [x, np.int64(1)]), evaluate(decoded, [x, np.int64(1)]), strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


def test_without_sources() -> None:
    table: dict[str, Any] = {}
    decoded = decode(encode(sample(), constants=table), table)
    assert [e.source for e in decoded.equations] == [None, None, None]


NAN_PAYLOAD = struct.unpack(">d", bytes.fromhex("fff800000000beef"))[0]
FLOATS = [0.0, -0.0, 1.5, -1e-320, 1.7976931348623157e308, math.inf, -math.inf, math.nan, NAN_PAYLOAD, 0.1]


@pytest.mark.parametrize("value", FLOATS, ids=float_text)
def test_floats_come_back_bit_for_bit(value: float) -> None:
    back = param_after_roundtrip(value)
    assert type(back) is float
    assert struct.pack("<d", back) == struct.pack("<d", value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        1,
        -(2**70),
        "",
        'text "in" \u00fc\n\ud800',
        (),
        (1,),
        ((1, 2), ("a", (None, True))),
        np.dtype("float32"),
        np.dtype("bool"),
        StaticSpec((1, "a")),
        make_spec((2, 3), F32),
        ArraySpec(("B", "2*B + 1"), "int8", weak=True),
        add_p,
        Pair(3, "x"),
    ],
    ids=repr,
)
def test_param_values(value: Any) -> None:
    back = param_after_roundtrip(value)
    assert type(back) is type(value)
    assert back == value


@pytest.mark.parametrize("values", [(1, True, 1.0), (0, False, 0.0, -0.0)])
def test_equal_params_of_different_types_stay_apart(values: tuple[Any, ...]) -> None:
    assert len({canonical_text(encode(with_param(v), constants={})) for v in values}) == len(values)
    assert [repr(v) for v in param_after_roundtrip(values)] == [repr(v) for v in values]


def test_bfloat16_dtype_param() -> None:
    assert param_after_roundtrip(bfloat16()) == bfloat16()


@pytest.mark.parametrize("text", ["B", "2*B + 1", "B // 2", "max(A, B)", "(A + B) % 3"])
def test_dims(text: str) -> None:
    dim = as_dim(text)
    back = param_after_roundtrip((dim, 3))
    assert type(back[0]) is type(dim)
    assert str(back[0]) == str(dim)
    assert hash(back[0]) == hash(dim)


def test_tree_param() -> None:
    _, treedef = tree.flatten({"a": [1, 2], "b": (None, 3)})
    assert param_after_roundtrip(treedef) == treedef


@pytest.mark.parametrize(
    ("value", "kind"),
    [(Unknown(), "Unknown"), (np.int64(3), "int64"), ((1, (np.float32(2),)), "float32"), ([1], "list")],
)
def test_param_without_a_form_is_an_error(value: Any, kind: str) -> None:
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((2,), F32))
    program = builder.build([x])
    bad = copy.copy(with_param(0))
    bad.equations[0].params["value"] = value  # type: ignore[index]
    with pytest.raises(ProgramError, match=rf"^test_codec_tag: the param 'value' is a {kind} "):
        encode(bad, constants={})
    encode(program, constants={})


def test_register_value_refuses_a_taken_tag() -> None:
    with pytest.raises(ValueError, match="the tag 'tuple' is taken"):
        register_value("tuple", Unknown, id, id)
    with pytest.raises(ValueError, match="the tag 'test_codec_pair' is taken"):
        register_value("test_codec_pair", Unknown, id, id)


CONSTANTS = [
    np.array(-0.0, np.float32),
    np.array([np.nan, -np.inf, 1e-40], np.float16),
    np.zeros((0, 3)),
    np.array(True),
    np.arange(6, dtype=np.uint8).reshape(2, 3).T,
    np.array([2**63, 0], np.uint64),
    np.arange(3, dtype=">i4"),
]


@pytest.mark.parametrize("inline_limit", [0, 1000])
@pytest.mark.parametrize("value", CONSTANTS, ids=[f"{c.dtype}{c.shape}" for c in CONSTANTS])
def test_constants(value: Any, inline_limit: int) -> None:
    before = constant_of(with_constant(value))
    after = constant_of(roundtrip(with_constant(value), inline_limit=inline_limit))
    assert after.spec == before.spec
    assert after.value.dtype == value.dtype.newbyteorder("=")
    assert after.value.shape == value.shape
    assert after.value.tobytes() == before.value.tobytes()
    assert not after.value.flags.writeable


@pytest.mark.parametrize("inline_limit", [0, 1000])
def test_bfloat16_constant(inline_limit: int) -> None:
    value = np.array([1.5, -0.0, np.nan], bfloat16())
    after = constant_of(roundtrip(with_constant(value), inline_limit=inline_limit))
    assert after.value.dtype == bfloat16()
    assert after.value.tobytes() == value.tobytes()


def test_weak_constant_stays_weak() -> None:
    after = constant_of(roundtrip(with_constant(2.0, make_spec((), F32, True))))
    assert after.spec == make_spec((), F32, True)


def test_equal_bytes_of_different_types_are_different_constants() -> None:
    builder = ProgramBuilder()
    builder.add_input(make_spec((), F32))
    zeros = [np.zeros(100, np.float32), np.zeros(50, np.float64), np.zeros((10, 10), np.float32)]
    program = builder.build([*(constant(z) for z in zeros), constant(zeros[0])])
    table: dict[str, Any] = {}
    encoded = encode(program, constants=table)
    assert len(table) == 3
    assert encoded["programs"][0]["outputs"] == [-1, -2, -3, -1]
    assert [s.shape for s in roundtrip(program).out_specs] == [(100,), (50,), (10, 10), (100,)]


def nested(depth: int) -> Program:
    """Each level holds the one below twice: 2**depth equations if sharing were lost."""
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((2,), F32))
    (y,) = builder.emit(negative_p, (x,), {}, Source("body.py", 1))
    program = builder.build([y], "level0")
    for level in range(1, depth + 1):
        builder = ProgramBuilder()
        x = builder.add_input(make_spec((2,), F32))
        (y,) = builder.emit(call_p, (x,), {"body": program, "others": (1, (program,))}, None)
        program = builder.build([y], f"level{level}")
    return program


def test_shared_programs_are_written_once() -> None:
    program = nested(200)
    encoded = encode(program, constants={})
    assert len(encoded["programs"]) == 201
    decoded = decode(json.loads(canonical_text(encoded)), {}, sources=encode_sources(program))
    check(decoded)
    params = decoded.equations[0].params
    assert params["body"] is params["others"][1][0]
    assert params["body"].name == "level199"
    assert encode_sources(program)["programs"][0] == [0]


def test_ten_thousand_equations() -> None:
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((3,), F32))
    atom: Any = x
    for i in range(5000):
        (atom,) = builder.emit(multiply_p, (atom, constant(np.float32(i))), {}, None)
        (atom,) = builder.emit(negative_p, (atom,), {}, Source("a.py", i))
    program = builder.build([atom])
    decoded = roundtrip(program)
    assert len(decoded.equations) == 10_000


def encoded_sample() -> tuple[dict[str, Any], dict[str, Any]]:
    table: dict[str, Any] = {}
    return json.loads(json.dumps(encode(sample(), constants=table, inline_limit=8))), table


def test_unknown_primitive() -> None:
    encoded, table = encoded_sample()
    encoded["primitives"][0][0] = "nowhere"
    with pytest.raises(MissingRuleError, match="primitive 'nowhere' is not registered"):
        decode(encoded, table)


def test_other_version_of_a_primitive() -> None:
    encoded, table = encoded_sample()
    encoded["primitives"][1][1] = 7
    with pytest.raises(ArtifactError, match="uses version 7 of primitive 'add'; here it has version 1"):
        decode(encoded, table)


@pytest.mark.parametrize("encoded", [None, [], {}, {"format": 2}, {"format": None}, "x"])
def test_other_format(encoded: Any) -> None:
    with pytest.raises(ArtifactError, match="this onstage reads format 1"):
        decode(encoded, {})


def test_missing_constant() -> None:
    encoded, _ = encoded_sample()
    with pytest.raises(ArtifactError, match=r"a constant is missing: f32\[4,1\]"):
        decode(encoded, {})


def test_changed_constant() -> None:
    encoded, table = encoded_sample()
    (digest,) = table
    with pytest.raises(ArtifactError, match="does not have the content"):
        decode(encoded, {digest: table[digest] + 1})
    with pytest.raises(ArtifactError, match=r"a constant is float64\[4, 1\]; the program wants f32\[4,1\]"):
        decode(encoded, {digest: table[digest].astype("float64")})
    with pytest.raises(ArtifactError, match=r"a constant is float32\[4\]"):
        decode(encoded, {digest: table[digest].ravel()})
    encoded["constants"][1][2] = "AAAAAAAAAAA="
    with pytest.raises(ArtifactError, match="does not have the content"):
        decode(encoded, table)


def _set(path: tuple[Any, ...], value: Any) -> Any:
    def damage(encoded: Any) -> None:
        for key in path[:-1]:
            encoded = encoded[key]
        encoded[path[-1]] = value

    damage.__name__ = f"{path}={value!r}"
    return damage


DAMAGES = [
    _set(("specs", 0, 0), "float33"),
    _set(("specs", 0, 0), "complex64"),
    _set(("specs", 0, 1, 0), "B +"),
    _set(("specs", 0, 1, 1), -4),
    _set(("specs", 0, 1), None),
    _set(("constants", 1, 2), "!!"),
    _set(("constants", 1, 2), "AAAA"),
    _set(("programs", 0, "inputs", 0), 99),
    _set(("programs", 0, "outputs", 0), 99),
    _set(("programs", 0, "outputs", 0), -99),
    _set(("programs", 0, "outputs", 0), "x"),
    _set(("programs", 0, "equations", 0, 0), 99),
    _set(("programs", 0, "equations", 0, 1, 0), 2),
    _set(("programs", 0, "equations", 0), []),
    _set(("programs", 0, "equations", 0, 2), {"permutation": ["tuple", 1.5]}),
    _set(("programs", 0, "equations", 0, 2), {"permutation": ["program", 0]}),
    _set(("programs", 0, "equations", 0, 2), {"permutation": ["what", 0]}),
    _set(("programs", 0, "equations", 0, 2), {"permutation": ["float", "seven"]}),
    _set(("programs", 0, "equations", 0, 2), {"permutation": []}),
    _set(("programs", 0), {}),
    _set(("programs",), []),
    _set(("primitives",), 3),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_damage_is_an_artifact_error(damage: Any) -> None:
    encoded, table = encoded_sample()
    damage(encoded)
    with pytest.raises(ArtifactError):
        decode(encoded, table)


def test_sources_of_another_program() -> None:
    encoded, table = encoded_sample()
    with pytest.raises(ArtifactError, match="do not belong"):
        decode(encoded, table, sources=encode_sources(nested(1)))
    with pytest.raises(ArtifactError, match="damaged"):
        decode(encoded, table, sources={"lines": []})


def test_undefined_operand() -> None:
    builder = ProgramBuilder()
    x = builder.add_input(make_spec((2,), F32))
    (y,) = builder.emit(negative_p, (x,), {}, None)
    with pytest.raises(ProgramError, match="an operand of negative"):
        encode(Program([], builder.equations, [y]), constants={})
    with pytest.raises(ProgramError, match="an output"):
        encode(Program([x], [], [y]), constants={})


def test_real_params_of_structure_ops() -> None:
    builder = ProgramBuilder()
    x = builder.add_input(ArraySpec(("B",), "float32"))
    (y,) = builder.emit(cast_p, (x,), {"dtype": np.dtype("float64"), "weak": False}, None)
    (z,) = builder.emit(broadcast_to_p, (y,), {"shape": (2, as_dim("B"))}, None)
    decoded = roundtrip(builder.build([z]))
    (out,) = evaluate(decoded, [np.float32([1, 2, 3])])
    assert out.dtype == np.float64
    assert out.tolist() == [[1, 2, 3], [1, 2, 3]]
