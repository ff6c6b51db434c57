"""The process of one system: it takes commands as lines of JSON on standard input and answers each with one line."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol


class Work(Protocol):
    """One workload in one system. Results are complete when a method returns."""

    def start(self) -> None:
        """From Python functions and NumPy data to the first result."""
        ...

    def step(self) -> None: ...

    def values(self) -> list[float]:
        """Numbers that tell whether two systems computed the same."""
        ...


Make = Callable[[str], Work]
Answer = dict[str, Any]


class Clock:
    """Wall and CPU seconds since it was made; the CPU time is that of all threads and of children that have ended."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), cpu_seconds()

    def read(self) -> Answer:
        return {"wall": time.perf_counter() - self._wall, "cpu": cpu_seconds() - self._cpu}


def cpu_seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def peak_bytes() -> int | None:
    """The most memory this process has held; None where the system does not tell it. `ru_maxrss` would count the parent's memory in."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def start(work: Work) -> Answer:
    """first: the time to the first result; values: after it, and after two steps more."""
    clock = Clock()
    work.start()
    first = clock.read()
    values = list(work.values())
    for _ in range(2):
        work.step()
        values += work.values()
    return {"first": first, "values": values}


def measure(work: Work, calls: int) -> Answer:
    """wall: the median over the calls, cpu: the mean, both seconds a call."""
    seconds: list[float] = []
    cpu = cpu_seconds()
    for _ in range(calls):
        begin = time.perf_counter()
        work.step()
        seconds.append(time.perf_counter() - begin)
    return {"wall": statistics.median(seconds), "cpu": (cpu_seconds() - cpu) / calls}


def serve(versions: Mapping[str, str], make: Make, extra: Mapping[str, Callable[..., Any]]) -> None:
    """Answer commands until standard input ends.

    versions: of the packages that do the work. make: a workload's name to its Work. extra: further commands; they take the line's other entries
    as keyword arguments and give the answer. An answer has `error` where a command failed.
    """
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    works: dict[str, Work] = {}

    def start_workload(workload: str) -> Answer:
        works[workload] = make(workload)
        return start(works[workload])

    commands: dict[str, Callable[..., Any]] = {
        "versions": lambda: dict(versions),
        "start": start_workload,
        "measure": lambda workload, calls: measure(works[workload], calls),
        "memory": lambda: {"peak": peak_bytes()},
        **extra,
    }
    for line in sys.stdin:
        entries = json.loads(line)
        try:
            answer = commands[entries.pop("command")](**entries)
        except Exception:
            # The process that asked reports it.
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
