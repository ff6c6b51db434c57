"""The reference interpreter: a Program evaluated equation by equation with the primitives' NumPy rules.

It is the oracle that everything else is held against, the executor outside staging, and the backend when no other is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from .dims import evaluate as evaluate_dim
from .dims import is_name
from .errors import ShapeError, SignatureValueError
from .primitive import Array, has_dims
from .program import Atom, Const, Equation, Program, Var, substitute_params, substitute_spec
from .spec import ArraySpec, Shape, require_plain

Observer: TypeAlias = Callable[[Equation, Sequence[Array], Sequence[Array]], None]


def bind_dims(specs: Sequence[ArraySpec], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The size of each name, from the inputs where it stands alone; SignatureValueError if two inputs disagree."""
    sizes: dict[str, int] = {}
    for position, (spec, shape) in enumerate(zip(specs, shapes, strict=True)):
        for axis, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
            if is_name(dim):
                name = str(dim)
                if sizes.setdefault(name, size) != size:
                    raise SignatureValueError(
                        f"dim {name!r} is {sizes[name]} and {size} at once (input {position}, axis {axis}); equal names mean equal sizes"
                    )
    return sizes


def concrete_shape(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with every name replaced by its size."""
    return tuple(d if isinstance(d, int) else evaluate_dim(d, sizes) for d in shape)


def last_uses(program: Program) -> list[list[Var]]:
    """For each equation the Vars that no later equation or output reads."""
    seen: set[Atom] = set(program.outputs)
    result: list[list[Var]] = []
    for eqn in reversed(program.equations):
        dying = [a for a in dict.fromkeys((*eqn.inputs, *eqn.outputs)) if isinstance(a, Var) and a not in seen]
        seen.update(dying)
        result.append(dying)
    result.reverse()
    return result


def evaluate(
    program: Program, arrays: Sequence[Array], *, sizes: Mapping[str, int] | None = None, observer: Observer | None = None
) -> list[Array]:
    """Run a Program on arrays that fit its inputs; values are freed at their last use.

    sizes: the names' sizes where the inputs do not tell them (sub-programs). observer sees every equation with its values.
    """
    if program.symbolic and sizes is None:
        sizes = bind_dims(program.in_specs, [a.shape for a in arrays])
    env: dict[Atom, Array] = dict(zip(program.inputs, arrays, strict=True))
    for eqn, dying in zip(program.equations, last_uses(program), strict=True):
        inputs = [a.value if isinstance(a, Const) else env[a] for a in eqn.inputs]
        outputs = evaluate_equation(eqn, inputs, sizes)
        if observer is not None:
            observer(eqn, inputs, outputs)
        env.update(zip(eqn.outputs, outputs, strict=True))
        for var in dying:
            del env[var]
    return [a.value if isinstance(a, Const) else env[a] for a in program.outputs]


def run_equations(equations: Sequence[Equation], env: dict[Atom, Array]) -> None:
    """Evaluate equations into `env`, but for those whose outputs it holds already."""
    for eqn in equations:
        if eqn.outputs[0] in env:
            continue
        inputs = [a.value if isinstance(a, Const) else env[a] for a in eqn.inputs]
        env.update(zip(eqn.outputs, evaluate_equation(eqn, inputs, None), strict=True))


def evaluate_equation(eqn: Equation, inputs: Sequence[Array], sizes: Mapping[str, int] | None) -> list[Array]:
    """One equation's outputs by its NumPy rule, symbolic params and specs made concrete."""
    params = eqn.params
    specs: Sequence[ArraySpec] = [v.spec for v in eqn.outputs]
    if sizes:
        if any(has_dims(p) for p in params.values()):
            params = substitute_params(params, sizes)
        specs = [substitute_spec(s, sizes) for s in specs]
    return eqn.primitive.evaluate(inputs, params, specs)


def check_sizes(spec: ArraySpec, shape: Sequence[int], sizes: Mapping[str, int], what: str) -> None:
    """ShapeError unless the array's shape is the spec's at these sizes."""
    wanted = concrete_shape(spec.shape, sizes)
    if tuple(shape) != wanted:
        raise ShapeError(f"{what}: expected shape {wanted} ({spec!r}), got {tuple(shape)}")


def as_array(value: object) -> Array:
    """A NumPy array in native byte order; arrays are passed through. DTypeError for masked arrays and matrices."""
    require_plain(value)
    array = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
