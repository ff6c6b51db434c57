"""Layers as pairs of functions: one makes the parameters, the other applies them. Parameters are dicts of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import onstage as ons

Params = dict[str, Any]


def dense_init(rng: np.random.Generator, inputs: int, outputs: int, dtype: Any = np.float32) -> Params:
    """Parameters of a dense layer: w: [inputs, outputs] normal with variance 2 / inputs (He et al., 2015, arXiv 1502.01852), b: zeros."""
    w = rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, outputs))
    return {"w": w.astype(dtype), "b": np.zeros(outputs, dtype)}


def dense(params: Params, x: Any) -> Any:
    """x @ w + b: [..., inputs] to [..., outputs]."""
    return x @ params["w"] + params["b"]


def layer_norm_init(features: int, dtype: Any = np.float32) -> Params:
    """Parameters of layer normalisation over the last axis: scale: ones, bias: zeros, both [features]."""
    return {"scale": np.ones(features, dtype), "bias": np.zeros(features, dtype)}


def layer_norm(params: Params, x: Any, *, epsilon: float = 1e-5) -> Any:
    """x normalised over its last axis, scaled and shifted."""
    return ons.nn.layer_norm(x, params["scale"], params["bias"], epsilon=epsilon)


def embedding_init(rng: np.random.Generator, rows: int, features: int, dtype: Any = np.float32) -> Params:
    """Parameters of an embedding: table: [rows, features], normal with deviation 0.02."""
    return {"table": rng.normal(0.0, 0.02, (rows, features)).astype(dtype)}


def embedding(params: Params, ids: Any) -> Any:
    """The rows of the table at integer ids: [...] to [..., features]."""
    return ons.nn.embedding(params["table"], ids)
