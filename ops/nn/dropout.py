"""dropout: random zeros in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...stage.dtypes import FLOAT64, is_float, short_name
from ...stage.errors import DTypeError, ShapeError
from ...stage.tracer import Tracer
from ..arithmetic import multiply, subtract, true_divide, where
from ..comparison import greater
from ..operands import cast, dtype_of, operand, shape_of
from ..random.distributions import bernoulli
from ..random.keys import as_key


def dropout(x: Any, rate: Any, key: Any) -> Any:
    """x with each element zeroed with probability `rate` and divided by 1 - rate otherwise, so that its mean stays; for training only.

    rate: a number or a 0-d array in [0, 1], which may be traced; 0 gives x as it is, 1 zeros. key: see `ons.random.key`; another one for
    every step and layer. Raises ValueError for a known rate outside [0, 1], TypeError for x that is not floating.
    """
    key = as_key("dropout", key)
    x = operand(x, "dropout")
    x = np.asarray(x) if isinstance(x, bool | int | float) else x
    dtype = dtype_of(x)[0]
    if not is_float(dtype):
        raise DTypeError(f"dropout: x is {short_name(dtype)}, which is not floating")
    share = operand(rate, "dropout: rate")
    share = np.asarray(share, FLOAT64) if isinstance(share, bool | int | float) else cast(share, FLOAT64)
    if shape_of(share):
        raise ShapeError(f"dropout: the rate is one number, got shape {list(shape_of(share))}")
    if not isinstance(share, Tracer) and not 0 <= share <= 1:
        raise ValueError(f"dropout: the rate is a probability, in [0, 1], got {share}")
    one, zero = np.ones((), FLOAT64), np.zeros((), FLOAT64)
    kept = subtract(one, share)
    scale = true_divide(one, where(greater(kept, zero), kept, one))
    return where(bernoulli(key, kept, shape_of(x)), multiply(x, cast(scale, dtype)), np.zeros((), dtype))
