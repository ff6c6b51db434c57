"""The driver: runs every system in a process of its own, in turn within each round, and compares them."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .data import SIZES, WORKLOADS
from .processes import SYSTEMS, BenchError, Process, environment, installed, limit_cpus
from .report import BETTER, text

# What --workloads takes beside WORKLOADS: F, the time to the first result; G, time by the number of equations; P, the MLP's phases.
EXTRA: Final = ("F", "G", "P")
_FIRST_OF: Final = ("A", "B", "C")
# From functions to the ONNX model.
_TO_MODEL: Final = ("stage step", "hash", "passes", "lower")
_RTOL: Final = 1e-3
_ATOL: Final = 1e-4
Result = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print its tables and write the JSON file. 1 where two systems computed different numbers, 2 where one failed."""
    options = _parser().parse_args(arguments)
    options.rounds = options.rounds or (2 if options.quick else 7)
    try:
        pinned = limit_cpus(options.threads)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    systems = [s for s in options.systems if installed(s)]
    missing = {s: f"{SYSTEMS[s].needs} is not installed" for s in options.systems if s not in systems}
    bench = Bench(systems, options, pinned)
    result: Result = {"settings": {**settings(options, pinned), "systems": systems, "missing": missing}, "workloads": {}}
    code = 0
    for name in options.workloads:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        try:
            found = bench.run(name)
        except BenchError as error:
            print(f"bench: {name}: {error}", file=sys.stderr)
            result["workloads"][name] = {"failed": str(error)}
            code = 2
            continue
        result["workloads"][name] = found
        code = code or (0 if found.get("agrees", True) else 1)
    result["settings"]["versions"] = bench.versions
    _write(options.output, result)
    print(text(result))
    print(f"bench: wrote {options.output}", file=sys.stderr)
    return code


def settings(options: Any, pinned: bool) -> Result:
    """What the figures hold for. busy: the load average when the run began, that is how many other processes wanted the CPUs."""
    return {
        "threads": options.threads,
        "pinned": pinned,
        "rounds": options.rounds,
        "quick": options.quick,
        "size": options.size,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "busy": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class Bench:
    """One run of the benchmark: which systems, and how."""

    def __init__(self, systems: Sequence[str], options: Any, pinned: bool) -> None:
        self.systems = list(systems)
        self.rounds: int = options.rounds
        self.quick: bool = options.quick
        self.size: str = options.size
        self.threads: int = options.threads
        self.pinned = pinned
        self.versions: dict[str, dict[str, str]] = {}

    def run(self, name: str) -> Result:
        if name == "F":
            return self.first_results()
        if name == "G":
            return self.growth()
        if name == "P":
            return self.phases()
        return self.steps(name)

    def process(self, system: str, cache: str) -> Process:
        return Process(system, self.size, environment(self.threads, self.pinned, Path(cache)))

    def order(self, round_number: int) -> list[str]:
        """The systems, each first in its turn."""
        shift = round_number % max(len(self.systems), 1)
        return self.systems[shift:] + self.systems[:shift]

    def steps(self, name: str) -> Result:
        """The time of a call, round by round, the CPU time and the peak of memory."""
        workload = WORKLOADS[name]
        calls = workload.quick_calls if self.quick else workload.calls
        found: dict[str, Result] = {}
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            running: dict[str, Process] = {}
            for system in self.systems:
                process = stack.enter_context(self.process(system, cache))
                self.versions[system] = process.ask("versions")
                answer = process.ask("start", workload=name)
                running[system] = process
                found[system] = {"values": answer["values"], "first": answer["first"], "wall": [], "cpu": []}
            for process in running.values():
                process.ask("measure", workload=name, calls=max(1, calls // 10))
            for i in range(self.rounds):
                for system in self.order(i):
                    answer = running[system].ask("measure", workload=name, calls=calls)
                    found[system]["wall"].append(answer["wall"])
                    found[system]["cpu"].append(answer["cpu"])
            for system, process in running.items():
                found[system]["peak"] = process.ask("memory")["peak"]
        return {
            "title": workload.title,
            "calls": calls,
            "systems": found,
            "ratios": ratios(found, ("wall", "cpu")),
            "agrees": agree([v["values"] for v in found.values()]),
        }

    def first_results(self) -> Result:
        """CPU and wall seconds from functions to first result in a fresh process: without a cache on disk, then with what that left there."""
        rounds = 1 if self.quick else max(3, self.rounds // 2)
        parts: Result = {}
        for name in _FIRST_OF:
            found: dict[str, Result] = {}
            for i in range(rounds):
                for system in self.order(i):
                    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
                        for state in ("cold", "warm"):
                            with self.process(system, cache) as process:
                                self.versions[system] = process.ask("versions")
                                answer = process.ask("start", workload=name)
                            row = found.setdefault(system, {})
                            for clock in ("cpu", "wall"):
                                row.setdefault(f"{state} {clock}", []).append(answer["first"][clock])
            kinds = [f"{state} {clock}" for state in ("cold", "warm") for clock in ("cpu", "wall")]
            parts[name] = {"title": WORKLOADS[name].title, "systems": found, "ratios": ratios(found, kinds)}
        return {"title": "From functions to the first result, imports excluded", "parts": parts}

    def phases(self) -> Result:
        """Wall seconds of the MLP's phases, each round in fresh processes."""
        found: dict[str, Result] = {}
        for i in range(self.rounds):
            for system in self.order(i):
                with (
                    tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache,
                    self.process(system, cache) as process,
                ):
                    self.versions[system] = process.ask("versions")
                    for phase, clock in process.ask("phases").items():
                        found.setdefault(system, {}).setdefault(phase, []).append(clock["wall"])
        kinds = list(dict.fromkeys(phase for row in found.values() for phase in row))
        return {"title": "Phases of the MLP's training step", "kinds": kinds, "systems": found, "ratios": ratios(found, kinds)}

    def growth(self) -> Result:
        """onstage's phases by the number of equations, after a first one that fills its tables."""
        if "onstage" not in self.systems:
            raise BenchError("G needs onstage among --systems")
        counts = SIZES[self.size].growth
        rows: Result = {}
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache, self.process("onstage", cache) as process:
            self.versions["onstage"] = process.ask("versions")
            process.ask("growth", equations=8)
            for equations in counts[: 2 if self.quick else None]:
                answers = [process.ask("growth", equations=equations) for _ in range(self.rounds)]
                clocks = [a["seconds"] for a in answers]
                seconds = {phase: [c[phase]["wall"] for c in clocks] for phase in clocks[0]}
                together = statistics.median(sum(c[phase]["cpu"] for phase in _TO_MODEL) for c in clocks)
                count = answers[0]["equations"]
                rows[str(equations)] = {"equations": count, "seconds": seconds, "per equation": together / count["final"]}
        return {"title": "onstage by the number of equations", "rows": rows}


def ratios(found: dict[str, Result], kinds: Sequence[str]) -> Result:
    """onstage over each peer, and over the better of PyTorch's two modes: by round, their median, and the ratio of medians."""
    ours = found.get("onstage")
    if ours is None:
        return {}
    result: Result = {}
    for kind in kinds:
        peers = {s: row[kind] for s, row in found.items() if s != "onstage" and kind in row}
        if kind not in ours:
            continue
        torch = [values for s, values in peers.items() if s.startswith("torch")]
        if len(torch) == 2:
            peers[BETTER] = min(torch, key=statistics.median)
        for system, values in peers.items():
            by_round = [a / b for a, b in zip(ours[kind], values, strict=True)]
            result.setdefault(system, {})[kind] = {
                "rounds": by_round,
                "median": statistics.median(by_round),
                "of medians": statistics.median(ours[kind]) / statistics.median(values),
            }
    return result


def agree(values: Sequence[Sequence[float]]) -> bool:
    """Whether all systems computed the same numbers."""
    return all(
        len(other) == len(values[0])
        and all(math.isclose(a, b, rel_tol=_RTOL, abs_tol=_ATOL) for a, b in zip(values[0], other, strict=True))
        for other in values[1:]
    )


def _names(known: Sequence[str]) -> Any:
    def parse(value: str) -> list[str]:
        names = [n.strip() for n in value.split(",") if n.strip()]
        unknown = [n for n in names if n not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown) or 'nothing given'}; there are {', '.join(known)}")
        return names

    return parse


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1, got {value}")
    return number


def _parser() -> argparse.ArgumentParser:
    known = [*WORKLOADS, *EXTRA]
    parser = argparse.ArgumentParser(prog="python -m onstage.models.bench", description=__doc__)
    about = "; ".join(f"{name}: {w.title}" for name, w in WORKLOADS.items())
    parser.add_argument(
        "--workloads",
        type=_names(known),
        default=known,
        help=f"by comma. {about}; F: time to the first result of A, B and C; G: onstage by number of equations; P: phases of A",
    )
    parser.add_argument("--systems", type=_names(list(SYSTEMS)), default=list(SYSTEMS), help="by comma; those not installed are left out")
    parser.add_argument(
        "--rounds", type=_positive, default=None, help="how often each system is measured, in turn with the others (7; quick: 2)"
    )
    parser.add_argument("--threads", type=_positive, default=2, help="for every system alike (2)")
    parser.add_argument("--quick", action="store_true", help="few calls: shows that it works, not how fast")
    parser.add_argument("--size", choices=list(SIZES), default="full", help="tiny: for the tests")
    parser.add_argument("--output", type=Path, default=Path("bench.json"), help="the JSON file")
    return parser


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if names:
            return names[0]
    return platform.processor() or "unknown"


def _write(path: Path, result: Result) -> None:
    """Written beside and renamed, so that an old file stays whole until the new one is."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
