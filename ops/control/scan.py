"""scan, map and fori_loop with a known number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...stage import tree
from ...stage.dims import Dim, same_dim
from ...stage.errors import DTypeError, ShapeError, SignatureTypeError
from ...stage.narrowing import is_tuple
from ...stage.program import Program
from ...stage.spec import ArraySpec, DimLike, make_spec
from ..operands import spec
from .bodies import Body, casting_outputs, check_tree, operand_leaves, same_spec, to_spec, trace_body
from .scan_rules import Layout, bind_scan


def scan(f: Callable[[Any, Any], Any], init: Any, xs: Any = None, *, length: Any = None, reverse: bool = False) -> tuple[Any, Any]:
    """Apply `f(carry, x) -> (carry, y)` along the leading axis of xs; gives (carry, ys) with the ys stacked.

    init: the first carry, a tree; it keeps its shapes and dtypes (Python numbers in it take the body's dtype). xs: a tree of arrays of
    equal leading size, or None with `length`. reverse: from the last to the first. The steps are a loop in the ONNX file, never
    unrolled. Raises TypeError or ShapeError naming what of the carry changes.
    """
    x_leaves, x_tree = operand_leaves(xs, "scan: xs")
    size = _length(x_leaves, x_tree, length)
    slices = [make_spec(spec(x).shape[1:], spec(x).dtype) for x in x_leaves]
    carry, carry_tree = operand_leaves(init, "scan: init")
    in_tree = tree.structure((tree.unflatten(carry_tree, carry), tree.unflatten(x_tree, x_leaves)))
    body, specs = trace_carry(f, carry, carry_tree, in_tree, slices, "scan")
    pair = tree.unflatten(body.out_tree, list(range(len(body.program.outputs))))
    ys_tree = tree.structure(pair[1])
    count = len(carry)
    # captured operands are the constants: first in the scan, last in the traced body
    program = body.program
    n = count + len(slices)
    reordered = Program((*program.inputs[n:], *program.inputs[:n]), program.equations, program.outputs, program.name)
    values = [*body.captured, *[to_spec(x, s) for x, s in zip(carry, specs, strict=True)], *x_leaves]
    results = bind_scan(values, reordered, Layout(len(body.captured), count), size, bool(reverse))
    return tree.unflatten(carry_tree, list(results[:count])), tree.unflatten(ys_tree, list(results[count:]))


def trace_carry(
    f: Callable[..., Any], carry: list[Any], carry_tree: tree.TreeDef, in_tree: tree.TreeDef, slices: list[ArraySpec], label: str
) -> tuple[Body, list[ArraySpec]]:
    """Trace `f(carry, x) -> (carry, y)` with the carry's specs made those that the body keeps.

    Weak entries take the dtype that the body gives them: a fix-point after at most one trace more than there are entries.
    """
    specs = [spec(x) for x in carry]
    paths = [tree.path_text(p, "carry") for p in carry_tree.paths()]
    body = trace_body(f, in_tree, [*specs, *slices], label)
    for _ in range(len(carry) + 2):
        outs = _carry_outputs(body, carry_tree, len(carry), label)
        changed = False
        for i, (path, have, got) in enumerate(zip(paths, specs, outs, strict=True)):
            if have.weak and not got.weak and have.shape == got.shape:
                specs[i] = make_spec(have.shape, got.dtype)
                changed = True
            elif have.weak and got.weak and have.dtype != got.dtype:
                specs[i] = got
                changed = True
            elif not same_spec(have, got) and not (got.weak and have.shape == got.shape):
                kind = DTypeError if have.dtype != got.dtype else ShapeError
                raise kind(f"{label}: {path} starts as {have!r} and the body gives {got!r}; a carry keeps its shape and dtype")
        if not changed:
            break
        body = trace_body(f, in_tree, [*specs, *slices], label)
    strong_specs = [make_spec(s.shape, s.dtype) for s in specs]
    if any(s.weak for s in specs):
        body = trace_body(f, in_tree, [*strong_specs, *slices], label)
        for path, have, got in zip(paths, strong_specs, _carry_outputs(body, carry_tree, len(carry), label), strict=True):
            if not same_spec(have, got):
                raise DTypeError(f"{label}: {path} starts as {have!r} and the body gives {got!r}; a carry keeps its shape and dtype")
    outputs = [*strong_specs, *[make_spec(s.shape, s.dtype) for s in body.program.out_specs[len(carry) :]]]
    return Body(casting_outputs(body.program, outputs), body.captured, body.out_tree), strong_specs


def _carry_outputs(body: Body, carry_tree: tree.TreeDef, count: int, label: str) -> list[ArraySpec]:
    result = tree.unflatten(body.out_tree, list(range(len(body.program.outputs))))
    if not is_tuple(result) or len(result) != 2:
        raise SignatureTypeError(f"{label}: the body must return a pair (carry, y), got the tree {body.out_tree}")
    check_tree(carry_tree, tree.structure(result[0]), f"{label}: the body returns another carry than it is given")
    return list(body.program.out_specs[:count])


def _length(leaves: list[Any], treedef: tree.TreeDef, length: Any) -> DimLike:
    size: DimLike | None = None if length is None else length if isinstance(length, Dim) else int(length.__index__())
    where = "length"
    for x, path in zip(leaves, treedef.paths(), strict=True):
        shape = spec(x).shape
        name = tree.path_text(path, "xs")
        if not shape:
            raise ShapeError(f"scan: {name} is {spec(x)!r}; a leading axis is needed")
        if size is None:
            size, where = shape[0], name
        elif not same_dim(size, shape[0]):
            raise ShapeError(f"scan: {where} has length {size}, {name} has {shape[0]}")
    if size is None:
        raise SignatureTypeError("scan: without xs, give length=")
    if not isinstance(size, Dim) and size < 0:
        raise ShapeError(f"scan: length {size} is negative")
    return size


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """f applied to every slice of xs along its leading axis, one after the other; results are stacked."""
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]
