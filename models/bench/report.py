"""The benchmark's result as text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

Result = Mapping[str, Any]
# Each kind of time against the faster of PyTorch's two modes at it.
BETTER: Final = "better torch"
_LABELS: Final = {"wall": "ms a call", "cpu": "CPU ms a call"}


def text(result: Result) -> str:
    """Tables: medians over the rounds; in brackets onstage's part of the peer's, the median of the ratios by round (below 1: onstage is faster)."""
    settings = result["settings"]
    systems: list[str] = settings["systems"]
    lines = [
        f"{settings['threads']} threads{' on CPUs of their own choice' if not settings['pinned'] else ''}, {settings['rounds']} rounds, {settings['size']} size, "
        f"{settings['cpu']}, load {_number(settings['busy'])} when it began"
        + (" -- quick: these figures say that it works, not how fast" if settings["quick"] else ""),
        "; ".join(f"{s} {', '.join(f'{n} {v}' for n, v in sorted(found.items()))}" for s, found in settings["versions"].items()),
        *[f"{s}: absent, {reason}" for s, reason in settings["missing"].items()],
    ]
    for name, found in result["workloads"].items():
        lines += ["", f"{name}  {found.get('title', '')}".rstrip()]
        if "failed" in found:
            lines.append(f"  failed: {found['failed'].splitlines()[-1]}")
        elif "parts" in found:
            for part, inner in found["parts"].items():
                kinds = [f"{state} {clock}" for state in ("cold", "warm") for clock in ("cpu", "wall")]
                labels = [f"{part} {kind}, ms" for kind in kinds]
                lines += _comparison(systems, inner, kinds, labels)
        elif "rows" in found:
            lines += _growth(found["rows"])
        elif "kinds" in found:
            lines += _comparison(systems, found, found["kinds"], [f"{kind}, ms" for kind in found["kinds"]])
        else:
            lines += _comparison(systems, found, list(_LABELS), list(_LABELS.values()), peak=True)
            if not found["agrees"]:
                lines.append("  THE SYSTEMS DISAGREE: " + "; ".join(f"{s} {v['values']}" for s, v in found["systems"].items()))
    return "\n".join(lines)


def _comparison(systems: Sequence[str], found: Result, kinds: Sequence[str], labels: Sequence[str], *, peak: bool = False) -> list[str]:
    """One row a kind of time, one column a system."""
    shown = [s for s in systems if s in found["systems"]]
    rows = [["", *shown]]
    for kind, label in zip(kinds, labels, strict=True):
        rows.append([label, *[_cell(found, system, kind) for system in shown]])
    better = found["ratios"].get(BETTER)
    if better:
        rows[0].append(BETTER)
        for row, kind in zip(rows[1:], kinds, strict=True):
            row.append(f"({better[kind]['median']:.2f})" if kind in better else "-")
    if peak:
        ours = found["systems"].get("onstage", {}).get("peak")
        row = ["peak MB", *[_memory(found["systems"][system]["peak"], ours, system) for system in shown]]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    return table(rows)


def _cell(found: Result, system: str, kind: str) -> str:
    values = found["systems"][system].get(kind)
    if values is None:
        return "-"
    ratio = found["ratios"].get(system, {}).get(kind)
    return _number(statistics.median(values) * 1e3) + (f" ({ratio['median']:.2f})" if ratio else "")


def _memory(peak: int | None, ours: int | None, system: str) -> str:
    if peak is None:
        return "-"
    return f"{peak / 1e6:.0f}" + (f" ({ours / peak:.2f})" if ours is not None and system != "onstage" else "")


def _growth(rows: Result) -> list[str]:
    phases = list(next(iter(rows.values()))["seconds"]) if rows else []
    cells = [["", "equations with gradient", "nodes", *[f"{p}, ms" for p in phases], "to the model, CPU us an equation"]]
    for name, row in rows.items():
        times = [_number(statistics.median(row["seconds"][p]) * 1e3) for p in phases]
        cells.append([name, str(row["equations"]["final"]), str(row["equations"]["nodes"]), *times, f"{row['per equation'] * 1e6:.0f}"])
    return table(cells)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two spaces apart, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]]).rstrip()
        for row in rows
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
