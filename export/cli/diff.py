"""`onstage diff`: how two ONNX files differ, in structure, weights and results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from ...stage.dtypes import is_float
from ..verification.compare import same_bits
from .comparison import OutputRow, compare_outputs
from .console import Console, verb
from .model import OnnxFile, Value, input_arrays, open_session
from .options import dim_option, inputs_option, level_option, provider_option, seed_option

_SHOWN = 20


@click.command()
@click.argument("first", metavar="A", type=click.Path(exists=True, dir_okay=False))
@click.argument("second", metavar="B", type=click.Path(exists=True, dir_okay=False))
@inputs_option
@dim_option
@seed_option
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative; by default 1e-4 for float32, 1e-9 for float64, 1e-2 for float16.")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute; by default rtol times the output's largest element.")
@click.option("--strict", is_flag=True, help="Exit with 1 where nodes or weights differ, too.")
@provider_option
@level_option
@verb
def diff(
    console: Console,
    first: str,
    second: str,
    inputs: str | None,
    dims: tuple[str, ...],
    seed: int,
    rtol: float | None,
    atol: float | None,
    strict: bool,
    provider: str,
    level: str,
) -> bool:
    """Compare any two ONNX files.

    Nodes and weights by name, then the outputs of both on the same inputs. Exits with 1 where the signatures or the outputs differ:
    the same function may be written in other nodes.

    \b
      onstage diff old.onnx new.onnx --dim B=8
      onstage diff old.onnx new.onnx --inputs in.npz --rtol 1e-3 --strict
    """
    a, b = OnnxFile(first), OnnxFile(second)
    with console.phase("comparing structure"):
        signature = [*_values("input", a.inputs, b.inputs), *_values("output", a.outputs, b.outputs)]
        nodes = _nodes(a, b)
    with console.phase("comparing weights"):
        weights = _weights(a, b)
    rows: list[OutputRow] = []
    # Where the two take other inputs there is nothing to run both on.
    comparable = {v.name: v.dtype for v in a.inputs} == {v.name: v.dtype for v in b.inputs}
    if comparable:
        with console.phase("comparing outputs"):
            arrays = input_arrays(a, inputs, dims, default=3, seed=seed)
            got, reference = (open_session(m, level=level, provider=provider)(arrays) for m in (b, a))
            rows = compare_outputs(got, reference, rtol=rtol, atol=atol)
    differs = bool(signature) or not comparable or any(not r.agrees for r in rows)
    ok = not differs and not (strict and (nodes or weights))
    data = {
        "a": first,
        "b": second,
        "signature": signature,
        "nodes": nodes,
        "weights": weights,
        "outputs": [{"name": r.name, "agrees": r.agrees, "error": r.error, "tolerance": r.tolerance, "problem": r.problem} for r in rows],
        "outputs_compared": comparable,
    }
    parts = [_section("signature", signature), _section("nodes", nodes), _section("weights", weights)]
    parts.append(_section("outputs", [str(r) for r in rows], "none" if comparable else "not compared, the inputs differ"))
    console.result(data, "\n".join(parts), ok=ok)
    return ok


def _values(kind: str, a: Sequence[Value], b: Sequence[Value]) -> list[str]:
    """Names, dtypes and fixed sizes; what sizes are called makes no difference."""
    first, second = {v.name: v for v in a}, {v.name: v for v in b}
    found = [f"- {kind} {n}: {v}" for n, v in first.items() if n not in second]
    found += [f"+ {kind} {n}: {v}" for n, v in second.items() if n not in first]
    for name, value in first.items():
        other = second.get(name)
        if other is not None and _fixed(value) != _fixed(other):
            found.append(f"~ {kind} {name}: {value} against {other}")
    if not found and list(first) != list(second):
        found.append(f"~ {kind}s in another order: {', '.join(first)} against {', '.join(second)}")
    return found


def _fixed(value: Value) -> Any:
    shape = None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
    return value.kind, value.dtype, shape


def _nodes(a: OnnxFile, b: OnnxFile) -> list[str]:
    first, second = _by_name(a.proto.graph.node), _by_name(b.proto.graph.node)
    found = [f"- {n}: {node.op_type}" for n, node in first.items() if n not in second]
    found += [f"+ {n}: {node.op_type}" for n, node in second.items() if n not in first]
    for name, node in first.items():
        other = second.get(name)
        if other is not None:
            changes = _changes(node, other)
            if changes:
                found.append(f"~ {name}: {'; '.join(changes)}")
    opsets = [{o.domain or "ai.onnx": o.version for o in m.proto.opset_import} for m in (a, b)]
    if opsets[0] != opsets[1]:
        found.insert(0, f"~ opsets: {opsets[0]} against {opsets[1]}")
    return found


def _by_name(nodes: Any) -> dict[str, Any]:
    """By name, by the first output where there is none; repeated names get a number."""
    seen: Counter[str] = Counter()
    found: dict[str, Any] = {}
    for node in nodes:
        name = node.name or next((n for n in node.output if n), node.op_type)
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = node
    return found


def _changes(a: Any, b: Any) -> list[str]:
    changes: list[str] = []
    if (a.domain, a.op_type) != (b.domain, b.op_type):
        changes.append(f"{a.op_type} against {b.op_type}")
    for what, x, y in (("inputs", a.input, b.input), ("outputs", a.output, b.output)):
        if list(x) != list(y):
            changes.append(f"{what} {', '.join(x)} against {', '.join(y)}")
    first, second = ({t.name: t.SerializeToString(deterministic=True) for t in n.attribute} for n in (a, b))
    other = sorted(n for n in first.keys() | second.keys() if first.get(n) != second.get(n))
    if other:
        changes.append(f"other {', '.join(other)}")
    return changes


def _weights(a: OnnxFile, b: OnnxFile) -> list[str]:
    first, second = ({t.name: t for t in m.proto.graph.initializer} for m in (a, b))
    found = [f"- {n}: {list(t.dims)}" for n, t in first.items() if n not in second]
    found += [f"+ {n}: {list(t.dims)}" for n, t in second.items() if n not in first]
    for name in first.keys() & second.keys():
        x, y = a.weight(first[name]), b.weight(second[name])
        if x.dtype != y.dtype or x.shape != y.shape:
            found.append(f"~ {name}: {x.dtype.name}{list(x.shape)} against {y.dtype.name}{list(y.shape)}")
        elif not same_bits(x, y) and (is_float(x.dtype) or x.dtype.kind in "iub"):
            with np.errstate(all="ignore"):
                apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
            found.append(f"~ {name}: {int(np.count_nonzero(apart != 0))} of {x.size} elements differ, by up to {float(apart.max()):.3g}")
        elif not same_bits(x, y):
            found.append(f"~ {name}: other values")
    return sorted(found)


def _section(title: str, lines: Sequence[str], empty: str = "equal") -> str:
    if not lines:
        return f"{title}: {empty}"
    more = [f"  ... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines[:_SHOWN]), *more])
