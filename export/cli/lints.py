"""What in a graph often goes wrong later: said as warnings, whoever wrote the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...stage.dtypes import DType
from ...stage.errors import OnstageError
from .._lazy import onnx_defs
from ..kernels import CUDA, kernel_types
from ..signatures import signature
from .cost import Shapes

_MAX_F16: Final = 65504
# Results that leave float16's range for ordinary operands: exp(11.1), 256 squared, sums of squares.
_OVERFLOWING: Final = frozenset(
    ("Exp", "Pow", "ReduceL2", "ReduceProd", "ReduceSumSquare", "ReduceSum", "CumSum", "Cosh", "Sinh", "ReduceLogSumExp")
)
# Their derivatives are infinite or NaN somewhere, and 0 times that is NaN.
_SINGULAR: Final = frozenset(("Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Pow", "Reciprocal", "Sqrt"))
_SCATTERS: Final = frozenset(("ScatterElements", "ScatterND", "Scatter", "TensorScatter"))
# onstage names a node after its operation and the user's line.
_PRIMITIVE: Final = re.compile(r"(?:.*/)?(?P<primitive>[^/@]+)@.+:\d+")
_FOLDED: Final = frozenset({"Constant"})
"""They are no nodes any more when a session runs."""


@dataclass(frozen=True)
class Finding:
    """rule: its name; node: where; text: what may happen and the way out."""

    rule: str
    node: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.node}: {self.text}"


def lint(graph: Any, opset: int, dtypes: Mapping[str, DType], shapes: Shapes) -> list[Finding]:
    """All findings of a graph whose dtypes, and shapes where they are known, were inferred; inner graphs are not looked into."""
    makers = {name: node for node in graph.node for name in node.output if name}
    constant = {t.name for t in graph.initializer} | {n for n, node in makers.items() if node.op_type == "Constant"}
    found: list[Finding] = []
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        found += _overflow(node, dtypes, shapes, makers)
        found += _where(node, makers, constant)
        found += _scatter(node, constant)
        found += _no_cuda(node, opset, dtypes)
    return found


def name_of(node: Any) -> str:
    return f"{node.op_type} {node.name or next((n for n in node.output if n), '')}".strip()


def _overflow(node: Any, dtypes: Mapping[str, DType], shapes: Shapes, makers: Mapping[str, Any]) -> Iterator[Finding]:
    if node.op_type not in _OVERFLOWING or not node.output:
        return
    dtype = dtypes.get(node.output[0])
    if dtype is None or dtype.name != "float16":
        return
    source = makers.get(node.input[0])
    # exp(x - max(x)) cannot overflow; whether a Sub is that one is not looked into.
    if node.op_type == "Exp" and source is not None and source.op_type in ("Sub", "Neg"):
        return
    yield Finding("f16-overflow", name_of(node), f"float16 ends at {_MAX_F16:,}; compute it in float32 and cast back")


def _where(node: Any, makers: Mapping[str, Any], constant: set[str]) -> Iterator[Finding]:
    made_by = _PRIMITIVE.match(node.name)
    # In a file of ours a Where inside of another operation is differentiated with it, by that operation's own rule.
    if node.op_type != "Where" or (made_by is not None and made_by["primitive"] != "where"):
        return
    for operand in node.input[1:3]:
        maker = makers.get(operand)
        if maker is None or maker.op_type not in _SINGULAR:
            continue
        # Where the operand itself was made safe, by a Where, Max, Clip or a constant divisor, nothing leaks.
        risky = maker.input[1] if maker.op_type == "Div" else maker.input[0]
        guard = makers.get(risky)
        if risky in constant or (guard is not None and guard.op_type in ("Where", "Max", "Clip", "Exp", "Softplus", "Sigmoid", "Add")):
            continue
        yield Finding(
            "where-nan-gradient",
            name_of(node),
            f"a branch comes from {name_of(maker)}, whose derivative may be infinite where it is not chosen, and 0 times that is NaN; "
            f"choose a safe operand by a where before the {maker.op_type} too",
        )


def _scatter(node: Any, constant: set[str]) -> Iterator[Finding]:
    if node.op_type not in _SCATTERS or len(node.input) < 2:
        return
    reduction = next((a.s.decode() for a in node.attribute if a.name == "reduction"), "none")
    if reduction == "none" and node.input[1] not in constant:
        yield Finding(
            "scatter-race", name_of(node), "with repeated indices any of the values may win; make them unique, or give it a reduction"
        )
    elif reduction in ("add", "mul"):
        yield Finding(
            "scatter-order",
            name_of(node),
            f"with repeated indices a GPU may reduce ({reduction}) in another order at each run, so that the last digits differ",
        )


def _no_cuda(node: Any, opset: int, dtypes: Mapping[str, DType]) -> Iterator[Finding]:
    if node.op_type in _FOLDED or not onnx_defs.has(node.op_type):
        return
    try:
        types = signature(node.op_type, opset)
        needed: dict[str, DType] = {}
        for names, type_of in ((node.input, types.input_type), (node.output, types.output_type)):
            _constraints(names, type_of, dtypes, needed)
        for constraint, dtype in needed.items():
            known = kernel_types(node.op_type, opset, CUDA, constraint)
            if dtype.name not in known:
                yield Finding(
                    "no-cuda-kernel", name_of(node), f"ONNX Runtime has no CUDA kernel for {dtype.name}; it runs on the CPU, with copies"
                )
                return
    except (ValueError, OnstageError, onnx_defs.SchemaError):
        return  # outside of the kernel table


def _constraints(names: Any, type_of: Callable[[int], str], dtypes: Mapping[str, DType], needed: dict[str, DType]) -> None:
    for i, name in enumerate(names):
        constraint = type_of(i)
        if name in dtypes and not constraint.startswith(("tensor(", "seq(", "optional(")):
            needed.setdefault(constraint, dtypes[name])
