"""load(): a file that `save` wrote becomes a StagedProgram again. Every part of it is held against the digests in its metadata.

Nothing that a file names is imported or run.
"""

from __future__ import annotations

import base64
import json
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ..stage.check import check
from ..stage.codec import Json, decode
from ..stage.dtypes import as_dtype
from ..stage.errors import ArtifactError, MissingRuleError, OnstageError
from ..stage.primitive import Array
from ..stage.staged import StagedProgram
from ._lazy import onnx, protobuf_message
from .metadata import (
    FORMAT,
    PREFIX,
    READABLE,
    bare,
    decode_signature,
    graph_digests,
    metadata_digest,
    sha256,
    unpack,
)
from .signatures import dtype_of

ReadData: TypeAlias = Callable[[str, int, int], Array]
"""(name of a data file, offset, length) -> uint8 array."""

_KEYS: Final = ("version", "hash", "signature", "program", "verification", "digests")
_PARTS: Final = {
    "inputs": "inputs",
    "outputs": "outputs",
    "nodes": "nodes",
    "initializers": "initializers",
    "rest": "version or name",
}
# What reading a damaged or made-up object raises.
_DAMAGE: Final = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    EOFError,
    OSError,
    RecursionError,
    StopIteration,
)


def load(path: str | os.PathLike[str]) -> StagedProgram:
    """The program in a file that `program.save(path)` wrote: it runs, prints, and can be differentiated, frozen and saved again.

    Static arguments that a file cannot hold (see `UnknownStatic`) are left out of its signature, with a UserWarning; another UserWarning says
    that a file was saved with verify=False.
    Raises FileNotFoundError where there is no such file; ArtifactError, naming the file and what is wrong, for one that is damaged,
    edited, of an unknown format or not onstage's; MissingRuleError for a custom primitive that is not registered.
    """
    name = os.fsdecode(path)
    if os.path.isdir(name):
        raise ArtifactError(f"{name}: a directory; load takes the .onnx file that program.save wrote")
    with open(name, "rb") as file:
        data = file.read()
    restored = restore(data, data_reader(name), name)
    if not restored.verification["verified"]:
        warnings.warn(
            f"{name} was saved with verify=False: nothing says that it computes what its program does",
            UserWarning,
            stacklevel=2,
        )
    if restored.lost:
        warnings.warn(
            f"{name} does not hold the static values of {', '.join(restored.lost)}; call the loaded program without them",
            UserWarning,
            stacklevel=2,
        )
    return restored.staged


class Restored(NamedTuple):
    """verification: what the file says of how it was verified. lost: arguments whose static values are not in the file."""

    staged: StagedProgram
    verification: dict[str, Any]
    lost: list[str]


def restore(data: bytes, read: ReadData, path: str) -> Restored:
    """What is in the bytes of a file; `read` gives what is in the data file beside it. Errors as of `load`; they begin with `path`."""
    try:
        model = _parse(data)
        properties = _properties(model)
        contents = _check_digests(model, properties, read)
        return _rebuild(model, properties, contents, read)
    except MissingRuleError as error:
        raise MissingRuleError(f"{path}: {error.message}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error.message}") from error.__cause__
    except OnstageError as error:
        raise ArtifactError(f"{path}: {error.message}") from error
    except _DAMAGE as error:
        raise ArtifactError(f"{path}: its metadata is damaged ({type(error).__name__}: {error})") from error


def _parse(data: bytes) -> Any:
    if not data:
        raise ArtifactError("an empty file")
    try:
        model = onnx.ModelProto.FromString(data)
    except protobuf_message.DecodeError as error:
        raise ArtifactError("no ONNX file, or a truncated or damaged one") from error
    if not model.HasField("graph"):
        raise ArtifactError("no ONNX file, or a truncated one: it holds no graph")
    return model


def _properties(model: Any) -> dict[str, str]:
    """The metadata, whole and of a format that is read here."""
    properties = {p.key: p.value for p in model.metadata_props}
    version = properties.get(PREFIX + "format")
    if version is None:
        made_by = model.producer_name or "unknown tool"
        raise ArtifactError(
            f"an ONNX file that holds no onstage program (producer: {made_by}); load reads what program.save wrote, whole and unedited"
        )
    if not version.isdecimal() or int(version) not in READABLE:
        written = properties.get(PREFIX + "version", "unknown")
        raise ArtifactError(
            f"artifact format {version!r}, written by onstage {written}; this onstage reads {', '.join(map(str, sorted(READABLE)))}"
            + ("; a newer onstage is needed" if version.isdecimal() and int(version) > FORMAT else "")
        )
    missing = [PREFIX + key for key in _KEYS if PREFIX + key not in properties]
    if missing:
        raise ArtifactError(f"its metadata lacks {', '.join(missing)}: truncated or edited")
    return properties


def _check_digests(model: Any, properties: Mapping[str, str], read: ReadData) -> dict[str, Array]:
    """The content of the large initializers, by name; ArtifactError for what is not as it was written."""
    digests = json.loads(properties[PREFIX + "digests"])
    others = {k: v for k, v in properties.items() if k != PREFIX + "digests"}
    written = metadata_digest(others, digests["graph"], digests["initializers"])
    if written != digests["metadata"] or len(properties) != len(model.metadata_props):
        raise ArtifactError("its metadata was changed after it was written")
    contents: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.name in digests["initializers"]:
            content, place = _content(tensor, read)
            if sha256(content) != digests["initializers"][tensor.name]:
                raise ArtifactError(f"the initializer {tensor.name!r}{place} was changed after it was written")
            contents[tensor.name] = content
            bare(tensor)
    graph = graph_digests(model)
    changed = [text for part, text in _PARTS.items() if graph[part] != digests["graph"][part]]
    if changed:
        raise ArtifactError(f"the graph was changed after it was written: its {', '.join(changed)}")
    return contents


def _content(tensor: Any, read: ReadData) -> tuple[Array, str]:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return np.frombuffer(tensor.raw_data, np.uint8), ""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries["location"]
    return read(location, int(entries["offset"]), int(entries["length"])), f" in {location}"


def data_reader(path: str) -> ReadData:
    """Reads what stands in the data files beside the model at `path`."""
    folder = os.path.dirname(path)
    maps: dict[str, Array] = {}

    def read(location: str, offset: int, length: int) -> Array:
        if location not in maps:
            if os.path.basename(location) != location or location in ("", ".", ".."):
                raise ArtifactError(f"its data file {location!r} is not beside it")
            file = os.path.join(folder, location)
            if not os.path.isfile(file):
                raise ArtifactError(f"its data file {location} is missing; it belongs beside the model")
            maps[location] = np.memmap(file, np.uint8, "r") if os.path.getsize(file) else np.empty(0, np.uint8)
        data = maps[location]
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ArtifactError(f"its data file {location} is truncated: {len(data):,} bytes, at least {offset + length:,} are needed")
        return data[offset : offset + length]

    return read


def _rebuild(model: Any, properties: Mapping[str, str], contents: Mapping[str, Array], read: ReadData) -> Restored:
    packed = unpack(properties[PREFIX + "program"])
    program = decode(packed["program"], _constants(model, packed, contents, read), sources=packed["sources"])
    check(program)
    staged, lost = decode_signature(json.loads(properties[PREFIX + "signature"]), program)
    _check_names(model, staged)
    if staged.hash != properties[PREFIX + "hash"]:
        raise ArtifactError("its program does not have the hash that it was written with")
    verification = json.loads(properties[PREFIX + "verification"])
    if not isinstance(verification["verified"], bool):
        raise TypeError("verified is true or false")
    return Restored(staged, verification, lost)


def _constants(model: Any, packed: Json, contents: Mapping[str, Array], read: ReadData) -> dict[str, Array]:
    """The large constants of the Program, by digest."""
    encoded = packed["program"]
    specs = {digest: encoded["specs"][spec] for spec, digest, _ in encoded["constants"]}
    initializers = {t.name: (dtype_of(t.data_type), tuple(t.dims)) for t in model.graph.initializer if t.name in contents}
    constants: dict[str, Array] = {}
    for digest, place in packed["constants"].items():
        match place:
            case ["initializer", str(name)]:
                dtype, shape = initializers[name]
                data = contents[name]
            case ["data", int(offset), int(length)]:
                data = read(packed["data"], offset, length)
                dtype, shape = as_dtype(specs[digest][0]), specs[digest][1]
            case ["inline", str(text)]:
                data = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
                dtype, shape = as_dtype(specs[digest][0]), specs[digest][1]
            case _:
                raise ValueError(f"{place!r} is no place of a constant")
        constants[digest] = np.frombuffer(data, dtype).reshape(shape)
    return constants


def _check_names(model: Any, staged: StagedProgram) -> None:
    graph = model.graph
    for kind, names, values in (
        ("inputs", staged.in_names, graph.input),
        ("outputs", staged.out_names, graph.output),
    ):
        if [v.name for v in values] != list(names):
            raise ArtifactError(f"the {kind} of the graph are not those of its program")
