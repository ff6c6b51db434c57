"""while_loop, fori_loop and associative_scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...stage import tree
from ...stage.dims import Dim, max_dim
from ...stage.dtypes import BOOL, INT64
from ...stage.errors import DTypeError, ShapeError, SignatureTypeError
from ...stage.program import Program
from ...stage.tracer import Tracer
from ..joining import concatenate, stack
from ..operands import cast, normalize_axis, operand, spec
from ..shape import flip, moveaxis, reshape
from .bodies import operand_leaves, to_spec, trace_body
from .scan import scan, trace_carry
from .while_rules import bind_while


def while_loop(cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], init: Any, *, max_steps: int | None = None) -> Any:
    """Repeat `state = body_fn(state)` while cond_fn(state) holds; gives the last state, a tree like init.

    max_steps bounds the number of steps (the loop then ends whether the condition holds or not) and makes reverse mode possible, which
    stores the state of each of the max_steps steps. Forward mode needs no bound.
    """
    if max_steps is not None and (not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 0):
        raise SignatureTypeError(f"while_loop: max_steps is a number of steps, got {max_steps!r}")
    carry, carry_tree = operand_leaves(init, "while_loop: init")
    in_tree = tree.structure((tree.unflatten(carry_tree, carry),))

    def pair(state: Any) -> tuple[Any, None]:
        return body_fn(state), None

    body, specs = trace_carry(pair, carry, carry_tree, in_tree, [], "while_loop")
    cond = trace_body(cond_fn, in_tree, specs, "while_loop: cond_fn")
    if cond.out_tree.num_leaves != 1 or cond.program.out_specs[0].shape != ():
        raise ShapeError(
            f"while_loop: cond_fn must return one 0-d boolean, got {', '.join(map(repr, cond.program.out_specs)) or 'nothing'}"
        )
    if cond.program.out_specs[0].dtype != BOOL:
        raise DTypeError(f"while_loop: cond_fn must return a boolean, got {cond.program.out_specs[0]!r}; compare it with something")
    n = len(carry)
    values = [*cond.captured, *body.captured, *[to_spec(x, s) for x, s in zip(carry, specs, strict=True)]]
    results = bind_while(
        values, _consts_first(cond.program, n), _consts_first(body.program, n), len(cond.captured), len(body.captured), max_steps
    )
    return tree.unflatten(carry_tree, list(results))


def _consts_first(program: Program, n: int) -> Program:
    return Program((*program.inputs[n:], *program.inputs[:n]), program.equations, program.outputs, program.name)


def fori_loop(lower: Any, upper: Any, body_fn: Callable[[Any, Any], Any], init: Any) -> Any:
    """`for i in range(lower, upper): value = body_fn(i, value)`; i is a weak int64 scalar.

    With bounds known while staging (ints, named dims) it has both derivative modes; with traced bounds forward mode only.
    """
    if not isinstance(lower, Tracer) and not isinstance(upper, Tracer):
        low = lower if isinstance(lower, Dim) else int(operand(lower, "fori_loop: lower").__index__())
        high = upper if isinstance(upper, Dim) else int(operand(upper, "fori_loop: upper").__index__())

        def step(state: Any, _: Any) -> tuple[Any, None]:
            i, value = state
            return (i + 1, body_fn(cast(i, INT64, weak=True), value)), None

        start = cast(operand(low), INT64) if isinstance(low, Dim) else np.asarray(low, INT64)
        return scan(step, (start, init), length=max_dim(high - low, 0))[0][1]
    bounds = [_integer(x, f"fori_loop: {name}") for name, x in (("lower", lower), ("upper", upper))]
    _, value = while_loop(
        lambda state: state[0] < bounds[1],
        lambda state: (state[0] + 1, body_fn(cast(state[0], INT64, weak=True), state[1])),
        (bounds[0], init),
    )
    return value


def _integer(x: Any, what: str) -> Any:
    x = operand(x, what)
    s = spec(x)
    if s.shape != () or s.dtype.kind not in "iu":
        raise DTypeError(f"{what} is {s!r}; an integer is needed")
    return cast(x, INT64)


def associative_scan(f: Callable[[Any, Any], Any], elems: Any, *, axis: int = 0, reverse: bool = False) -> Any:
    """All prefixes f(x0, x1), f(f(x0, x1), x2), ... of an associative f, in a logarithmic number of calls of f on whole slices.

    f takes and gives trees of arrays like elems, with any size along `axis`. Along a named dim it steps through one by one instead.
    """
    leaves, treedef = operand_leaves(elems, "associative_scan: elems")
    if not leaves:
        return elems
    leaves = [np.asarray(x) if not isinstance(x, Tracer) else x for x in leaves]
    moved = [moveaxis(x, normalize_axis(axis, len(x.shape)), 0) for x in leaves]
    sizes = {x.shape[0] for x in moved}
    if len(sizes) != 1:
        raise ShapeError(f"associative_scan: the leaves differ in size along axis {axis}: {', '.join(str(s) for s in sizes)}")
    if reverse:
        moved = [flip(x, 0) for x in moved]

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        left = tree.unflatten(treedef, [moveaxis(x, 0, axis) for x in a])
        right = tree.unflatten(treedef, [moveaxis(x, 0, axis) for x in b])
        out, out_tree = tree.flatten(f(left, right))
        if out_tree != treedef:
            raise SignatureTypeError(f"associative_scan: f returns another tree: {tree.difference(treedef, out_tree)}")
        return [moveaxis(x, axis, 0) for x in out]

    size = moved[0].shape[0]
    result = _sequential(combine, moved) if isinstance(size, Dim) else _prefixes(combine, moved)
    if reverse:
        result = [flip(x, 0) for x in result]
    return tree.unflatten(treedef, [moveaxis(x, 0, axis) for x in result])


def _prefixes(combine: Callable[[Sequence[Any], Sequence[Any]], list[Any]], xs: list[Any]) -> list[Any]:
    n = xs[0].shape[0]
    if n < 2:
        return xs
    odd = _prefixes(combine, combine([x[0 : n - 1 : 2] for x in xs], [x[1::2] for x in xs]))
    if n == 2:
        return [concatenate([x[:1], o]) for x, o in zip(xs, odd, strict=True)]
    later = combine([o[:-1] for o in odd] if n % 2 == 0 else odd, [x[2::2] for x in xs])
    even = [concatenate([x[:1], e]) for x, e in zip(xs, later, strict=True)]
    return [_interleave(e, o) for e, o in zip(even, odd, strict=True)]


def _interleave(even: Any, odd: Any) -> Any:
    """even[0], odd[0], even[1], ...; even may be one longer."""
    m = odd.shape[0]
    pairs = reshape(stack([even[:m], odd], axis=1), (2 * m, *even.shape[1:]))
    return pairs if even.shape[0] == m else concatenate([pairs, even[m:]])


def _sequential(combine: Callable[[Sequence[Any], Sequence[Any]], list[Any]], xs: list[Any]) -> list[Any]:
    """One step an element: the first element passes as it is."""

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        first, state = carry
        new = combine([s[None] for s in state], [e[None] for e in x])
        out: list[Any] = [np.where(first, e, n[0]) for e, n in zip(x, new, strict=True)]
        return (first & False, out), out

    start = [np.zeros([int(d) for d in x.shape[1:]], x.dtype) for x in xs]
    return list(scan(step, (np.asarray(True), start), xs)[1])
