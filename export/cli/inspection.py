"""`onstage inspect`: what is in an ONNX file."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import Any, Final

import click

from ...stage.errors import OnstageError
from ..load import data_reader, restore
from ..metadata import PREFIX
from .console import Console, table, verb
from .cost import Cost, all_nodes, estimate
from .model import OnnxFile, bytes_text, check_sizes, read_sizes, tensor_bytes, value_shapes, with_sizes
from .options import dim_option, model_argument

_LINE: Final = re.compile(r"(?:.*/)?[^/@]+@(?P<line>.+:\d+)(?:_\d+)?")


@click.command("inspect")
@model_argument
@dim_option
@verb
def inspect_model(console: Console, model_path: str, dims: tuple[str, ...]) -> None:
    """Show what is in any ONNX file: signature, operators, FLOPs, parameters, memory, source lines.

    FLOPs and memory are estimates at the sizes of --dim, 1 for dims that are not given: memory without the reuse and fusion of a
    runtime, bodies of loops and branches not counted. A file that onstage wrote shows its argument trees and source lines too.

    \b
      onstage inspect step.onnx --dim B=64
      onstage inspect resnet50.onnx --json
    """
    model = OnnxFile(model_path)
    sizes = read_sizes(dims)
    check_sizes(model, sizes)
    graph = model.proto.graph
    parameters = sum(math.prod(t.dims) for t in graph.initializer)
    parameter_bytes = sum(tensor_bytes(t) for t in graph.initializer)
    with console.phase("inferring shapes"):
        inferred = with_sizes(model, sizes, 1)
        cost = estimate(inferred.graph, value_shapes(inferred), parameter_bytes)
    ours = _ours(console, model)
    histogram = Counter(f"{n.domain}:{n.op_type}" if n.domain else n.op_type for n in all_nodes(graph))
    lines = _by_line(graph, cost)
    data: dict[str, Any] = {
        "path": model_path,
        "bytes": len(model.data),
        "producer": f"{model.proto.producer_name} {model.proto.producer_version}".strip(),
        "ir_version": model.proto.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in model.proto.opset_import},
        "inputs": {v.name: str(v) for v in model.inputs},
        "outputs": {v.name: str(v) for v in model.outputs},
        "nodes": sum(histogram.values()),
        "operators": dict(histogram.most_common()),
        "parameters": parameters,
        "parameter_bytes": parameter_bytes,
        "external_data": model.is_external,
        "sizes": {n: sizes.get(n, 1) for n in model.dim_names()},
        "flops": cost.flops,
        "flops_not_counted": dict(cost.uncounted),
        "bodies_not_counted": cost.bodies,
        "peak_bytes": cost.peak,
        "values_of_unknown_size": cost.unknown_shapes,
        "source_lines": [{"line": line, "nodes": nodes, "flops": flops} for line, nodes, flops in lines],
        **({"onstage": ours} if ours else {}),
    }
    console.result(data, _text(data, lines))


def _ours(console: Console, model: OnnxFile) -> dict[str, Any] | None:
    """The signature and metadata of a file that onstage wrote."""
    if not model.is_ours:
        return None
    about: dict[str, Any] = {"version": model.properties.get(PREFIX + "version"), "hash": model.properties.get(PREFIX + "hash")}
    try:
        restored = restore(model.data, data_reader(model.path), model.path)
    except OnstageError as error:
        console.warn(f"its onstage metadata cannot be read: {error.message}")
        return about
    staged = restored.staged
    arguments = dict(zip(staged.signature.dynamic_names, staged.in_specs, strict=True))
    return {
        **about,
        "name": staged.name,
        "arguments": {name: repr(value) for name, value in arguments.items()},
        "result": repr(staged.out_specs),
        "equations": len(staged.program.equations),
        "verified": restored.verification["verified"],
    }


def _by_line(graph: Any, cost: Cost) -> list[tuple[str, int, int]]:
    """(line, nodes, FLOPs), the most FLOPs first."""
    nodes: Counter[str] = Counter()
    flops: defaultdict[str, int] = defaultdict(int)
    for i, node in enumerate(graph.node):
        found = _LINE.fullmatch(node.name)
        if found is not None:
            nodes[found["line"]] += 1
            flops[found["line"]] += cost.flops_by_node.get(i, 0)
    return sorted(((line, count, flops[line]) for line, count in nodes.items()), key=lambda row: (-row[2], -row[1], row[0]))


def _text(data: dict[str, Any], lines: list[tuple[str, int, int]]) -> str:
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items())
    parts = [f"{data['path']}: {bytes_text(data['bytes'])}, {data['producer'] or 'unknown producer'}, IR {data['ir_version']}, {opsets}"]
    for title in ("inputs", "outputs"):
        parts.append(table((title[:-1], "spec"), list(data[title].items())))
    if "onstage" in data:
        ours = data["onstage"]
        parts.append("\n".join(f"{key}: {value}" for key, value in ours.items() if key not in ("arguments", "result")))
        if "arguments" in ours:
            rows = [*ours["arguments"].items(), ("-> result", ours["result"])]
            parts.append(table(("argument", "tree"), rows))
    parts.append(table(("operator", "nodes"), list(data["operators"].items())) + f"\n{data['nodes']} nodes")
    sizes = ", ".join(f"{n}={s}" for n, s in data["sizes"].items())
    facts = [
        f"parameters: {data['parameters']:,} ({bytes_text(data['parameter_bytes'])}{', beside the model' if data['external_data'] else ''})",
        f"FLOPs: {data['flops']:,}{f' at {sizes}' if sizes else ''}",
        f"peak memory: {bytes_text(data['peak_bytes'])}",
    ]
    if data["flops_not_counted"]:
        facts.append(f"FLOPs not counted: {', '.join(f'{n} {op}' for op, n in data['flops_not_counted'].items())}")
    if data["bodies_not_counted"]:
        facts.append(f"loops and branches, whose bodies are not counted: {data['bodies_not_counted']}")
    if data["values_of_unknown_size"]:
        facts.append(f"values whose size could not be inferred, missing in the memory: {data['values_of_unknown_size']}")
    parts.append("\n".join(facts))
    if lines:
        parts.append(table(("source line", "nodes", "FLOPs"), [(line, n, f"{f:,}") for line, n, f in lines]))
    return "\n\n".join(parts)
