"""Bodies: user functions traced to closed Programs for the params of control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...stage import tree
from ...stage.dims import same_dim
from ...stage.errors import DTypeError, SignatureTypeError, TracingError
from ...stage.narrowing import is_array
from ...stage.program import Atom, Program, ProgramBuilder, Var
from ...stage.spec import ArraySpec, make_spec
from ...stage.staging import flatten_result
from ...stage.trace import trace_program
from ..operands import cast, operand
from ..structure import cast_p


class Body(NamedTuple):
    """A traced function: its Program, the captured operands of the Program's last inputs, the tree of its result."""

    program: Program
    captured: list[Any]
    out_tree: tree.TreeDef


def trace_body(function: Callable[..., Any], in_tree: tree.TreeDef, specs: Sequence[ArraySpec], label: str) -> Body:
    """Trace `function(*args)`; in_tree is the tree of the tuple of its arguments."""
    out_trees: list[tree.TreeDef] = []

    def flat(*leaves: Any) -> Sequence[Any]:
        outputs, out_tree = flatten_result(function(*tree.unflatten(in_tree, list(leaves))), label)
        out_trees.append(out_tree)
        return outputs

    traced = trace_program(flat, specs, name=label)
    return Body(traced.program, list(traced.captured), out_trees[0])


def operand_leaves(value: Any, what: str) -> tuple[list[Any], tree.TreeDef]:
    """The leaves of a tree as operands: tracers, arrays, or Python numbers, which stay weak."""
    entries, treedef = tree.flatten_with_paths(value)
    leaves: list[Any] = []
    for path, leaf in entries:
        try:
            leaves.append(operand(leaf, tree.path_text(path, what)))
        except DTypeError as error:
            raise DTypeError(error.message) from None
    return leaves, treedef


def same_spec(a: ArraySpec, b: ArraySpec) -> bool:
    """Equal but for weakness."""
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(same_dim(p, q) for p, q in zip(a.shape, b.shape, strict=True))


def describe_difference(paths: Sequence[str], wanted: Sequence[ArraySpec], got: Sequence[ArraySpec]) -> str | None:
    """The first leaf at which two lists of specs differ."""
    for path, a, b in zip(paths, wanted, got, strict=True):
        if not same_spec(a, b):
            return f"{path} is {b!r}, expected {a!r}"
    return None


def with_inputs(program: Program, inputs: Sequence[Var]) -> Program:
    """The Program with its inputs reordered or extended; every input it had must be among them."""
    missing = set(program.inputs) - set(inputs)
    if missing:
        raise TracingError(f"{program.name}: inputs are missing")
    return Program(inputs, program.equations, program.outputs, program.name)


def casting_outputs(program: Program, specs: Sequence[ArraySpec]) -> Program:
    """The Program with its outputs cast to the dtype and weakness of `specs`."""
    if all(a.spec.dtype == s.dtype and a.spec.weak == s.weak for a, s in zip(program.outputs, specs, strict=True)):
        return program
    builder = ProgramBuilder()
    builder.inputs.extend(program.inputs)
    builder.equations.extend(program.equations)
    outputs: list[Atom] = []
    for atom, wanted in zip(program.outputs, specs, strict=True):
        if atom.spec.dtype != wanted.dtype or atom.spec.weak != wanted.weak:
            outputs.append(builder.emit(cast_p, (atom,), {"dtype": wanted.dtype, "weak": wanted.weak}, None)[0])
        else:
            outputs.append(atom)
    return builder.build(outputs, program.name)


def strong(s: ArraySpec) -> ArraySpec:
    return make_spec(s.shape, s.dtype) if s.weak else s


def to_spec(leaf: Any, wanted: ArraySpec) -> Any:
    """An operand in the dtype and weakness of a spec."""
    return cast(leaf, wanted.dtype, weak=wanted.weak) if not is_array(leaf) or leaf.dtype != wanted.dtype else leaf


def check_tree(wanted: tree.TreeDef, got: tree.TreeDef, what: str) -> None:
    """TypeError saying where the trees differ."""
    if wanted != got:
        raise SignatureTypeError(f"{what}: {tree.difference(wanted, got) or f'expected the tree {wanted}, got {got}'}")
