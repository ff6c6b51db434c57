"""`onstage export`: a function of a module or file becomes a verified ONNX file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ...autodiff.gradient import grad, value_and_grad
from ...autodiff.jacobians import hvp_program
from ...autodiff.products import jvp_program, vjp_program
from ...stage.staged import StagedProgram
from ...stage.staging import stage
from .._lazy import onnx
from ..artifact import DATA_SUFFIX, EXTERNAL
from ..lower import OPSETS, TARGETS
from ..save import REPORT_SUFFIX, save
from .console import Console, verb
from .target import (
    as_specs,
    find_function,
    guarded,
    nested,
    read_assignments,
    read_spec,
    read_static,
    required_names,
    weight_arguments,
)

_EXAMPLES = """
    \b
    TARGET is package.module:function or path/file.py:function. Arguments are
    given by name: dtype and shape, where a dim may be a name such as B.
      onstage export train.py:predict --arg "x=f32[B,784]" \\
          --params weights.npz -o predict.onnx
      onstage export train.py:loss --arg "params.w=f32[784,10]" \\
          --arg "x=f32[B,784]" --arg "y=i64[B]" --value-and-grad -o step.onnx
      onstage export pkg.physics:energy --arg "q=f64[N,3]" --hvp -o hvp.onnx
"""


@click.command()
@click.argument("target_name", metavar="TARGET")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=SPEC",
    help='An argument, or a part of one: "x=f32[B,784]", "params.w=f32[784,10]", "lr=float".',
)
@click.option("--static", "statics", multiple=True, metavar="NAME=VALUE", help="A compile-time argument, a Python literal.")
@click.option(
    "--params",
    "weights",
    metavar="[NAME=]FILE",
    help="Arrays (.npz, .safetensors) that become constants: those of the argument NAME, by default of the first one not given by --arg.",
)
@click.option("--params-as-inputs", is_flag=True, help="Take only shapes and dtypes from --params; the arrays stay inputs.")
@click.option("--grad", "grad_of", metavar="WHICH", help="The gradient in these arguments: numbers or names, joined by commas.")
@click.option("--value-and-grad", is_flag=True, help="The value, then the gradient in the arguments of --wrt.")
@click.option("--wrt", default="0", show_default=True, metavar="WHICH", help="The arguments of --value-and-grad.")
@click.option("--has-aux", is_flag=True, help="With --grad and --value-and-grad: the function returns (value, more).")
@click.option("--jvp", is_flag=True, help="(result, its tangent) from the arguments and their tangents.")
@click.option("--vjp", is_flag=True, help="(result, cotangents) from the arguments and the result's cotangent.")
@click.option("--hvp", is_flag=True, help="The Hessian times the tangents of the arguments.")
@click.option(
    "--opset", type=click.Choice([str(v) for v in OPSETS]), help="By default the lowest that has every operator used, from 21 on."
)
@click.option("--target", type=click.Choice(TARGETS), default="onnx", show_default=True, help="onnx: standard operators only.")
@click.option(
    "--external",
    type=click.Choice(EXTERNAL),
    default="auto",
    show_default=True,
    help="Whether large constants go into a file beside the model.",
)
@click.option("--rtol", type=click.FloatRange(min=0), help="Allowed beyond the computed tolerances, relative.")
@click.option("--atol", type=click.FloatRange(min=0), help="Allowed beyond the computed tolerances, absolute.")
@click.option("--no-verify", is_flag=True, help="Write without verification; the file says so.")
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The .onnx file to write.")
@verb
def export(
    console: Console,
    target_name: str,
    arguments: tuple[str, ...],
    statics: tuple[str, ...],
    weights: str | None,
    params_as_inputs: bool,
    opset: str | None,
    target: str,
    external: str,
    rtol: float | None,
    atol: float | None,
    no_verify: bool,
    output: Path,
    **derivative: Any,
) -> None:
    """Stage a function, verify it, and write it as ONNX."""
    transform = _transform(**derivative)
    if not output.parent.is_dir():
        raise click.BadParameter(f"there is no directory {output.parent}", param_hint="--output")
    with console.phase(f"importing {target_name}"):
        function = find_function(target_name)
    with console.phase("staging"):
        staged, frozen = _stage(function, arguments, statics, weights)
    if transform is not None:
        with console.phase("differentiating"):
            staged = guarded(f"{target_name} cannot be differentiated", lambda: transform(staged))
    if not params_as_inputs:
        staged = staged.freeze(frozen) if frozen else staged
    report = save(
        staged,
        output,
        verify=not no_verify,
        rtol=rtol,
        atol=atol,
        external=external,
        target=target,
        opset=None if opset is None else int(opset),
        phase=console.phase,
    )
    files = _written(output)
    if no_verify:
        console.warn(f"{output} was not verified")
    else:
        for name, reason in report.not_verified.items():
            console.warn(f"output {name} is not verified: {reason}")
    worst = None if no_verify else max((o.error for o in report.outputs), default=0.0)
    files[0]["worst_error"] = worst
    data = {"files": files, "hash": staged.hash, "verification": None if no_verify else report.to_json()}
    console.result(data, "\n".join(_line(f) for f in files))


export.help = f"{export.help}\n{_EXAMPLES}"


def _transform(
    grad_of: str | None, value_and_grad: bool, wrt: str, has_aux: bool, jvp: bool, vjp: bool, hvp: bool
) -> Callable[[StagedProgram], StagedProgram] | None:
    """What the options ask for; UsageError for two of them at once."""
    chosen = [
        n for n, on in (("--grad", grad_of), ("--value-and-grad", value_and_grad), ("--jvp", jvp), ("--vjp", vjp), ("--hvp", hvp)) if on
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    if has_aux and chosen not in (["--grad"], ["--value-and-grad"]):
        raise click.UsageError("--has-aux goes with --grad or --value-and-grad")
    if wrt != "0" and not value_and_grad:
        raise click.UsageError("--wrt goes with --value-and-grad; --grad takes the arguments itself")
    if grad_of is not None:
        return lambda program: grad(program, **_which(grad_of, "--grad"), has_aux=has_aux)
    if value_and_grad:
        return lambda program: _value_and_grad(program, wrt, has_aux)
    return jvp_program if jvp else vjp_program if vjp else hvp_program if hvp else None


def _value_and_grad(program: StagedProgram, wrt: str, has_aux: bool) -> StagedProgram:
    return value_and_grad(program, **_which(wrt, "--wrt"), has_aux=has_aux)


def _which(text: str, option: str) -> dict[str, Any]:
    """argnums or argnames of `0`, `0,2`, `params`."""
    parts = [p.strip() for p in text.split(",")]
    if all(p.isdecimal() for p in parts):
        numbers = tuple(int(p) for p in parts)
        return {"argnums": numbers[0] if len(numbers) == 1 else numbers}
    if not all(p.isidentifier() for p in parts):
        raise click.UsageError(f"{option} {text!r}: write argument numbers or names, joined by commas")
    return {"argnames": parts[0] if len(parts) == 1 else tuple(parts)}


def _stage(function: Any, arguments: Sequence[str], statics: Sequence[str], weights: str | None) -> tuple[StagedProgram, dict[str, Any]]:
    """The program, and the arguments that --params gives."""
    if isinstance(function, StagedProgram) and (arguments or statics):
        raise click.UsageError(f"{function.name} is staged already; it takes neither --arg nor --static")
    texts = {name: read_spec(text) for name, text in read_assignments(arguments, "--arg").items()}
    given = nested(texts, "--arg") if texts else {}
    static = read_static(statics)
    twice = set(given) & set(static)
    if twice:
        raise click.UsageError(f"{', '.join(sorted(twice))}: given by --arg and by --static")
    frozen: dict[str, Any] = {}
    if isinstance(function, StagedProgram):
        names = list(function.signature.dynamic_names)
    else:
        names = [n for n in required_names(function) if n not in given and n not in static]
    if weights is not None:
        name, equals, path = weights.rpartition("=")
        if not os.path.isfile(path):
            raise click.BadParameter(f"there is no file {path}", param_hint="--params")
        frozen = weight_arguments(path, name if equals else None, names)
    if isinstance(function, StagedProgram):
        return function, frozen
    missing = [n for n in names if n not in frozen]
    if missing:
        raise click.UsageError(f"no spec for {', '.join(missing)}; write --arg {missing[0]}=f32[...]")
    specs = {**given, **static, **{n: as_specs(v) for n, v in frozen.items()}}
    return guarded("staging failed", lambda: stage(function, kw_specs=specs)), frozen


def _written(output: Path) -> list[dict[str, Any]]:
    """What stands on disk now, the model first."""
    model = onnx.ModelProto.FromString(output.read_bytes())
    outside = any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    files: list[dict[str, Any]] = []
    for suffix in ("", *((DATA_SUFFIX,) if outside else ()), REPORT_SUFFIX):
        path = Path(f"{output}{suffix}")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files.append({"path": str(path), "sha256": digest, "bytes": path.stat().st_size})
    files[0]["nodes"] = len(model.graph.node)
    return files


def _line(file: dict[str, Any]) -> str:
    line = f"{file['path']}  sha256 {file['sha256']}  {file['bytes']:,} bytes"
    if "nodes" in file:
        worst = "not verified" if file["worst_error"] is None else f"worst error {file['worst_error']:.2e}"
        line += f"  {file['nodes']} nodes  {worst}"
    return line
