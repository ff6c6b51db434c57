"""Derivative rules as small Programs, traced once for each (primitive, specs, params, active operands).

A tangent template maps (primals, outputs, tangents) to output tangents. A pullback template maps (primals, outputs, cotangents) to
operand cotangents: by the primitive's `transpose`, or by transposing the tangent template's linear part. Transforms inline them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ops.arithmetic import add_p
from ..ops.structure import broadcast_to_p
from ..stage.errors import MissingRuleError, NonlinearRuleError, ProgramError
from ..stage.narrowing import is_tuple
from ..stage.primitive import Params, Primitive, Unknown
from ..stage.program import Atom, Equation, Program, ProgramBuilder, Var, live_equations
from ..stage.source import Source
from ..stage.spec import ArraySpec
from ..stage.trace import bind
from .rules import (
    Mask,
    Template,
    bare,
    cached_template,
    decomposition,
    may_be_active,
    same_type,
    spread,
    tangent_spec,
    trace_template,
)
from .transposition import (
    accumulate,
    check_linear,
    checked_cotangents,
    emit_zero,
    expand_composites,
    known_zeros,
    linear_groups,
    transpose_linear,
)


def _as_tuple(result: Any, count: int, several: bool, what: str) -> tuple[Any, ...]:
    values = tuple(result) if several and result is not None else (None,) * count if several else (result,)
    if len(values) != count:
        raise ProgramError(f"{what}: gave {len(values)} results for {count}")
    return values


def tangent_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask) -> Template:
    """Inputs: operands, outputs, tangents of the active operands. Outputs: the tangents that are present."""
    key = ("jvp", primitive, specs, tuple(params.items()), active)
    return cached_template(key, lambda: _make_tangent_template(primitive, specs, params, active))


def _make_tangent_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask) -> Template:
    out_specs, several = primitive.infer(specs, params)
    count = len(specs)
    hidden = primitive.residual_outputs(params)
    no_forward = primitive.reverse_only(params)
    present: list[bool] = []
    unknown: list[tuple[int, str]] = []

    def function(*args: Any) -> Sequence[Any]:
        primals, outputs = args[:count], args[count : count + len(out_specs)]
        given = iter(args[count + len(out_specs) :])
        tangents = tuple(next(given) if a else None for a in active)
        if no_forward is not None:
            results: tuple[Any, ...] = (*(Unknown(no_forward),) * (len(out_specs) - hidden), *(None,) * hidden)
        else:
            result = _apply_jvp(primitive, bare(outputs, several), primals, tangents, params)
            results = _as_tuple(result, len(out_specs), several, f"{primitive.name}: the jvp rule")
        unknown.extend((i, t.message) for i, t in enumerate(results) if isinstance(t, Unknown))
        results = tuple(None if isinstance(t, Unknown) else t for t in results)
        for i, (tangent, spec) in enumerate(zip(results, out_specs, strict=True)):
            _check_tangent(primitive, i, tangent, spec)
        present.extend(t is not None for t in results)
        return [t for t in results if t is not None]

    if primitive.jvp is None and primitive.linear is None and no_forward is None:
        if primitive.decompose is not None:
            return _decomposed_tangents(primitive, specs, out_specs, params, active)
        if primitive.vjp is not None:
            raise NonlinearRuleError(f"{primitive.name} may not take a tangent inside a jvp rule")
        raise MissingRuleError(f"{primitive.name}: no jvp rule")
    tangent_specs = [tangent_spec(s) for s, a in zip(specs, active, strict=True) if a]
    program = trace_template(function, [*specs, *out_specs, *tangent_specs], f"jvp of {primitive.name}").program
    if primitive.generation:
        check_linear(program, count + len(out_specs), primitive.name)
    template = Template(program, tuple(present), tuple(unknown))
    return _with_residual_tangents(template, primitive, specs, params, active, hidden) if hidden else template


def _with_residual_tangents(
    template: Template, primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, hidden: int
) -> Template:
    """The tangents of the last outputs added, by the decomposition; they are unknown where there is none."""
    present = template.present[:-hidden]
    try:
        program = decomposition(primitive, specs, params)
    except MissingRuleError as error:
        first = len(present)
        message = f"{primitive.name}: the derivative of its residual is needed here (a derivative of its derivative), and {error.message}"
        return Template(template.program, template.present, (*template.unknown, *((first + i, message) for i in range(hidden))))
    inner = tangent_equations(Program(program.inputs, program.equations, program.outputs[-hidden:], program.name), active)
    found = [t for t in inner.tangent_outputs if t is not None]
    builder = ProgramBuilder()
    inputs = [builder.add_input(v.spec) for v in template.program.inputs]
    tangents = inputs[len(inputs) - sum(active) :]
    outputs = builder.inline(template.program, inputs)
    outputs += builder.inline(Program([*program.inputs, *inner.tangent_inputs], inner.equations, found), [*inputs[: len(specs)], *tangents])
    return Template(
        builder.build(outputs, template.program.name), (*present, *(t is not None for t in inner.tangent_outputs)), template.unknown
    )


def _check_tangent(primitive: Primitive, index: int, tangent: Any, spec: ArraySpec) -> None:
    if tangent is None:
        return
    got = getattr(tangent, "spec", None)
    if got is None:
        raise NonlinearRuleError(f"{primitive.name}: the jvp rule gave a constant for output {index}; a zero tangent is None")
    if not same_type(got, spec):
        raise ProgramError(f"{primitive.name}: the jvp rule gave {got!r} for the tangent of output {index}, which is {spec!r}")


def _apply_jvp(primitive: Primitive, output: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params) -> Any:
    if primitive.jvp is not None:
        return primitive.jvp(output, tuple(primals), tuple(tangents), **params)
    groups = linear_groups(primitive, len(primals))
    terms: list[Any] = []
    for group in groups:
        if all(tangents[i] is None for i in group):
            continue
        operands = list(primals)
        for i in group:
            tangent = tangents[i]
            operands[i] = bind(broadcast_to_p, _zero(primals[i]), shape=primals[i].shape) if tangent is None else tangent
        terms.append(bind(primitive, *operands, **params))
    if not terms:
        return None
    total = terms[0]
    for term in terms[1:]:
        if is_tuple(total):
            total = tuple(bind(add_p, a, b) for a, b in zip(total, term, strict=True))
        else:
            total = bind(add_p, total, term)
    return total


def _zero(x: Any) -> Any:
    return x.dtype.type(0)


def _decomposed_tangents(
    primitive: Primitive, specs: tuple[ArraySpec, ...], out_specs: tuple[ArraySpec, ...], params: Params, active: Mask
) -> Template:
    program = decomposition(primitive, specs, params)
    inner = tangent_equations(program, active)
    builder = ProgramBuilder()
    builder.inputs.extend(program.inputs)
    builder.inputs.extend(Var(s) for s in out_specs)
    builder.inputs.extend(inner.tangent_inputs)
    builder.equations.extend(inner.equations)
    present = tuple(t is not None for t in inner.tangent_outputs)
    return Template(builder.build([t for t in inner.tangent_outputs if t is not None]), present)


class Tangents(NamedTuple):
    """The equations of a Program and of its tangents. outputs: the program's outputs in terms of them."""

    equations: list[Equation]
    outputs: list[Atom]
    tangent_inputs: list[Var]
    tangent_outputs: list[Atom | None]


def tangent_equations(program: Program, active: Sequence[bool]) -> Tangents:
    """Forward mode: the program's equations, each followed by its tangent's; dead ones left out.

    A sub-program op is replaced by one that computes its outputs and their tangents together.
    """
    builder = ProgramBuilder()
    tangents: dict[Atom, Atom] = {}
    env: dict[Atom, Atom] = {}
    inputs: list[Var] = []
    for var, is_active in zip(program.inputs, active, strict=True):
        if is_active:
            tangent = Var(tangent_spec(var.spec))
            inputs.append(tangent)
            tangents[var] = tangent
    unknown: dict[Atom, str] = {}
    for eqn in live_equations(program):
        mask = tuple([a in tangents for a in eqn.inputs])
        if unknown:
            _require_known(unknown, eqn.inputs, eqn.source)
        if True not in mask or not may_be_active(eqn.primitive, [v.spec for v in eqn.outputs]):
            builder.equations.append(renamed(eqn, env))
            continue
        given = [tangents[a] for a in eqn.inputs if a in tangents]
        specs = tuple([a.spec for a in eqn.inputs])
        if eqn.primitive.jvp_with_output is not None:
            template = joint_template(eqn.primitive, specs, eqn.params, mask)
            found = builder.inline(template.program, [*[env.get(a, a) for a in eqn.inputs], *given], eqn.source)
            env.update(zip(eqn.outputs, found, strict=False))
            results = iter(found[len(eqn.outputs) :])
        else:
            builder.equations.append(renamed(eqn, env))
            template = tangent_template(eqn.primitive, specs, eqn.params, mask)
            operands: Sequence[Atom] = [*eqn.inputs, *eqn.outputs]
            args = [*([env.get(a, a) for a in operands] if env else operands), *given]
            results = iter(builder.inline(template.program, args, eqn.source))
        unknown.update({eqn.outputs[i]: message for i, message in template.unknown})
        for var, present in zip(eqn.outputs, template.present, strict=True):
            if present:
                tangents[var] = next(results)
    _require_known(unknown, program.outputs, None)
    return Tangents(builder.equations, [env.get(a, a) for a in program.outputs], inputs, [tangents.get(a) for a in program.outputs])


def _require_known(unknown: dict[Atom, str], atoms: Sequence[Atom], source: Source | None) -> None:
    for atom in atoms:
        if atom in unknown:
            raise MissingRuleError(unknown[atom], source=source)


def renamed(eqn: Equation, env: dict[Atom, Atom]) -> Equation:
    """The equation with its operands replaced."""
    if not env or not any(a in env for a in eqn.inputs):
        return eqn
    return Equation(eqn.primitive, tuple([env.get(a, a) for a in eqn.inputs]), eqn.params, eqn.outputs, eqn.source)


def joint_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask) -> Template:
    """Of a sub-program op. Inputs: operands, tangents of the active ones. Outputs: its outputs, then the tangents present."""
    key = ("joint", primitive, specs, tuple(params.items()), active)
    return cached_template(key, lambda: _make_joint_template(primitive, specs, params, active))


def _make_joint_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask) -> Template:
    out_specs, several = primitive.infer(specs, params)
    present: list[bool] = []

    def function(*args: Any) -> Sequence[Any]:
        tangents = spread(args[len(specs) :], active)
        output, out_tangents = primitive.require("jvp_with_output")(TangentContext(), args[: len(specs)], tangents, **params)
        results = _as_tuple(out_tangents, len(out_specs), several, f"{primitive.name}: the jvp rule")
        for i, (tangent, spec) in enumerate(zip(results, out_specs, strict=True)):
            _check_tangent(primitive, i, tangent, spec)
        present.extend(t is not None for t in results)
        return [*_as_tuple(output, len(out_specs), several, primitive.name), *[t for t in results if t is not None]]

    tangent_specs = [tangent_spec(s) for s, a in zip(specs, active, strict=True) if a]
    program = trace_template(function, [*specs, *tangent_specs], f"jvp of {primitive.name}").program
    return Template(program, tuple(present))


class TangentContext:
    """What rules of sub-program ops get as `ctx`, so that `ops` imports nothing above it."""

    def jvp(self, program: Program, active: Sequence[bool], required: Sequence[bool] = ()) -> Template:
        """A Program's forward mode. Inputs: its inputs, tangents of the active ones. Outputs: its outputs, tangents present.

        required: outputs that get a tangent in any case, zeros where there is none.
        """
        found = tangent_equations(program, active)
        builder = ProgramBuilder()
        builder.inputs.extend((*program.inputs, *found.tangent_inputs))
        builder.equations.extend(found.equations)
        tangents: list[Atom | None] = []
        for i, (out, tangent) in enumerate(zip(program.outputs, found.tangent_outputs, strict=True)):
            needed = tangent is None and i < len(required) and required[i]
            tangents.append(emit_zero(builder, tangent_spec(out.spec)) if needed else tangent)
        present = tuple(t is not None for t in tangents)
        return Template(builder.build([*found.outputs, *[t for t in tangents if t is not None]], f"jvp of {program.name}"), present)


def pullback_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template:
    """Inputs: operands, outputs, the given cotangents. Outputs: the cotangents present, of the active operands in order.

    `present` has one entry an operand.
    """
    key = ("vjp", primitive, specs, tuple(params.items()), active, given)
    return cached_template(key, lambda: _make_pullback_template(primitive, specs, params, active, given))


def _make_pullback_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template:
    hidden = primitive.residual_outputs(params)
    if hidden and primitive.transpose is not None and any(given[-hidden:]):
        return _residual_pullback(primitive, specs, params, active, given, hidden)
    if primitive.transpose is not None:
        direct = _direct_pullback(primitive, specs, params, active, given)
        if direct is not None:
            return direct
    return _derived_pullback(primitive, specs, params, active, given)


def _residual_pullback(
    primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask, hidden: int
) -> Template:
    """The cotangents of visible outputs by the transpose rule, those of residuals by the decomposition."""
    visible = len(given) - hidden
    out_specs, _ = primitive.infer(specs, params)
    builder = ProgramBuilder()
    values = [builder.add_input(s) for s in (*specs, *out_specs)]
    cts = {i: builder.add_input(tangent_spec(out_specs[i])) for i, g in enumerate(given) if g}
    found: dict[Atom, Atom] = {}
    for wanted, derived in ((range(visible), False), (range(visible, len(given)), True)):
        mask = tuple(g and i in wanted for i, g in enumerate(given))
        if True not in mask:
            continue
        make = _derived_pullback if derived else pullback_template
        template = make(primitive, specs, params, active, mask)
        results = iter(builder.inline(template.program, [*values, *[ct for i, ct in cts.items() if mask[i]]]))
        for operand, present in zip(values, template.present, strict=False):
            if present:
                accumulate(builder, found, operand, next(results))
    operands = values[: len(specs)]
    return Template(builder.build([found[v] for v in operands if v in found]), tuple(v in found for v in operands))


def _direct_pullback(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template | None:
    """The transpose rule with all values present; None if it leaves an active operand out that a jvp rule would cover."""
    out_specs, several = primitive.infer(specs, params)
    count = len(specs)
    present: list[bool] = []

    def function(*args: Any) -> Sequence[Any]:
        primals, outputs = args[:count], args[count : count + len(out_specs)]
        cotangents = spread(args[count + len(out_specs) :], given)
        results = primitive.require("transpose")(bare(cotangents, several), primals, bare(outputs, several), active=active, **params)
        return checked_cotangents(primitive, results, specs, active, present)

    ct_specs = [tangent_spec(s) for s, g in zip(out_specs, given, strict=True) if g]
    traced = trace_template(function, [*specs, *out_specs, *ct_specs], f"pullback of {primitive.name}")
    if (
        primitive.jvp is not None
        and primitive.reverse_only(params) is None
        and any(a and not p for a, p in zip(active, present, strict=True))
    ):
        return None
    return Template(traced.program, tuple(present))


def _derived_pullback(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template:
    """Transpose the tangent template: what does not depend on a tangent first, then the rest backwards."""
    tangents = tangent_template(primitive, specs, params, active)
    for i, message in tangents.unknown:
        if given[i]:
            raise MissingRuleError(message)
    out_specs, _ = primitive.infer(specs, params)
    program = expand_composites(tangents.program, len(specs) + len(out_specs))
    split = len(specs) + len(out_specs)
    builder = ProgramBuilder()
    builder.inputs.extend(program.inputs[:split])
    cotangents: dict[Atom, Atom] = {}
    zeros = known_zeros(program.equations)
    dependent: set[Atom] = set(program.inputs[split:])
    linear: list[Equation] = []
    for eqn in live_equations(program):
        if any(a in dependent for a in eqn.inputs):
            linear.append(eqn)
            dependent.update(eqn.outputs)
        else:
            builder.equations.append(eqn)
    tangent_outputs = iter(program.outputs)
    for spec, present, is_given in zip(out_specs, tangents.present, given, strict=True):
        atom = next(tangent_outputs) if present else None
        if not is_given:
            continue
        ct = builder.add_input(tangent_spec(spec))
        if atom is None or zeros.holds(atom):
            continue
        if atom not in dependent:
            raise NonlinearRuleError(
                f"{primitive.name}: the jvp rule gave a tangent that does not depend on the tangents; a zero tangent is None"
            )
        accumulate(builder, cotangents, atom, ct)
    transpose_linear(builder, linear, dependent, zeros, cotangents, primitive.name)
    results = iter(program.inputs[split:])
    found = [cotangents.get(next(results)) if a else None for a in active]
    return Template(builder.build([ct for ct in found if ct is not None]), tuple(ct is not None for ct in found))
