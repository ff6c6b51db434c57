"""`onstage demo` and `onstage doctor`, run as commands."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

from onstage.export import demo as demo_module
from onstage.export.cli import main

FILES = {"digits_train_step.onnx", "digits_predict.onnx", "digits.png", "digits_report.json"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The demo's folder and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    command = str(Path(sys.executable).with_name("onstage"))
    done = subprocess.run([command, "demo", "--output", str(folder), "--epochs", "25"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_it_writes_its_files_and_a_report(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    assert {p.name for p in folder.iterdir()} >= FILES
    report = json.loads((folder / "digits_report.json").read_text())
    assert report["accuracy"] >= 0.97
    assert report["epochs"] == 25 and len(report["held_out_accuracy"]) == len(report["loss"]) == 25
    assert report["images"] == {"train": 1437, "held_out": 360}
    assert report["seconds"]["total"] >= report["seconds"]["training"] > 0
    assert {f["name"] for f in report["files"]} >= FILES - {"digits_report.json"}
    for entry in report["files"]:
        data = (folder / entry["name"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(data).hexdigest() and entry["bytes"] == len(data)
    assert (folder / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_the_replay_agrees(finished: tuple[Path, Any]) -> None:
    folder, done = finished
    replay = json.loads((folder / "digits_report.json").read_text())["replay"]
    assert replay["steps"] == 25 * 23
    assert replay["first_epoch_loss_difference"] <= 1e-3
    assert replay["different_labels"] == replay["different_labels_one_by_one"] == 0
    assert replay["probability_difference"] <= 1e-4
    for text in ("1,797 handwritten digits", "epoch  25/25", "held-out accuracy", "with numpy and onnxruntime only"):
        assert text in done.stdout


def test_the_files_have_a_batch_named_b_and_train_in_plain_onnx_runtime(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    for name in ("digits_train_step.onnx", "digits_predict.onnx"):
        model = onnx.load(folder / name)
        onnx.checker.check_model(model, full_check=True)
        dims = {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
        assert dims["x"] == ["B", 64]
        assert (dims.get("y") == ["B"]) == (name == "digits_train_step.onnx")
    predictor = onnxruntime.InferenceSession(folder / "digits_predict.onnx", providers=["CPUExecutionProvider"])
    for size in (0, 1, 7):
        probability, label = predictor.run(["out.probability", "out.label"], {"x": np.zeros((size, 64), np.float32)})
        assert probability.shape == (size, 10) and label.shape == (size,) and label.dtype == np.int64


def test_the_split_is_fixed_and_disjoint() -> None:
    first, second = demo_module.load_digits(), demo_module.load_digits()
    np.testing.assert_array_equal(first.test_x, second.test_x)
    assert len(first.train_x) + len(first.test_x) == 1797
    assert first.train_x.min() == 0 and first.train_x.max() == 1
    # A few digits are identical in the data; the split itself shares no row
    shared = {x.tobytes() for x in first.train_x} & {x.tobytes() for x in first.test_x}
    assert len(shared) <= 5


def test_shifted_images_move_by_a_pixel_at_most() -> None:
    image = np.zeros((200, 8, 8), np.float32)
    image[:, 4, 4] = 1
    moved = demo_module.shifted(image.reshape(200, 64), np.random.default_rng(0)).reshape(200, 8, 8)
    _, rows, columns = np.nonzero(moved)
    assert len(rows) == 200
    assert set(rows) == set(columns) == {3, 4, 5}


def test_too_little_training_is_reported_and_fails(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path), "--epochs", "1", "--quiet"])
    assert result.exit_code == 1
    assert "below 97%; give it more epochs (--epochs)" in result.output
    assert (tmp_path / "digits_report.json").exists()


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "the demo needs scikit-learn" in result.output
    assert "pip install 'onstage[demo]'" in result.output
    assert not (tmp_path / "out").exists()


def test_bad_arguments(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert CliRunner().invoke(main, ["demo", "--output", str(file)]).exit_code == 2
    assert CliRunner().invoke(main, ["demo", "--epochs", "0"]).exit_code == 2
    result = CliRunner().invoke(main, ["demo", "--output", str(file / "below")])
    assert result.exit_code == 1
    assert "file" in result.output and "Traceback" not in result.output


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "Permission denied" in result.output


def test_doctor() -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0, result.output
    for text in ("Python ", f"onnx {onnx.__version__}", onnxruntime.__version__, "CUDA: ", "demo: ready"):
        assert text in result.output
