"""The processes of the systems that are compared: how they are started and asked."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

# The folder that holds this package: from there a peer's process imports it without onstage, whose memory would count as the peer's.
_MODELS: Final = Path(__file__).resolve().parent.parent
ANSWER_SECONDS: Final = 1800.0


class System(NamedTuple):
    """needs: the package that must be installed; module: what its process runs."""

    needs: str
    module: str


SYSTEMS: Final = {
    "onstage": System("onstage", "onstage.models.bench.run_onstage"),
    "jax": System("jax", "bench.run_jax"),
    "torch": System("torch", "bench.run_torch"),
    "torch.compile": System("torch", "bench.run_torch_compiled"),
}


class BenchError(RuntimeError):
    """A system failed at a workload, or its process ended."""


def installed(system: str) -> bool:
    return importlib.util.find_spec(SYSTEMS[system].needs) is not None


def limit_cpus(threads: int) -> bool:
    """Keep this process and those it starts to that many CPUs; False where the operating system cannot.

    Raises ValueError where there are fewer.
    """
    if not hasattr(os, "sched_setaffinity"):
        available = os.cpu_count() or 1
    else:
        available = len(os.sched_getaffinity(0))
    if threads > available:
        raise ValueError(f"--threads {threads}: this process may use {available} CPUs only")
    if not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return True


def environment(threads: int, pinned: bool, cache: Path) -> dict[str, str]:
    """Equal settings for all: threads, the CPU, caches in a folder of their own."""
    values = dict(os.environ)
    # It would choose NumPy's kernels for another machine.
    values.pop("OPENBLAS_CORETYPE", None)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"):
        values[name] = str(threads)
    if not pinned:
        values["ONSTAGE_THREADS"] = str(threads)
    values["JAX_PLATFORMS"] = "cpu"
    values["ONSTAGE_PROVIDER"] = "cpu"
    values["CUDA_VISIBLE_DEVICES"] = ""
    values["ONSTAGE_CACHE_DIR"] = str(cache / "onstage")
    values["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "torch")
    values["JAX_COMPILATION_CACHE_DIR"] = str(cache / "jax")
    values["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    values["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return values


class Process:
    """A running system; a context manager that ends it."""

    def __init__(self, system: str, size: str, settings: dict[str, str]) -> None:
        self.system = system
        command = [sys.executable, "-m", SYSTEMS[system].module, size]
        if system != "onstage":
            settings = {**settings, "PYTHONPATH": os.pathsep.join(filter(None, (str(_MODELS), settings.get("PYTHONPATH"))))}
            command.insert(1, "-P")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings, encoding="utf-8")
        assert self._process.stdin is not None and self._process.stdout is not None
        self._questions: IO[str] = self._process.stdin
        self._answers: IO[str] = self._process.stdout

    def ask(self, command: str, **entries: Any) -> dict[str, Any]:
        """The answer to a command. Raises BenchError where it failed."""
        timer = threading.Timer(ANSWER_SECONDS, self._process.kill)
        timer.start()
        try:
            print(json.dumps({"command": command, **entries}), file=self._questions, flush=True)
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        what = f"{self.system}: {command} {' '.join(map(str, entries.values()))}".rstrip()
        if not line:
            raise BenchError(f"{what}: its process ended with {self._process.wait()} (stopped after {ANSWER_SECONDS:.0f} s at the latest)")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchError(f"{what}:\n{answer['error']}")
        return answer

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        try:
            self._questions.close()
        except BrokenPipeError:
            # The process is gone already, which is what closing is for.
            self._process.kill()
        self._process.wait()
        self._answers.close()
