"""Program forms of the derivatives: Programs in, Programs out."""

from __future__ import annotations

from collections.abc import Sequence

from ..stage.program import Atom, Program, ProgramBuilder
from .reverse import reverse
from .rules import tangent_spec
from .templates import Tangents, tangent_equations
from .transposition import emit_zero


def jvp_transform(program: Program, active: Sequence[bool]) -> Program:
    """Inputs: the primals, then a tangent for each active one. Outputs: the outputs, then their tangents, zeros where absent.

    An output that carries no tangent (integers, booleans) has none among the outputs either.
    """
    found: Tangents = tangent_equations(program, active)
    builder = ProgramBuilder()
    builder.inputs.extend((*program.inputs, *found.tangent_inputs))
    builder.equations.extend(found.equations)
    tangents = [
        emit_zero(builder, tangent_spec(out.spec)) if tangent is None else tangent
        for out, tangent in zip(program.outputs, found.tangent_outputs, strict=True)
        if has_tangent(out)
    ]
    return builder.build([*found.outputs, *tangents], f"jvp of {program.name}")


def has_tangent(atom: Atom) -> bool:
    """Only floating atoms have tangents."""
    return atom.spec.dtype.kind == "f" or atom.spec.dtype.name == "bfloat16"


def vjp_transform(program: Program, active: Sequence[bool], given: Sequence[bool]) -> Program:
    """Inputs: the primals, then a cotangent for each given output. Outputs: the outputs, then a cotangent for each active input."""
    found = reverse(program, active, given)
    builder = ProgramBuilder()
    builder.inputs.extend((*program.inputs, *found.ct_inputs))
    builder.equations.extend((*found.forward, *found.backward))
    cotangents = [
        emit_zero(builder, tangent_spec(var.spec)) if ct is None else ct
        for var, ct, is_active in zip(program.inputs, found.ct_outputs, active, strict=True)
        if is_active
    ]
    return builder.build([*found.outputs, *cotangents], f"vjp of {program.name}")
