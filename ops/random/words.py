"""Hashing and counting on 64-bit words, in the operations that ONNX Runtime has on the CPU and on CUDA: + * / of uint64.

There is no xor and no shift among them. A rotation is a product plus a quotient by powers of two; what is not linear comes of squares.
Formulas are written once, over NumPy arrays and over ONNX values (`m.high` is the one operation the two spell differently).
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

import numpy as np

from ...stage.dtypes import DType
from ...stage.primitive import Array
from ..formulas import OnnxMath, Value

UINT64: Final[DType] = np.dtype(np.uint64)
UINT32: Final[DType] = np.dtype(np.uint32)


class Words(Protocol):
    """What a formula on words may use beside + and *, which wrap around."""

    def high(self, x: Any, bits: int) -> Any:
        """The `bits` highest bits, as a number."""
        ...


class NumpyWords:
    """Formulas on arrays of uint64."""

    def high(self, x: Array, bits: int) -> Array:
        return x >> np.uint64(64 - bits)


class OnnxWords(OnnxMath):
    """Formulas on ONNX values of uint64."""

    def __init__(self, builder: Any) -> None:
        super().__init__(builder, UINT64)

    def high(self, x: Value, bits: int) -> Value:
        return self.node("Div", x, 1 << (64 - bits))


def _odd_root(n: int) -> int:
    """The first 64 bits after the point of sqrt(n), the last one set: constants that nobody picked."""
    return math.isqrt(n << 128) & ((1 << 64) - 1) | 1


FACTORS: Final = tuple(_odd_root(n) for n in (2, 3, 5, 7, 11))
START: Final = _odd_root(13)


def rotated(m: Words, x: Any, by: int) -> Any:
    return x * (1 << by) + m.high(x, by)


def mixed(m: Words, x: Any) -> Any:
    """A bijection of the 64-bit words under which every bit of the result hangs on every bit of x.

    Five rounds x <- rotate(x (2x + c)). The quadratic step permutes the words for every odd c (as in the cipher RC6; Rivest,
    "Permutation polynomials modulo 2^w", 2001). Three rounds pass the avalanche tests; multiplications by constants and rotations alone
    do not after any number of rounds, since differences go through them almost unchanged.
    """
    x = x + START
    for factor in FACTORS:
        x = rotated(m, x * (x + x + factor), 27)
    return x


def squares(m: Words, counter: Any, key: Any, bits: int) -> Any:
    """The `bits` highest bits of word number `counter` of a key's stream, for keys that `mixed` made.

    Widynski's counter-based generator ("Squares: a fast counter-based RNG", 2020): squarings and half rotations of a Weyl sequence, four rounds
    for 32 bits and a fifth for 64, where a sum stands for his xor. His generator wants irregular keys and gives zeros at first for small ones;
    here both the step of the sequence and its start are made of hashed words, so that stream and counter begin anywhere.
    """
    step = key + key + 1
    y = counter * step + rotated(m, key, 32)
    z = y + step
    x = rotated(m, y * y + y, 32)
    x = rotated(m, x * x + z, 32)
    x = rotated(m, x * x + y, 32)
    x = x * x + z
    if bits <= 32:
        return m.high(x, bits)
    last = rotated(m, x, 32)
    word = x + m.high(last * last + y, 32)
    return word if bits == 64 else m.high(word, bits)
