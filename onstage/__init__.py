"""onstage: stages NumPy-style functions, forward and backward, into ONNX."""

# What is imported here is what the package offers, or registers primitives.
# pyright: reportUnusedImport=false

from . import nn, numpy, random, special, testing
from .autodiff import batched
from .autodiff.batching import vmap
from .autodiff.gradient import grad, value_and_grad
from .autodiff.implicit import implicit_root
from .autodiff.jacobians import hessian, hvp, hvp_program, jacfwd, jacobian, jacrev, linearize
from .autodiff.products import jvp, jvp_program, vjp, vjp_program
from .export.backend import OnnxBackend
from .export.load import load
from .export.support import install_namespaces, support
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
from .ops.control.branch import cond, switch
from .ops.control.checkpoint import checkpoint
from .ops.control.loops import associative_scan, fori_loop, while_loop
from .ops.control.scan import map, scan
from .ops.creation import asarray
from .ops.custom import AbstractValue, PrimitiveResult, primitive
from .ops.custom_derivatives import custom_jvp, custom_vjp
from .ops.frontend import OpsFrontend
from .ops.onnx_op import onnx_op
from .ops.stop_gradient import stop_gradient
from .ops.structure import is_traced
from .stage import tree
from .stage.backend import install_backend
from .stage.config import config
from .stage.deferred import Array, array
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
from .stage.jit import jit
from .stage.source import scope
from .stage.spec import ArraySpec, StaticSpec
from .stage.staged import StagedProgram
from .stage.staging import eval_shape, stage
from .stage.tracer import install_frontend

_frontend = OpsFrontend(numpy)
install_frontend(_frontend)
set_array_hook(_frontend.ufunc)
install_backend(OnnxBackend())
install_namespaces({"ons.nn": nn, "ons.special": special})
