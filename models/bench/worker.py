"""One system in its own process: `python -m onstage.models.bench.worker SYSTEM THREADS`, driven by lines on standard input.

`step N` runs N steps and answers with their median wall and CPU seconds; each answer is one line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib.util import find_spec
from typing import Any

from .systems import SYSTEMS, staging_costs


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    if name != "onstage" and find_spec(name) is None:
        answer({"missing": name})
        return
    phases, step = SYSTEMS[name](threads)
    answer({"phases": phases, "staging": staging_costs() if name == "onstage" else {}})
    for line in sys.stdin:
        count = int(line.split()[1])
        times: list[float] = []
        loss = 0.0
        cpu = time.process_time()
        for _ in range(count):
            start = time.perf_counter()
            loss = step()
            times.append(time.perf_counter() - start)
        cpu = (time.process_time() - cpu) / count
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer({"wall": sorted(times)[count // 2], "cpu": cpu, "loss": loss, "peak_mib": peak})


def answer(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
