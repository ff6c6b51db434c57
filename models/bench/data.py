"""The inputs of the workloads, equal for all systems."""

from __future__ import annotations

from typing import Any

import numpy as np

SIZES = (784, 512, 512, 10)
BATCH = 128
LEARNING_RATE = 0.1


def mlp() -> tuple[list[tuple[Any, Any]], Any, Any]:
    """Parameters [(w, b)], x: f32[128, 784] and integer labels y: i64[128] of the MLP 784-512-512-10."""
    rng = np.random.default_rng(0)
    params = [
        (
            rng.normal(0, np.sqrt(2 / fan_in), (fan_in, fan_out)).astype(np.float32),
            np.zeros(fan_out, np.float32),
        )
        for fan_in, fan_out in zip(SIZES[:-1], SIZES[1:], strict=True)
    ]
    x = rng.normal(size=(BATCH, SIZES[0])).astype(np.float32)
    return params, x, rng.integers(0, SIZES[-1], BATCH)
