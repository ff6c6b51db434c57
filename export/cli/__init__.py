"""The command `onstage`."""

from __future__ import annotations

import click

from .bench import bench
from .check import check
from .demo import demo
from .diff import diff
from .doctor import doctor
from .export import export
from .inspection import inspect_model
from .run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onstage", prog_name="onstage")
def main() -> None:
    """onstage: NumPy functions, forward and backward, as verified ONNX files."""


for command in (export, check, diff, inspect_model, bench, run, demo, doctor):
    main.add_command(command)
