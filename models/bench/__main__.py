"""`python -m onstage.models.bench`: time the MLP training step of onstage beside jitted JAX and eager PyTorch; prints ratios.

The peers take turns within each round, so that what else the machine does meets all of them; ratios are made round by round, and their
median is printed. A peer that is not installed is left out and named. Results also go to `bench.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from .systems import SYSTEMS


class Worker:
    """A system's process."""

    def __init__(self, name: str, threads: int) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        env.update({v: str(threads) for v in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")})
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=" + ("true" if threads > 1 else "false")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.ready = self._read(name)

    def _read(self, name: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {name} worker ended with code {self.process.wait()}")
        return json.loads(line)

    def step(self, name: str, count: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"step {count}\n")
        self.process.stdin.flush()
        return self._read(name)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(rounds: int, steps: int, threads: int, systems: list[str]) -> dict[str, Any]:
    """Run all systems; gives the raw figures and the ratios of onstage to each peer."""
    workers: dict[str, Worker] = {}
    missing: list[str] = []
    for name in systems:
        worker = Worker(name, threads)
        if "missing" in worker.ready:
            missing.append(name)
            worker.close()
        else:
            workers[name] = worker
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for worker_name, worker in workers.items():
        worker.step(worker_name, max(steps // 4, 1))
    for _ in range(rounds):
        for name, worker in workers.items():
            results[name].append(worker.step(name, steps))
    for worker in workers.values():
        worker.close()
    peers = [n for n in workers if n != "onstage"]
    ratios = {
        peer: {
            figure: statistics.median(ours[figure] / theirs[figure] for ours, theirs in zip(results["onstage"], results[peer], strict=True))
            for figure in ("wall", "cpu", "peak_mib")
        }
        for peer in peers
    }
    return {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version(), "threads": threads},
        "missing": missing,
        "phases": {name: worker.ready["phases"] for name, worker in workers.items()},
        "staging": workers["onstage"].ready["staging"],
        "rounds": results,
        "ratios": ratios,
    }


def report(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = ["MLP 784-512-512-10, batch 128, float32: one SGD step (medians over the rounds)"]
    for name, rounds in found["rounds"].items():
        wall, cpu, peak = (statistics.median(r[k] for r in rounds) for k in ("wall", "cpu", "peak_mib"))
        lines.append(f"  {name:8} {1e3 * wall:8.2f} ms wall {1e3 * cpu:8.2f} ms CPU {peak:8.0f} MiB peak")
    for peer, ratio in found["ratios"].items():
        lines.append(f"  onstage / {peer}: wall {ratio['wall']:.2f}, CPU {ratio['cpu']:.2f}, peak memory {ratio['peak_mib']:.2f}")
    lines.append("set-up, CPU seconds")
    for name, phases in found["phases"].items():
        lines.append(f"  {name:8} " + ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in phases.items()))
    lines.append("onstage, CPU microseconds an equation of the final program")
    for count, costs in found["staging"].items():
        lines.append(f"  {count:>6} equations: " + ", ".join(f"{name} {value:.0f}" for name, value in costs.items()))
    if found["missing"]:
        lines.append(f"not installed, left out: {', '.join(found['missing'])}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m onstage.models.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="steps a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    options = parser.parse_args()
    systems = [s for s in options.systems.split(",") if s]
    if "onstage" not in systems or set(systems) - set(SYSTEMS):
        parser.error(f"--systems takes onstage and any of {', '.join(s for s in SYSTEMS if s != 'onstage')}")
    found = measure(options.rounds, options.steps, options.threads, systems)
    options.output.write_text(json.dumps(found, indent=1))
    print(report(found))


if __name__ == "__main__":
    main()
