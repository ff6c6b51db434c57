"""Checks for authors of primitives and of functions to be differentiated."""

from .autodiff.checks import check_gradient as check_gradient
from .autodiff.checks import check_primitive as check_primitive
from .stage.errors import CheckError as CheckError
