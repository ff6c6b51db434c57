"""Trains and predicts with the demo's two files, as any program would that has NumPy and ONNX Runtime only.

Run as a script, apart from the package: `python -P demo_replay.py WORK`. WORK holds job.json, which names the two files and the number of
epochs, and job.npz with the arrays; replay.npz and replay.json are written there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def session(path: str) -> Any:
    """A session on the CPU with ONNX Runtime's defaults."""
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def train(path: str, arrays: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """Every step of the training again; gives the losses and the last outputs, named as the inputs they become."""
    step = session(path)
    outputs = [value.name for value in step.get_outputs()]
    inputs = [value.name for value in step.get_inputs()]
    state = {name: arrays[name] for name in inputs if name not in ("x", "y")}
    losses: list[float] = []
    start = 0
    for size in arrays["batch_sizes"]:
        batch = {"x": arrays["train_x"][start : start + size], "y": arrays["train_y"][start : start + size]}
        start += size
        results = dict(zip(outputs, step.run(outputs, {**state, **batch}), strict=True))
        losses.append(float(results.pop("out.loss")))
        # The output out.params.layer1.w is the next step's input params.layer1.w
        state = {name.removeprefix("out."): value for name, value in results.items()}
    return losses, state


def main(work: Path) -> None:
    job = json.loads((work / "job.json").read_text(encoding="utf-8"))
    with np.load(work / "job.npz") as file:
        arrays = {name: file[name] for name in file.files}
    losses, state = train(job["train_step"], arrays)
    predictor = session(job["predict"])
    probability, label = predictor.run(["out.probability", "out.label"], {"x": arrays["test_x"]})
    one_by_one = [predictor.run(["out.label"], {"x": image[None]})[0][0] for image in arrays["test_x"]]
    np.savez(work / "replay.npz", losses=losses, probability=probability, label=label, one_by_one=one_by_one, **state)
    modules = sorted({name.split(".")[0] for name in sys.modules})
    if "onstage" in modules:
        raise SystemExit("the replay has imported onstage")
    report = {"modules": modules, "onnxruntime": onnxruntime.__version__, "numpy": np.__version__}
    (work / "replay.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
