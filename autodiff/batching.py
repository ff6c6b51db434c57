"""vmap: a Program over one example becomes a Program over a batch, by each primitive's batch rule.

A value is either batched along one axis or shared by all examples; rules keep shared what does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ops.structure import broadcast_to_p, move_axis, reshape_p
from ..stage import tree
from ..stage.dims import same_dim
from ..stage.errors import MissingRuleError, ProgramError, ShapeError, SignatureTypeError, SignatureValueError
from ..stage.interpreter import as_array
from ..stage.narrowing import is_sequence, is_tuple
from ..stage.program import Atom, Const, Program
from ..stage.spec import ArraySpec, DimLike, make_spec, spec_of
from ..stage.staged import StagedProgram
from ..stage.trace import bind, lift_constant, trace_program
from ..stage.tracer import Tracer, settled
from .gradient import apply_program, python_function, record, restage
from .rules import decomposition

Axis = int | None


class BatchContext:
    """What batch rules get as `ctx`: the batch's size, and the transform for sub-programs."""

    def __init__(self, size: DimLike) -> None:
        self.size = size

    def batch(self, program: Program, args: Sequence[Any], axes: Sequence[Axis]) -> tuple[list[Any], list[Axis]]:
        """Run a Program on batched arguments."""
        return batch_program(self, program, args, axes)


def batch_program(ctx: BatchContext, program: Program, args: Sequence[Any], axes: Sequence[Axis]) -> tuple[list[Any], list[Axis]]:
    """Record a Program's equations on batched arguments; gives its outputs and their batch axes."""
    env: dict[Atom, tuple[Any, Axis]] = {v: (x, a) for v, x, a in zip(program.inputs, args, axes, strict=True)}

    def read(atom: Atom) -> tuple[Any, Axis]:
        return (lift_constant(atom), None) if isinstance(atom, Const) else env[atom]

    for eqn in program.equations:
        pairs = [read(a) for a in eqn.inputs]
        primitive = eqn.primitive
        if all(axis is None for _, axis in pairs):
            result = bind(primitive, *[x for x, _ in pairs], **eqn.params)
            outputs: tuple[Any, ...] = result if is_tuple(result) else (result,)
            out_axes: Sequence[Axis] = [None] * len(outputs)
        elif primitive.batch is not None:
            result, out = primitive.batch(ctx, tuple(x for x, _ in pairs), tuple(a for _, a in pairs), **eqn.params)
            several = isinstance(result, tuple | list)
            outputs = (*result,) if several else (result,)
            out_axes = list(out) if several else [out]
        elif primitive.decompose is not None:
            inner = decomposition(primitive, tuple([a.spec for a in eqn.inputs]), eqn.params)
            found, out_axes = batch_program(ctx, inner, [x for x, _ in pairs], [a for _, a in pairs])
            outputs = tuple(found)
        else:
            raise MissingRuleError(f"vmap: {primitive.name} has no batch rule", source=eqn.source)
        if len(outputs) != len(eqn.outputs) or len(out_axes) != len(outputs):
            raise ProgramError(
                f"{primitive.name}: the batch rule gave {len(outputs)} outputs and {len(out_axes)} axes for {len(eqn.outputs)}"
            )
        for var, x, axis in zip(eqn.outputs, outputs, out_axes, strict=True):
            _check_batched(primitive.name, var.spec, x, axis, ctx.size)
            env[var] = (x, axis)
    results = [read(a) for a in program.outputs]
    return [x for x, _ in results], [a for _, a in results]


def _check_batched(name: str, spec: ArraySpec, x: Any, axis: Axis, size: DimLike) -> None:
    shape = list(x.shape)
    if axis is not None:
        found = shape.pop(axis)
        if not same_dim(found, size):
            raise ProgramError(f"{name}: the batch rule put an axis of size {found} where the batch of {size} should be")
    if len(shape) != len(spec.shape) or not all(same_dim(a, b) for a, b in zip(shape, spec.shape, strict=True)) or x.dtype != spec.dtype:
        raise ProgramError(f"{name}: the batch rule gave {x.dtype.name}{list(x.shape)} (batch axis {axis}) for {spec!r}")


def put_axis(x: Any, source: Axis, destination: int, size: DimLike) -> Any:
    """The batch axis moved to `destination`; what has none is repeated along it."""
    if source is not None:
        return move_axis(x, source, destination)
    shape = tuple(x.shape)
    with_one = (*shape[:destination], 1, *shape[destination:])
    return bind(broadcast_to_p, bind(reshape_p, x, shape=with_one), shape=(*shape[:destination], size, *shape[destination:]))


def vmap(function: Any, in_axes: Any = 0, out_axes: Any = 0, *, axis_size: Any = None, axis_name: str | None = None) -> Any:
    """A function that applies `function` to every example of a batch at once.

    in_axes: for each argument a tree prefix of axes; None shares the argument among the examples. out_axes: a tree prefix of the
    result: where its batch axis goes; None for a result that is the same for all. axis_size is needed only if nothing is batched.
    Raises ValueError where batched axes differ in size, or a None result depends on the batch.
    """
    if isinstance(function, StagedProgram):
        mapped = vmap(python_function(function), in_axes, out_axes, axis_size=axis_size, axis_name=axis_name)
        return _staged_vmap(function, mapped, in_axes, axis_size)
    label = getattr(function, "__name__", type(function).__name__)

    def mapped_function(*args: Any, **kwargs: Any) -> Any:
        axes_tree = (_axes_prefix(in_axes), 0)
        if is_sequence(in_axes) and len(in_axes) != len(args):
            raise SignatureTypeError(f"vmap of {label}: in_axes has {len(in_axes)} entries for {len(args)} positional arguments")
        leaves, treedef = tree.flatten((args, kwargs))
        axes = [_axis_of(a, f"vmap of {label}") for a in _prefix(axes_tree, (args, kwargs), f"vmap of {label}: in_axes")]
        leaves = [settled(x) for x in leaves]
        leaves = [x if isinstance(x, Tracer) or axis is None else as_array(x) for x, axis in zip(leaves, axes, strict=True)]
        axes = [None if a is None else _normalized(a, x, label) for a, x in zip(axes, leaves, strict=True)]
        size = _batch_size(leaves, axes, axis_size, treedef, label)
        return _run(function, label, leaves, axes, treedef, size, out_axes)

    mapped_function.__name__ = label
    return mapped_function


def _axes_prefix(in_axes: Any) -> Any:
    """in_axes as the prefix of a tuple of arguments."""
    return tuple(in_axes) if is_sequence(in_axes) else in_axes


def _run(
    function: Callable[..., Any], label: str, leaves: list[Any], axes: list[Axis], treedef: tree.TreeDef, size: DimLike, out_axes: Any
) -> Any:
    batched = [i for i, a in enumerate(axes) if a is not None]
    examples = [_example_spec(leaves[i], axes[i]) for i in batched]

    def call(*tracers: Any) -> Any:
        full = list(leaves)
        for i, tracer in zip(batched, tracers, strict=True):
            full[i] = tracer
        args, kwargs = tree.unflatten(treedef, full)
        return function(*args, **kwargs)

    recorded = record(call, examples, label)
    operands = [*[leaves[i] for i in batched], *recorded.traced.captured]
    in_axes = [*[axes[i] for i in batched], *[None] * len(recorded.traced.captured)]
    wanted = [_axis_of(a, f"vmap of {label}") for a in tree.broadcast_prefix(out_axes, recorded.out_tree, root="out_axes")]
    ctx = BatchContext(size)

    def batched_function(*xs: Any) -> Sequence[Any]:
        outputs, found = batch_program(ctx, recorded.traced.program, xs, in_axes)
        results: list[Any] = []
        for i, (x, axis, destination) in enumerate(zip(outputs, found, wanted, strict=True)):
            if destination is None:
                if axis is not None:
                    raise SignatureValueError(f"vmap of {label}: out_axes is None for output {i}, which depends on the batch")
                results.append(x)
                continue
            ndim = len(x.shape) + (axis is None)
            if not -ndim <= destination < ndim:
                raise SignatureValueError(f"vmap of {label}: out_axes {destination} is out of range for output {i} with {ndim} axes")
            results.append(put_axis(x, axis, destination % ndim, size))
        return results

    program = trace_program(batched_function, [spec_of(x) for x in operands], name=f"vmap of {label}").program
    return tree.unflatten(recorded.out_tree, apply_program(program, operands))


def _prefix(axes: Any, full: Any, what: str) -> list[Any]:
    try:
        return tree.broadcast_prefix(axes, full, root="in_axes")
    except ValueError as error:
        raise SignatureValueError(f"{what}: {error}") from None


def _axis_of(axis: Any, what: str) -> Axis:
    if axis is None or (isinstance(axis, int) and not isinstance(axis, bool)):
        return axis
    raise SignatureTypeError(f"{what}: an axis is an int or None, got {axis!r}")


def _normalized(axis: int, x: Any, label: str) -> int:
    ndim = len(x.shape)
    if not -ndim <= axis < ndim:
        raise SignatureValueError(f"vmap of {label}: axis {axis} is out of range for an array of shape {list(x.shape)}")
    return axis % ndim


def _batch_size(leaves: Sequence[Any], axes: Sequence[Axis], axis_size: Any, treedef: tree.TreeDef, label: str) -> DimLike:
    size: DimLike | None = None if axis_size is None else axis_size
    first = "axis_size"
    for x, axis, path in zip(leaves, axes, treedef.paths(), strict=True):
        if axis is None:
            continue
        found = x.shape[axis]
        where = tree.path_text(path[1:], "arguments")
        if size is None:
            size, first = found, where
        elif not same_dim(size, found):
            raise ShapeError(f"vmap of {label}: the batched axes differ in size: {first} has {size}, {where} has {found} (axis {axis})")
    if size is None:
        raise SignatureValueError(f"vmap of {label}: no argument is batched; give axis_size")
    return size


def _example_spec(x: Any, axis: Axis) -> ArraySpec:
    spec = spec_of(x)
    shape = tuple(d for i, d in enumerate(spec.shape) if i != axis)
    return make_spec(shape, spec.dtype)


def _staged_vmap(program: StagedProgram, mapped: Callable[..., Any], in_axes: Any, axis_size: Any) -> StagedProgram:
    """vmap of a program: its specs get a batch axis named after none of its dims, or of the given size."""
    signature = program.signature
    arguments = tree.unflatten(signature.tree, list(signature.specs))
    axes = _prefix(_axes_prefix(in_axes), arguments, f"vmap of {program.name}: in_axes")
    used = set(program.program.dim_names)
    name = next(n for n in ("batch", *(f"batch{i}" for i in range(2, len(used) + 3))) if n not in used)
    size = name if axis_size is None else axis_size
    specs = [
        s if a is None else ArraySpec((*s.shape[: a % (s.ndim + 1)], size, *s.shape[a % (s.ndim + 1) :]), s.dtype)
        for s, a in zip(signature.specs, axes, strict=True)
    ]
    return restage(program, mapped, f"vmap of {program.name}", specs)
