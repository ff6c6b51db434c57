"""`onstage doctor`: what onstage finds on this machine."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any, Final

import click

from .._lazy import onnxruntime
from ..kernels import runtime_version
from ..runtime.provider import CUDA, cuda_problem
from ..runtime.session import available_threads
from .console import Console, verb

_NEEDED: Final = ("onstage", "numpy", "onnx", "onnxscript", "ml_dtypes", "click")
_DEMO: Final = ("scikit-learn", "matplotlib", "rich")


@click.command()
@verb
def doctor(console: Console) -> bool:
    """Say what onstage finds on this machine. Exits with 1 where something that it needs is missing.

    \b
      onstage doctor
      onstage doctor --json
    """
    packages: dict[str, str | None] = {name: _version(name) for name in _NEEDED}
    missing = [name for name, found in packages.items() if found is None]
    runtime = next((n for n in ("onnxruntime-gpu", "onnxruntime") if _version(n) is not None), None)
    lines = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}: {sys.executable}"]
    lines += [f"! {name} is missing" if found is None else f"  {name} {found}" for name, found in packages.items()]
    data: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": packages,
        "threads": available_threads(),
    }
    if runtime is None:
        missing.append("onnxruntime")
        lines.append("! ONNX Runtime is missing; reinstall onstage")
    else:
        problem = cuda_problem(0) if CUDA in onnxruntime.get_available_providers() else "this build has no CUDA support"
        packages[runtime] = onnxruntime.__version__
        data["cuda"] = {"works": problem is None, "problem": problem}
        lines.append(f"  {runtime} {onnxruntime.__version__} (the kernel table was taken from {runtime_version()})")
        lines.append("CUDA: works" if problem is None else f"CUDA: not used, {problem}; programs run on the CPU")
    lines.append(f"threads: {available_threads()}")
    absent = [name for name in _DEMO if _version(name) is None]
    data["demo"] = {"ready": not absent, "missing": absent}
    lines.append("demo: ready" if not absent else f"demo: needs {', '.join(absent)} (pip install 'onstage[demo]')")
    if missing:
        lines.append(f"missing: {', '.join(missing)}")
    console.result({**data, "missing": missing}, "\n".join(lines), ok=not missing)
    return not missing


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
