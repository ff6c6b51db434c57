"""jacfwd, jacrev, jacobian, hessian, hvp, and linearize."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.creation import eye
from ..ops.shape import reshape
from ..stage import tree
from ..stage.dims import product
from ..stage.dtypes import is_float
from ..stage.errors import DTypeError, SignatureTypeError
from ..stage.interpreter import as_array, run_equations
from ..stage.primitive import Array
from ..stage.program import Atom, Const, Equation, Program, ProgramBuilder, Var, live_equations
from ..stage.spec import ArraySpec, spec_of
from ..stage.staged import StagedProgram
from ..stage.trace import current_trace
from ..stage.tracer import Tracer
from .batching import vmap
from .forward import vjp_transform
from .gradient import Recorded, choose, float_leaves, grad, python_function, record, restage, staged_signature
from .products import direction, function_label, jvp, leaf_operand, stage_flat, vjp
from .rules import tangent_spec
from .templates import tangent_equations
from .transposition import emit_zero


def jacfwd(f: Any, argnums: Any = 0) -> Any:
    """The Jacobian by forward mode, a column at a time at once: for a function with few inputs.

    The result nests the output's tree, then the arguments' (argnums an int or a tuple of ints); each entry has shape out.shape +
    in.shape. Raises TypeError for arguments that are not floating.
    """
    if isinstance(f, StagedProgram):
        return restage(f, jacfwd(python_function(f), argnums), f"jacfwd of {f.name}")

    @functools.wraps(f, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        label = function_label(f)
        chosen = choose(f, args, kwargs, argnums, None, "jacfwd")
        leaves, treedef = float_leaves(chosen, "jacfwd", label)

        def call(*xs: Any) -> Any:
            new_args, new_kwargs = chosen.rebuild(tree.unflatten(treedef, list(xs)))
            return f(*new_args, **new_kwargs)

        columns: list[list[Any]] = []
        out_tree: tree.TreeDef | None = None
        for i, leaf in enumerate(leaves):
            spec = spec_of(leaf)

            def push(basis: Any, i: int = i) -> Any:
                def of_leaf(x: Any) -> Any:
                    return call(*leaves[:i], x, *leaves[i + 1 :])

                return jvp(of_leaf, (leaves[i],), (basis,))[1]

            # the batch axis counts the input's elements: it goes last, then is unfolded into the input's shape
            result = vmap(push, out_axes=-1)(_basis(spec))
            outs, out_tree = tree.flatten(result)
            columns.append([reshape(out, (*out.shape[:-1], *spec.shape)) for out in outs])
        assert out_tree is not None
        rows = [_argument_tree([c[k] for c in columns], treedef, argnums) for k in range(out_tree.num_leaves)]
        return tree.unflatten(out_tree, rows)

    return wrapped


def jacrev(f: Any, argnums: Any = 0) -> Any:
    """The Jacobian by reverse mode, a row at a time at once: for a function with few outputs. Nested as jacfwd's."""
    if isinstance(f, StagedProgram):
        return restage(f, jacrev(python_function(f), argnums), f"jacrev of {f.name}")

    @functools.wraps(f, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        label = function_label(f)
        chosen = choose(f, args, kwargs, argnums, None, "jacrev")
        leaves, treedef = float_leaves(chosen, "jacrev", label)

        def call(*xs: Any) -> Any:
            new_args, new_kwargs = chosen.rebuild(tree.unflatten(treedef, list(xs)))
            return f(*new_args, **new_kwargs)

        out, pullback = vjp(call, *leaves)
        out_leaves, out_tree = tree.flatten(out)
        rows: list[Any] = []
        for i, leaf in enumerate(out_leaves):
            spec = spec_of(leaf)
            if not is_float(spec.dtype):
                raise DTypeError(f"jacrev of {label}: output {i} is {spec!r}; only floating outputs have a Jacobian")

            def pull(basis: Any, i: int = i) -> Any:
                return pullback(tree.unflatten(out_tree, [basis if k == i else None for k in range(len(out_leaves))]))

            found = vmap(pull)(_basis(spec))
            entries = [reshape(x, (*spec.shape, *spec_of(leaf_).shape)) for x, leaf_ in zip(found, leaves, strict=True)]
            rows.append(_argument_tree(entries, treedef, argnums))
        return tree.unflatten(out_tree, rows)

    return wrapped


def jacobian(f: Any, argnums: Any = 0) -> Any:
    """The Jacobian, by reverse mode; jacfwd is the other way to the same result."""
    return jacrev(f, argnums)


def hessian(f: Any, argnums: Any = 0) -> Any:
    """The Hessian of a scalar function, forward over reverse. Nested argument by argument."""
    return jacfwd(_gradient(f, argnums), argnums)


def _gradient(f: Any, argnums: Any) -> Any:
    return grad(f, argnums)


def hvp(f: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of a scalar function times a vector, forward over reverse, without the Hessian.

    primals, tangents: tuples of the same trees. Gives a tuple with one product an argument; for a single argument its tree alone.
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise SignatureTypeError("hvp: primals and tangents are tuples, one entry an argument")
    argnums: Any = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(f, argnums), tuple(primals), tuple(tangents))[1]


def hvp_program(program: StagedProgram) -> StagedProgram:
    """The program that takes the primals, then their tangents, and gives the Hessian times them: of a scalar program.

    The result is a tuple with one product an argument, or for one argument its tree; None stands for integer leaves, whose tangents
    are ignored.
    """
    signature, count = staged_signature(program, "tangent")
    signature.name = f"hvp of {program.name}"
    names = program.signature.dynamic_names
    active = [i for i, spec in enumerate(program.signature.specs) if is_float(spec.dtype)]

    def function(*leaves: Any) -> tuple[list[Any], Any]:
        primals, tangents = list(leaves[:count]), list(leaves[count:])

        def scalar(*xs: Any) -> Any:
            trace = current_trace()
            assert trace is not None
            operands = list(primals)
            for i, x in zip(active, xs, strict=True):
                operands[i] = x
            outputs = trace.inline(program.program, operands)
            if len(outputs) != 1:
                raise SignatureTypeError(f"hvp_program of {program.name}: the program must give one scalar, it gives {len(outputs)} arrays")
            return outputs[0]

        gradient = grad(scalar, tuple(range(len(active))))
        products = list(jvp(gradient, tuple([primals[i] for i in active]), tuple([tangents[i] for i in active]))[1])
        everything: list[Any] = [None] * count
        for i, product_ in zip(active, products, strict=True):
            everything[i] = product_
        arguments = tree.unflatten(program.signature.tree, everything)
        return products, tree.structure(arguments if len(names) != 1 else arguments[0])

    return stage_flat(signature, function, f"hvp of {program.name}")


def _basis(spec: ArraySpec) -> Any:
    """The unit vectors of a space of arrays: [n, *shape] with n elements in all."""
    n = product(spec.shape)
    return reshape(eye(n, dtype=spec.dtype), (n, *spec.shape))


def _argument_tree(entries: Sequence[Any], treedef: tree.TreeDef, argnums: Any) -> Any:
    arguments = tree.unflatten(treedef, list(entries))
    return arguments[0] if isinstance(argnums, int) else tuple(arguments)


class LinearMap:
    """The derivative of a function at a point, to be applied again and again. `linear_map(*tangents)`, `linear_map.transpose(ct)`."""

    def __init__(
        self, program: Program, residuals: Sequence[Any], recorded: Recorded, in_tree: tree.TreeDef, specs: Sequence[ArraySpec]
    ) -> None:
        self._program = program
        self._residuals = list(residuals)
        self._recorded = recorded
        self._in_tree = in_tree
        self._specs = list(specs)
        self._transposed: Program | None = None

    def __call__(self, *tangents: Any) -> Any:
        """The derivative along tangents, one entry an argument."""
        leaves, treedef = tree.flatten(tuple(tangents))
        if treedef != self._in_tree:
            raise SignatureTypeError(
                f"linear_map: the tangents have another tree than the primals: {tree.difference(self._in_tree, treedef)}"
            )
        directions = [
            direction(x, s, f"linear_map: tangent {i}")
            for i, (x, s) in enumerate(zip(leaves, self._specs, strict=True))
            if is_float(s.dtype)
        ]
        return tree.unflatten(self._recorded.out_tree, _apply(self._program, [*self._residuals, *directions]))

    def transpose(self, ct: Any) -> Any:
        """The transposed map: a tuple with one cotangent an argument, for a cotangent of the result's tree."""
        leaves, treedef = tree.flatten(ct)
        if treedef != self._recorded.out_tree:
            raise SignatureTypeError(
                f"linear_map.transpose: another tree than the result: {tree.difference(self._recorded.out_tree, treedef)}"
            )
        if self._transposed is None:
            count = len(self._residuals)
            active = [i >= count for i in range(len(self._program.inputs))]
            full = vjp_transform(self._program, active, [True] * len(self._program.outputs))
            n = len(self._program.outputs)
            # the map is linear: its pullback reads no tangent, which are replaced by zeros and fall away
            self._transposed = _without_tangents(full, count, len(self._program.inputs), n)
        cts = [
            direction(x, s, f"linear_map.transpose: cotangent {i}")
            for i, (x, s) in enumerate(zip(leaves, self._program.out_specs, strict=True))
        ]
        found = iter(_apply(self._transposed, [*self._residuals, *cts]))
        cotangents = [next(found) if is_float(s.dtype) else np.zeros([int(d) for d in s.shape], s.dtype) for s in self._specs]
        return tree.unflatten(self._in_tree, cotangents)


def _without_tangents(program: Program, first: int, last: int, outputs: int) -> Program:
    builder = ProgramBuilder()
    zeros: dict[Atom, Atom] = {}
    kept: list[Var] = []
    for i, var in enumerate(program.inputs):
        if first <= i < last:
            zeros[var] = emit_zero(builder, var.spec)
        else:
            kept.append(var)
    inner = Program(program.inputs, program.equations, program.outputs[outputs:])
    args = [zeros.get(v, v) for v in program.inputs]
    builder.inputs.extend(kept)
    results = builder.inline(inner, args)
    whole = builder.build(results, program.name)
    return Program(whole.inputs, live_equations(whole), whole.outputs, whole.name)


def _apply(program: Program, operands: Sequence[Any]) -> list[Any]:
    trace = current_trace()
    if trace is not None and any(isinstance(x, Tracer) for x in operands):
        return list(trace.inline(program, operands))
    env: dict[Atom, Array] = {v: as_array(x) for v, x in zip(program.inputs, operands, strict=True)}
    run_equations(program.equations, env)
    return [(a.value if isinstance(a, Const) else env[a]).copy() for a in program.outputs]


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, LinearMap]:
    """(f(*primals), linear_map): the derivative at that point, with what does not depend on tangents computed once.

    linear_map(*tangents) is a product with the Jacobian, linear_map.transpose(ct) with its transpose.
    """
    label = function_label(f)
    leaves, treedef = tree.flatten(tuple(primals))
    leaves = [leaf_operand(leaf, f"linearize of {label}") for leaf in leaves]
    specs = [spec_of(leaf) for leaf in leaves]
    recorded = record(lambda *xs: f(*tree.unflatten(treedef, list(xs))), leaves, label)
    program = recorded.traced.program
    active = [i < len(specs) and is_float(specs[i].dtype) for i in range(len(program.inputs))]
    found = tangent_equations(program, active)
    dependent: set[Atom] = set(found.tangent_inputs)
    known: list[Equation] = []
    linear: list[Equation] = []
    for eqn in found.equations:
        if any(a in dependent for a in eqn.inputs):
            dependent.update(eqn.outputs)
            linear.append(eqn)
        else:
            known.append(eqn)
    builder = ProgramBuilder()
    builder.equations.extend(linear)
    outputs = [
        emit_zero(builder, tangent_spec(out.spec)) if t is None else t
        for out, t in zip(program.outputs, found.tangent_outputs, strict=True)
    ]
    made = {v for eqn in builder.equations for v in eqn.outputs} | set(found.tangent_inputs)
    read = dict.fromkeys([*[a for eqn in builder.equations for a in eqn.inputs], *outputs, *found.outputs])
    residuals = [a for a in read if isinstance(a, Var) and a not in made]
    outside = [a for a in found.outputs if a in made]
    if outside:
        # an output made together with its tangent by a sub-program op: computed once more without tangents
        values = _apply(program, recorded.operands)
    else:
        values = []
    first = Program(program.inputs, known, [*([] if outside else found.outputs), *residuals], label)
    results = _apply(first, recorded.operands)
    if not outside:
        values, results = results[: len(found.outputs)], results[len(found.outputs) :]
    linear_program = Program([*residuals, *found.tangent_inputs], builder.equations, outputs, f"linear map of {label}")
    value = tree.unflatten(recorded.out_tree, values)
    return value, LinearMap(linear_program, results, recorded, treedef, specs)
