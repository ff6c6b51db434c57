"""Transposing linear equations: the cotangents of their outputs become those of their operands.

Linearity is checked statically: an equation that a tangent passes through must be linear in the operands that hang on tangents, and what
it adds to them must be a known zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.arithmetic import add_p
from ..ops.structure import broadcast_to_p
from ..stage.errors import MissingRuleError, NonlinearRuleError, OnstageError, ProgramError
from ..stage.narrowing import is_sequence
from ..stage.primitive import Params, Primitive
from ..stage.program import Atom, Const, Equation, Program, ProgramBuilder, live_equations
from ..stage.spec import ArraySpec, make_spec
from ..stage.trace import scalar_constant
from .rules import (
    Mask,
    Template,
    bare,
    cached_template,
    decomposition,
    same_type,
    spread,
    tangent_spec,
    trace_template,
)


def checked_cotangents(primitive: Primitive, results: Any, specs: Sequence[ArraySpec], active: Mask, present: list[bool]) -> list[Any]:
    if not is_sequence(results) or len(results) != len(specs):
        raise ProgramError(f"{primitive.name}: the transpose rule must give a tuple of {len(specs)} cotangents, got {results!r}")
    kept: list[Any] = []
    for i, (ct, spec) in enumerate(zip(results, specs, strict=True)):
        wanted = active[i] and ct is not None
        present.append(wanted)
        if not wanted:
            continue
        got = getattr(ct, "spec", None)
        if got is None or not same_type(got, spec):
            raise ProgramError(f"{primitive.name}: the transpose rule gave {got or ct!r} for operand {i}, which is {spec!r}")
        kept.append(ct)
    return kept


def emit_zero(builder: ProgramBuilder, spec: ArraySpec) -> Atom:
    """A zero of that spec."""
    zero = scalar_constant(0, make_spec((), spec.dtype))
    return builder.emit(broadcast_to_p, (zero,), {"shape": spec.shape}, None)[0] if spec.shape else zero


def accumulate(builder: ProgramBuilder, cotangents: dict[Atom, Atom], atom: Atom, ct: Atom) -> None:
    """Add a contribution to an atom's cotangent."""
    have = cotangents.get(atom)
    cotangents[atom] = ct if have is None else builder.emit(add_p, (have, ct), {}, None)[0]


class Zeros:
    """The atoms that are zero whatever the inputs are: constants, and what linear operations make of them."""

    def __init__(self) -> None:
        self.atoms: set[Atom] = set()

    def holds(self, atom: Atom) -> bool:
        return atom in self.atoms or (isinstance(atom, Const) and not atom.value.any())


def linear_groups(primitive: Primitive, count: int) -> list[tuple[int, ...]]:
    """The groups of operands in which an operation is jointly linear."""
    linear: Any = primitive.linear
    return [] if linear is None else [tuple(range(count))] if linear == "all" else list(linear)


def known_zeros(equations: Sequence[Equation]) -> Zeros:
    """Those among the outputs of equations."""
    zeros = Zeros()
    for eqn in equations:
        groups = linear_groups(eqn.primitive, len(eqn.inputs))
        if any(group and all(zeros.holds(eqn.inputs[i]) for i in group) for group in groups):
            zeros.atoms.update(eqn.outputs)
    return zeros


def check_linear(program: Program, first_tangent: int, owner: str) -> None:
    """NonlinearRuleError unless the outputs of a traced jvp rule are linear in its tangents, as far as its operations tell."""
    expanded = expand_composites(program, first_tangent)
    zeros = known_zeros(expanded.equations)
    dependent: set[Atom] = set(expanded.inputs[first_tangent:])
    for eqn in live_equations(expanded):
        mask = tuple([a in dependent for a in eqn.inputs])
        if True not in mask:
            continue
        dependent.update(eqn.outputs)
        # A loop or branch, and an opaque user primitive, are looked into where they are transposed.
        if eqn.primitive.vjp is None and not eqn.primitive.generation:
            require_linear(eqn.primitive, mask, owner)
            require_homogeneous(eqn, mask, zeros, owner)
    for i, atom in enumerate(expanded.outputs):
        if atom not in dependent and not zeros.holds(atom):
            raise NonlinearRuleError(
                f"{owner}: the jvp rule gave a tangent ({i}) that does not depend on the tangents; a zero tangent is None"
            )


def require_homogeneous(eqn: Equation, mask: Mask, zeros: Zeros, owner: str) -> None:
    """NonlinearRuleError where an operation adds to a tangent what does not hang on one, as `tangent + 1` does."""
    if all(mask) or eqn.primitive.linear is None:
        return
    groups = linear_groups(eqn.primitive, len(mask))
    wanted = {i for i, m in enumerate(mask) if m}
    for group in groups:
        if wanted <= set(group):
            for i in group:
                if not mask[i] and not zeros.holds(eqn.inputs[i]):
                    raise NonlinearRuleError(
                        f"{owner}: the jvp rule is not linear in its tangents: {eqn.primitive.name} takes a tangent together with operand {i} "
                        f"({eqn.inputs[i].spec!r}), which is not zero and does not depend on one"
                    )
            return


def expand_composites(program: Program, first_tangent: int) -> Program:
    """Composites that a tangent passes through are replaced by their decompositions, so that they can be transposed."""
    dependent: set[Atom] = set(program.inputs[first_tangent:])
    builder = ProgramBuilder()
    builder.inputs.extend(program.inputs)
    env: dict[Atom, Atom] = {}
    changed = False
    for eqn in program.equations:
        inputs = tuple([env.get(a, a) for a in eqn.inputs])
        if any(a in dependent for a in eqn.inputs):
            dependent.update(eqn.outputs)
            inner = _expansion(eqn.primitive, tuple([a.spec for a in inputs]), eqn.params)
            if inner is not None:
                env.update(zip(eqn.outputs, builder.inline(inner, inputs, eqn.source), strict=True))
                changed = True
                continue
        builder.equations.append(Equation(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))
    if not changed:
        return program
    return expand_composites(builder.build([env.get(a, a) for a in program.outputs], program.name), first_tangent)


def _expansion(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params) -> Program | None:
    """The decomposition of a composite; None for what is linear itself, for loops and branches, and for an opaque user primitive."""
    if primitive.linear is not None or primitive.decompose is None:
        return None
    try:
        return decomposition(primitive, specs, params)
    except MissingRuleError:
        if not primitive.generation:
            raise
        return None


def transpose_linear(
    builder: ProgramBuilder, equations: Sequence[Equation], dependent: set[Atom], zeros: Zeros, cotangents: dict[Atom, Atom], owner: str
) -> None:
    """Walk linear equations backwards, turning the cotangents of their outputs into those of their dependent operands."""
    for eqn in reversed(equations):
        given = tuple([v in cotangents for v in eqn.outputs])
        if True not in given:
            continue
        mask = tuple([a in dependent for a in eqn.inputs])
        require_homogeneous(eqn, mask, zeros, owner)
        specs = tuple([a.spec for a in eqn.inputs])
        template = linear_template(eqn.primitive, specs, eqn.params, mask, given, owner)
        args = [a for a, m in zip(eqn.inputs, mask, strict=True) if not m] + [cotangents[v] for v in eqn.outputs if v in cotangents]
        results = iter(builder.inline(template.program, args))
        for atom, present in zip(eqn.inputs, template.present, strict=True):
            if present:
                accumulate(builder, cotangents, atom, next(results))


def linear_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, mask: Mask, given: Mask, owner: str) -> Template:
    """The transpose of a linear equation. Inputs: the operands that are not in `mask`, then the given cotangents."""
    key = ("transpose", primitive, specs, tuple(params.items()), mask, given)
    return cached_template(key, lambda: _make_linear_template(primitive, specs, params, mask, given, owner))


def _make_linear_template(
    primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, mask: Mask, given: Mask, owner: str
) -> Template:
    require_linear(primitive, mask, owner)
    out_specs, several = primitive.infer(specs, params)
    known = sum(not m for m in mask)
    present: list[bool] = []

    def function(*args: Any) -> Sequence[Any]:
        values = iter(args[:known])
        primals = tuple(spec if m else next(values) for spec, m in zip(specs, mask, strict=True))
        cotangents = spread(args[known:], given)
        try:
            results = primitive.require("transpose")(bare(cotangents, several), primals, bare(out_specs, several), active=mask, **params)
        except (TypeError, AttributeError) as error:
            if not primitive.generation or isinstance(error, OnstageError):
                raise
            raise NonlinearRuleError(
                f"{owner}: the jvp rule passes a tangent through {primitive.name}, whose transpose rule reads the value of an operand that hangs "
                f"on it or of the output ({error}); it is not linear"
            ) from error
        return checked_cotangents(primitive, results, specs, mask, present)

    known_specs = [s for s, m in zip(specs, mask, strict=True) if not m]
    ct_specs = [tangent_spec(s) for s, g in zip(out_specs, given, strict=True) if g]
    traced = trace_template(function, [*known_specs, *ct_specs], f"transpose of {primitive.name}")
    return Template(traced.program, tuple(present))


def require_linear(primitive: Primitive, mask: Mask, owner: str) -> None:
    """NonlinearRuleError unless the operation is jointly linear in the operands of `mask`.

    An opaque user primitive with a transpose rule is taken for linear where a jvp rule passes a tangent through it.
    """
    if primitive.linear == "all" or (primitive.generation and primitive.transpose is not None):
        return
    wanted = {i for i, m in enumerate(mask) if m}
    if primitive.generation:
        raise NonlinearRuleError(
            f"{owner}: the jvp rule passes a tangent through {primitive.name}, which is opaque and has no transpose rule"
        )
    if primitive.linear is None or not any(wanted <= set(group) for group in primitive.linear):
        operands = ", ".join(str(i) for i in sorted(wanted))
        how = "is not linear" if primitive.linear is None or len(wanted) == 1 else "is not jointly linear"
        raise NonlinearRuleError(f"{owner}: the jvp rule is not linear in its tangents: {primitive.name} {how} in operand {operands}")
