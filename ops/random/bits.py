"""random_bits: the primitive under all random numbers, one stream of words for each key."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...stage.dims import product
from ...stage.dtypes import INT64, DType, as_dtype, short_name
from ...stage.errors import DTypeError, ProgramError
from ...stage.primitive import Array, Case, Primitive, Sample
from ...stage.spec import ArraySpec, Shape, make_spec
from ...stage.trace import bind
from ..structure import move_axis
from .keys import NUMBERS, as_key, mix, sample_shape
from .words import UINT64, NumpyWords, OnnxWords, squares


def _abstract(keys: ArraySpec, *, shape: Shape, bits: int, dtype: DType) -> ArraySpec:
    if keys.dtype != UINT64:
        raise ProgramError(f"random_bits: keys are {short_name(keys.dtype)}, not u64")
    return make_spec((*keys.shape, *shape), dtype)


def _numpy(keys: Array, *, shape: tuple[int, ...], bits: int, dtype: DType) -> Array:
    counters = np.arange(math.prod(shape), dtype=np.uint64)
    words = squares(NumpyWords(), counters, keys[..., None], bits)
    return words.reshape((*keys.shape, *shape)).astype(dtype)


def _batch(ctx: Any, args: Any, axes: Any, /, **params: Any) -> Any:
    return bind(random_bits_p, move_axis(args[0], axes[0], 0), **params), 0


def _onnx(b: Any, keys: str, *, shape: Shape, bits: int, dtype: DType) -> str:
    m = OnnxWords(b)
    several = b.in_specs[0].shape
    if several:
        keys = b.op("Unsqueeze", keys, b.const([len(several)], INT64))
    counters = b.op("Range", b.const(0, INT64), b.dim(product(shape)), b.const(1, INT64))
    words = squares(m, m.value(b.cast(counters, UINT64)), m.value(keys), bits)
    result = b.cast(words.name, dtype)
    return result if len(shape) == 1 else b.op("Reshape", result, b.shape((*several, *shape)), allowzero=1)


def _case(keys: Any, shape: tuple[int, ...], bits: int, dtype: str, named: Any = None) -> Case:
    values = np.asarray(keys, np.uint64)
    return Case(
        (Sample(values.shape, "uint64", values=values),),
        {"shape": shape, "bits": bits, "dtype": np.dtype(dtype)},
        named=named,
    )


random_bits_p = Primitive(
    "random_bits",
    abstract=_abstract,
    numpy=_numpy,
    nondifferentiable="random bits are integers",
    batch=_batch,
    onnx=_onnx,
    exact=True,
    cases=[
        _case(12345678901234567890, (2, 3), 32, "uint32"),
        _case(2**64 - 1, (5,), 64, "uint64"),
        _case([1, 2**63, 77], (2, 2), 53, "int64", named=(("B",),)),
        _case([[3], [2**40 + 1]], (), 8, "uint8"),
        _case(0, (0, 3), 24, "uint32"),
        _case(5, (), 24, "uint32"),
    ],
)


def stream(key: Any, shape: Shape, bits: int, dtype: DType) -> Any:
    """Numbers below 2**bits of a key's stream; `key` is checked already."""
    return bind(random_bits_p, mix(key, NUMBERS), shape=shape, bits=bits, dtype=dtype)


def bits(key: Any, shape: Any = (), dtype: Any = np.uint32) -> Any:
    """Uniform random bits: every number of an unsigned integer dtype is as likely as every other.

    key: see `ons.random.key`; equal keys give equal numbers. shape: sizes may be named dims. The numbers are the same bit for bit on
    every machine and in every runtime. Raises TypeError for a dtype that is not unsigned or a key that is none.
    """
    word = as_dtype(dtype)
    if word.kind != "u":
        raise DTypeError(f"bits: dtype is {short_name(word)}; uint8, uint16, uint32 and uint64 hold random bits")
    return stream(as_key("bits", key), sample_shape("bits", shape), 8 * word.itemsize, word)
