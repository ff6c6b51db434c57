"""Which execution provider a session gets: CUDA where it is seen to work, else the CPU.

`get_available_providers()` lists CUDA wherever the wheel was built with it, and a session that cannot have CUDA runs on the CPU without
a word. So a tiny session is made, and asked what it got.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Final

from ...stage.config import Options
from ...stage.errors import ProviderError
from .._lazy import onnx, onnxruntime

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"


def providers(options: Options) -> list[Any]:
    """The providers to ask for, in order.

    Raises ProviderError where CUDA was asked for, does not work, and falling back was not allowed.
    """
    if options.provider == "cpu":
        return [CPU]
    problem = cuda_problem(options.device)
    if problem is None:
        return [(CUDA, {"device_id": str(options.device)}), CPU]
    if options.provider == "cuda" and not options.fallback:
        raise ProviderError(
            f"CUDA device {options.device} was asked for and cannot be used: {problem}; "
            'install onstage[cuda] and a driver, or set ons.config(provider="auto") or fallback=True'
        )
    return [CPU]


@functools.cache
def cuda_problem(device: int) -> str | None:
    """Why CUDA does not work on this machine; None where it does."""
    if CUDA not in onnxruntime.get_available_providers():
        return f"this build of ONNX Runtime ({onnxruntime.__version__}) has no CUDA support"
    driver = {"win32": "nvcuda.dll"}.get(sys.platform, "libcuda.so.1")
    try:
        ctypes.CDLL(driver)
    except OSError:
        return f"there is no NVIDIA driver ({driver})"
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = onnxruntime.InferenceSession(_tiny_model(), options, providers=[(CUDA, {"device_id": str(device)})], enable_fallback=0)
    except Exception as error:
        # ONNX Runtime has no common class for its errors; whatever it was is the reason that is reported.
        return str(error).strip().splitlines()[0]
    found = session.get_providers()
    return None if CUDA in found else f"ONNX Runtime gave {', '.join(found)} instead"


def _tiny_model() -> bytes:
    """y = x + x in float32."""
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.add(domain="", version=21)
    graph = model.graph
    graph.name = "probe"
    graph.node.add(op_type="Add", input=["x", "x"], output=["y"])
    for values, name in ((graph.input, "x"), (graph.output, "y")):
        tensor = values.add(name=name).type.tensor_type
        tensor.elem_type = onnx.TensorProto.FLOAT
        tensor.shape.dim.add(dim_value=1)
    return model.SerializeToString()
