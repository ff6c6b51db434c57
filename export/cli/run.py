"""`onstage run`: one run of an ONNX file, from arrays in a file to arrays in a file."""

from __future__ import annotations

from typing import Any

import click

from ...stage.dtypes import short_name
from ...stage.primitive import Array
from .console import Console, table, verb
from .model import OnnxFile, input_arrays, open_session
from .options import dim_option, inputs_option, level_option, model_argument, provider_option, seed_option, threads_option
from .weights import write_arrays


@click.command()
@model_argument
@inputs_option
@dim_option
@seed_option
@click.option("--outputs", "-o", type=click.Path(dir_okay=False), metavar="FILE.npz", help="Where the outputs go, under their names.")
@provider_option
@threads_option
@level_option
@verb
def run(
    console: Console,
    model_path: str,
    inputs: str | None,
    dims: tuple[str, ...],
    seed: int,
    outputs: str | None,
    provider: str,
    threads: int | None,
    level: str,
) -> None:
    """Run any ONNX file once.

    Without --inputs they are made up: normal floats, zeros and ones as integers, 1 for sizes that are not given.

    \b
      onstage run predict.onnx --inputs in.npz --outputs out.npz
      onstage run predict.onnx --dim B=8
    """
    model = OnnxFile(model_path)
    arrays = input_arrays(model, inputs, dims, default=1, seed=seed)
    with console.phase("loading"):
        runner = open_session(model, level=level, provider=provider, threads=threads)
    with console.phase("running"):
        results = runner(arrays)
    if outputs is not None:
        write_arrays(outputs, results)
    rows = [_row(name, array) for name, array in results.items()]
    data = {
        "model": model_path,
        "providers": runner.providers,
        "inputs": {name: _spec(a) for name, a in arrays.items()},
        "outputs": {name: {"spec": spec, "min": low, "max": high, "mean": mean} for name, spec, low, high, mean in rows},
        "written": outputs,
    }
    text = table(("output", "spec", "min", "max", "mean"), [(n, s, *map(_number, rest)) for n, s, *rest in rows])
    console.result(data, text + (f"\nwritten to {outputs}" if outputs is not None else ""))


def _spec(array: Array) -> str:
    return f"{short_name(array.dtype)}[{','.join(map(str, array.shape))}]"


def _row(name: str, array: Array) -> tuple[Any, ...]:
    if not array.size:
        return name, _spec(array), None, None, None
    wide = array.astype("float64")
    return name, _spec(array), float(wide.min()), float(wide.max()), float(wide.mean())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
