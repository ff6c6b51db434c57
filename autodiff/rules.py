"""What tangent and pullback templates are made with: rules traced once and kept, composites as Programs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ..stage.dims import same_dim
from ..stage.errors import MissingRuleError
from ..stage.narrowing import is_sequence
from ..stage.primitive import Params, Primitive
from ..stage.program import Program
from ..stage.spec import ArraySpec, carries_tangent
from ..stage.trace import Traced, trace_program

Mask = tuple[bool, ...]
T = TypeVar("T")
_LIMIT: Final = 1 << 13
_cache: OrderedDict[Any, Any] = OrderedDict()
_lock = threading.Lock()


def trace_template(function: Callable[..., Sequence[Any]], specs: Sequence[ArraySpec], name: str) -> Traced:
    """Trace a rule: its equations get their source lines where they are inlined."""
    return trace_program(function, specs, name=name, sources=False)


class Template(NamedTuple):
    """`present` says which of the possible results there are; an absent one is zero.

    unknown: outputs whose tangents cannot be had, and why; that is an error only where one is read.
    """

    program: Program
    present: Mask
    unknown: tuple[tuple[int, str], ...] = ()


def cached_template(key: Any, make: Callable[[], T]) -> T:
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    made = make()
    with _lock:
        _cache[key] = made
        if len(_cache) > _LIMIT:
            _cache.popitem(last=False)
    return made


def bare(values: Sequence[Any], several: bool) -> Any:
    return tuple(values) if several else values[0]


def same_type(a: ArraySpec, b: ArraySpec) -> bool:
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(same_dim(p, q) for p, q in zip(a.shape, b.shape, strict=True))


def may_be_active(primitive: Primitive, out_specs: Sequence[ArraySpec]) -> bool:
    """Whether an output can depend differentiably on an operand; MissingRuleError if it should and has no rule."""
    if not any(carries_tangent(s) for s in out_specs):
        return False
    if primitive.nondifferentiable is not None:
        raise MissingRuleError(
            f"{primitive.name} is not differentiable: {primitive.nondifferentiable}; ons.stop_gradient says that this is meant"
        )
    return True


def decomposition(primitive: Primitive, specs: tuple[ArraySpec, ...], params: Params) -> Program:
    """A composite primitive as a Program of simpler ones."""
    rule = primitive.require("decompose")

    def function(*args: Any) -> Sequence[Any]:
        result: Any = rule(*args, **params)
        return list(result) if is_sequence(result) else [result]

    return cached_template(
        ("decompose", primitive, specs, tuple(params.items())),
        lambda: trace_template(function, specs, primitive.name).program,
    )


def tangent_spec(spec: ArraySpec) -> ArraySpec:
    """Tangents and cotangents are strong arrays of their primal's shape and dtype."""
    return spec.update(weak=False) if spec.weak else spec


def spread(values: Sequence[Any], mask: Mask) -> tuple[Any, ...]:
    given = iter(values)
    return tuple(next(given) if m else None for m in mask)
