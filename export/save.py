"""save(): a program becomes a verified ONNX file, with its report, and large constants, beside it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

from ..stage.staged import StagedProgram
from ._lazy import onnx, onnxruntime
from .artifact import DATA_SUFFIX, Artifact, DataFile, build, raw_bytes
from .load import restore
from .metadata import sha256
from .pending_verify import POLICY, SEED, VerificationReport, skipped, verify as run_verification
from .writing import Transaction, check_target

REPORT_FORMAT: Final = 1
REPORT_SUFFIX: Final = ".report.json"


def save(
    staged: StagedProgram,
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    samples: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    external: str = "auto",
) -> VerificationReport:
    """See `StagedProgram.save`. The bytes that are written are those that were verified; a failure leaves no file.

    Raises VerificationError for a model that departs from the program, UnsupportedError for what cannot be lowered or stored, and
    OSError, naming the path, where the file cannot be written.
    """
    target = os.fspath(path)
    if not isinstance(target, str):
        raise TypeError(f"save: the path is {type(target).__name__}; pass a str or a pathlib.Path")
    for name in (target, target + REPORT_SUFFIX, target + DATA_SUFFIX):
        check_target(name)
    policy = {
        "verified": verify,
        "policy": POLICY,
        "seed": SEED,
        "rtol": rtol,
        "atol": atol,
        "samples": "default" if samples is None else "given",
    }
    artifact = build(staged, os.path.basename(target), policy if verify else {"verified": False}, external=external)
    if not verify:
        report = skipped(staged)
    else:
        # What could not be read back is not written either.
        restore(artifact.model, artifact.read_data, target)
        report = run_verification(staged, artifact, samples=samples, rtol=rtol, atol=atol)
    _write(target, artifact, report, staged.hash)
    return report


def _write(target: str, artifact: Artifact, report: VerificationReport, structural_hash: str) -> None:
    facts: dict[str, Any] = {"file": os.path.basename(target), "sha256": sha256(artifact.model), "hash": structural_hash}
    with Transaction() as files:
        if artifact.data is not None:
            digest = files.write(os.path.join(os.path.dirname(target), artifact.data.name), _pieces(artifact.data))
            facts["data"] = {"file": artifact.data.name, "sha256": digest}
        files.write(target + REPORT_SUFFIX, [_report_text(facts, report)])
        files.write(target, [artifact.model])
        files.commit()


def _pieces(data: DataFile) -> Iterator[Any]:
    """The data file, piece by piece: its arrays with zeros between."""
    end = 0
    for start, array in data.arrays:
        yield bytes(start - end)
        yield raw_bytes(array)
        end = start + array.nbytes


def _report_text(facts: dict[str, Any], report: VerificationReport) -> bytes:
    content = {
        "format": REPORT_FORMAT,
        **facts,
        "verification": report.as_dict(),
        "machine": {"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count()},
        "versions": {
            "onstage": version("onstage"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
    }
    return (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
