"""Writes kernels.json: `python -m onstage.export.make_kernels kernels.csv --runtime 1.31.1`.

The CSV is a dump of ONNX Runtime's kernel registry, a row for each kernel and type constraint, with the columns provider,
domain, op, from, to, constraint, types. What a row means at an opset is worked out here, so that a query is a look-up:

- The version of an op at an opset is the opset that defined it last (`since_version`). A kernel [from, to] serves it if it
  lies in between; but an open-ended kernel serves only ops that were defined at `from` itself.
- A constraint that a kernel does not name admits every type of the op's schema.
"""

import argparse
import csv
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import onnx.defs

OPSETS = range(18, 25)
DOMAINS = ("", "com.microsoft")
PROVIDERS = ("CPUExecutionProvider", "CUDAExecutionProvider")
OPEN_END = 2147483647
# NumPy's and ml_dtypes' names, where they are not ONNX's.
NUMPY_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
}

Versions = tuple[int, int]


def tensor_types(text: str) -> set[str]:
    """The dtypes in `tensor(float) seq(tensor(float)) ...`, without sequences, optionals, maps and complex numbers."""
    names = (re.fullmatch(r"tensor\((?!complex)(\w+)\)", word) for word in text.split())
    return {NUMPY_NAMES.get(m[1], m[1]) for m in names if m}


def serves(kernel: Versions, since: int) -> bool:
    """Whether a kernel of these versions implements an op defined at `since`, as ONNX Runtime decides it."""
    first, last = kernel
    return first == since or (first < since <= last and last != OPEN_END)


def read_kernels(path: Path) -> dict[tuple[str, str, str], dict[Versions, dict[str, set[str]]]]:
    """(provider, domain, op) -> versions -> constraint -> dtypes."""
    kernels: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["provider"] not in PROVIDERS or row["domain"] not in DOMAINS:
                continue
            versions = kernels[row["provider"], row["domain"], row["op"]][int(row["from"]), int(row["to"])]
            if row["constraint"]:
                versions[row["constraint"]] |= tensor_types(row["types"])
    return kernels


def schemas() -> dict[str, dict[int, onnx.defs.OpSchema]]:
    """Op -> since_version -> schema, for the standard ops of the opsets covered."""
    found: dict[str, dict[int, onnx.defs.OpSchema]] = defaultdict(dict)
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    for name in sorted(names):
        for opset in OPSETS:
            if onnx.defs.has(name, max_inclusive_version=opset):
                schema = onnx.defs.get_schema(name, opset)
                if not schema.deprecated:
                    found[name][schema.since_version] = schema
    return found


def resolve(kernels: dict[Versions, dict[str, set[str]]], since: int, allowed: dict[str, set[str]] | None) -> dict[str, set[str]]:
    """Constraint -> the dtypes that some kernel serves; `allowed` is what the schema says, None where it is unknown."""
    result: dict[str, set[str]] = defaultdict(set)
    for versions, constraints in kernels.items():
        if not serves(versions, since):
            continue
        for name in {*constraints, *(allowed or {})}:
            types = constraints.get(name)
            limit = None if allowed is None else allowed.get(name)
            if types is None:
                result[name] |= limit or set()
            else:
                result[name] |= types if limit is None else types & limit
    return result


def functions(versions: dict[int, onnx.defs.OpSchema]) -> list[int]:
    """The versions of an op that the standard also defines by other ops."""
    marks = ("has_function", "has_context_dependent_function")  # absent from onnx's type stubs
    return [since for since, s in sorted(versions.items()) if any(getattr(s, mark) for mark in marks)]


def build(path: Path, runtime: str) -> dict[str, Any]:
    """The table as the JSON value that kernels.py reads."""
    kernels = read_kernels(path)
    standard = schemas()
    constraints = {
        op: {
            since: {c.type_param_str: tensor_types(" ".join(c.allowed_type_strs)) for c in s.type_constraints}
            for since, s in versions.items()
        }
        for op, versions in standard.items()
    }
    sets: dict[str, int] = {}

    def number(types: set[str]) -> int:
        return sets.setdefault(" ".join(sorted(types)), len(sets))

    table: dict[str, Any] = {provider: {domain: {} for domain in DOMAINS} for provider in PROVIDERS}
    for (provider, domain, op), by_versions in sorted(kernels.items()):
        schema_types = constraints.get(op, {}) if domain == "" else {1: None}
        rows = {
            str(since): {name: number(types) for name, types in sorted(found.items())}
            for since, allowed in sorted(schema_types.items())
            if (found := resolve(by_versions, since, allowed))
        }
        if rows:
            table[provider][domain][op] = rows
    return {
        "onnxruntime": runtime,
        "opsets": [OPSETS.start, OPSETS.stop - 1],
        "since": {op: sorted(versions) for op, versions in sorted(standard.items())},
        "functions": {op: found for op, versions in sorted(standard.items()) if (found := functions(versions))},
        "types": list(sets),
        "kernels": table,
    }


def dump(table: dict[str, Any]) -> str:
    """Compact, with a line for each op, so that a change of the table reads well as a diff."""
    lines: list[str] = []

    def write(value: Any, prefix: str, depth: int, suffix: str) -> None:
        if depth == 0 or not value or not isinstance(value, dict | list):
            lines.append(prefix + json.dumps(value, separators=(",", ":")) + suffix)
            return
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        lines.append(prefix + opening)
        pairs = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
        for i, (key, item) in enumerate(pairs):
            label = "" if key is None else json.dumps(key) + ":"
            deeper = 3 if key == "kernels" else depth - 1
            write(item, label, deeper, "," if i + 1 < len(pairs) else "")
        lines.append(closing + suffix)

    write(table, "", 2, "")
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--runtime", required=True, help="the version of ONNX Runtime that the CSV was taken from")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("kernels.json"))
    arguments = parser.parse_args()
    arguments.output.write_text(dump(build(arguments.csv, arguments.runtime)), encoding="utf-8")


if __name__ == "__main__":
    main()
