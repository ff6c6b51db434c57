"""The support catalogue as a page: `python -m onstage.export.catalogue > docs/support.md`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .support import FLOATS, INTEGERS, SupportRow, support

_HEADER = """# What is supported

Written by `python -m onstage.export.catalogue > docs/support.md`; never by hand. `ons.support()` gives the same rows.

A row is one callable, called as in NumPy with a traced array. Each was run: **stages** says whether it can be recorded; **gradient**
whether its reverse mode can be made ("-": no result is floating); **vmap** whether it can be batched; the dtypes and **ints** (all eight
integer dtypes, or those that are named) whether it is recorded and lowered with them; **named dims** whether a size may be a name; **CPU**
whether ONNX Runtime's CPU provider runs what it is lowered to; **CUDA** whether its CUDA provider has a kernel for every operator of that,
in single precision where it takes it, or else which have none and run on the CPU.
"""
_COLUMNS = ("callable", "stages", "gradient", "vmap", "f16", "bf16", "f32", "f64", "ints", "bool", "named dims", "CPU", "CUDA", "note")


def page(rows: Sequence[SupportRow]) -> str:
    """The catalogue in Markdown: a summary, then a table with a line a row."""
    lines = [_HEADER, summary(rows), "", _line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    return "\n".join([*lines, *(_line(_cells(row)) for row in rows)]) + "\n"


def summary(rows: Sequence[SupportRow]) -> str:
    """How many rows there are, and how many of them do what."""
    staged = [row for row in rows if row.stages]
    floating = [row for row in staged if row.gradient != "-"]
    counts = {
        "with gradient": f"{sum(row.gradient == 'yes' for row in floating)} of the {len(floating)} with floating results",
        "with vmap": sum(row.vmap for row in staged),
        "with named dims": sum(row.named_dims for row in staged),
        "all on CUDA": sum(row.cuda for row in staged),
    }
    return f"{len(rows)} callables, {len(staged)} staged: " + ", ".join(f"{n} {what}" for what, n in counts.items()) + "."


def _cells(row: SupportRow) -> list[str]:
    if not row.stages:
        return [f"`{row.name}`", "no", *[""] * (len(_COLUMNS) - 3), row.note]
    integers = [d for d in INTEGERS if d in row.dtypes]
    return [
        f"`{row.name}`",
        "yes",
        row.gradient,
        _mark(row.vmap),
        *(_mark(dtype in row.dtypes) for dtype in FLOATS),
        "yes" if row.integers else " ".join(integers) or "no",
        _mark("bool" in row.dtypes),
        _mark(row.named_dims),
        _mark(row.cpu),
        "yes" if row.cuda else "no: " + ", ".join(row.without_cuda),
        row.note,
    ]


def _mark(flag: bool) -> str:
    return "yes" if flag else "no"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(page(support()))
