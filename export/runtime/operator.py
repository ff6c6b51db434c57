"""One ONNX operator run by itself: the NumPy rule of `onnx_op`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from ...stage.backend import Operator
from ...stage.config import Options
from ...stage.dtypes import DType
from ...stage.primitive import Array
from ...stage.spec import make_spec
from .._lazy import onnx
from ..protos import set_attribute, value_type
from .binding import Executable
from .session import make_session

# The standard opset of the model around an operator of another domain.
_OPSET: Final = 21
_IR_VERSION: Final = 10
_KEPT: Final = 64
_sessions: OrderedDict[Any, Executable] = OrderedDict()
_lock = threading.Lock()


def run_operator(operator: Operator, arrays: Sequence[Array | None], dtypes: Sequence[DType]) -> list[Array]:
    """The outputs, of these dtypes. Raises OnstageError where ONNX Runtime does not know the operator, or refuses the operands."""
    given = tuple(None if x is None else x.dtype for x in arrays)
    key = (operator, repr(operator.attributes), given, tuple(dtypes))
    with _lock:
        executable = _sessions.get(key)
        if executable is None:
            executable = _sessions[key] = _make(operator, given, dtypes)
            if len(_sessions) > _KEPT:
                _sessions.popitem(last=False)
        else:
            _sessions.move_to_end(key)
    return executable([x for x in arrays if x is not None], operator.op_type)


def _make(operator: Operator, given: Sequence[DType | None], dtypes: Sequence[DType]) -> Executable:
    model = onnx.ModelProto(ir_version=_IR_VERSION, producer_name="onstage")
    graph = model.graph
    graph.name = operator.op_type
    names = ["" if dtype is None else f"i{i}" for i, dtype in enumerate(given)]
    out_names = [f"o{i}" for i in range(len(dtypes))]
    node = graph.node.add(op_type=operator.op_type, domain=operator.domain, name=operator.op_type, input=names, output=out_names)
    for name, value in operator.attributes:
        set_attribute(node.attribute.add(), name, value, None)
    present = [(name, dtype) for name, dtype in zip(names, given, strict=True) if dtype is not None]
    graph.input.extend([value_type(name, dtype) for name, dtype in present])
    graph.output.extend([value_type(name, dtype) for name, dtype in zip(out_names, dtypes, strict=True)])
    model.opset_import.add(domain="", version=_OPSET if operator.domain else operator.version)
    if operator.domain:
        model.opset_import.add(domain=operator.domain, version=operator.version)
    libraries = () if operator.library is None else (operator.library,)
    session = make_session(model.SerializeToString(), Options(provider="cpu"), level="none", threads=1, libraries=libraries)
    specs = [make_spec((), dtype) for _, dtype in present] + [make_spec((), dtype) for dtype in dtypes]
    return Executable(session, [name for name, _ in present], out_names, specs)
