"""Running a program equation by equation with checks, on the reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...stage.errors import OnstageError, ShapeError
from ...stage.interpreter import bind_dims, concrete_shape, evaluate
from ...stage.primitive import Array
from ...stage.program import Equation, Program


class NumericsError(OnstageError, FloatingPointError):
    """With ons.config(check_numerics=True): a value became NaN or infinite."""


def evaluate_checked(program: Program, arrays: Sequence[Array], *, numerics: bool, shapes: bool) -> list[Array]:
    """The outputs, as fresh arrays.

    numerics: NumericsError at the first equation that makes a NaN or infinity out of finite operands. shapes: ShapeError at the
    first value whose shape or dtype is not the inferred one. Both name the user's line.
    """
    sizes = bind_dims(program.in_specs, [a.shape for a in arrays]) if program.symbolic else {}

    def observe(eqn: Equation, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        for i, (var, value) in enumerate(zip(eqn.outputs, outputs, strict=True)):
            if shapes and not _fits(eqn, i, value, sizes):
                raise ShapeError(
                    f"{eqn.primitive.name}: inferred {var.spec!r}, got {value.dtype.name}{list(value.shape)}",
                    source=eqn.source,
                )
            if numerics and not _finite(value) and all(_finite(x) for x in inputs):
                bad = "NaN" if np.isnan(value.astype(np.float64)).any() else "infinite"
                raise NumericsError(
                    f"{eqn.primitive.name} gave a value that is {bad} from finite operands ({var.spec!r})",
                    source=eqn.source,
                )

    return [x.copy() for x in evaluate(program, arrays, sizes=sizes or None, observer=observe)]


def _fits(eqn: Equation, i: int, value: Array, sizes: dict[str, int]) -> bool:
    spec = eqn.outputs[i].spec
    return value.dtype == spec.dtype and value.shape == concrete_shape(spec.shape, sizes)


def _finite(value: Array) -> bool:
    if value.dtype.kind in "biu":
        return True
    return bool(np.isfinite(value.astype(np.float64)).all())
