"""`onstage bench`: how long a run of an ONNX file takes, and where the time goes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from ...stage.primitive import Array
from ..runtime.profile import Profile, profile_session
from ..runtime.session import available_threads
from .console import Console, table, verb
from .model import OnnxFile, Runner, input_arrays, open_session, session_maker
from .options import dim_option, inputs_option, level_option, model_argument, provider_option, seed_option, threads_option

_PERCENTILES = (50, 90, 95, 99)


@click.command()
@model_argument
@inputs_option
@dim_option
@seed_option
@click.option("--runs", type=click.IntRange(min=1), help="How many; by default as many as fit into --seconds.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=2.0, show_default=True, help="Time for the runs.")
@click.option("--warmup", type=click.IntRange(min=0), default=5, show_default=True, help="Runs before those that count.")
@click.option("--top", type=click.IntRange(min=0), default=15, show_default=True, help="Rows of the operator table; 0 leaves it out.")
@provider_option
@threads_option
@level_option
@verb
def bench(
    console: Console,
    model_path: str,
    inputs: str | None,
    dims: tuple[str, ...],
    seed: int,
    runs: int | None,
    seconds: float,
    warmup: int,
    top: int,
    provider: str,
    threads: int | None,
    level: str,
) -> None:
    """Time any ONNX file: latency percentiles, throughput, time by operator.

    Inputs are made up where --inputs does not give them, with 1 for sizes that are not given. Latency is that of one call from NumPy
    arrays to NumPy arrays, one call after the other.

    \b
      onstage bench predict.onnx --dim B=64
      onstage bench resnet50.onnx --runs 200 --threads 1 --json
    """
    model = OnnxFile(model_path)
    arrays = input_arrays(model, inputs, dims, default=1, seed=seed)
    start = time.perf_counter()
    with console.phase("loading"):
        runner = open_session(model, level=level, provider=provider, threads=threads)
    loaded = time.perf_counter() - start
    with console.phase("running"):
        times = _times(runner, arrays, warmup, runs, seconds)
    profile: Profile | None = None
    if top:
        with console.phase("profiling"):
            profile = _profile(model, runner, session_maker(model, level=level, provider=provider, threads=threads), arrays)
    milliseconds = {f"p{p}": float(np.percentile(times, p)) * 1e3 for p in _PERCENTILES}
    rows = _rows(model, arrays)
    rate = len(times) / sum(times)
    data: dict[str, Any] = {
        "path": model_path,
        "providers": runner.providers,
        "threads": threads or available_threads(),
        "level": level,
        "runs": len(times),
        "load_seconds": loaded,
        "latency_ms": {**milliseconds, "mean": float(np.mean(times)) * 1e3, "min": min(times) * 1e3, "max": max(times) * 1e3},
        "runs_per_second": rate,
        "rows_per_second": None if rows is None else rate * rows,
        "inputs": {name: list(a.shape) for name, a in arrays.items()},
        "operators": [] if profile is None else [dataclasses.asdict(r) for r in profile.by_operator[:top]],
    }
    console.result(data, _text(data))


def _times(runner: Runner, arrays: dict[str, Array], warmup: int, runs: int | None, seconds: float) -> list[float]:
    """Seconds of each run; at least one."""
    for _ in range(warmup):
        runner(arrays)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < runs if runs is not None else not times or time.perf_counter() < end:
        start = time.perf_counter()
        runner(arrays)
        times.append(time.perf_counter() - start)
    return times


def _profile(model: OnnxFile, runner: Runner, make: Callable[[str], Any], arrays: dict[str, Array]) -> Profile:
    return profile_session(make, lambda session: runner.on(session)(arrays))


def _rows(model: OnnxFile, arrays: dict[str, Array]) -> int | None:
    """The size of the first named dim that leads an input: a batch, in most files."""
    for value in model.inputs:
        if value.shape and isinstance(value.shape[0], str):
            return int(arrays[value.name].shape[0])
    return None


def _text(data: dict[str, Any]) -> str:
    latency = data["latency_ms"]
    parts = [
        f"{data['path']}: {data['runs']} runs on {', '.join(data['providers'])}, {data['threads']} threads, loaded in {data['load_seconds']:.2f} s",
        "latency  " + "  ".join(f"{name} {value:.3f} ms" for name, value in latency.items()),
        f"throughput  {data['runs_per_second']:,.1f} runs/s"
        + ("" if data["rows_per_second"] is None else f"  {data['rows_per_second']:,.1f} rows/s"),
    ]
    if data["operators"]:
        rows = [(r["name"], f"{r['microseconds']:.1f}", f"{r['share']:.1%}", r["nodes"]) for r in data["operators"]]
        parts.append(table(("operator", "us", "share", "nodes"), rows))
    return "\n".join(parts)
