"""The artifact of a program: an ONNX file's final bytes, its metadata, and what stands in a data file beside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from ..stage.codec import Json, canonical_text, content_digest, encode, encode_sources
from ..stage.errors import UnsupportedError
from ..stage.primitive import Array
from ..stage.spec import make_spec
from ..stage.staged import StagedProgram
from ._lazy import onnx
from .lower import Lowered, lower_program
from .metadata import (
    FORMAT,
    LARGE,
    PREFIX,
    bare,
    encode_signature,
    graph_digests,
    metadata_digest,
    pack,
    sha256,
)

DATA_SUFFIX: Final = ".data"
EXTERNAL: Final = ("auto", "always", "never")
# From this many bytes of constants on, "auto" puts them beside the model.
_AUTO_ABOVE: Final = 1 << 30
# Smaller constants stay in the model: sizes and indices, which ONNX Runtime's shape inference reads there.
_STAYS: Final = 1 << 10
_PROTOBUF_LIMIT: Final = (1 << 31) - 1
# Large tensors begin at a multiple of the pages that the systems map files by (64 KiB on Windows), others of a cache line.
_PAGE, _LINE, _PAGED_FROM = 1 << 16, 1 << 6, 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """The file beside a model: arrays at offsets in bytes, in ascending order.

    offsets: those of the initializers in it, by name, and of constants of the Program that the graph has not, by digest.
    """

    name: str
    arrays: list[tuple[int, Array]]
    offsets: dict[str, int]


@dataclass(frozen=True, slots=True)
class Artifact:
    """model: the final bytes. data: None where all is in the model. lowered: what they were made of, `detached` being what is in `data`."""

    model: bytes
    data: DataFile | None
    lowered: Lowered

    def read_data(self, location: str, offset: int, length: int) -> Array:
        """A part of the data file, as uint8."""
        arrays = {} if self.data is None else dict(self.data.arrays)
        return raw_bytes(arrays[offset])


def build(
    staged: StagedProgram,
    file_name: str,
    verification: Mapping[str, Any],
    *,
    external: str = "auto",
    target: str = "onnx",
    opset: int | None = None,
) -> Artifact:
    """Lower a program under its own names and attach the metadata.

    file_name: without folders. verification: what the file says of how it was verified. external: see `StagedProgram.save`. target, opset: as for `to_onnx`.
    Equal programs, names and source lines give equal bytes on every machine.
    Raises UnsupportedError for what cannot be lowered or kept in a file.
    """
    if external not in EXTERNAL:
        raise ValueError(f"save: external is {external!r}, not one of {', '.join(map(repr, EXTERNAL))}")
    signature = encode_signature(staged)
    lowered = lower_program(
        staged.optimized[0],
        staged.in_names,
        staged.out_names,
        opset=opset,
        target=target,
        name=staged.name or "program",
        detach_above=LARGE,
    )
    model, initializers = lowered.model, lowered.detached
    contents = {name: sha256(raw_bytes(array)) for name, array in initializers.items()}
    constants: dict[str, Array] = {}
    encoded = encode(staged.program, constants=constants, inline_limit=LARGE)
    by_digest = {content_digest(make_spec(a.shape, a.dtype), contents[name]): name for name, a in initializers.items()}
    kept = {digest: array for digest, array in constants.items() if digest not in by_digest}

    data = None
    if _is_external(staged.name, external, [*initializers.values(), *kept.values()]):
        data = _place(file_name + DATA_SUFFIX, initializers, kept)
    packed = {
        "program": encoded,
        "sources": encode_sources(staged.program),
        "constants": {digest: _location(digest, array, by_digest, data) for digest, array in constants.items()},
        "data": None if data is None else data.name,
    }
    properties = {
        PREFIX + "format": str(FORMAT),
        PREFIX + "version": version("onstage"),
        PREFIX + "hash": staged.hash,
        PREFIX + "signature": canonical_text(signature),
        PREFIX + "program": pack(packed),
        PREFIX + "verification": canonical_text(dict(verification)),
    }
    _attach(model, properties, contents)
    _fill(model, initializers, data)
    outside = {} if data is None else {n: a for n, a in initializers.items() if n in data.offsets}
    return Artifact(model.SerializeToString(deterministic=True), data, lowered._replace(detached=outside))


def raw_bytes(array: Array) -> Array:
    """The bytes of an array without a copy, as uint8."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _is_external(name: str, external: str, arrays: list[Array]) -> bool:
    total = sum(a.nbytes for a in arrays)
    if external == "never" and total > _PROTOBUF_LIMIT:
        raise UnsupportedError(
            f"{name}: its constants take {total:,} bytes and a file holds at most {_PROTOBUF_LIMIT:,}; "
            'save with external="auto", which puts them beside the model'
        )
    return external != "never" and any(a.nbytes > _STAYS for a in arrays) and (external == "always" or total > _AUTO_ABOVE)


def _place(name: str, initializers: Mapping[str, Array], kept: Mapping[str, Array]) -> DataFile:
    """Offsets for the arrays that go beside the model: initializers, then constants of the Program that the graph has not."""
    arrays: list[tuple[int, Array]] = []
    offsets: dict[str, int] = {}
    end = 0
    for key, array in (*initializers.items(), *kept.items()):
        if array.nbytes > _STAYS:
            step = _PAGE if array.nbytes >= _PAGED_FROM else _LINE
            offsets[key] = -(-end // step) * step
            arrays.append((offsets[key], array))
            end = offsets[key] + array.nbytes
    return DataFile(name, arrays, offsets)


def _location(digest: str, array: Array, by_digest: Mapping[str, str], data: DataFile | None) -> Json:
    """Where a constant of the Program is: ["initializer", name], ["data", offset, bytes] or ["inline", base64]."""
    if digest in by_digest:
        return ["initializer", by_digest[digest]]
    if data is not None and digest in data.offsets:
        return ["data", data.offsets[digest], array.nbytes]
    return ["inline", base64.b64encode(raw_bytes(array).tobytes()).decode("ascii")]


def _attach(model: Any, properties: dict[str, str], contents: Mapping[str, str]) -> None:
    """Add the metadata, digests of the graph and of the metadata itself included."""
    for tensor in model.graph.initializer:
        if tensor.name in contents:
            bare(tensor)
    graph = graph_digests(model)
    digests = {
        "graph": graph,
        "initializers": dict(contents),
        "metadata": metadata_digest(properties, graph, contents),
    }
    for key, value in sorted({**properties, PREFIX + "digests": canonical_text(digests)}.items()):
        model.metadata_props.add(key=key, value=value)


def _fill(model: Any, initializers: Mapping[str, Array], data: DataFile | None) -> None:
    """Give the large initializers their content, or say where in the data file it is."""
    for tensor in model.graph.initializer:
        array = initializers.get(tensor.name)
        if array is None:
            continue
        if data is None or tensor.name not in data.offsets:
            tensor.raw_data = raw_bytes(array).tobytes()
            continue
        tensor.data_location = onnx.TensorProto.EXTERNAL
        place = {"location": data.name, "offset": data.offsets[tensor.name], "length": array.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
