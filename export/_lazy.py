"""The one module through which onnx, ONNX Runtime, what comes with them, and the extras are reached: each is imported at first use."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module that is imported when one of its attributes is first asked for."""

    def __init__(self, name: str) -> None:
        self._module_name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        value = getattr(importlib.import_module(self._module_name), name)
        # Kept on the proxy, so that the next access is a plain attribute look-up.
        setattr(self, name, value)
        return value

    def load(self) -> None:
        """Import the module now. Raises ModuleNotFoundError where it is not installed."""
        importlib.import_module(self._module_name)

    def __repr__(self) -> str:
        return f"<lazy module {self._module_name}>"


onnx: Any = LazyModule("onnx")
onnx_defs: Any = LazyModule("onnx.defs")
onnx_numpy_helper: Any = LazyModule("onnx.numpy_helper")
onnxruntime: Any = LazyModule("onnxruntime")
onnxscript: Any = LazyModule("onnxscript")
onnx_ir: Any = LazyModule("onnx_ir")
ml_dtypes: Any = LazyModule("ml_dtypes")
bz2: Any = LazyModule("bz2")
protobuf_message: Any = LazyModule("google.protobuf.message")
sklearn_datasets: Any = LazyModule("sklearn.datasets")
matplotlib_figure: Any = LazyModule("matplotlib.figure")
rich_console: Any = LazyModule("rich.console")
rich_progress: Any = LazyModule("rich.progress")
