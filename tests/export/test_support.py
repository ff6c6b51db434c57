"""The support catalogue: rows that are known, and the page in the docs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onstage as ons
from onstage.export.catalogue import page, summary
from onstage.export.support import FLOATS, INTEGERS, callables
from onstage.export.support_examples import EXAMPLES
from onstage.ops.exclusions import EXCLUSIONS

PAGE = Path(__file__).parents[2] / "docs" / "support.md"


def row(name: str) -> Any:
    return ons.support([name])[0]


def test_rows_of_all_callables() -> None:
    rows = ons.support()
    names = [r.name for r in rows]
    assert len(names) == len(set(names)) > 330
    assert {"np.add", "np.histogram", "np.linalg.matrix_power", "ons.nn.relu", "ons.special.erf"} <= set(names)
    assert ons.support(["np.add"]) == [r for r in rows if r.name == "np.add"]
    with pytest.raises(KeyError, match=r"np\.nothing"):
        ons.support(["np.nothing"])


def test_every_registered_callable_has_a_call_that_fits() -> None:
    assert [r.name for r in ons.support() if r.note.startswith("no call")] == []
    assert all(r.cpu for r in ons.support() if r.stages)


def test_own_calls_are_of_callables_that_exist() -> None:
    functions = dict(callables())
    assert [n for n in EXAMPLES if n.startswith("np.") and n not in functions] == []


def test_what_rows_say() -> None:
    add = row("np.add")
    assert add.stages and add.gradient == "yes" and add.vmap and add.named_dims and add.cpu and add.cuda
    assert add.dtypes == {*FLOATS, *INTEGERS, "bool"} and add.integers
    assert row("np.argmax").gradient == "-"
    assert row("np.bitwise_and").dtypes == {*INTEGERS, "bool"}
    assert not row("np.tan").cuda and row("np.tan").without_cuda == ("Tan",)
    assert not row("np.vsplit").named_dims
    assert "size=" in row("np.unique").note and row("np.unique").stages
    copyto = row("np.copyto")
    assert not copyto.stages and copyto.note.startswith("mutation: changes its argument; use x.at[i].set(v)")


def test_excluded_callables_do_not_stage_and_the_others_do_or_say_so() -> None:
    functions = dict(callables())
    for r in ons.support():
        if functions[r.name] in EXCLUSIONS:
            assert not r.stages and EXCLUSIONS[functions[r.name]].reason in r.note


def test_the_page_in_the_docs_is_current() -> None:
    """Where this fails: `python -m onstage.export.catalogue > docs/support.md`."""
    text = PAGE.read_text(encoding="utf-8")
    rows = ons.support()
    assert summary(rows) in text
    listed = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert listed == [r.name for r in rows]


def test_the_generator_prints_the_page() -> None:
    result = subprocess.run([sys.executable, "-m", "onstage.export.catalogue"], capture_output=True, text=True, check=True)
    assert result.stdout == page(ons.support())
    assert result.stderr == ""
