"""The benchmark's driver, on onstage alone and tiny sizes: that it runs, what it writes and says, how it compares; no time is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onstage as ons
from onstage.models.bench import driver
from onstage.models.bench.data import SIZES, WORKLOADS, gpt_data, option_data
from onstage.models.bench.models import attention, chain, gpt, price_and_gradient
from onstage.models.bench.processes import BenchError, Process, environment
from onstage.models.bench.report import text


@pytest.fixture(autouse=True)
def keep_affinity() -> Iterator[None]:
    """The driver limits the CPUs of its process."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "onstage.models.bench", *arguments], capture_output=True, text=True, check=False)


def test_every_workload_runs_and_writes_its_figures(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    done = run("--quick", "--size", "tiny", "--systems", "onstage", "--output", str(output))
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert list(found["workloads"]) == ["A", "B", "C", "D", "D64", "E", "F", "G", "P"]
    assert found["settings"]["systems"] == ["onstage"] and found["settings"]["missing"] == {}
    assert list(found["settings"]["versions"]["onstage"]) == ["onnxruntime", "onnx", "numpy"]
    for name, workload in WORKLOADS.items():
        row = found["workloads"][name]
        ours = row["systems"]["onstage"]
        assert len(ours["wall"]) == len(ours["cpu"]) == 2 and min(ours["wall"]) > 0
        assert (row["title"], row["agrees"], row["ratios"]) == (workload.title, True, {})
    for name in "ABC":
        losses = found["workloads"][name]["systems"]["onstage"]["values"]
        assert losses[0] > losses[1] > losses[2]
    assert list(found["workloads"]["F"]["parts"]) == ["A", "B", "C"]
    growth = found["workloads"]["G"]["rows"]
    assert list(growth) == ["10", "20"]
    assert growth["20"]["equations"]["final"] > growth["10"]["equations"]["final"] > 10
    phases = ["stage forward", "stage step", "hash", "passes", "lower", "compile"]
    assert list(growth["10"]["seconds"]) == phases
    assert found["workloads"]["P"]["kinds"] == [*phases, "first call", "step"]
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]
    assert "ms a call" in done.stdout and "onstage" in done.stdout and "peak MB" in done.stdout
    assert "quick: these figures say that it works, not how fast" in done.stdout


def test_unknown_names_are_a_usage_error() -> None:
    for option in ("--systems", "--workloads"):
        done = run(option, "abacus")
        assert done.returncode == 2 and "abacus" in done.stderr


def test_wrong_numbers_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        driver.main(["--rounds", "0"])
    assert "at least 1, got 0" in capsys.readouterr().err
    assert driver.main(["--threads", "100000"]) == 2
    assert "--threads 100000: this process may use" in capsys.readouterr().err


def test_a_peer_that_is_not_installed_is_absent_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "installed", lambda system: system == "onstage")
    output = tmp_path / "bench.json"
    assert driver.main(["--quick", "--size", "tiny", "--threads", "1", "--workloads", "E", "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert list(found["workloads"]["E"]["systems"]) == ["onstage"]
    assert found["settings"]["missing"]["jax"] == "jax is not installed"
    assert "torch.compile: absent, torch is not installed" in capsys.readouterr().out


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with Process("onstage", "tiny", environment(1, True, tmp_path)) as process:
        with pytest.raises(BenchError, match="onstage: measure A 1:[^$]*KeyError: 'A'"):
            process.ask("measure", workload="A", calls=1)
        assert process.ask("start", workload="A")["values"]
        process._process.kill()
        with pytest.raises(BenchError, match="onstage: memory: its process ended with"):
            process.ask("memory")


def test_settings_are_equal_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    values = environment(2, True, tmp_path)
    assert "OPENBLAS_CORETYPE" not in values
    assert values["OMP_NUM_THREADS"] == values["NPROC"] == "2"
    assert environment(2, False, tmp_path)["ONSTAGE_THREADS"] == "2"


def test_ratios_are_by_round_and_against_the_better_torch() -> None:
    found: dict[str, Any] = {
        "onstage": {"wall": [1.0, 2.0, 3.0]},
        "jax": {"wall": [2.0, 2.0, 2.0]},
        "torch": {"wall": [4.0, 4.0, 4.0]},
        "torch.compile": {"wall": [8.0, 1.0, 8.0]},
    }
    ratios = driver.ratios(found, ("wall",))
    assert ratios["jax"]["wall"] == {"rounds": [0.5, 1.0, 1.5], "median": 1.0, "of medians": 1.0}
    assert ratios["torch.compile"]["wall"]["median"] == 0.375
    assert ratios["better torch"]["wall"] == ratios["torch"]["wall"]
    assert driver.ratios({"jax": found["jax"]}, ("wall",)) == {}


def test_disagreement_is_told() -> None:
    assert driver.agree([[1.0, 0.0], [1.0005, 5e-5]])
    assert not driver.agree([[1.0, 2.0], [1.0, 2.1]])
    assert not driver.agree([[1.0], [1.0, 2.0]])
    assert not driver.agree([[1.0], [float("nan")]])
    row = {"values": [1.0], "wall": [1e-3], "cpu": [1e-3], "peak": 10**8}
    found = {"title": "", "systems": {"onstage": row, "jax": {**row, "values": [3.0]}}, "ratios": {}, "agrees": False}
    settings = {"threads": 1, "pinned": True, "rounds": 1, "size": "tiny", "quick": False, "cpu": "", "busy": None}
    shown = text({"settings": {**settings, "systems": ["onstage", "jax"], "missing": {}, "versions": {}}, "workloads": {"A": found}})
    assert "THE SYSTEMS DISAGREE: onstage [1.0]; jax [3.0]" in shown


def test_price_and_gradient_against_known_values() -> None:
    # Hull, Options, Futures, and Other Derivatives, example 15.6: spot 42, strike 40, rate 10 %, volatility 20 %, half a year.
    one = [np.array([v]) for v in (42.0, 0.2, 40.0, 0.1, 0.5)]
    price, delta, vega = ons.stage(price_and_gradient, *one)(*one)
    np.testing.assert_allclose(price, [4.759422], rtol=1e-6)
    np.testing.assert_allclose(delta, [0.779131], rtol=1e-5)
    np.testing.assert_allclose(vega, [8.813415], rtol=1e-5)
    assert price.dtype == np.float64
    many = option_data(20, np.float32)
    assert [x.dtype for x in ons.stage(price_and_gradient, *many)(*many)] == [np.dtype(np.float32)] * 3


def test_attention_does_not_look_ahead() -> None:
    size = SIZES["tiny"].gpt
    params, ids, _ = gpt_data(size)
    program = ons.stage(lambda p, i: gpt(p, i, size.heads), params, ids)
    other = ids.copy()
    other[:, -1] = (other[:, -1] + 1) % size.vocabulary
    before, after = program(params, ids), program(params, other)
    assert before.shape == (size.batch, size.length, size.vocabulary)
    np.testing.assert_array_equal(before[:, :-1], after[:, :-1])
    assert not np.array_equal(before[:, -1], after[:, -1])


def test_attention_to_one_position_is_its_value() -> None:
    size = SIZES["tiny"].gpt
    block = gpt_data(size)[0]["blocks"][0]
    x = np.random.default_rng(0).normal(size=(1, 1, size.features)).astype(np.float32)
    result = ons.stage(attention, block, x, ons.StaticSpec(size.heads))(block, x, size.heads)
    expected = x @ block["qkv"]["w"][:, -size.features :] @ block["project"]["w"]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-7)


def test_chain_has_about_as_many_equations_as_asked_for() -> None:
    program = ons.stage(chain(100), np.ones(4))
    assert 95 <= len(program.program.equations) <= 105
