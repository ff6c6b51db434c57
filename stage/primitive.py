"""Primitive: one operation, declared once with all its rules.

Everything onstage does to an operation (infer, evaluate, differentiate, batch, lower, verify, test) goes through the
rules that stand in its declaration; no transform keeps a table of its own. See DESIGN section 3 for each rule's signature.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from .dims import Dim
from .errors import MissingRuleError, ProgramError
from .narrowing import is_sequence, is_tuple
from .spec import ArraySpec, same_shape_key

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Params: TypeAlias = Mapping[str, Any]
Rule: TypeAlias = Callable[..., Any]
# Those whose first arguments are the same for every primitive: (output, primals, tangents, **params); (ct, primals, output, ...).
DerivativeRule: TypeAlias = Callable[Concatenate[Any, Any, Any, ...], Any]
Shadow: TypeAlias = Literal["continuous", "decision"] | Rule

_registry: dict[str, Primitive] = {}
_registry_lock = threading.Lock()
_INFER_LIMIT: Final = 1 << 14


@dataclass(frozen=True)
class Sample:
    """One operand of a Case: its shape, dtype and the values it may take.

    dtype "float" stands for each floating dtype in turn, "int" for integer ones, "any" for both and bool; else it is fixed.
    domain is the interval values are drawn from; `values` fixes them (an array-like of that shape).
    """

    shape: tuple[int, ...]
    dtype: str = "float"
    domain: tuple[float, float] = (-2.0, 2.0)
    values: Any = None


@dataclass(frozen=True)
class Case:
    """Sample operands and params of a primitive: enrols it in every law of tests/laws.

    smooth=False says that derivatives are not to be compared with central differences (kinks, ties);
    named gives, per operand, a shape with names ("B", 3) to check the abstract rule with named dims.
    """

    samples: tuple[Sample, ...]
    params: Params = field(default_factory=dict[str, Any])
    smooth: bool = True
    named: tuple[tuple[Any, ...], ...] | None = None


class Unknown(NamedTuple):
    """What a jvp rule gives for an output whose tangent cannot be had; MissingRuleError with this message where it is read."""

    message: str


class Primitive:
    """An operation and its rules; an incomplete declaration is rejected here, not when a rule is first missed.

    Raises ValueError naming the primitive and the rules that are missing or contradict each other.
    """

    generation: int = 0
    """Of primitives that users declare, from 1: tells apart those that had one name in this process. 0 for built-in ones."""
    library: str | None = None
    """A shared object with the operator's kernel, which sessions must register."""

    source_files: tuple[str, ...] = ()
    """Where a user declares it and its rules; what is kept on disk of programs that hold it hangs on their content."""

    def residual_outputs(self, params: Params) -> int:
        """How many of the last outputs are residuals, made for the transpose rule; they are differentiated by `decompose`."""
        return 0

    def without_residuals(self, params: Params) -> Params | None:
        """The params of the equation that leaves its residuals out; None if it has none."""
        return None

    def reverse_only(self, params: Params) -> str | None:
        """Why there is no forward mode, where there is a transpose alone; it then covers every operand."""
        return None

    def require_lowering(self, specs: tuple[ArraySpec, ...], params: Params) -> None:
        """MissingRuleError if the equation can run outside staging only."""

    def __init__(
        self,
        name: str,
        *,
        abstract: Rule,
        numpy: Rule,
        jvp: DerivativeRule | None = None,
        linear: Sequence[Sequence[int]] | Literal["all"] | None = None,
        transpose: DerivativeRule | None = None,
        vjp: Rule | None = None,
        jvp_with_output: Rule | None = None,
        nondifferentiable: str | None = None,
        batch: Rule | None = None,
        factors: Rule | str | None = None,
        onnx: Rule | None = None,
        simplify: Rule | None = None,
        shadow: Shadow = "continuous",
        decompose: Rule | None = None,
        version: int = 1,
        cases: Sequence[Case] = (),
        elementwise: bool = False,
        exact: bool | Rule | None = None,
        register: bool = True,
    ) -> None:
        self.name = name
        self.abstract = abstract
        self.numpy = numpy
        self.jvp = jvp
        self.linear = linear if linear is None or linear == "all" else tuple(tuple(g) for g in linear)
        self.transpose = transpose
        self.vjp = vjp
        self.jvp_with_output = jvp_with_output
        self.nondifferentiable = nondifferentiable
        self.batch = batch
        self.factors = factors
        self.onnx = onnx
        self.simplify = simplify
        self.shadow = shadow
        self.decompose = decompose
        self.version = version
        self.cases = tuple(cases)
        self.elementwise = elementwise
        # Whether the NumPy rule gives the same bits on every machine (data movement; + - * / sqrt of floats; not exp, not a sum
        # of floats), so that constants may be folded: a bool, or a rule (*specs, **params) -> bool. None: integers and booleans only.
        self.exact = exact
        self._inferred: dict[Any, tuple[tuple[ArraySpec, ...], bool]] = {}
        problems = list(self._problems())
        if problems:
            raise ValueError(f"primitive {name!r}: {'; '.join(problems)}")
        if register:
            with _registry_lock:
                if name in _registry:
                    raise ValueError(f"primitive {name!r} is declared twice")
                _registry[name] = self

    def _problems(self) -> Iterator[str]:
        if not self.name:
            yield "a name is needed"
        if self.onnx is None and self.decompose is None:
            yield "needs `onnx` or `decompose`"
        if self.batch is None and self.decompose is None:
            yield "needs `batch` or `decompose`"
        if self.jvp_with_output is not None and self.vjp is None:
            yield "has `jvp_with_output`, as sub-program ops do, and needs `vjp`"
        derivatives = (self.jvp, self.linear, self.vjp, self.nondifferentiable, self.decompose)
        if all(rule is None for rule in derivatives):
            yield 'needs `jvp`, `linear`, `vjp`, `decompose` or nondifferentiable="reason"'
        if self.nondifferentiable is not None and any(r is not None for r in (self.jvp, self.linear, self.transpose, self.vjp)):
            yield "is nondifferentiable and yet has derivative rules"
        if self.linear is not None and self.transpose is None:
            yield "is linear and needs `transpose`"
        if self.version < 1:
            yield "`version` starts at 1"

    def infer(self, specs: tuple[ArraySpec, ...], params: Params) -> tuple[tuple[ArraySpec, ...], bool]:
        """The specs of the outputs, and whether there are several (a tuple) or one bare output."""
        key = (specs, tuple(params.items()))
        found = self._inferred.get(key)
        if found is None:
            result = self.abstract(*specs, **params)
            specs_out = tuple(result) if is_sequence(result) else (result,)
            for spec in specs_out:
                if not isinstance(spec, ArraySpec):
                    raise ProgramError(f"{self.name}: the abstract rule gave {type(spec).__name__}, not an ArraySpec")
            found = (specs_out, is_sequence(result))
            if len(self._inferred) > _INFER_LIMIT:
                self._inferred.clear()
            self._inferred[key] = found
        return found

    def require(self, rule: str) -> Rule:
        """The named rule, or MissingRuleError."""
        found = getattr(self, rule)
        if found is None:
            reason = f" ({self.nondifferentiable})" if rule in ("jvp", "vjp", "transpose") and self.nondifferentiable else ""
            raise MissingRuleError(f"{self.name}: no {rule} rule{reason}")
        return found

    def evaluate(self, arrays: Sequence[Array], params: Params, out_specs: Sequence[ArraySpec]) -> list[Array]:
        """Run the NumPy rule; the dtypes, and the shapes where they are known, are held against the abstract rule."""
        with np.errstate(all="ignore"):
            result = self.numpy(*arrays, **params)
        outputs: list[Any] = [*result] if isinstance(result, tuple | list) else [result]
        if len(outputs) != len(out_specs):
            raise ProgramError(f"{self.name}: the NumPy rule gave {len(outputs)} outputs, the abstract rule {len(out_specs)}")
        for i, spec in enumerate(out_specs):
            value = outputs[i]
            if type(value) is not np.ndarray:
                value = outputs[i] = np.asarray(value)
            if value.dtype != spec.dtype or (value.shape != spec.shape and spec.is_static and not same_shape_key(value.shape, spec.shape)):
                raise ProgramError(f"{self.name}: the NumPy rule gave {value.dtype.name}{list(value.shape)}, the abstract rule {spec!r}")
        return outputs

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_primitive, (self.name,))


def find_primitive(name: str) -> Primitive:
    """The registered primitive of that name; MissingRuleError if there is none."""
    try:
        return _registry[name]
    except KeyError:
        raise MissingRuleError(
            f"primitive {name!r} is not registered; import the module that declares it before loading or transforming the program"
        ) from None


def register_custom(primitive: Primitive) -> None:
    """Register a user's primitive; a newer one of its name takes the place of an older one (a notebook cell that is run again).

    Raises ValueError for the name of a built-in primitive.
    """
    with _registry_lock:
        known = _registry.get(primitive.name)
        if known is not None and known.generation <= 0:
            raise ValueError(f"primitive {primitive.name!r}: a built-in primitive has this name; choose another")
        _registry[primitive.name] = primitive


def registered_primitives() -> dict[str, Primitive]:
    """All primitives by name, in order of declaration."""
    return dict(_registry)


def has_dims(value: Any) -> bool:
    """True if a param holds a symbolic dim anywhere (sub-programs are asked through `symbolic`)."""
    if isinstance(value, Dim):
        return True
    if is_tuple(value):
        return any(has_dims(v) for v in value)
    return bool(getattr(value, "symbolic", False))
