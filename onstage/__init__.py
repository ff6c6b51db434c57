"""onstage: stages NumPy-style functions, forward and backward, into ONNX."""

from . import special
from .autodiff.batching import vmap
from .autodiff.gradient import grad, value_and_grad
from .autodiff.products import jvp, jvp_program, vjp, vjp_program
from .export.backend import OnnxBackend
from .export.load import load
from .ops import (
    arithmetic,
    bitwise,
    comparison,
    conversion,
    division,
    exponential,
    extremum,
    floating_point,
    gamma,
    matmul,
    power,
    reductions,
    rounding,
    trigonometric,
)
from .ops.at import at
from .ops.frontend import OpsFrontend
from .stage import tree
from .stage.backend import install_backend
from .stage.config import config
from .stage.dims import set_array_hook
from .stage.errors import (
    ArtifactError,
    ConcretizationError,
    DTypeError,
    EscapedTracerError,
    MissingRuleError,
    MutationError,
    NonlinearRuleError,
    OnstageError,
    ProviderError,
    ShapeError,
    ShardingError,
    SignatureTypeError,
    SignatureValueError,
    TracingError,
    UnsupportedError,
    VerificationError,
)
from .stage.source import scope
from .stage.spec import ArraySpec, StaticSpec
from .stage.staged import StagedProgram
from .stage.staging import eval_shape, stage
from .stage.tracer import install_frontend

_frontend = OpsFrontend(None)
install_frontend(_frontend)
set_array_hook(_frontend.ufunc)
install_backend(OnnxBackend())
