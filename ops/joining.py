"""Joining and splitting: concatenate, stack and their kin, split, tile, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stage.dims import Dim, exact_div, same_dim
from ..stage.dtypes import DType, as_dtype, short_name
from ..stage.errors import ConcretizationError, ProgramError, ShapeError
from ..stage.primitive import Array, Case, Primitive, Sample
from ..stage.spec import ArraySpec, DimLike, Shape, make_spec
from ..stage.trace import bind
from ..stage.tracer import Tracer
from .operands import cast, dtype_of, normalize_axis, operand, promoted, shape_of
from .registry import implements
from .reductions_guard import no_out
from .slicing import slice_axis
from .structure import broadcast, broadcast_to_p, move_axis, reshape_p
from .views import copied, view
