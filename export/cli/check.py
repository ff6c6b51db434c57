"""`onstage check`: is a file sound, and does it still compute what it says?"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np

from ...stage.errors import MissingRuleError, OnstageError, VerificationError
from ...stage.primitive import Array
from ...stage.staged import StagedProgram
from .._lazy import onnx
from ..artifact import build
from ..load import Restored, data_reader, restore
from ..metadata import graph_digests
from ..save import SEED
from ..verify import verify
from .comparison import compare_outputs
from .console import Console, verb
from .lints import Finding, lint
from .model import OnnxFile, input_arrays, open_session, value_dtypes, value_shapes, with_sizes
from .options import dim_option, inputs_option, model_argument, seed_option


class _Checks:
    """What was checked, in order."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rows: list[dict[str, str]] = []

    def run(self, name: str, function: Callable[[], str]) -> bool:
        """function gives what was found; an OnstageError fails the check."""
        with self.console.phase(name):
            try:
                self.note(name, "passed", function())
            except MissingRuleError:
                raise
            except OnstageError as error:
                self.note(name, "failed", error.message)
        return self.rows[-1]["status"] == "passed"

    def note(self, name: str, status: str, detail: str) -> None:
        self.rows.append({"check": name, "status": status, "detail": detail})

    @property
    def ok(self) -> bool:
        return all(row["status"] != "failed" for row in self.rows)


@click.command()
@model_argument
@inputs_option
@dim_option
@seed_option
@click.option("--no-verify", is_flag=True, help="Leave out what runs the model.")
@click.option("--strict", is_flag=True, help="Exit with 1 where a lint has something to say, too.")
@verb
def check(console: Console, model_path: str, inputs: str | None, dims: tuple[str, ...], seed: int, no_verify: bool, strict: bool) -> bool:
    """Check any ONNX file: its structure, then whether it computes what it should.

    A file that onstage wrote is held against the digests and the program in its metadata, equation by equation and at both ends of
    ONNX Runtime's optimiser. Others are run with that optimiser off and at its highest level, on --inputs or made-up ones, and the two
    must agree. --inputs take the place of made-up ones in both.

    Lints say what may go wrong later: float16 overflow, NaN gradients behind a Where, missing CUDA kernels, racing scatters.

    \b
      onstage check step.onnx
      onstage check resnet50.onnx --dim batch=2 --strict
    """
    checks = _Checks(console)
    model = OnnxFile(model_path)
    checks.run("structure", lambda: _structure(model))
    arrays = {} if no_verify else input_arrays(model, inputs, dims, default=3, seed=seed)
    verified = False
    if model.is_ours:
        verified = _check_ours(checks, model, no_verify, None if inputs is None else [list(arrays.values())])
    else:
        checks.note("metadata", "skipped", "not written by onstage")
    if no_verify:
        checks.note("optimiser", "skipped", "--no-verify")
    elif verified:
        checks.note("optimiser", "skipped", "part of the verification")
    else:
        checks.run("optimiser", lambda: _levels_agree(model, arrays))
    findings: list[Finding] = []
    checks.run("lints", lambda: _lints(model, findings))
    ok = checks.ok and not (strict and findings)
    lines = [f"{r['status']:<8} {r['check']:<13} {r['detail']}".rstrip() for r in checks.rows] + [f"lint     {f}" for f in findings]
    data = {
        "path": model_path,
        "checks": checks.rows,
        "lints": [{"rule": f.rule, "node": f.node, "text": f.text} for f in findings],
    }
    console.result(data, "\n".join(lines), ok=ok)
    return ok


def _structure(model: OnnxFile) -> str:
    try:
        onnx.checker.check_model(os.path.abspath(model.path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise OnstageError(f"onnx.checker: {str(error).strip()}") from error
    return f"{len(model.proto.graph.node)} nodes, opset {model.opset}"


def _check_ours(checks: _Checks, model: OnnxFile, no_verify: bool, samples: Sequence[Sequence[Array]] | None) -> bool:
    """Whether the verification was run."""
    found: list[Restored] = []

    def metadata() -> str:
        found.append(restore(model.data, data_reader(model.path), model.path))
        return f"digests and program fit, hash {found[0].staged.hash[:16]}"

    if not checks.run("metadata", metadata):
        return False
    restored = found[0]
    if not restored.verification["verified"]:
        checks.console.warn(f"{model.path} was saved with verify=False")
    for text in restored.lost:
        checks.console.warn(f"{model.path} does not hold the static value of {text}")
    if no_verify:
        checks.note("verification", "skipped", "--no-verify")
    else:
        checks.run("verification", lambda: _verification(checks.console, model, restored, samples))
    return not no_verify


def _verification(console: Console, model: OnnxFile, restored: Restored, samples: Sequence[Sequence[Array]] | None) -> str:
    """Hold the file against the program in it, as `save` did."""
    staged, policy = restored.staged, restored.verification
    values = _places(model, staged)
    constants = {t.name: model.weight(t) for t in model.proto.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}
    report = verify(
        staged.optimized[0],
        model.data,
        values=values,
        in_names=staged.in_names,
        out_names=staged.out_names,
        reference=staged.program,
        constants=constants,
        samples=samples,
        rtol=policy.get("rtol"),
        atol=policy.get("atol"),
        seed=policy.get("seed", SEED),
        name=staged.name or "program",
    )
    if not values:
        console.warn(f"{model.path} was lowered by another version of onstage: only its outputs were verified, not each equation")
    for name, reason in report.not_verified.items():
        console.warn(f"output {name} is not verified: {reason}")
    worst = max((o.error for o in report.outputs), default=0.0)
    return f"{len(report.verified)} of {len(report.outputs)} outputs verified, {report.equations} equations, worst error {worst:.2e}"


def _places(model: OnnxFile, staged: StagedProgram) -> Any:
    """Where the values of the program are in the graph: lowered again, the same nodes must come out; empty where they do not."""
    domains = {o.domain for o in model.proto.opset_import}
    again = build(
        staged,
        os.path.basename(model.path),
        {"verified": False},
        external="always" if model.is_external else "auto",
        target="onnxruntime" if "com.microsoft" in domains else "onnx",
        opset=model.opset,
    )
    rebuilt = onnx.ModelProto.FromString(again.model)
    same = graph_digests(rebuilt)["nodes"] == graph_digests(model.proto)["nodes"]
    return again.lowered.values if same else {}


def _levels_agree(model: OnnxFile, arrays: dict[str, Array]) -> str:
    plain, optimised = (open_session(model, level=level)(arrays) for level in ("none", "all"))
    rows = compare_outputs(optimised, plain, rtol=None, atol=None)
    wrong = [r for r in rows if not r.agrees]
    if wrong:
        raise VerificationError(f"with and without ONNX Runtime's optimiser the outputs differ: {'; '.join(map(str, wrong))}")
    lost = [n for n, a in plain.items() if a.size and a.dtype.kind == "f" and not np.isfinite(a).any()]
    return "equal with and without it" + (f"; wholly NaN or infinite: {', '.join(lost)}" if lost else "")


def _lints(model: OnnxFile, findings: list[Finding]) -> str:
    inferred = with_sizes(model, {}, 1)
    findings += lint(inferred.graph, model.opset, value_dtypes(inferred), value_shapes(inferred))
    return f"{len(findings)} found" if findings else "none found"
