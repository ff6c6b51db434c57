"""Keys: 0-d uint64 arrays from which streams of random numbers and further keys are derived, each way through a bijective hash."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...stage.dims import Dim, product
from ...stage.dtypes import DType, is_integer, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.primitive import Array, Case, Sample
from ...stage.spec import Shape
from ...stage.trace import bind
from ..arguments import shape_argument
from ..arithmetic import add_p
from ..creation import iota
from ..families import elementwise
from ..operands import cast, dtype_of, operand, shape_of
from ..structure import reshape_p
from .words import UINT64, NumpyWords, OnnxWords, mixed

# What a key is used for is added to it before it is hashed: numbers, children by split and children by fold_in never meet by design.
SEED, SPLIT, FOLD, NUMBERS = (np.asarray(n << 32, UINT64) for n in (1, 2, 3, 4))
_LARGEST: Final = 1 << 64


def _mix_numpy(x: Array) -> Array:
    return np.asarray(mixed(NumpyWords(), x))


def _mix_onnx(b: Any, x: str) -> str:
    m = OnnxWords(b)
    return mixed(m, m.value(x)).name


random_mix_p = elementwise(
    "random_mix",
    _mix_numpy,
    dtypes="u",
    nondifferentiable="keys are integers",
    onnx=_mix_onnx,
    exact=True,
    cases=[
        Case(
            (Sample((2, 3), "uint64", values=[[0, 1, 2], [2**63, 2**64 - 1, 12345678901234567890]]),),
            named=(("B", 3),),
        ),
        Case((Sample((), "uint64", values=42),)),
        Case((Sample((0,), "uint64"),)),
    ],
)


def mix(x: Any, purpose: Array) -> Any:
    """A word hashed for a purpose."""
    return bind(random_mix_p, bind(add_p, x, purpose))


def key(seed: Any) -> Any:
    """The key of a seed: a 0-d uint64 array. Different seeds give different keys, and neighbouring ones unrelated streams.

    seed: an integer from -2**63 to 2**64 - 1 (negative ones count from 2**64 down) or a 0-d integer array, which may be traced.
    Raises OverflowError beyond that range, TypeError for what is no integer, ValueError for an array that is not 0-d.
    """
    return mix(_word("key: seed", seed), SEED)


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer, such as the number of a step; for one key, different integers give different keys."""
    return _child(as_key("fold_in", key), _word("fold_in: data", data), FOLD)


def split(key: Any, num: Any = 2) -> Any:
    """`num` new keys, all different: a uint64 array of shape (num,), or of shape `num` where that is a tuple. Sizes may be named dims.

    Use the new keys in place of the old one: `key, one, two = split(key, 3)`, or `vmap(f)(split(key, n))`.
    """
    parent = as_key("split", key)
    shape = sample_shape("split", num)
    children = _child(parent, iota(product(shape), UINT64), SPLIT)
    return children if len(shape) == 1 else bind(reshape_p, children, shape=shape)


def _child(parent: Any, words: Any, purpose: Array) -> Any:
    return bind(random_mix_p, bind(add_p, mix(parent, purpose), bind(random_mix_p, words)))


def _word(what: str, value: Any) -> Any:
    """An integer as a 0-d word."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(_LARGEST >> 1) <= value < _LARGEST:
            raise OverflowError(f"{what} {value} is no 64-bit integer; fold_in its parts one after the other")
        return np.asarray(value % _LARGEST, UINT64)
    x = operand(value, what)
    dtype = dtype_of(x)[0]
    if not is_integer(dtype):
        raise DTypeError(f"{what} is an integer, got {short_name(dtype)}")
    if shape_of(x):
        raise ShapeError(f"{what} is one integer, got shape {_text(shape_of(x))}; ons.vmap takes many")
    # By way of its own dtype, strong, so that a Python number that is negative wraps around
    return cast(cast(x, dtype), UINT64)


def as_key(what: str, key: Any) -> Any:
    """A key as an operand; DTypeError or ShapeError with the way out for what is none."""
    made = "ons.random.key(seed)"
    if isinstance(key, bool | int | float | Dim):
        raise DTypeError(f"{what}: the key is {key!r}, a number; make a key with {made}")
    if isinstance(key, np.random.Generator | np.random.RandomState | np.random.BitGenerator):
        raise DTypeError(f"{what}: the key is a NumPy generator, which has hidden state; make a key with {made}")
    x = operand(key, f"{what}: key")
    dtype, weak = dtype_of(x)
    if dtype != UINT64 or weak:
        raise DTypeError(f"{what}: a key is a 0-d uint64 array, got {short_name(dtype)}{_text(shape_of(x))}; make one with {made}")
    if shape_of(x):
        raise ShapeError(
            f"{what}: one key is a 0-d uint64 array, got an array of shape {_text(shape_of(x))}; take one of them, or ons.vmap over them"
        )
    return x


def sample_shape(what: str, shape: Any) -> Shape:
    """A shape argument; TypeError for what is none, ShapeError for a negative size."""
    try:
        dims = shape_argument(shape)
    except (AttributeError, TypeError):
        raise DTypeError(f"{what}: a shape is an integer, a named dim or a tuple of them, got {shape!r}") from None
    if any(not isinstance(d, Dim) and d < 0 for d in dims):
        raise ShapeError(f"{what}: negative size in the shape {_text(dims)}")
    return dims


def float_dtype(what: str, dtype: DType) -> DType:
    """The dtype, if it is a floating one."""
    if dtype.kind != "f" and dtype.name != "bfloat16":
        raise DTypeError(f"{what}: dtype is {short_name(dtype)}, which is not floating")
    return dtype


def _text(shape: Shape) -> str:
    return f"[{', '.join(str(d) for d in shape)}]"
