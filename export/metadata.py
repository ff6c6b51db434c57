"""What a file says of itself in its metadata: format, hash, signature, Program, digests. Writing (artifact.py) and reading (load.py) meet here.

onstage.format        the format's number
onstage.version       the version of onstage that wrote the file
onstage.hash          the structural hash
onstage.signature     JSON: arguments, trees, names and specs of inputs and outputs
onstage.program       packed: the canonical Program, source lines, and where each large constant is
onstage.verification  JSON: whether and how the file was verified
onstage.digests       JSON: SHA-256 of the parts of the graph, of each large initializer, and of all this
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..stage import tree
from ..stage.codec import Json, canonical_text
from ..stage.dims import Dim, dim_text
from ..stage.errors import ArtifactError, UnsupportedError
from ..stage.program import Program
from ..stage.signature import Signature
from ..stage.spec import ArraySpec, StaticSpec
from ..stage.staged import StagedProgram
from ..stage.statics import decode_static, encode_static, unknown_in
from ._lazy import bz2, onnx

FORMAT: Final = 1
READABLE: Final = frozenset({1})
"""The formats that `load` reads: FORMAT and the one before it."""

PREFIX: Final = "onstage."
LARGE: Final = 256
"""Initializers of more bytes have a digest of their own, and may stand for constants of the Program."""


def pack(obj: Json) -> str:
    """A JSON-able object as compressed text. bzip2, since what zlib gives differs between its implementations."""
    return base64.b64encode(bz2.compress(canonical_text(obj).encode("ascii"))).decode("ascii")


def unpack(text: str) -> Json:
    return json.loads(bz2.decompress(base64.b64decode(text, validate=True)))


# ---- digests


def sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def graph_digests(model: Any) -> dict[str, str]:
    """SHA-256 by part of a model without the content of its large initializers (see `bare`) and without metadata."""
    graph = model.graph
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    del rest.metadata_props[:]
    for field in ("node", "input", "output", "initializer"):
        rest.graph.ClearField(field)
    return {
        "nodes": _sequence_digest(graph.node),
        "inputs": _sequence_digest(graph.input),
        "outputs": _sequence_digest(graph.output),
        "initializers": _sequence_digest(graph.initializer),
        "rest": sha256(_bytes(rest)),
    }


def bare(tensor: Any) -> None:
    """Take out of an initializer what says where its content is, and the content."""
    for field in ("raw_data", "data_location", "external_data"):
        tensor.ClearField(field)


def metadata_digest(properties: Mapping[str, str], graph: Mapping[str, str], contents: Mapping[str, str]) -> str:
    """SHA-256 over all metadata but the digests, and over the other digests."""
    return sha256(canonical_text([dict(properties), dict(graph), dict(contents)]).encode("ascii"))


def _sequence_digest(messages: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for message in messages:
        data = _bytes(message)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _bytes(message: Any) -> bytes:
    return message.SerializeToString(deterministic=True)


# ---- signatures


def encode_signature(staged: StagedProgram) -> Json:
    """Arguments, trees, names and specs as a JSON-able object; UnsupportedError for dict keys that have no such form."""
    signature = staged.signature
    try:
        trees = signature.tree.encode(), staged.out_tree.encode()
    except TypeError as error:
        raise UnsupportedError(f"{staged.name}: its arguments cannot be kept in a file: {error}") from None
    return {
        "name": staged.name,
        "parameters": [[p.name, p.kind.name] for p in signature.parameters],
        "static_arguments": {name: encode_static(v) for name, v in signature.static_arguments.items()},
        "tree": trees[0],
        "statics": [[i, encode_static(v)] for i, v in sorted(signature.statics.items())],
        "out_tree": trees[1],
        "donate": list(staged.donate),
        "inputs": _rows(staged.in_names, staged.program.in_specs),
        "outputs": _rows(staged.out_names, staged.program.out_specs),
    }


def _rows(names: Iterable[str], specs: Iterable[ArraySpec]) -> Json:
    return [
        [name, spec.dtype.name, [dim_text(d) if isinstance(d, Dim) else d for d in spec.shape], spec.weak]
        for name, spec in zip(names, specs, strict=True)
    ]


def decode_signature(obj: Json, program: Program) -> tuple[StagedProgram, list[str]]:
    """The Program with its signature, and the paths of static values that the file does not hold, with what they were.

    Those arguments, or the parts of arguments, are left out of the signature. Raises ArtifactError where the two do not fit,
    ValueError, TypeError, KeyError and the like for a damaged object.
    """
    treedef, out_tree = tree.TreeDef.decode(obj["tree"]), tree.TreeDef.decode(obj["out_tree"])
    statics: dict[int, Any] = {int(i): decode_static(v) for i, v in obj["statics"]}
    lost: list[Any] = []
    leaves: list[Any] = list(program.in_specs)
    for i in sorted(statics):
        unknown = unknown_in(statics[i])
        leaf: Any = StaticSpec(statics[i])
        if unknown is not None:
            leaf = ArraySpec((), bool)  # taken out again below
            lost.append((leaf, unknown.label))
        leaves.insert(i, leaf)
    dynamic = iter(tree.unflatten(treedef, leaves))
    parameters: list[inspect.Parameter] = []
    values: list[Any] = []
    notes: list[str] = []
    for name, kind in obj["parameters"]:
        parameter = inspect.Parameter(name, inspect._ParameterKind[kind])
        if name not in obj["static_arguments"]:
            value = next(dynamic)
        else:
            static = decode_static(obj["static_arguments"][name])
            unknown = unknown_in(static)
            if unknown is not None:
                notes.append(f"{name} ({unknown.label})")
                continue
            value = StaticSpec(static)
        parameters.append(parameter)
        values.append(value)
    signature = Signature(parameters, values, obj["name"])
    removed = {i for i, spec in enumerate(signature.specs) for leaf, _ in lost if spec is leaf}
    if removed:
        notes += [f"{signature.paths[i]} ({label})" for i, (_, label) in zip(sorted(removed), lost, strict=True)]
        signature = signature.without(removed, signature.specs)
    staged = StagedProgram(program, signature, out_tree, donate=obj["donate"])
    if signature.specs != program.in_specs or out_tree.num_leaves != len(program.outputs):
        raise ArtifactError("the signature does not fit the program")
    for kind, names, specs in (
        ("inputs", staged.in_names, program.in_specs),
        ("outputs", staged.out_names, program.out_specs),
    ):
        if obj[kind] != _rows(names, specs):
            raise ArtifactError(f"the {kind} in the signature are not those of the program")
    return staged, notes
