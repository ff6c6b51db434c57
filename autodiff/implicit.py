"""implicit_root: a root found by any method, differentiated through the equation that it solves.

Where F(x, p) = 0, J dx = -dF/dp dp with J = dF/dx: no derivative of the method is taken (Griewank and Walther, Evaluating Derivatives,
section 15.3). Two primitives: `implicit_root` holds the method and the residual as Programs; `implicit_linear_solve` applies J^-1, or
its transpose, by a method that the user gives, and is linear in the right-hand side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ops.control.bodies import operand_leaves, same_spec, strong
from ..ops.creation import eye
from ..ops.joining import join
from ..ops.linalg.systems import solve_p
from ..ops.matmul import swap_last
from ..ops.operands import cast, spec
from ..ops.structure import reshape_p, zeros
from ..stage import tree
from ..stage.dims import product, same_dim
from ..stage.dtypes import FLOAT32, DType, is_float, promote
from ..stage.errors import DTypeError, ShapeError, SignatureTypeError
from ..stage.interpreter import as_array, evaluate
from ..stage.primitive import Array, Primitive
from ..stage.program import Program, Var, constant
from ..stage.spec import ArraySpec, make_spec
from ..stage.staging import flatten_result
from ..stage.trace import Traced, bind, current_trace, inline, lift_constant, trace_program
from ..stage.tracer import Tracer
from .batched import batched_p
from .batching import BatchContext, batch_program, put_axis
from .forward import jvp_transform, vjp_transform
from .templates import TangentContext

# Params of both: `residual`, the Program from x and the constants (params and captured values) to F; `solvers`, the Programs of the user's
# linear solver for J and its transpose, from x, constants and a flat right-hand side, or () for a dense matrix; `count`, the number of
# leaves of x. Of `implicit_root` also `solution`, the Program from x0 and the constants to the root.


# ---------------------------------------------------------------------------------------------------------- flat vectors of trees


def _flat_dtype(specs: Sequence[ArraySpec]) -> DType:
    dtype = promote([(s.dtype, False) for s in specs])[0]
    return FLOAT32 if dtype.itemsize == 2 else dtype


def _flatten(leaves: Sequence[Any], dtype: DType) -> Any:
    """Leaves as one vector."""
    parts = [bind(reshape_p, cast(x, dtype), shape=(product(x.shape),)) for x in leaves]
    return parts[0] if len(parts) == 1 else join(parts, 0)


def _unflatten(vector: Any, specs: Sequence[ArraySpec]) -> list[Any]:
    """The vector cut and shaped into leaves."""
    leaves: list[Any] = []
    start: Any = 0
    for s in specs:
        size = product(s.shape)
        part = vector if len(specs) == 1 else vector[start : start + size]
        leaves.append(cast(bind(reshape_p, part, shape=s.shape), s.dtype))
        start = start + size
    return leaves


# -------------------------------------------------------------------------------------------------------------- the linear solve


def _product(residual: Program, count: int, transposed: bool, x: Sequence[Any], consts: Sequence[Any], v: Sequence[Any]) -> list[Any]:
    """J v, or J^T v, in leaves like x."""
    active = [i < count for i in range(len(residual.inputs))]
    transform = vjp_transform(residual, active, [True] * count) if transposed else jvp_transform(residual, active)
    return inline(transform, [*x, *consts, *v])[count:]


def _linear_numpy(b: Array, *operands: Array, residual: Program, solvers: tuple[Program, ...], count: int, transposed: bool) -> Array:
    return evaluate(solvers[transposed], [*operands, b])[0]


def _linear_decompose(b: Any, *operands: Any, residual: Program, solvers: tuple[Program, ...], count: int, transposed: bool) -> Any:
    return inline(solvers[transposed], [*operands, b])[0]


def _linear_abstract(
    b: ArraySpec, *operands: ArraySpec, residual: Program, solvers: tuple[Program, ...], count: int, transposed: bool
) -> Any:
    return make_spec(b.shape, b.dtype)


def _linear_jvp(
    output: Any, primals: Any, tangents: Any, *, residual: Program, solvers: tuple[Program, ...], count: int, transposed: bool
) -> Any:
    """M u = b gives M du = db - dM u, M being J or its transpose at (x, constants)."""
    right, moved = tangents[0], None
    active = [t is not None for t in tangents[1:]]
    if any(active):
        specs = [strong(spec(p)) for p in primals[1:]]
        x_specs = specs[:count]

        def apply(*values: Any) -> Sequence[Any]:
            *point, u = values
            leaves = _unflatten(u, x_specs)
            return [_flatten(_product(residual, count, transposed, point[:count], point[count:], leaves), output.dtype)]

        program = trace_program(apply, [*specs, spec(output)], name="matrix product", sources=False).program
        inner = TangentContext().jvp(program, [*active, False])
        if inner.present[0]:
            moved = inline(inner.program, [*primals[1:], output, *[t for t in tangents[1:] if t is not None]])[1]
    if moved is not None:
        right = -moved if right is None else right - moved
    if right is None:
        return None
    return bind(linear_solve_p, right, *primals[1:], residual=residual, solvers=solvers, count=count, transposed=transposed)


def _linear_transpose(
    ct: Any, primals: Any, output: Any, *, active: Any, residual: Program, solvers: tuple[Program, ...], count: int, transposed: bool
) -> Any:
    back = bind(linear_solve_p, ct, *primals[1:], residual=residual, solvers=solvers, count=count, transposed=not transposed)
    return back, *(None,) * (len(primals) - 1)


def _rows_to_flat(rows: Any, specs: Sequence[ArraySpec]) -> Any:
    """A flat vector for each example, [batch, n], as that of leaves with the batch in front of their axes."""
    parts: list[Any] = []
    start: Any = 0
    for s in specs:
        part = rows if len(specs) == 1 else rows[:, start : start + s.size]
        parts.append(bind(reshape_p, part, shape=(rows.shape[0] * s.size,)))
        start = start + s.size
    return parts[0] if len(parts) == 1 else join(parts, 0)


def _flat_to_rows(flat: Any, specs: Sequence[ArraySpec], size: Any) -> Any:
    """The other way round."""
    parts: list[Any] = []
    start: Any = 0
    for s in specs:
        part = flat if len(specs) == 1 else flat[start : start + size * s.size]
        parts.append(bind(reshape_p, part, shape=(size, s.size)))
        start = start + size * s.size
    return parts[0] if len(parts) == 1 else join(parts, 1)


def _linear_batch(
    ctx: Any, args: Any, batch_axes: Any, /, *, residual: Program, solvers: tuple[Program, ...], count: int, transposed: bool
) -> Any:
    """One system of all examples: their residuals side by side, and the solver on all of them."""
    size, specs = ctx.size, residual.in_specs[:count]
    rows, *point = [put_axis(x, a, 0, size) for x, a in zip(args[: 1 + count], batch_axes[: 1 + count], strict=True)]
    operands = [*point, *args[1 + count :]]
    axes = [*[0] * count, *batch_axes[1 + count :]]

    def equations(*values: Any) -> Sequence[Any]:
        outputs, found = ctx.batch(residual, values, axes)
        return [put_axis(x, a, 0, size) for x, a in zip(outputs, found, strict=True)]

    def solver(program: Program) -> Program:
        def solve(*values: Any) -> Sequence[Any]:
            *rest, flat = values
            (found,), (axis,) = ctx.batch(program, [*rest, _flat_to_rows(flat, specs, size)], [*axes, 0])
            return [_rows_to_flat(put_axis(found, axis, 0, size), specs)]

        right = make_spec((size * rows.shape[1],), rows.dtype)
        return trace_program(solve, [*[spec(x) for x in operands], right], name=program.name, sources=False).program

    batched = trace_program(equations, [spec(x) for x in operands], name=residual.name, sources=False).program
    result = bind(
        linear_solve_p,
        _rows_to_flat(rows, specs),
        *operands,
        residual=batched,
        solvers=tuple(solver(p) for p in solvers),
        count=count,
        transposed=transposed,
    )
    return _flat_to_rows(result, specs, size), 0


linear_solve_p = Primitive(
    "implicit_linear_solve",
    abstract=_linear_abstract,
    numpy=_linear_numpy,
    jvp=_linear_jvp,
    linear=((0,),),
    transpose=_linear_transpose,
    batch=_linear_batch,
    decompose=_linear_decompose,
)


def _dense_solve(residual: Program, count: int, x: Sequence[Any], consts: Sequence[Any], b: Any) -> Any:
    """J^-1 b with J as a matrix: its columns are the residual's tangents along the axes of x."""
    specs = [strong(spec(v)) for v in x]
    size = b.shape[0]
    basis = eye(size, dtype=b.dtype)
    basis = basis if isinstance(basis, Tracer) else lift_constant(constant(basis))
    directions: list[Any] = []
    start: Any = 0
    for s in specs:
        part = basis if len(specs) == 1 else basis[:, start : start + s.size]
        directions.append(cast(bind(reshape_p, part, shape=(size, *s.shape)), s.dtype))
        start = start + s.size
    transform = jvp_transform(residual, [i < count for i in range(len(residual.inputs))])
    axes = [*[None] * (count + len(consts)), *[0] * count]
    found, found_axes = batch_program(BatchContext(size), transform, [*x, *consts, *directions], axes)
    moved = [put_axis(v, a, 0, size) for v, a in zip(found[count:], found_axes[count:], strict=True)]
    parts = [bind(reshape_p, cast(v, b.dtype), shape=(size, s.size)) for v, s in zip(moved, specs, strict=True)]
    rows = parts[0] if count == 1 else join(parts, 1)
    if type(size) is int and size == 1:
        return b / bind(reshape_p, rows, shape=(1,))
    column = bind(solve_p, swap_last(rows), bind(reshape_p, b, shape=(size, 1)))
    return bind(reshape_p, column, shape=(size,))


# ---------------------------------------------------------------------------------------------------------------------- the root


def _root_abstract(*operands: ArraySpec, solution: Program, residual: Program, solvers: tuple[Program, ...], count: int) -> Any:
    return tuple(strong(s) for s in solution.out_specs)


def _root_numpy(*operands: Array, solution: Program, residual: Program, solvers: tuple[Program, ...], count: int) -> list[Array]:
    return [x.copy() for x in evaluate(solution, operands)]


def _root_decompose(*operands: Any, solution: Program, residual: Program, solvers: tuple[Program, ...], count: int) -> Any:
    return tuple(inline(solution, operands))


def _root_jvp(
    output: Any, primals: Any, tangents: Any, *, solution: Program, residual: Program, solvers: tuple[Program, ...], count: int
) -> Any:
    consts = list(primals[len(primals) - (len(residual.inputs) - count) :])
    given = tangents[len(tangents) - len(consts) :]
    inner = TangentContext().jvp(residual, [*[False] * count, *[t is not None for t in given]])
    if not any(inner.present):
        return (None,) * count
    found = iter(inline(inner.program, [*output, *consts, *[t for t in given if t is not None]])[count:])
    specs = [strong(spec(x)) for x in output]
    dtype = _flat_dtype(specs)
    moved = -_flatten([next(found) if p else zeros(s.shape, s.dtype) for p, s in zip(inner.present, specs, strict=True)], dtype)
    if solvers:
        step = bind(linear_solve_p, moved, *output, *consts, residual=residual, solvers=solvers, count=count, transposed=False)
    else:
        step = _dense_solve(residual, count, output, consts, moved)
    return tuple(_unflatten(step, specs))


def _root_batch(ctx: Any, args: Any, batch_axes: Any, /, **params: Any) -> Any:
    # Not a root of all examples together: the dense Jacobian is that of each example.
    outputs = bind(batched_p, *args, inner=root_p, inner_params=tuple(sorted(params.items())), axes=tuple(batch_axes), size=ctx.size)
    return outputs, [0] * len(outputs)


root_p = Primitive(
    "implicit_root",
    abstract=_root_abstract,
    numpy=_root_numpy,
    jvp=_root_jvp,
    batch=_root_batch,
    decompose=_root_decompose,
)


class _Captures:
    """The tracers of enclosing traces that several Programs use, each once: they become the last constants of all of them."""

    def __init__(self) -> None:
        self.operands: list[Any] = []
        self._parts: list[tuple[Program, int, int, list[int]]] = []
        self._index: dict[Any, int] = {}

    def add(self, traced: Traced, extra: int = 0) -> None:
        """A traced Program; its last `extra` inputs before the captured ones stay last."""
        own = len(traced.program.inputs) - len(traced.captured)
        places: list[int] = []
        for tracer in traced.captured:
            key = tracer._atom
            if key not in self._index:
                self._index[key] = len(self.operands)
                self.operands.append(tracer)
            places.append(self._index[key])
        self._parts.append((traced.program, own, extra, places))

    def programs(self) -> list[Program]:
        """The Programs, all with the same constants."""
        result: list[Program] = []
        for program, own, extra, places in self._parts:
            variables = [Var(spec(x)) for x in self.operands]
            for place, var in zip(places, program.inputs[own:], strict=True):
                variables[place] = var
            inputs = [*program.inputs[: own - extra], *variables, *program.inputs[own - extra : own]]
            result.append(Program(inputs, program.equations, program.outputs, program.name))
        return result


def implicit_root(
    residual: Callable[..., Any], solve: Callable[[Callable[[Any], Any], Any], Any], *, linear_solve: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A function `g(x0, *params)` that gives the root x of residual(x, *params) = 0 and differentiates through the equation.

    solve(f, x0) finds a root of f from x0 by any method; its steps are not differentiated, so a while_loop needs no max_steps. residual
    gives a tree like x: as many equations as unknowns, floating. Derivatives of any order in the params (and in traced values that
    residual closes over), forward and reverse; x0 has none. They are exact at exact roots: solve tightly.
    By default the Jacobian in x is formed and factorised (on arrays LinAlgError where it is singular). linear_solve(matvec, b) solves
    matvec(v) = b instead, for trees like x, and is also given the transpose; it must be traceable: loops by ons.while_loop.
    Raises ShapeError, TypeError where residual and root do not match.
    """
    label = f"implicit_root of {getattr(residual, '__name__', type(residual).__name__)}"

    def root(x0: Any, *params: Any) -> Any:
        if current_trace() is None:
            return solve(lambda x: residual(x, *params), x0)
        return _traced_root(residual, solve, linear_solve, x0, params, label)

    root.__name__ = label
    return root


def _traced_root(residual: Any, solve: Any, linear_solve: Any, x0: Any, params: tuple[Any, ...], label: str) -> Any:
    starts, start_tree = operand_leaves(x0, f"{label}: x0")
    leaves, params_tree = operand_leaves(params, f"{label}: params")
    start_specs, specs = [spec(x) for x in starts], [spec(x) for x in leaves]
    captures = _Captures()
    out_trees: list[tree.TreeDef] = []

    def solution(*values: Any) -> Sequence[Any]:
        start = tree.unflatten(start_tree, list(values[: len(starts)]))
        found = tree.unflatten(params_tree, list(values[len(starts) :]))
        outputs, out_tree = flatten_result(solve(lambda x: residual(x, *found), start), label)
        out_trees.append(out_tree)
        return outputs

    found = trace_program(solution, [*start_specs, *specs], values=_values([*starts, *leaves]), name=label)
    x_tree, x_specs = out_trees[0], [strong(s) for s in found.program.out_specs]
    for s in x_specs:
        if not is_float(s.dtype):
            raise DTypeError(f"{label}: solve gives {s!r}; roots are floating arrays")
    captures.add(found)

    def equations(*values: Any) -> Sequence[Any]:
        x = tree.unflatten(x_tree, list(values[: len(x_specs)]))
        outputs, out_tree = flatten_result(residual(x, *tree.unflatten(params_tree, list(values[len(x_specs) :]))), label)
        if out_tree != x_tree:
            raise SignatureTypeError(f"{label}: the residual has another tree than x: {tree.difference(x_tree, out_tree)}")
        return outputs

    traced = trace_program(equations, [*x_specs, *specs], name=label)
    for have, wanted in zip(traced.program.out_specs, x_specs, strict=True):
        if not same_spec(have, wanted):
            raise ShapeError(f"{label}: the residual gives {have!r} for an unknown {wanted!r}; there are as many equations as unknowns")
    captures.add(traced)
    count = len(x_specs)
    if linear_solve is not None:
        closed = Program(traced.program.inputs, traced.program.equations, traced.program.outputs, label)
        for transposed in (False, True):
            captures.add(_trace_linear_solve(linear_solve, closed, traced.captured, x_tree, x_specs, specs, transposed, label), extra=1)
    programs = captures.programs()
    operands = [*starts, *leaves, *captures.operands]
    results = bind(root_p, *operands, solution=programs[0], residual=programs[1], solvers=tuple(programs[2:]), count=count)
    return tree.unflatten(x_tree, list(results))


def _values(operands: Sequence[Any]) -> list[Any] | None:
    """What the operands are known to be, where the trace around evaluates."""
    trace = current_trace()
    if trace is None or trace.values is None:
        return None
    return [x._value if isinstance(x, Tracer) else as_array(x) for x in operands]


def _trace_linear_solve(
    linear_solve: Any,
    residual: Program,
    captured: Sequence[Any],
    x_tree: tree.TreeDef,
    x_specs: Sequence[ArraySpec],
    specs: Sequence[ArraySpec],
    transposed: bool,
    label: str,
) -> Traced:
    """The user's solver for J, or its transpose, as a Program from x, the params and a flat right-hand side."""
    count, dtype = len(x_specs), _flat_dtype(x_specs)

    def solver(*values: Any) -> Sequence[Any]:
        *point, b = values
        consts = [*point[count:], *captured]

        def matvec(v: Any) -> Any:
            leaves, v_tree = operand_leaves(v, f"{label}: matvec")
            if v_tree != x_tree:
                raise SignatureTypeError(f"{label}: matvec takes a tree like x: {tree.difference(x_tree, v_tree)}")
            leaves = [cast(leaf, s.dtype) for leaf, s in zip(leaves, x_specs, strict=True)]
            return tree.unflatten(x_tree, _product(residual, count, transposed, point[:count], consts, leaves))

        found, found_tree = flatten_result(linear_solve(matvec, tree.unflatten(x_tree, _unflatten(b, x_specs))), f"{label}: linear_solve")
        if found_tree != x_tree:
            raise SignatureTypeError(f"{label}: linear_solve gives another tree than x: {tree.difference(x_tree, found_tree)}")
        for leaf, s in zip(found, x_specs, strict=True):
            if len(spec(leaf).shape) != len(s.shape) or not all(same_dim(p, q) for p, q in zip(spec(leaf).shape, s.shape, strict=True)):
                raise ShapeError(f"{label}: linear_solve gives {spec(leaf)!r} for an unknown {s!r}")
        return [_flatten(found, dtype)]

    size = sum((s.size for s in x_specs[1:]), x_specs[0].size)
    return trace_program(solver, [*x_specs, *specs, make_spec((size,), dtype)], name=f"linear solve of {label}")
