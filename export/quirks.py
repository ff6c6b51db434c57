"""What ONNX Runtime's kernels and optimiser get wrong, and how the builder writes them instead (tried on 1.31.1).

- MatMulScaleFusion takes a scalar factor next to a float64 MatMul into an attribute, which is float32: `(x @ w) * 0.3` is off
  by 3e-8 at ENABLE_EXTENDED and above. Where float32 does not hold the factor it is written as a vector, or else a Sum of
  one operand, which no optimiser removes, is put in between.
- Layer and RMS normalisation are recognised by `Pow(x, 2)`, and their float64 epsilon becomes a float32 attribute, at ENABLE_BASIC
  already. A square is written as Mul, which is faster too.
- Sums, products and powers of integers are computed through float64; the greater of two int64s is mistaken: see integers.py.
- An Expand of a 1 to a constant 0 is dropped at ENABLE_BASIC, and the result has the wrong shape. The 1 is sliced away first.
- MatMul refuses to broadcast batches of size 0. They are expanded to one shape where one could be empty.
- FuseReluClip fails the session for a Relu before a Clip in any dtype but float32 and float16. Relu of others is written as Max.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..stage.dims import broadcast_dim, same_shape
from ..stage.dtypes import is_float, is_integer
from .integers import COMPARED_WRONGLY, compare_exactly, extreme_exactly, power_exactly, reduce_exactly

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .builder import Builder

# Ops that the optimiser may drop or look through.
_TRANSPARENT = frozenset(("Identity", "Transpose", "Reshape", "Expand", "Slice", "Squeeze", "Unsqueeze"))
_COMPARISONS = frozenset(("Max", "Min", "Clip", "Sign", "ReduceMax", "ReduceMin"))
WATCHED = frozenset(("Relu", "Pow", "Mul", "Div", "MatMul", "ReduceSum", "ReduceProd")) | _COMPARISONS | _TRANSPARENT
_SPREAD_LIMIT = 1 << 12
_FLOAT64 = np.dtype(np.float64)


class Quirks:
    """Follows, for one graph, the scalar factors that could be drawn into a float64 MatMul."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        # The product of the constant scalars that a value was multiplied by since it was something else than a product.
        self._factors: dict[str, float] = {}
        # The same for the results of MatMuls: what the fused node's attribute would have to hold.
        self._alphas: dict[str, float] = {}

    def rewrite(self, op_type: str, names: tuple[str, ...], attributes: Mapping[str, Any]) -> str | tuple[str, tuple[str, ...]] | None:
        """What to write instead: a finished value, or another op and its operands; None to write the op as it is."""
        b = self._builder
        if op_type == "Relu":
            dtype = b.dtype(names[0])
            return None if is_float(dtype) and dtype != _FLOAT64 else b.op("Max", names[0], b.const(0, dtype))
        if op_type in _COMPARISONS:
            if b.dtype(names[0]) not in COMPARED_WRONGLY:
                return None
            return extreme_exactly(b, op_type, names, attributes) if op_type.startswith("Reduce") else compare_exactly(b, op_type, names)
        if op_type in ("ReduceSum", "ReduceProd"):
            return reduce_exactly(b, op_type, names, attributes) if is_integer(b.dtype(names[0])) else None
        if op_type == "Pow":
            if is_integer(b.dtype(names[0])) and is_integer(b.dtype(names[1])):
                return power_exactly(b, names[0], names[1])
            exponent = b.value_of(names[1])
            square = exponent is not None and exponent.ndim == 0 and is_float(b.dtype(names[0])) and float(exponent) == 2.0
            return ("Mul", (names[0], names[0])) if square else None
        if op_type in ("Mul", "Div"):
            return self._separate_result(op_type, names)
        if op_type == "MatMul":
            return self._separate_operands(self._equal_batches(names))
        if op_type == "Expand":
            return self._expand_to_nothing(names)
        return None

    def note(self, op_type: str, names: tuple[str, ...], result: str) -> None:
        """Follow the factors through a node that was written."""
        if op_type in _TRANSPARENT:
            source = names[0]
            if source in self._factors:
                self._factors[result] = self._factors[source]
            if source in self._alphas:
                self._alphas[result] = self._alphas[source]
            return
        if self._builder.dtype(result) != _FLOAT64:
            return
        if op_type == "MatMul":
            self._alphas[result] = self._factors.get(names[0], 1.0) * self._factors.get(names[1], 1.0)
        elif op_type in ("Mul", "Div"):
            for data, scalar in self._splits(op_type, names):
                factor = self._factor(op_type, scalar)
                if factor is not None:
                    self._factors[result] = self._factors.get(data, 1.0) * factor
                    if data in self._alphas:
                        self._alphas[result] = self._alphas[data] * factor

    def rename(self, old: str, new: str) -> None:
        for known in (self._factors, self._alphas):
            if old in known:
                known[new] = known.pop(old)

    def _separate_result(self, op_type: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        """For MatMul, then Mul or Div."""
        for data, scalar in self._splits(op_type, names):
            if data in self._alphas:
                factor = self._factor(op_type, scalar)
                if factor is not None and not _float32_holds(self._alphas[data] * factor):
                    vector = self._spread(data, scalar)
                    if vector is not None:
                        return op_type, tuple(vector if n == scalar else n for n in names)
                    apart = self._builder.op("Sum", data)
                    return op_type, tuple(apart if n == data else n for n in names)
        return None

    def _spread(self, data: str, scalar: str) -> str | None:
        """The scalar repeated along an axis of the data: a vector is not fused. None where no axis is known to be longer than 1."""
        spec, array = self._builder.known_spec(data), self._builder.value_of(scalar)
        if spec is None or array is None:
            return None
        for trailing, size in enumerate(reversed(spec.shape)):
            if isinstance(size, int) and 1 < size <= _SPREAD_LIMIT:
                return self._builder.const(np.full((size,) + (1,) * trailing, array.reshape(())))
        return None

    def _separate_operands(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """For Mul or Div, then MatMul."""
        a, b = (self._factors.get(n, 1.0) for n in names)
        if _float32_holds(a) and _float32_holds(b) and _float32_holds(a * b):
            return "MatMul", names
        return "MatMul", tuple(self._builder.op("Sum", n) if n in self._factors else n for n in names)

    def _equal_batches(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The operands of a MatMul, expanded where their batches differ and one may be empty."""
        b = self._builder
        specs = [b.known_spec(n) for n in names]
        shapes = [s.shape for s in specs if s is not None and s.ndim > 2]
        if len(shapes) < 2 or all(isinstance(d, int) and d > 0 for s in shapes for d in s[:-2]):
            return names
        rank = max(len(s) for s in shapes)
        padded = [(1,) * (rank - len(s)) + s[:-2] for s in shapes]
        batch = tuple(broadcast_dim(x, y) for x, y in zip(*padded, strict=True))
        return tuple(
            n if same_shape(s[:-2], batch) else b.op("Expand", n, b.shape((*batch, *s[-2:]))) for n, s in zip(names, shapes, strict=True)
        )

    def _expand_to_nothing(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        b = self._builder
        shape, spec = b.value_of(names[1]), b.known_spec(names[0])
        if shape is None or spec is None or 0 not in shape:
            return None
        x, rank = names[0], len(shape)
        if spec.ndim < rank:
            x = b.op("Unsqueeze", x, b.const(list(range(rank - spec.ndim))))
        axes = [i - rank for i, n in enumerate(shape) if n == 0]
        nothing = b.const([0] * len(axes))
        return "Expand", (b.op("Slice", x, nothing, nothing, b.const(axes)), b.const(np.maximum(shape, 1)))

    @staticmethod
    def _splits(op_type: str, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """(data, scalar) in the ways the operands can be read."""
        x, y = names
        return ((x, y), (y, x)) if op_type == "Mul" else ((x, y),)

    def _factor(self, op_type: str, name: str) -> float | None:
        """What multiplying or dividing by the value makes of the fused attribute; NaN where that is unknown, None if it cannot be fused."""
        array = self._builder.value_of(name)
        if array is None:
            return math.nan if self._builder.folds(name) else None
        if array.size != 1 or array.dtype != _FLOAT64:
            return None
        value = float(array.reshape(()))
        if op_type == "Mul":
            return value
        # The reciprocal is exact only for powers of two.
        return 1.0 / value if math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 else math.nan


def _float32_holds(value: float) -> bool:
    with np.errstate(all="ignore"):
        return float(np.float32(value)) == value
