"""Verification is judged: of the faults put into honest models, it must see nearly all."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

import onstage as ons
from onstage.export.lower import Lowered, lower_program
from onstage.export.verify import verify, verify_staged

from .mutants import Probe, mutants, program_mutants
from .random_programs import draw

CAUGHT = 0.99


class Honest(NamedTuple):
    name: str
    staged: Any
    lowered: Lowered
    arrays: list[Any]
    probe: Probe


def honest(seed: int) -> Honest:
    drawn = draw(seed)
    staged = ons.stage(drawn.function, *drawn.args)
    lowered = lower_program(staged.optimized[0], staged.in_names, staged.out_names)
    arrays = staged.signature.arrays(staged.signature.flatten(drawn.args, {}))
    constants = {t.name for t in lowered.model.graph.initializer}
    names = [n for n in dict.fromkeys((*lowered.values.values(), *staged.out_names)) if n not in staged.in_names and n not in constants]
    return Honest(drawn.name, staged, lowered, arrays, Probe(lowered.model, names, staged.in_names, arrays, seed))


def hunt(seeds: range, a_program: int) -> tuple[Counter[str], list[str]]:
    """(mutants by kind, those that were missed), with at most `a_program` mutants of each honest program."""
    tried: Counter[str] = Counter()
    missed: list[str] = []
    for seed in seeds:
        h = honest(seed)
        rng = np.random.default_rng(seed + 1000)
        found = list(mutants(h.lowered.model, h.arrays, rng, h.probe.dtypes, h.probe.shapes))
        for i in rng.permutation(len(found))[:a_program]:
            mutant = found[i]
            if not h.probe.is_fault(mutant.model):
                continue
            tried[mutant.kind] += 1
            try:
                verify_staged(h.staged, h.lowered, mutant.model.SerializeToString(), example=h.arrays)
            except ons.VerificationError:
                continue
            missed.append(f"{h.name}: {mutant.kind} at {mutant.node}")
    return tried, missed


def hunt_programs(seeds: range, a_program: int) -> tuple[Counter[str], list[str]]:
    """As `hunt`, with the fault made in the Program before it is lowered."""
    tried: Counter[str] = Counter()
    missed: list[str] = []
    for seed in seeds:
        h = honest(seed)
        program = h.staged.optimized[0]
        rng = np.random.default_rng(seed + 2000)
        found = list(program_mutants(program, rng))
        for i in rng.permutation(len(found))[:a_program]:
            kind, eqn, wrong = found[i]
            lowered = lower_program(wrong, h.staged.in_names, h.staged.out_names)
            # The values of the wrong model have names of their own: only its outputs can be compared by name.
            outputs = Probe(h.lowered.model, h.staged.out_names, h.staged.in_names, h.arrays, seed)
            if not outputs.is_fault(lowered.model):
                continue
            tried[kind] += 1
            try:
                verify(
                    program,
                    lowered.model.SerializeToString(),
                    values=lowered.values,
                    in_names=h.staged.in_names,
                    out_names=h.staged.out_names,
                    example=h.arrays,
                )
            except ons.VerificationError:
                continue
            missed.append(f"{h.name}: {kind} at {eqn.primitive.name}")
    return tried, missed


def assert_caught(tried: Counter[str], missed: list[str], at_least: int) -> None:
    total = sum(tried.values())
    assert total >= at_least, f"only {total} mutants were faults"
    assert len(missed) <= (1 - CAUGHT) * total, f"{len(missed)} of {total} mutants were missed:\n" + "\n".join(missed)


def test_faulty_models_are_caught() -> None:
    tried, missed = hunt(range(48), 9)
    assert_caught(tried, missed, 250)
    kinds = {
        "swapped operands",
        "wrong axis",
        "dropped term",
        "factor",
        "off-by-one slice",
        "lost precision",
        "constant-folded input",
    }
    assert kinds <= set(tried)


def test_faulty_programs_are_caught() -> None:
    assert_caught(*hunt_programs(range(48), 4), at_least=80)


@pytest.mark.slow
def test_many_faulty_models_are_caught() -> None:
    assert_caught(*hunt(range(100, 250), 30), at_least=2000)


@pytest.mark.slow
def test_many_faulty_programs_are_caught() -> None:
    assert_caught(*hunt_programs(range(100, 250), 20), at_least=700)
