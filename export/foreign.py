"""What a file holds beside the standard operators of its opset: other domains, and ONNX functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..stage.errors import ProgramError, UnsupportedError
from ._lazy import onnx_defs

if TYPE_CHECKING:
    from .builder import Builder


def import_domain(b: Builder, op_type: str, domain: str, version: int) -> None:
    """Note that the model uses a domain. UnsupportedError where the target does not have it, or it is used at another version too."""
    if domain == "com.microsoft" and b.target != "onnxruntime":
        raise UnsupportedError(f'{op_type} is an op of ONNX Runtime alone; lower with target="onnxruntime" to use it')
    if b.domains.setdefault(domain, version) != version:
        raise UnsupportedError(f"{op_type}: versions {version} and {b.domains[domain]} of the domain {domain!r} in one file")


def add_function(b: Builder, function: Any, operands: int, outputs: int, attributes: Mapping[str, Any]) -> None:
    """Put a FunctionProto into the model, once. ProgramError for a call that it does not take."""
    known = next((f for f in b.model.functions if (f.domain, f.name) == (function.domain, function.name)), None)
    if known is None:
        b.model.functions.append(function)
    elif known != function:
        raise UnsupportedError(f"two different ONNX functions {function.domain}:{function.name} in one file; give one of them another name")
    if operands > len(function.input) or outputs > len(function.output):
        raise ProgramError(
            f"the ONNX function {function.name} takes {len(function.input)} operands and gives {len(function.output)} results; "
            f"it is called with {operands} for {outputs}"
        )
    taken = {*function.attribute, *(a.name for a in function.attribute_proto)}
    for key in attributes:
        if key not in taken:
            raise ProgramError(f"the ONNX function {function.name} has no attribute {key!r}")
    for needed in function.opset_import:
        if needed.domain:
            import_domain(b, function.name, needed.domain, needed.version)


def require_operator(b: Builder, op_type: str, version: int) -> None:
    """See `Builder.require_operator`."""
    meant, here = _since(op_type, version), _since(op_type, b.opset)
    if meant != here:
        b.require(version)
        raise UnsupportedError(
            f"ONNX {op_type} of opset {version} was last changed in opset {meant}, and in {here} for opset {b.opset}, which is written here; "
            f"declare it with version={here}, or ask for an opset below"
        )


def _since(op_type: str, version: int) -> int:
    if not onnx_defs.has(op_type):
        raise UnsupportedError(f"{op_type} is no standard ONNX operator; give the domain it is from")
    try:
        return onnx_defs.get_schema(op_type, version, "").since_version
    except onnx_defs.SchemaError:
        raise UnsupportedError(f"ONNX {op_type} is not in opset {version}") from None
