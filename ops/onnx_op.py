"""Any ONNX operator as a primitive: standard ones, ONNX Runtime's own, and those of a user's custom-operator library."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage import tree
from ..stage.backend import Operator, backend
from ..stage.errors import SignatureTypeError
from ..stage.narrowing import is_list, is_tuple
from ..stage.spec import spec_of
from .custom import CustomPrimitive
from .custom_call import Declaration, Rules
from .custom_values import AbstractValue
from .operands import operand


def onnx_op(
    domain: str,
    op_type: str,
    *,
    version: int,
    abstract: Callable[..., Any],
    library: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> CustomPrimitive:
    """An ONNX operator as a primitive: `op(*arrays, **attributes)`, with None for an absent optional operand.

    domain: "" (or "ai.onnx") for the standard operators, "com.microsoft" for ONNX Runtime's own, which files may hold that are lowered
    with target="onnxruntime". version: the domain's opset that the operator is meant of. abstract(*values, **attributes) -> spec, or a
    tree of specs in the order of the operator's outputs: the values are AbstractValues. library: the shared object that has the operator's
    kernel; every session of a program that holds it registers it. Attributes are numbers, strings, dtypes and lists of them.

    On NumPy arrays it runs in an ONNX Runtime session of one node. Derivatives and vmap need def_jvp or def_transpose, and def_batch.
    """
    if not op_type or not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"onnx_op: an operator's type and version (an int from 1) are needed, got {op_type!r}, {version!r}")
    domain = "" if domain == "ai.onnx" else domain
    shared_object = None if library is None else os.path.abspath(os.fsdecode(library))
    if shared_object is not None and not os.path.isfile(shared_object):
        raise FileNotFoundError(f"onnx_op {op_type}: there is no library {shared_object}")
    chosen = name or f"onnx_op.{domain or 'ai.onnx'}.{op_type}.{version}"

    def run(*arrays: Any, **attributes: Any) -> Any:
        values = [None if x is None else operand(x, chosen) for x in arrays]
        result = abstract(*[None if x is None else AbstractValue(spec_of(x)) for x in values], **attributes)
        specs, treedef = tree.flatten(result)
        operator = Operator(domain, op_type, version, tuple(sorted(attributes.items())), shared_object)
        outputs = backend().run_operator(operator, [None if x is None else np.asarray(x) for x in values], [s.spec.dtype for s in specs])
        return tree.unflatten(treedef, outputs)

    def lower(b: Any, *names: str, **attributes: Any) -> Any:
        count = len(b.out_specs)
        given: dict[str, Any] = {k: list(v) if is_tuple(v) else v for k, v in attributes.items()}
        if domain:
            found = b.op(op_type, *names, outputs=count, domain=domain, domain_version=version, **given)
        else:
            b.require_operator(op_type, version)
            found = b.op(op_type, *names, outputs=count, **given)
        return (found,) if isinstance(found, str) else tuple(found)

    run.__name__ = run.__qualname__ = op_type
    declaration = Declaration(chosen, ("operands",), variadic=True, library=shared_object)
    return OnnxOperator(run, declaration, _SIGNATURE, Rules(run, abstract=abstract, onnx=lower))


_SIGNATURE = inspect.Signature(
    [
        inspect.Parameter("operands", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("attributes", inspect.Parameter.VAR_KEYWORD),
    ]
)


class OnnxOperator(CustomPrimitive):
    """An ONNX operator as a user primitive; rules are attached to it in the same way."""

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        attributes: dict[str, Any] = {k: tuple(v) if is_list(v) else v for k, v in kwargs.items()}
        for key, value in attributes.items():
            if hasattr(value, "__array_ufunc__"):
                raise SignatureTypeError(
                    f"{self.name}: the attribute {key!r} is {type(value).__name__}; attributes are numbers, strings and lists of them"
                )
        return (args,), self.static_params(attributes)
