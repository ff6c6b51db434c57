"""The command `onstage`."""

from __future__ import annotations

import click

from .demo import demo
from .doctor import doctor
from .export import export
from .inspection import inspect_model
from .run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onstage", prog_name="onstage")
def main() -> None:
    """onstage: NumPy functions, forward and backward, as verified ONNX files."""


for command in (export, inspect_model, run, demo, doctor):
    main.add_command(command)
