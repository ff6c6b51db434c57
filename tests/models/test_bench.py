"""The benchmark's driver, on onstage alone: it runs, its figures are positive, the step learns; no time is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_driver_runs_and_writes_its_figures(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    command = [
        sys.executable,
        "-m",
        "onstage.models.bench",
        "--rounds",
        "2",
        "--steps",
        "3",
        "--systems",
        "onstage",
        "--output",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "MLP 784-512-512-10" in done.stdout and "equations: staging with gradient" in done.stdout
    found = json.loads(output.read_text())
    first, second = found["rounds"]["onstage"]
    assert first["wall"] > 0 and first["peak_mib"] > 0
    assert second["loss"] < first["loss"] < 3.0
    assert found["ratios"] == {} and len(found["staging"]) == 3


def test_unknown_systems_are_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onstage.models.bench", "--systems", "onstage,abacus"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "--systems takes onstage and any of jax, torch" in done.stderr
