"""The main job, `onstage demo`: a classifier of handwritten digits is trained, written as two ONNX files, and run from them alone."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..stage import tree
from ..stage.config import config
from ..stage.errors import OnstageError
from ..stage.primitive import Array
from ..stage.spec import ArraySpec
from ..stage.staged import StagedProgram
from ..stage.staging import stage
from ._lazy import LazyModule, rich_console, rich_progress, sklearn_datasets
from .demo_picture import draw

# The demo is a user of the package like any other: it reaches the models, which stand above, by their public names.
_classifier: Any = LazyModule("onstage.models.classifier")
_optimizers: Any = LazyModule("onstage.models.optimizers")

TRAIN_STEP: Final = "digits_train_step.onnx"
PREDICT: Final = "digits_predict.onnx"
PICTURE: Final = "digits.png"
REPORT: Final = "digits_report.json"
WANTED_ACCURACY: Final = 0.97

_SIZES: Final = (64, 256, 128, 10)
_BATCH: Final = 64
_LEARNING_RATE: Final = 1e-3
_HELD_OUT: Final = 360
_SPLIT_SEED: Final = 0
# Replayed and first results come from the same kernels in sessions that may be optimised differently
_LOSS_TOLERANCE: Final = 1e-3
_PROBABILITY_TOLERANCE: Final = 1e-4


class DemoError(OnstageError, RuntimeError):
    """The demo could not be run, or did not reach what it should."""


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 grey levels in [0, 1], float32, and their digits, int64."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


@dataclass
class Training:
    """What came of the training: the parameters, each step's loss, held-out accuracy after each epoch, and the batches.

    checkpoint: parameters and Adam's state after the first epoch.
    """

    params: Any
    checkpoint: tuple[Any, Any]
    losses: list[float]
    accuracies: list[float]
    batches_x: list[Array]
    batches_y: list[Array]
    seconds: float


def require_extra() -> None:
    """DemoError, naming the package and the way out, where an extra that the demo needs is missing."""
    for name in ("sklearn.datasets", "matplotlib.figure", "rich.progress"):
        try:
            LazyModule(name).load()
        except ModuleNotFoundError as error:
            package = {"sklearn": "scikit-learn"}.get(name.split(".")[0], name.split(".")[0])
            raise DemoError(
                f"the demo needs {package}, which cannot be imported ({error}); install it with: pip install 'onstage[demo]'"
            ) from error


def load_digits() -> Digits:
    """scikit-learn's 1,797 digits, split in two by a fixed shuffle; nothing is downloaded."""
    bunch = sklearn_datasets.load_digits()
    x = (bunch.images.reshape(-1, 64) / 16).astype(np.float32)
    y = bunch.target.astype(np.int64)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(x))
    test, train = order[:_HELD_OUT], order[_HELD_OUT:]
    return Digits(x[train], y[train], x[test], y[test])


def shifted(x: Array, rng: np.random.Generator) -> Array:
    """The images, about half of them moved by up to one pixel each way."""
    count = len(x)
    padded = np.pad(x.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    moves = np.where(rng.random((count, 1)) < 0.5, 1, rng.integers(0, 3, (count, 2)))
    rows, columns = (moves[:, axis, None] + np.arange(8) for axis in (0, 1))
    return np.ascontiguousarray(padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]].reshape(count, 64))


def batches(digits: Digits, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """One epoch in random order; the last batch is smaller."""
    order = rng.permutation(len(digits.train_x))
    for start in range(0, len(order), _BATCH):
        chosen = order[start : start + _BATCH]
        yield shifted(digits.train_x[chosen], rng), digits.train_y[chosen]


def programs(params: Any, state: Any, optimizer: Any) -> tuple[StagedProgram, StagedProgram]:
    """(training step, predictor), both for batches of any size B."""
    x, y = ArraySpec(("B", 64), "float32"), ArraySpec(("B",), "int64")
    step: Callable[..., Any] = _classifier.training_step(_classifier.mlp_loss, optimizer)
    predict: Callable[..., Any] = _classifier.predict
    return (
        stage(step, specs=(params, state, x, y), name="digits_train_step"),
        stage(predict, specs=(params, x), name="digits_predict"),
    )


def train(
    step: StagedProgram,
    predictor: StagedProgram,
    params: Any,
    state: Any,
    digits: Digits,
    epochs: int,
    rng: np.random.Generator,
    console: Any,
) -> Training:
    """Run the staged step over the training images, `epochs` times, behind a progress bar."""
    result = Training(params, (params, state), [], [], [], [], 0.0)
    start = time.perf_counter()
    columns = (
        rich_progress.TextColumn("epoch {task.completed:>3}/{task.total}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("loss {task.fields[loss]:.4f}  held out {task.fields[accuracy]:.2%}"),
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=epochs, loss=float("nan"), accuracy=0.0)
        for _ in range(epochs):
            first = len(result.losses)
            for x, y in batches(digits, rng):
                out = step(params, state, x, y)
                params, state = out["params"], out["state"]
                result.losses.append(float(out["loss"]))
                result.batches_x.append(x)
                result.batches_y.append(y)
            if not result.accuracies:
                result.checkpoint = (params, state)
            label = predictor(params, digits.test_x)["label"]
            result.accuracies.append(float(np.mean(label == digits.test_y)))
            progress.update(task, advance=1, loss=float(np.mean(result.losses[first:])), accuracy=result.accuracies[-1])
    result.params = params
    result.seconds = time.perf_counter() - start
    return result


def replay(folder: Path, step: StagedProgram, params: Any, state: Any, digits: Digits, training: Training) -> dict[str, Any]:
    """Train and predict again from the two files, in a process with NumPy and ONNX Runtime only; what it got, by name.

    Raises DemoError with the process's own words where it fails.
    """
    script = Path(__file__).with_name("demo_replay.py")
    leaves = tree.leaves(((params, state, None, None), {}))
    names = [n for n in step.in_names if n not in ("x", "y")]
    with tempfile.TemporaryDirectory(prefix="onstage-demo-") as work:
        job = {"train_step": str((folder / TRAIN_STEP).resolve()), "predict": str((folder / PREDICT).resolve())}
        Path(work, "job.json").write_text(json.dumps(job), encoding="utf-8")
        arrays = {
            **dict(zip(names, leaves, strict=True)),
            "train_x": np.concatenate(training.batches_x),
            "train_y": np.concatenate(training.batches_y),
            "batch_sizes": np.array([len(y) for y in training.batches_y]),
            "test_x": digits.test_x,
        }
        save: Any = np.savez
        save(Path(work, "job.npz"), **arrays)
        done = subprocess.run([sys.executable, "-P", str(script), work], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoError(f"the process that runs the two files alone failed with code {done.returncode}:\n{done.stderr.strip()}")
        report = json.loads(Path(work, "replay.json").read_text(encoding="utf-8"))
        with np.load(Path(work, "replay.npz")) as file:
            return {"report": report, **{name: file[name] for name in file.files}}


def agreement(
    replayed: dict[str, Any], step: StagedProgram, training: Training, predicted: dict[str, Array], digits: Digits
) -> dict[str, Any]:
    """The numbers of the replay beside those of the training; DemoError where they differ by more than rounding can explain."""
    per_epoch = len(training.losses) // len(training.accuracies)
    losses = np.abs(replayed["losses"] - np.array(training.losses))
    probability = float(np.max(np.abs(replayed["probability"] - predicted["probability"])))
    names = [n for n in step.in_names if n.startswith("params")]
    moved = max(float(np.max(np.abs(replayed[n] - p))) for n, p in zip(names, tree.leaves(training.params), strict=True))
    facts = {
        "steps": len(losses),
        "first_epoch_loss_difference": float(losses[:per_epoch].max()),
        "last_loss_difference": float(losses[-1]),
        "parameter_difference": moved,
        "probability_difference": probability,
        "different_labels": int(np.sum(replayed["label"] != predicted["label"])),
        "different_labels_one_by_one": int(np.sum(replayed["one_by_one"] != predicted["label"])),
        "accuracy": float(np.mean(replayed["label"] == digits.test_y)),
        "onnxruntime": replayed["report"]["onnxruntime"],
    }
    if facts["different_labels"] or facts["different_labels_one_by_one"] or not probability <= _PROBABILITY_TOLERANCE:
        raise DemoError(f"the predictor's file gives other answers than the program did: {facts}")
    if not facts["first_epoch_loss_difference"] <= _LOSS_TOLERANCE:
        raise DemoError(f"the training step's file gives other losses than the program did: {facts}")
    return facts


def run_demo(folder: Path, *, epochs: int, seed: int, quiet: bool = False) -> dict[str, Any]:
    """Run the main job and write its files into `folder`; gives the content of digits_report.json.

    Raises DemoError where an extra is missing, the held-out accuracy stays below 97 % or the files disagree with the training;
    OSError where the folder cannot be written.
    """
    require_extra()
    # The two runs are compared closely, which TF32 would forbid; steps of this size are no faster on a GPU
    with config(provider="cpu"):
        return _run(folder, epochs, seed, quiet)


def _run(folder: Path, epochs: int, seed: int, quiet: bool) -> dict[str, Any]:
    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    console = rich_console.Console(quiet=quiet, highlight=False)
    say = functools.partial(console.print, soft_wrap=True)
    digits = load_digits()
    say(f"{len(digits.train_x) + len(digits.test_x):,} handwritten digits of 8 x 8 pixels; {len(digits.test_x)} are held out")
    rng = np.random.default_rng(seed)
    params = _classifier.mlp_init(rng, _SIZES)
    optimizer = _optimizers.adam(_LEARNING_RATE)
    state = optimizer.init(params)
    step, predictor = programs(params, state, optimizer)
    say(f"staged forward, backward and Adam as one program: {len(step.optimized[0].equations)} equations, hash {step.hash[:12]}")
    training = train(step, predictor, params, state, digits, epochs, rng, console)
    frozen = predictor.freeze({"params": training.params})
    predicted = frozen(digits.test_x)
    accuracy = float(np.mean(predicted["label"] == digits.test_y))
    say(f"held-out accuracy {accuracy:.2%} after {epochs} epochs in {training.seconds:.1f} s")
    steps = [(params, state, training.batches_x[0], training.batches_y[0])]
    steps.append((*training.checkpoint, training.batches_x[-1], training.batches_y[-1]))
    images = [(digits.test_x[:40],), (digits.train_x[:9],)]
    for name, program, samples in ((TRAIN_STEP, step, steps), (PREDICT, frozen, images)):
        program.save(folder / name, samples=samples)
        say(f"{name}: verified and written, {(folder / name).stat().st_size / 1024:,.0f} KiB")
    draw(folder / PICTURE, training.losses, training.accuracies, digits.test_x, digits.test_y, predicted["label"])
    say(f"{PICTURE}: the loss curve and the {int(np.sum(predicted['label'] != digits.test_y))} misread digits")
    replayed = agreement(replay(folder, step, params, state, digits, training), step, training, predicted, digits)
    say("the same from the two files alone, with numpy and onnxruntime only:")
    say(f"  trained {replayed['steps']:,} steps; first epoch's losses within {replayed['first_epoch_loss_difference']:.1e}")
    say(f"  predicted {len(digits.test_x)} digits: the same labels, probabilities within {replayed['probability_difference']:.1e}")
    report = {
        "accuracy": accuracy,
        "epochs": epochs,
        "seed": seed,
        "images": {"train": len(digits.train_x), "held_out": len(digits.test_x)},
        "seconds": {"training": training.seconds, "total": time.perf_counter() - start},
        "loss": [float(np.mean(part)) for part in np.array_split(training.losses, epochs)],
        "held_out_accuracy": training.accuracies,
        "replay": replayed,
        "files": _files(folder),
    }
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    say(f"{REPORT}: written to {folder}")
    if accuracy < WANTED_ACCURACY:
        raise DemoError(f"the held-out accuracy is {accuracy:.2%}, below {WANTED_ACCURACY:.0%}; give it more epochs (--epochs)")
    return report


def _files(folder: Path) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of each file that the demo wrote before its report."""
    names = [n for name in (TRAIN_STEP, PREDICT) for n in (name, f"{name}.report.json")]
    found = [folder / name for name in (*names, PICTURE)]
    return [{"name": p.name, "bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()} for p in found]
