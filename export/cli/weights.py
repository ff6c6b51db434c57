"""Arrays in files: .npz and .safetensors are read, .npz is written. Nothing in a file is unpickled.

The format of safetensors: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import click
import numpy as np

from ...stage.dtypes import as_dtype
from ...stage.primitive import Array
from ..writing import Transaction, check_target

_SAFETENSORS: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip
_HEADER_LIMIT: Final = 100 << 20


def read_arrays(path: str) -> dict[str, Array]:
    """The arrays of an .npz by name. UsageError for what is no such file or holds Python objects."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise click.UsageError(f"{path} holds one array without a name; write an .npz with numpy.savez")
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise click.UsageError(f"{path} is no .npz of plain arrays: {error}") from error


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """An .npz, there whole or not at all."""
    check_target(path)
    with Transaction() as files:
        files.write(path, [_npz(arrays)])
        files.commit()


def _npz(arrays: Mapping[str, Array]) -> memoryview:
    # Not numpy.savez, which takes the arrays' names as keywords beside its own.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return buffer.getbuffer()


def read_weights(path: str) -> dict[str, Array]:
    """The arrays of an .npz or .safetensors by name, `/` in names written as `.`; UsageError for other files."""
    kind = os.path.splitext(path)[1]
    if kind == ".npz":
        found = read_arrays(path)
    elif kind == ".safetensors":
        found = _read_safetensors(path)
    else:
        raise click.UsageError(f"{path}: weights are read from .npz and .safetensors files")
    return {name.replace("/", "."): array for name, array in found.items()}


def _read_safetensors(path: str) -> dict[str, Array]:
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(_HEADER_LIMIT, size - 8):
            raise click.UsageError(f"{path} is no safetensors file, or a truncated one")
        text = file.read(length)
    try:
        header: dict[str, Any] = json.loads(text)
        data = np.memmap(path, np.uint8, "r", offset=8 + length) if size > 8 + length else np.empty(0, np.uint8)
        return {name: _tensor(path, name, entry, data) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise click.UsageError(f"{path} is no safetensors file: its header is damaged ({type(error).__name__}: {error})") from error


def _tensor(path: str, name: str, entry: Mapping[str, Any], data: Array) -> Array:
    if entry["dtype"] not in _SAFETENSORS:
        raise click.UsageError(f"{path}: {name} is {entry['dtype']}; of safetensors' types {', '.join(_SAFETENSORS)} are read")
    dtype, shape = as_dtype(_SAFETENSORS[entry["dtype"]]), tuple(int(d) for d in entry["shape"])
    start, end = (int(i) for i in entry["data_offsets"])
    if not 0 <= start <= end <= len(data) or end - start != math.prod(shape) * dtype.itemsize:
        raise click.UsageError(f"{path}: {name} lies outside of the file, or has another size than its shape says")
    array = data[start:end].view(dtype).reshape(shape)
    # ONNX Runtime is handed large arrays as they lie in memory.
    return array if array.flags.aligned else array.copy()
