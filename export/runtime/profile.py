"""Where a program's time goes: ONNX Runtime's profile, by operator and by the user's line."""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LINE = re.compile(r"(?P<scope>.*/)?(?P<primitive>[^/@]+)@(?P<line>.+:\d+)(_\d+)?$")
_RUNS = 5


@dataclass(frozen=True)
class ProfileRow:
    """Time of one group of nodes in one run: microseconds, how many nodes, and their share of all."""

    name: str
    microseconds: float
    nodes: int
    share: float


@dataclass(frozen=True)
class Profile:
    """Tables of one run: by operator, and by source line (nodes that the optimiser fused stand under their own names)."""

    by_operator: tuple[ProfileRow, ...]
    by_line: tuple[ProfileRow, ...]
    microseconds: float
    provider: str

    def __str__(self) -> str:
        parts = [f"{self.microseconds:.0f} us in kernels on {self.provider}"]
        for title, rows in (("operator", self.by_operator), ("line", self.by_line)):
            width = max([len(title), *(len(r.name) for r in rows)])
            parts.append(f"{title:<{width}}  {'us':>10}  {'share':>6}  nodes")
            parts += [f"{r.name:<{width}}  {r.microseconds:>10.1f}  {r.share:>6.1%}  {r.nodes}" for r in rows]
        return "\n".join(parts)


def profile_session(make: Callable[[str], Any], run: Callable[[Any], object]) -> Profile:
    """Profile a session: make(prefix) makes it with profiling on, run(session) runs it. The first run is not counted."""
    with tempfile.TemporaryDirectory(prefix="onstage-profile-") as folder:
        session = make(str(Path(folder) / "profile"))
        for _ in range(_RUNS + 1):
            run(session)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        provider = str(session.get_providers()[0])
    return _tables(events, provider)


def _tables(events: list[dict[str, Any]], provider: str) -> Profile:
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            durations[name.removesuffix("_kernel_time"), str(event["args"].get("op_name", "?"))].append(float(event["dur"]))
    nodes = {key: sum(times[1:]) / max(len(times) - 1, 1) for key, times in durations.items()}
    total = sum(nodes.values())
    return Profile(
        _grouped({key: key[1] for key in nodes}, nodes, total),
        _grouped({key: _line(key[0]) for key in nodes}, nodes, total),
        total,
        provider,
    )


def _grouped(names: dict[tuple[str, str], str], nodes: dict[tuple[str, str], float], total: float) -> tuple[ProfileRow, ...]:
    groups: dict[str, list[float]] = defaultdict(list)
    for key, time in nodes.items():
        groups[names[key]].append(time)
    rows = [ProfileRow(name, sum(times), len(times), sum(times) / total if total else 0.0) for name, times in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.microseconds, row.name)))


def _line(node: str) -> str:
    found = _LINE.match(node)
    return node if found is None else f"{found['line']} {found['scope'] or ''}{found['primitive']}"
