"""The calls by which the support catalogue finds out what functions do: of one 3 x 3 array `x`, in the function's own signature.

Only arguments stand here, no outcomes. A function without a call of its own gets the first of GENERIC that fits it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Call: TypeAlias = Callable[[Any, Any], Any]

GENERIC: tuple[Call, ...] = (
    lambda f, x: f([x, x]),
    lambda f, x: f(x),
    lambda f, x: f(x, x),
    lambda f, x: f(x, 2),
    lambda f, x: f(x, 1),
    lambda f, x: f(x, 0),
    lambda f, x: f(x, 3),
    lambda f, x: f(x, x, x),
)
WITH_SIZE: tuple[Call, ...] = (
    lambda f, x: f(x, size=4),
    lambda f, x: f(x, x, size=4),
    lambda f, x: f(x[:, 0], length=4),
)

_MASK = np.eye(3, dtype=bool)
_POINTS = np.arange(3)
_KERNEL = np.ones((2, 1, 2), np.float32)

EXAMPLES: dict[str, Call] = {
    "np.apply_along_axis": lambda f, x: f(lambda row: row * row, 1, x),
    "np.apply_over_axes": lambda f, x: f(np.sum, x, [1]),
    "np.astype": lambda f, x: f(x, np.float64),
    "np.broadcast_to": lambda f, x: f(x, (2, *x.shape)),
    "np.clip": lambda f, x: f(x, 0, 1),
    "np.choose": lambda f, x: f(x, [1, 2, 3], mode="clip"),
    "np.compress": lambda f, x: f([True, False, True], x, 1),
    "np.convolve": lambda f, x: f(x[:, 0], x[:, 1]),
    "np.correlate": lambda f, x: f(x[:, 0], x[:, 1], "full"),
    "np.cumulative_prod": lambda f, x: f(x, axis=1),
    "np.cumulative_sum": lambda f, x: f(x, axis=1),
    "np.delete": lambda f, x: f(x, 1, 1),
    "np.digitize": lambda f, x: f(x, _POINTS),
    "np.dsplit": lambda f, x: f(x[:, :, None], 1),
    "np.einsum": lambda f, x: f("ij,ik->jk", x, x),
    "np.einsum_path": lambda f, x: f("ij,ik->jk", x, x),
    "np.extract": lambda f, x: f(_MASK[0], x[0]),
    "np.gradient": lambda f, x: f(x, axis=-1),
    "np.hsplit": lambda f, x: f(x, 3),
    "np.insert": lambda f, x: f(x, 1, x[:, 0], -1),
    "np.interp": lambda f, x: f(x[:, 0], _POINTS, _POINTS),
    "np.ix_": lambda f, x: f(x[:, 0], x[:, 1]),
    "np.moveaxis": lambda f, x: f(x, 0, 1),
    "np.pad": lambda f, x: f(x, 1),
    "np.ldexp": lambda f, x: f(x, np.ones(3, np.int32)),
    "np.lexsort": lambda f, x: f(x),
    "np.piecewise": lambda f, x: f(x, [x > 0], [lambda v: v * v, 1]),
    "np.poly": lambda f, x: f(x[0]),
    "np.percentile": lambda f, x: f(x, 25, axis=-1),
    "np.nanpercentile": lambda f, x: f(x, 25, axis=-1),
    "np.quantile": lambda f, x: f(x, 0.25, axis=-1),
    "np.nanquantile": lambda f, x: f(x, 0.25, axis=-1),
    "np.polyadd": lambda f, x: f(x[0], x[0, 1:]),
    "np.polyder": lambda f, x: f(x[0]),
    "np.polydiv": lambda f, x: f(x[0], x[0, 1:]),
    "np.polyfit": lambda f, x: f(x[:, 0], x[:, 1], 1),
    "np.polyint": lambda f, x: f(x[0]),
    "np.polymul": lambda f, x: f(x[0], x[0, 1:]),
    "np.polysub": lambda f, x: f(x[0], x[0, 1:]),
    "np.polyval": lambda f, x: f(x[0], x),
    "np.put_along_axis": lambda f, x: f(x, np.zeros((1, 3), np.int64), x, 0),
    "np.ravel_multi_index": lambda f, x: f((x[:, 0], x[:, 1]), (3, 4)),
    "np.repeat": lambda f, x: f(x, 2, 1),
    "np.reshape": lambda f, x: f(x, (-1,)),
    "np.roll": lambda f, x: f(x, 1, 1),
    "np.searchsorted": lambda f, x: f(x[:, 0], x),
    "np.select": lambda f, x: f([x > 0], [x * x], x),
    "np.split": lambda f, x: f(x, 3, -1),
    "np.squeeze": lambda f, x: f(x[:, :1], 1),
    "np.swapaxes": lambda f, x: f(x, 0, 1),
    "np.take": lambda f, x: f(x, np.array([0, 2]), 1),
    "np.take_along_axis": lambda f, x: f(x, np.zeros((1, 1), np.int64), 0),
    "np.tile": lambda f, x: f(x, 2),
    "np.unravel_index": lambda f, x: f(x, (3, 4)),
    "np.vander": lambda f, x: f(x[:, 0], 3),
    "np.vsplit": lambda f, x: f(x, 3),
    "np.where": lambda f, x: f(x > 0, x * x, x),
    "np.linalg.outer": lambda f, x: f(x[:, 0], x[:, 1]),
    "np.linalg.matrix_power": lambda f, x: f(x, 3),
    "np.linalg.multi_dot": lambda f, x: f([x.T, x, x.T]),
    "np.linalg.cholesky": lambda f, x: f((x * np.eye(3) + np.eye(3)).astype(x.dtype)),
    "np.linalg.lstsq": lambda f, x: f(x, x[..., 0]),
    "np.linalg.solve": lambda f, x: f(x, x),
    "np.linalg.tensorinv": lambda f, x: f(x, ind=1),
    "np.linalg.tensorsolve": lambda f, x: f(x, x[0]),
    "ons.nn.adaptive_avg_pool": lambda f, x: f(x[:, None], 2),
    "ons.nn.adaptive_max_pool": lambda f, x: f(x[:, None], 2),
    "ons.nn.attention": lambda f, x: f(x[:, None, None], x[:, None, None], x[:, None, None]),
    "ons.nn.avg_pool": lambda f, x: f(x[:, None], 2),
    "ons.nn.batch_norm": lambda f, x: f(x, x[0], x[1], x[2], x[0]),
    "ons.nn.conv": lambda f, x: f(x[:, None], _KERNEL.astype(x.dtype)),
    "ons.nn.conv_transpose": lambda f, x: f(x[:, None], _KERNEL.astype(x.dtype).swapaxes(0, 1)),
    "ons.nn.cross_entropy": lambda f, x: f(x, x),
    "ons.nn.dropout": lambda f, x: f(x, 0.5, np.uint64(7)),
    "ons.nn.embedding": lambda f, x: f(x, np.array([0, 2])),
    "ons.nn.global_avg_pool": lambda f, x: f(x[:, None]),
    "ons.nn.global_max_pool": lambda f, x: f(x[:, None]),
    "ons.nn.glu": lambda f, x: f(x[:, :2]),
    "ons.nn.group_norm": lambda f, x: f(x[:, :2, None], 2),
    "ons.nn.instance_norm": lambda f, x: f(x[:, None]),
    "ons.nn.max_pool": lambda f, x: f(x[:, None], 2),
    "ons.nn.one_hot": lambda f, x: f(x, 3),
    "ons.nn.resize": lambda f, x: f(x[:, None], (6,), method="nearest"),
    "ons.nn.rotary": lambda f, x: f(x[:, None, None, :2], np.arange(1)),
    "ons.nn.gru_cell": lambda f, x: f(x, x[:, :2], np.ones((6, x.shape[1]), x.dtype), np.ones((6, 2), x.dtype)),
    "ons.nn.lstm_cell": lambda f, x: f(x, x[:, :2], x[:, :2], np.ones((8, x.shape[1]), x.dtype), np.ones((8, 2), x.dtype))[0],
    "ons.nn.segment_max": lambda f, x: f(x, np.zeros(3, np.int64), 2),
    "ons.nn.segment_mean": lambda f, x: f(x, np.zeros(3, np.int64), 2),
    "ons.nn.segment_min": lambda f, x: f(x, np.zeros(3, np.int64), 2),
    "ons.nn.segment_sum": lambda f, x: f(x, np.zeros(3, np.int64), 2),
}
