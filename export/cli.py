"""The command `onstage`."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path

import click

from ..stage.errors import OnstageError
from ._lazy import onnxruntime
from .demo import DemoError, run_demo
from .kernels import runtime_version
from .runtime.provider import CUDA, cuda_problem


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onstage", prog_name="onstage")
def main() -> None:
    """onstage: NumPy functions, forward and backward, as verified ONNX files."""


@main.command()
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("demo-output"), show_default=True, help="Directory for the files."
)
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True, help="Passes over the training images.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the parameters and of the order of images.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
def demo(output: Path, epochs: int, seed: int, quiet: bool) -> None:
    """Train a classifier of handwritten digits and write it as two ONNX files.

    Writes digits_train_step.onnx, digits_predict.onnx, digits.png and digits_report.json, and runs both files again in a process that
    has only numpy and onnxruntime. Exits with 1 where the held-out accuracy stays below 97 % or the files disagree.
    """
    try:
        run_demo(output, epochs=epochs, seed=seed, quiet=quiet)
    except OSError as error:
        raise click.ClickException(f"{error.filename or output}: {error.strerror or error}") from error
    except DemoError as error:
        raise click.ClickException(error.message) from error
    except OnstageError as error:
        raise click.ClickException(str(error)) from error


@main.command()
def doctor() -> None:
    """Say what onstage finds on this machine. Exits with 1 where something that it needs is missing."""
    click.echo(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}: {sys.executable}")
    problems = [line for line in map(_package_line, ("onstage", "numpy", "onnx", "onnxscript", "ml_dtypes", "click")) if line.startswith("!")]
    runtime = next((n for n in ("onnxruntime-gpu", "onnxruntime") if _version(n) is not None), None)
    if runtime is None:
        raise click.ClickException("ONNX Runtime is missing; reinstall onstage")
    click.echo(f"  {runtime} {onnxruntime.__version__} (the kernel table was taken from {runtime_version()})")
    problem = cuda_problem(0) if CUDA in onnxruntime.get_available_providers() else "this build has no CUDA support"
    click.echo("CUDA: works" if problem is None else f"CUDA: not used, {problem}; programs run on the CPU")
    missing = [name for name in ("scikit-learn", "matplotlib", "rich") if _version(name) is None]
    click.echo("demo: ready" if not missing else f"demo: needs {', '.join(missing)} (pip install 'onstage[demo]')")
    if problems:
        raise click.ClickException("; ".join(line.lstrip("! ") for line in problems))


def _package_line(name: str) -> str:
    version = _version(name)
    line = f"! {name} is missing" if version is None else f"  {name} {version}"
    click.echo(line)
    return line


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
