"""save(): a program becomes a verified ONNX file, with its report, and large constants, beside it."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any, Final

from ..stage.primitive import Array
from ..stage.staged import StagedProgram
from ._lazy import onnx, onnxruntime
from .artifact import DATA_SUFFIX, Artifact, DataFile, build, raw_bytes
from .load import restore
from .metadata import sha256
from .runtime.session import LEVELS
from .verify import OutputCheck, VerificationReport, verify_staged
from .writing import Transaction, check_target

REPORT_FORMAT: Final = 1
REPORT_SUFFIX: Final = ".report.json"
SEED: Final = 0
"""Of the noise that verification makes inputs with; it stands in the file."""


def save(
    staged: StagedProgram,
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    samples: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    external: str = "auto",
    target: str = "onnx",
    opset: int | None = None,
    phase: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> VerificationReport:
    """See `StagedProgram.save`. The bytes that are written are those that were verified; a failure leaves no file.

    phase: entered with the name of each part of the work, for who shows progress.

    Raises VerificationError for a model that departs from the program, UnsupportedError for what cannot be lowered or stored, and
    OSError, naming the path, where the file cannot be written.
    """
    file = os.fsdecode(path)
    for name in (file, file + REPORT_SUFFIX, file + DATA_SUFFIX):
        check_target(name)
    for option, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"save: {option} is {value!r}, not a number that is 0 or more")
    given = None if samples is None else _flat_samples(staged, samples)
    policy = _policy(given is not None, rtol, atol) if verify else {"verified": False}
    with phase("lowering"):
        artifact = build(staged, os.path.basename(file), policy, external=external, target=target, opset=opset)
    report = _unverified(staged)
    if verify:
        with phase("verifying"):
            # What could not be read back is not written either.
            restore(artifact.model, artifact.read_data, file)
            report = verify_staged(
                staged,
                artifact.lowered,
                artifact.model,
                example=staged.example,
                samples=given,
                rtol=rtol,
                atol=atol,
                seed=SEED,
            )
    with phase("writing"):
        _write(file, artifact, report, staged.hash)
    return report


def _flat_samples(staged: StagedProgram, samples: Sequence[Any]) -> list[list[Array]]:
    """Samples as flat lists of arrays; an argument tuple, or a dict of keyword arguments, each."""
    if not isinstance(samples, list | tuple) or not all(isinstance(s, tuple | list | Mapping) for s in samples):
        raise TypeError("save: samples is a list with one tuple of arguments, or dict of keyword arguments, a sample")
    signature = staged.signature
    calls = [((), dict(s)) if isinstance(s, Mapping) else (tuple(s), {}) for s in samples]
    return [signature.arrays(signature.flatten(args, kwargs)) for args, kwargs in calls]


def _policy(given: bool, rtol: float | None, atol: float | None) -> dict[str, Any]:
    """What the file says of its verification: nothing that hangs on the machine."""
    return {
        "verified": True,
        "checks": ["equations", *(LEVELS[level] for level in ("none", "all"))],
        "samples": "given" if given else "noise",
        "seed": SEED,
        "rtol": None if rtol is None else float(rtol),
        "atol": None if atol is None else float(atol),
    }


def _unverified(staged: StagedProgram) -> VerificationReport:
    outputs = tuple(OutputCheck(name, 0.0, 0.0, "saved with verify=False") for name in staged.out_names)
    return VerificationReport(staged.name or "program", outputs, (), (), 0, 0.0, SEED)


def _write(target: str, artifact: Artifact, report: VerificationReport, structural_hash: str) -> None:
    facts: dict[str, Any] = {
        "file": os.path.basename(target),
        "sha256": sha256(artifact.model),
        "hash": structural_hash,
    }
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
        "verification": report.to_json(),
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
