"""Derivative rules as small Programs, traced once for each (primitive, specs, params, active operands).

A tangent template maps (primals, outputs, tangents) to output tangents. A pullback template maps (primals, outputs, cotangents) to
operand cotangents: by the primitive's `transpose`, or by transposing the tangent template's linear part. Transforms inline them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ..stage.dims import same_dim
from ..stage.errors import MissingRuleError, NonlinearRuleError, ProgramError
from ..stage.primitive import Params, Primitive
from ..stage.program import Atom, Equation, Program, ProgramBuilder, Var, live_equations
from ..stage.spec import ArraySpec, carries_tangent, make_spec
from ..stage.trace import Traced, bind, scalar_constant, trace_program
from ..ops.arithmetic import add_p
from ..ops.structure import broadcast_to_p

Mask = tuple[bool, ...]
T = TypeVar("T")
_LIMIT: Final = 1 << 13
_cache: OrderedDict[Any, Any] = OrderedDict()
_lock = threading.Lock()


def trace_template(function: Callable[..., Sequence[Any]], specs: Sequence[ArraySpec], name: str) -> Traced:
    """Trace a rule: its equations get their source lines where they are inlined."""
    return trace_program(function, specs, name=name, sources=False)


class Template(NamedTuple):
    """`present` says which of the possible results there are; an absent one is zero.

    unknown: outputs whose tangents cannot be had, and why; that is an error only where one is read.
    """

    program: Program
    present: Mask
    unknown: tuple[tuple[int, str], ...] = ()


def cached_template(key: Any, make: Callable[[], T]) -> T:
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    made = make()
    with _lock:
        _cache[key] = made
        if len(_cache) > _LIMIT:
            _cache.popitem(last=False)
    return made


def bare(values: Sequence[Any], several: bool) -> Any:
    return tuple(values) if several else values[0]


def _as_tuple(result: Any, count: int, several: bool, what: str) -> tuple[Any, ...]:
    values = tuple(result) if several and result is not None else (None,) * count if several else (result,)
    if len(values) != count:
        raise ProgramError(f"{what}: gave {len(values)} results for {count}")
    return values


def same_type(a: ArraySpec, b: ArraySpec) -> bool:
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(same_dim(p, q) for p, q in zip(a.shape, b.shape, strict=True))


def may_be_active(primitive: Primitive, out_specs: Sequence[ArraySpec]) -> bool:
    """Whether an output can depend differentiably on an operand; MissingRuleError if it should and has no rule."""
    if not any(carries_tangent(s) for s in out_specs):
        return False
    if primitive.nondifferentiable is not None:
        raise MissingRuleError(f"{primitive.name} is not differentiable: {primitive.nondifferentiable}; ons.stop_gradient says that this is meant")
    return True


def decomposition(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params) -> Program:
    """A composite primitive as a Program of simpler ones."""
    rule = primitive.require("decompose")

    def function(*args: Any) -> Sequence[Any]:
        result = rule(*args, **params)
        return result if isinstance(result, tuple | list) else (result,)

    return cached_template(
        ("decompose", primitive, specs, tuple(params.items())),
        lambda: trace_template(function, specs, primitive.name).program,
    )


# ------------------------------------------------------------------------------------------------------------------- tangents


def tangent_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask) -> Template:
    """Inputs: operands, outputs, tangents of the active operands. Outputs: the tangents that are present."""
    key = ("jvp", primitive, specs, tuple(params.items()), active)
    return cached_template(key, lambda: _make_tangent_template(primitive, specs, params, active))


def tangent_spec(spec: ArraySpec) -> ArraySpec:
    """Tangents and cotangents are strong arrays of their primal's shape and dtype."""
    return spec.update(weak=False) if spec.weak else spec


def _make_tangent_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask) -> Template:
    out_specs, several = primitive.infer(specs, params)
    count = len(specs)
    present: list[bool] = []

    def function(*args: Any) -> Sequence[Any]:
        primals, outputs = args[:count], args[count : count + len(out_specs)]
        given = iter(args[count + len(out_specs) :])
        tangents = tuple(next(given) if a else None for a in active)
        result = _apply_jvp(primitive, bare(outputs, several), primals, tangents, params)
        results = _as_tuple(result, len(out_specs), several, f"{primitive.name}: the jvp rule")
        for i, (tangent, spec) in enumerate(zip(results, out_specs, strict=True)):
            _check_tangent(primitive, i, tangent, spec)
        present.extend(t is not None for t in results)
        return [t for t in results if t is not None]

    if primitive.jvp is None and primitive.linear is None:
        if primitive.vjp is not None:
            raise NonlinearRuleError(f"{primitive.name} may not take a tangent inside a jvp rule")
        if primitive.decompose is None:
            raise MissingRuleError(f"{primitive.name}: no jvp rule")
        return _decomposed_tangents(primitive, specs, out_specs, params, active)
    tangent_specs = [tangent_spec(s) for s, a in zip(specs, active, strict=True) if a]
    traced = trace_template(function, [*specs, *out_specs, *tangent_specs], f"jvp of {primitive.name}")
    return Template(traced.program, tuple(present))


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
    groups = [tuple(range(len(primals)))] if primitive.linear == "all" else primitive.linear or ()
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
        if isinstance(total, tuple):
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
    for eqn in live_equations(program):
        mask = tuple([a in tangents for a in eqn.inputs])
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
        for var, present in zip(eqn.outputs, template.present, strict=True):
            if present:
                tangents[var] = next(results)
    return Tangents(builder.equations, [env.get(a, a) for a in program.outputs], inputs, [tangents.get(a) for a in program.outputs])


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


# ------------------------------------------------------------------------------------------------------------------ pullbacks


def pullback_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template:
    """Inputs: operands, outputs, the given cotangents. Outputs: the cotangents present, of the active operands in order.

    `present` has one entry an operand.
    """
    key = ("vjp", primitive, specs, tuple(params.items()), active, given)
    return cached_template(key, lambda: _make_pullback_template(primitive, specs, params, active, given))


def _make_pullback_template(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template:
    if primitive.transpose is not None:
        direct = _direct_pullback(primitive, specs, params, active, given)
        if direct is not None:
            return direct
    return _derived_pullback(primitive, specs, params, active, given)


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
    if primitive.jvp is not None and any(a and not p for a, p in zip(active, present, strict=True)):
        return None
    return Template(traced.program, tuple(present))


def spread(values: Sequence[Any], mask: Mask) -> tuple[Any, ...]:
    given = iter(values)
    return tuple(next(given) if m else None for m in mask)


def checked_cotangents(primitive: Primitive, results: Any, specs: Sequence[ArraySpec], active: Mask, present: list[bool]) -> list[Any]:
    if not isinstance(results, tuple | list) or len(results) != len(specs):
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


def _derived_pullback(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, active: Mask, given: Mask) -> Template:
    """Transpose the tangent template: what does not depend on a tangent first, then the rest backwards."""
    tangents = tangent_template(primitive, specs, params, active)
    out_specs, _ = primitive.infer(specs, params)
    program = expand_composites(tangents.program, len(specs) + len(out_specs))
    split = len(specs) + len(out_specs)
    builder = ProgramBuilder()
    builder.inputs.extend(program.inputs[:split])
    cotangents: dict[Atom, Atom] = {}
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
        if atom is None:
            continue
        if atom not in dependent:
            raise NonlinearRuleError(f"{primitive.name}: the jvp rule gave a tangent that does not depend on the tangents; a zero tangent is None")
        accumulate(builder, cotangents, atom, ct)
    transpose_linear(builder, linear, dependent, cotangents, primitive.name)
    results = iter(program.inputs[split:])
    found = [cotangents.get(next(results)) if a else None for a in active]
    return Template(builder.build([ct for ct in found if ct is not None]), tuple(ct is not None for ct in found))


def emit_zero(builder: ProgramBuilder, spec: ArraySpec) -> Atom:
    """A zero of that spec."""
    zero = scalar_constant(0, make_spec((), spec.dtype))
    return builder.emit(broadcast_to_p, (zero,), {"shape": spec.shape}, None)[0] if spec.shape else zero


def accumulate(builder: ProgramBuilder, cotangents: dict[Atom, Atom], atom: Atom, ct: Atom) -> None:
    """Add a contribution to an atom's cotangent."""
    have = cotangents.get(atom)
    cotangents[atom] = ct if have is None else builder.emit(add_p, (have, ct), {}, None)[0]


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
            primitive = eqn.primitive
            if primitive.linear is None and primitive.vjp is None and primitive.decompose is not None:
                inner = decomposition(primitive, tuple([a.spec for a in inputs]), eqn.params)
                env.update(zip(eqn.outputs, builder.inline(inner, inputs, eqn.source), strict=True))
                changed = True
                continue
        builder.equations.append(Equation(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))
    if not changed:
        return program
    return expand_composites(builder.build([env.get(a, a) for a in program.outputs], program.name), first_tangent)


def transpose_linear(
    builder: ProgramBuilder, equations: Sequence[Equation], dependent: set[Atom], cotangents: dict[Atom, Atom], owner: str
) -> None:
    """Walk linear equations backwards, turning the cotangents of their outputs into those of their dependent operands."""
    for eqn in reversed(equations):
        given = tuple([v in cotangents for v in eqn.outputs])
        if True not in given:
            continue
        mask = tuple([a in dependent for a in eqn.inputs])
        specs = tuple([a.spec for a in eqn.inputs])
        template = linear_template(eqn.primitive, specs, eqn.params, mask, given, owner)
        args = [a for a, m in zip(eqn.inputs, mask, strict=True) if not m] + [cotangents[v] for v in eqn.outputs if v in cotangents]
        results = iter(builder.inline(template.program, args))
        for atom, present in zip(eqn.inputs, template.present, strict=True):
            if present:
                accumulate(builder, cotangents, atom, next(results))


def linear_template(
    primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params, mask: Mask, given: Mask, owner: str
) -> Template:
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
        results = primitive.require("transpose")(bare(cotangents, several), primals, bare(out_specs, several), active=mask, **params)
        return checked_cotangents(primitive, results, specs, mask, present)

    known_specs = [s for s, m in zip(specs, mask, strict=True) if not m]
    ct_specs = [tangent_spec(s) for s, g in zip(out_specs, given, strict=True) if g]
    traced = trace_template(function, [*known_specs, *ct_specs], f"transpose of {primitive.name}")
    return Template(traced.program, tuple(present))


def require_linear(primitive: Primitive, mask: Mask, owner: str) -> None:
    """NonlinearRuleError unless the operation is jointly linear in the operands of `mask`."""
    if primitive.linear == "all":
        return
    wanted = {i for i, m in enumerate(mask) if m}
    if primitive.linear is None or not any(wanted <= set(group) for group in primitive.linear):
        operands = ", ".join(str(i) for i in sorted(wanted))
        how = "is not linear" if primitive.linear is None or len(wanted) == 1 else "is not jointly linear"
        raise NonlinearRuleError(f"{owner}: the jvp rule is not linear in its tangents: {primitive.name} {how} in operand {operands}")


