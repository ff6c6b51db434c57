"""Any ONNX file as the verbs see it: what goes in and out, inputs made up or read, sessions."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import numpy as np

from ...stage.config import current_options
from ...stage.dims import Dim, as_dim, evaluate, names_of
from ...stage.dtypes import DType, is_float, short_name
from ...stage.errors import ArtifactError, OnstageError, ShapeError, UnsupportedError
from ...stage.primitive import Array
from ...stage.spec import ArraySpec, make_spec
from .._lazy import onnx, onnx_numpy_helper, protobuf_message
from ..metadata import PREFIX
from ..runtime.binding import Executable
from ..runtime.session import make_session
from ..signatures import dtype_of
from .weights import read_arrays

Size = int | str | None
_KINDS: Final = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse tensor", 9: "optional"}


@dataclass(frozen=True)
class Value:
    """An input or output. dtype: None for what is no array that is computed with here. shape: sizes, names, None for unknown; None without a rank."""

    name: str
    kind: str
    dtype: DType | None
    shape: tuple[Size, ...] | None

    def __str__(self) -> str:
        dtype = short_name(self.dtype) if self.dtype is not None else self.kind
        shape = "[...]" if self.shape is None else f"[{','.join('?' if d is None else str(d) for d in self.shape)}]"
        return f"{dtype}{shape}" if self.dtype is not None else self.kind

    @property
    def array_dtype(self) -> DType:
        """The dtype; UnsupportedError where the value is no array of numbers."""
        if self.dtype is None:
            raise UnsupportedError(f"{self.name} is a {self.kind}; only arrays of numbers and booleans are read and written here")
        return self.dtype


class OnnxFile:
    """A parsed model with its path. Weights in files beside it stay there until they are asked for."""

    def __init__(self, path: str) -> None:
        """ArtifactError where the file is no ONNX model."""
        self.path = path
        with open(path, "rb") as file:
            self.data = file.read()
        try:
            self.proto: Any = onnx.ModelProto.FromString(self.data)
        except protobuf_message.DecodeError as error:
            raise ArtifactError(f"{path}: no ONNX file, or a truncated or damaged one") from error
        if not self.proto.HasField("graph"):
            raise ArtifactError(f"{path}: no ONNX file, or a truncated one: it holds no graph")
        graph = self.proto.graph
        held = {t.name for t in graph.initializer}
        self.inputs = tuple(_value(v) for v in graph.input if v.name not in held)
        self.outputs = tuple(_value(v) for v in graph.output)
        self.properties: dict[str, str] = {p.key: p.value for p in self.proto.metadata_props}

    @property
    def is_ours(self) -> bool:
        return PREFIX + "format" in self.properties

    @property
    def opset(self) -> int:
        """Of the standard domain."""
        return next((o.version for o in self.proto.opset_import if o.domain in ("", "ai.onnx")), 0)

    @functools.cached_property
    def is_external(self) -> bool:
        return any(t.data_location == onnx.TensorProto.EXTERNAL for t in self.proto.graph.initializer)

    def weight(self, tensor: Any) -> Array:
        """The array of an initializer, wherever its bytes are. ArtifactError where they cannot be had."""
        try:
            return onnx_numpy_helper.to_array(tensor, os.path.dirname(os.path.abspath(self.path)))
        except (OSError, ValueError, TypeError, onnx.checker.ValidationError) as error:
            raise ArtifactError(f"{self.path}: the initializer {tensor.name!r} cannot be read: {error}") from error

    def dim_names(self) -> list[str]:
        """Names of sizes that are free, in order of appearance."""
        found: dict[str, None] = {}
        for value in self.inputs:
            for size in value.shape or ():
                if isinstance(size, str):
                    found.update(dict.fromkeys(_names_in(size)))
        return list(found)


def _value(info: Any) -> Value:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Value(info.name, (kind or "value of unknown type").removesuffix("_type").replace("_", " "), None, None)
    tensor = info.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
    try:
        return Value(info.name, "tensor", dtype_of(tensor.elem_type), shape)
    except UnsupportedError:
        return Value(info.name, f"tensor of {onnx.TensorProto.DataType.Name(tensor.elem_type)}", None, shape)


# ---- sizes and inputs


def _expression(text: str) -> Dim | None:
    """A dim's text as an expression of names; None where it is none (other tools write any text)."""
    try:
        dim = as_dim(text)
    except ShapeError:
        return None
    return dim if isinstance(dim, Dim) else None


def _names_in(text: str) -> tuple[str, ...]:
    dim = _expression(text)
    return (text,) if dim is None else names_of(dim)


def read_sizes(words: Sequence[str]) -> dict[str, int]:
    """`B=8` words."""
    sizes: dict[str, int] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals or not name or not value.isdecimal():
            raise click.UsageError(f"--dim {word!r}: write NAME=SIZE")
        sizes[name] = int(value)
    return sizes


def concrete(shape: tuple[Size, ...] | None, sizes: Mapping[str, int], default: int) -> tuple[int, ...]:
    """A shape with its names replaced, `default` for those without a size; () without a rank."""
    result: list[int] = []
    for size in shape or ():
        dim = _expression(size) if isinstance(size, str) else None
        if dim is not None:
            result.append(evaluate(dim, {n: sizes.get(n, default) for n in names_of(dim)}))
        elif isinstance(size, str):
            result.append(sizes.get(size, default))
        else:
            result.append(default if size is None else size)
    return tuple(result)


def check_sizes(model: OnnxFile, sizes: Mapping[str, int]) -> None:
    """UsageError for a name that is no dim of the model."""
    known = model.dim_names()
    unknown = [n for n in sizes if n not in known]
    if unknown:
        raise click.UsageError(f"--dim {unknown[0]}: {model.path} has {', '.join(known) or 'no named dims'}")


def made_up(model: OnnxFile, sizes: Mapping[str, int], *, default: int, seed: int) -> dict[str, Array]:
    """Inputs: normal floats, zeros and ones as integers and booleans."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for value in model.inputs:
        dtype, shape = value.array_dtype, concrete(value.shape, sizes, default)
        if is_float(dtype):
            arrays[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[value.name] = rng.integers(0, 2, shape).astype(dtype)
    return arrays


def given_inputs(model: OnnxFile, path: str) -> dict[str, Array]:
    """Inputs from an .npz, in the model's order; UsageError for names, dtypes or shapes that it does not take."""
    found = read_arrays(path)
    names = [v.name for v in model.inputs]
    missing, extra = [n for n in names if n not in found], [n for n in found if n not in names]
    if missing or extra:
        problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)}, which is no input"
        raise click.UsageError(f"{path} {problem}; {model.path} takes {', '.join(names) or 'nothing'}")
    return {v.name: _fitting(v, found[v.name], path) for v in model.inputs}


def _fitting(value: Value, array: Array, path: str) -> Array:
    dtype = value.array_dtype
    # NumPy's files do not know bfloat16 and keep its bytes.
    if dtype.name == "bfloat16" and array.dtype == np.dtype("V2"):
        array = array.view(dtype)
    fixed = list(value.shape or ())
    fits = value.shape is None or (
        len(fixed) == array.ndim and all(not isinstance(s, int) or s == n for s, n in zip(fixed, array.shape, strict=True))
    )
    if array.dtype.newbyteorder("=") != dtype or not fits:
        got = f"{short_name(array.dtype)}[{','.join(map(str, array.shape))}]"
        raise click.UsageError(f"{path}: {value.name} is {got}, the model takes {value}")
    return array


def input_arrays(model: OnnxFile, inputs: str | None, dims: Sequence[str], *, default: int, seed: int) -> dict[str, Array]:
    """What --inputs names, else made-up inputs of the sizes of --dim."""
    if inputs is not None:
        if dims:
            raise click.UsageError("--dim goes with made-up inputs, not with --inputs")
        return given_inputs(model, inputs)
    sizes = read_sizes(dims)
    check_sizes(model, sizes)
    return made_up(model, sizes, default=default, seed=seed)


# ---- running


@dataclass(frozen=True)
class Runner:
    """A session of a model: call it with arrays by name."""

    model: OnnxFile
    executable: Executable

    @property
    def providers(self) -> list[str]:
        return list(self.executable.session.get_providers())

    def on(self, session: Any) -> Runner:
        """The same with another session of the model."""
        return _runner(self.model, session)

    def __call__(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name. OnstageError where ONNX Runtime fails."""
        try:
            outputs = self.executable([arrays[v.name] for v in self.model.inputs], self.model.path)
        except IndexError as error:
            raise OnstageError(str(error)) from error
        return dict(zip([v.name for v in self.model.outputs], outputs, strict=True))


def _runner_specs(model: OnnxFile) -> list[ArraySpec]:
    """Dtypes alone, since shapes are ONNX Runtime's to check. UnsupportedError for what is no array."""
    return [make_spec((), v.array_dtype) for v in (*model.inputs, *model.outputs)]


def _runner(model: OnnxFile, session: Any) -> Runner:
    names = [v.name for v in model.inputs], [v.name for v in model.outputs]
    return Runner(model, Executable(session, *names, _runner_specs(model)))


def session_maker(model: OnnxFile, *, level: str, provider: str, threads: int | None) -> Callable[[str], Any]:
    """make(profile_prefix) gives a session of the file."""
    options = dataclasses.replace(current_options(), provider=provider, threads=threads)
    # From its path, so that ONNX Runtime finds what stands beside it.
    return lambda prefix: make_session(model.path, options, level=level, profile_prefix=prefix)


def open_session(model: OnnxFile, *, level: str = "all", provider: str = "cpu", threads: int | None = None) -> Runner:
    """OnstageError where ONNX Runtime refuses the model, ProviderError where the provider is not usable."""
    _runner_specs(model)  # refused before the time that loading takes
    session = session_maker(model, level=level, provider=provider, threads=threads)("")
    return _runner(model, session)


# ---- what inference finds


def with_sizes(model: OnnxFile, sizes: Mapping[str, int], default: int) -> Any:
    """A copy of the graph whose inputs have concrete shapes, after shape inference. OnstageError where inference fails."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    del graph.value_info[:]
    shapes = {v.name: v.shape for v in model.inputs}
    for info in graph.input:
        if shapes.get(info.name) is not None:
            tensor = info.type.tensor_type
            for dim, size in zip(tensor.shape.dim, concrete(shapes[info.name], sizes, default), strict=True):
                dim.dim_value = size
    for info in graph.output:
        if info.type.WhichOneof("value") == "tensor_type":
            for dim in info.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise OnstageError(f"{model.path}: shape inference fails: {error}") from error


def value_shapes(inferred: Any) -> dict[str, tuple[DType, tuple[int, ...]]]:
    """(dtype, shape) of each array whose shape is wholly known."""
    graph = inferred.graph
    found: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for tensor in graph.initializer:
        _note(found, tensor.name, tensor.data_type, tuple(tensor.dims))
    for info in (*graph.input, *graph.output, *graph.value_info):
        value = _value(info)
        if value.dtype is not None and value.shape is not None and all(isinstance(d, int) for d in value.shape):
            found.setdefault(info.name, (value.dtype, tuple(int(d or 0) for d in value.shape)))
    return found


def value_dtypes(inferred: Any) -> dict[str, DType]:
    """The dtype of each array, of known shape or not."""
    graph = inferred.graph
    found: dict[str, DType] = {}
    for tensor in graph.initializer:
        _note_dtype(found, tensor.name, tensor.data_type)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.WhichOneof("value") == "tensor_type":
            _note_dtype(found, info.name, info.type.tensor_type.elem_type)
    return found


def _note(found: dict[str, tuple[DType, tuple[int, ...]]], name: str, number: int, shape: tuple[int, ...]) -> None:
    dtypes: dict[str, DType] = {}
    _note_dtype(dtypes, name, number)
    if name in dtypes:
        found[name] = (dtypes[name], shape)


def _note_dtype(found: dict[str, DType], name: str, number: int) -> None:
    try:
        found[name] = dtype_of(number)
    except UnsupportedError:
        return  # strings and the like: nothing is said of them


def tensor_bytes(tensor: Any) -> int:
    """Size of an initializer, without reading it."""
    try:
        return math.prod(tensor.dims) * dtype_of(tensor.data_type).itemsize
    except UnsupportedError:
        return len(tensor.raw_data)


def bytes_text(count: int) -> str:
    """`4.2 MB`."""
    size = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{count:,} bytes"
