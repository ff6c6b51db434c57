"""onstage: stages NumPy-style functions, forward and backward, into ONNX."""

from .autodiff.gradient import grad, value_and_grad
from .autodiff.products import jvp, jvp_program, vjp, vjp_program
from .ops import arithmetic, comparison, exponential, matmul, reductions
from .ops.frontend import OpsFrontend
from .stage import tree
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

install_frontend(OpsFrontend(None))
