"""Options that several verbs take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

model_argument: Callable[[Any], Any] = click.argument("model_path", metavar="MODEL", type=click.Path(exists=True, dir_okay=False))
inputs_option: Callable[[Any], Any] = click.option(
    "--inputs", "-i", type=click.Path(exists=True, dir_okay=False), metavar="FILE.npz", help="Inputs under their names in the file."
)
dim_option: Callable[[Any], Any] = click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Size of a named dim.")
seed_option: Callable[[Any], Any] = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of made-up inputs."
)
provider_option: Callable[[Any], Any] = click.option(
    "--provider",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="auto: CUDA where it works, else the CPU.",
)
threads_option: Callable[[Any], Any] = click.option("--threads", type=click.IntRange(min=1), help="Of one run; by default all CPUs.")
level_option: Callable[[Any], Any] = click.option(
    "--level",
    type=click.Choice(["none", "basic", "extended", "all"]),
    default="all",
    show_default=True,
    help="Of ONNX Runtime's optimiser.",
)
