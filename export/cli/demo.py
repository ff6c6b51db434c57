"""`onstage demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ...stage.errors import OnstageError
from ..demo import REPORT, run_demo
from .console import Console, verb


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Directory for the files.",
)
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True, help="Passes over the training images.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the parameters and of the order of images.")
@verb
def demo(console: Console, output: Path, epochs: int, seed: int) -> None:
    """Train a classifier of handwritten digits and write it as two ONNX files.

    Writes digits_train_step.onnx, digits_predict.onnx, digits.png and digits_report.json, and runs both files again in a process that
    has only numpy and onnxruntime. Exits with 1 where the held-out accuracy stays below 97 % or the files disagree.

    \b
      onstage demo
      onstage demo --epochs 25 --output digits
    """
    try:
        run_demo(output, epochs=epochs, seed=seed, quiet=console.quiet or console.as_json)
    except OSError as error:
        raise OnstageError(f"{error.filename or output}: {error.strerror or error}") from error
    if console.as_json:
        report: dict[str, Any] = json.loads((output / REPORT).read_text(encoding="utf-8"))
        console.result(report, "")
