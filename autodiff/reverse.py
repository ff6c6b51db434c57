"""Reverse mode: a Program's equations are replayed, then walked backwards with each equation's pullback template.

An absent cotangent is absent, never a zero. An equation whose primitive has a `vjp` rule (sub-programs, residuals) is replaced in
the forward part by what that rule emits, since its forward pass must hand residuals to the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..stage.program import Atom, Equation, Program, ProgramBuilder, Var, live_equations
from ..stage.spec import carries_tangent
from .rules import Mask, bare, cached_template, may_be_active, spread, tangent_spec, trace_template
from .templates import TangentContext, pullback_template, renamed
from .transposition import accumulate, checked_cotangents, emit_zero


class Reverse(NamedTuple):
    """The forward and backward equations of a Program; the backward ones read the forward ones' Vars.

    outputs: the program's outputs in terms of the forward equations. ct_inputs: one Var for each output that was given a
    cotangent. ct_outputs: for each input its cotangent, None if it has none.
    """

    forward: list[Equation]
    backward: list[Equation]
    outputs: list[Atom]
    ct_inputs: list[Var]
    ct_outputs: list[Atom | None]


def reverse(program: Program, active: Sequence[bool], given: Sequence[bool]) -> Reverse:
    """Differentiate with respect to the inputs in `active`, for cotangents of the outputs in `given`."""
    equations = live_equations(program)
    dependent = _dependent(program, equations, active)
    useful = _useful(program, equations, dependent, given)
    forward, backward = ProgramBuilder(), ProgramBuilder()
    env: dict[Atom, Atom] = {}
    steps: list[_Step] = []
    for eqn in equations:
        wanted = tuple([v in useful for v in eqn.outputs])
        if True not in wanted or eqn.primitive.vjp is None:
            forward.equations.append(renamed(eqn, env))
            if True in wanted:
                steps.append(_Step(eqn, tuple([a in dependent for a in eqn.inputs]), None, wanted, []))
        else:
            steps.append(_replace(forward, eqn, tuple([a in dependent for a in eqn.inputs]), wanted, env))
    cotangents: dict[Atom, Atom] = {}
    ct_inputs: list[Var] = []
    for atom, is_given in zip(program.outputs, given, strict=True):
        if is_given:
            ct = Var(tangent_spec(atom.spec))
            ct_inputs.append(ct)
            if atom in dependent:
                accumulate(backward, cotangents, atom, ct)
    for step in reversed(steps):
        _pull_back(step, backward, cotangents, env)
    ct_outputs = [cotangents.get(v) if a else None for v, a in zip(program.inputs, active, strict=True)]
    return Reverse(forward.equations, backward.equations, [env.get(a, a) for a in program.outputs], ct_inputs, ct_outputs)


def _dependent(program: Program, equations: Sequence[Equation], active: Sequence[bool]) -> set[Atom]:
    """The atoms that hang differentiably on the active inputs."""
    found: set[Atom] = {v for v, a in zip(program.inputs, active, strict=True) if a}
    for eqn in equations:
        for atom in eqn.inputs:
            if atom in found:
                if may_be_active(eqn.primitive, [v.spec for v in eqn.outputs]):
                    found.update([v for v in eqn.outputs if carries_tangent(v.spec)])
                break
    return found


def _useful(program: Program, equations: Sequence[Equation], dependent: set[Atom], given: Sequence[bool]) -> set[Atom]:
    """The dependent atoms that a given cotangent can reach."""
    found: set[Atom] = {a for a, g in zip(program.outputs, given, strict=True) if g and a in dependent}
    for eqn in reversed(equations):
        if any(v in found for v in eqn.outputs):
            found.update([a for a in eqn.inputs if a in dependent])
    return found


class _Step(NamedTuple):
    """An equation to pull back, by its template or by the pullback of its vjp rule over the residuals that this left."""

    eqn: Equation
    mask: Mask
    rule: VjpTemplate | None
    wanted: Mask
    residuals: list[Atom]


def _replace(forward: ProgramBuilder, eqn: Equation, mask: Mask, wanted: Mask, env: dict[Atom, Atom]) -> _Step:
    rule = vjp_template(eqn, mask, wanted)
    results = forward.inline(rule.forward, [env.get(a, a) for a in eqn.inputs], eqn.source)
    env.update(zip(eqn.outputs, results, strict=False))
    return _Step(eqn, mask, rule, wanted, results[len(eqn.outputs) :])


def _pull_back(step: _Step, builder: ProgramBuilder, cotangents: dict[Atom, Atom], env: dict[Atom, Atom]) -> None:
    eqn = step.eqn
    given = tuple([v in cotangents for v in eqn.outputs])
    if True not in given:
        return
    if step.rule is not None:
        program, present = step.rule.backward, step.rule.present
        cts = [
            cotangents[v] if v in cotangents else emit_zero(builder, tangent_spec(v.spec))
            for v, w in zip(eqn.outputs, step.wanted, strict=True)
            if w
        ]
        args = [*step.residuals, *cts]
    else:
        template = pullback_template(eqn.primitive, tuple([a.spec for a in eqn.inputs]), eqn.params, step.mask, given)
        program, present = template.program, template.present
        values = [*eqn.inputs, *eqn.outputs]
        args = [*([env.get(a, a) for a in values] if env else values), *[cotangents[v] for v in eqn.outputs if v in cotangents]]
    results = iter(builder.inline(program, args, eqn.source))
    for atom, is_present in zip(eqn.inputs, present, strict=True):
        if is_present:
            accumulate(builder, cotangents, atom, next(results))


class VjpTemplate(NamedTuple):
    """A vjp rule traced. forward: operands to outputs and residuals. backward: residuals and wanted cotangents to cotangents."""

    forward: Program
    backward: Program
    present: Mask


def vjp_template(eqn: Equation, mask: Mask, wanted: Mask) -> VjpTemplate:
    specs = tuple([a.spec for a in eqn.inputs])
    key = ("hook", eqn.primitive, specs, tuple(eqn.params.items()), mask, wanted)
    return cached_template(key, lambda: _make_vjp_template(eqn, specs, mask, wanted))


def _make_vjp_template(eqn: Equation, specs: tuple[Any, ...], mask: Mask, wanted: Mask) -> VjpTemplate:
    primitive = eqn.primitive
    out_specs, several = primitive.infer(specs, eqn.params)
    present: list[bool] = []
    pullback_programs: list[Program] = []

    def forward(*primals: Any) -> Sequence[Any]:
        output, pullback = primitive.require("vjp")(ReverseContext(), primals, mask, **eqn.params)

        def backward(*cts: Any) -> Sequence[Any]:
            results = pullback(bare(spread(cts, wanted), several))
            return checked_cotangents(primitive, results, specs, mask, present)

        ct_specs = [tangent_spec(s) for s, w in zip(out_specs, wanted, strict=True) if w]
        traced = trace_template(backward, ct_specs, f"pullback of {primitive.name}")
        program = traced.program
        count = len(ct_specs)
        # residuals first, then cotangents
        inputs = (*program.inputs[count:], *program.inputs[:count])
        pullback_programs.append(Program(inputs, program.equations, program.outputs, program.name))
        return [*(output if several else (output,)), *traced.captured]

    program = trace_template(forward, specs, f"forward of {primitive.name}").program
    return VjpTemplate(program, pullback_programs[0], tuple(present))


class Parts(NamedTuple):
    """A Program cut for reverse mode. forward: its inputs to its outputs and residuals.

    backward: residuals, then cotangents of the given outputs, to the cotangents present, of the active inputs. `present` has one
    entry an input. residual_inputs: for each residual the index of the input that it is, None for a computed one.
    """

    forward: Program
    backward: Program
    present: Mask
    residual_inputs: tuple[int | None, ...]


class ReverseContext(TangentContext):
    """What vjp rules get as `ctx`."""

    def reverse(self, program: Program, active: Sequence[bool], given: Sequence[bool], required: Sequence[bool] = ()) -> Parts:
        """A Program's reverse mode, forward and backward apart.

        required: inputs that get a cotangent in any case, zeros where there is none.
        """
        found = reverse(program, active, given)
        backward = ProgramBuilder()
        backward.equations.extend(found.backward)
        cts: list[Atom | None] = []
        for i, (var, ct) in enumerate(zip(program.inputs, found.ct_outputs, strict=True)):
            needed = ct is None and i < len(required) and required[i]
            cts.append(emit_zero(backward, tangent_spec(var.spec)) if needed else ct)
        outputs = [ct for ct in cts if ct is not None]
        backward_program = Program((), backward.equations, outputs)
        live = live_equations(backward_program)
        made = {v for eqn in live for v in eqn.outputs} | set(found.ct_inputs)
        read = dict.fromkeys(a for eqn in live for a in eqn.inputs)
        read.update(dict.fromkeys(outputs))
        residuals = [a for a in read if isinstance(a, Var) and a not in made]
        position = {v: i for i, v in enumerate(program.inputs)}
        return Parts(
            Program(program.inputs, found.forward, [*found.outputs, *residuals], f"forward of {program.name}"),
            Program([*residuals, *found.ct_inputs], live, outputs, f"backward of {program.name}"),
            tuple(ct is not None for ct in cts),
            tuple(position.get(r) for r in residuals),
        )
