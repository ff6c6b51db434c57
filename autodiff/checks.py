"""Numerical checks of user primitives and gradients: derivatives against central differences, adjoints, staged and batched runs.

They tell that rules agree with the implementation at one point, not that the implementation is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ..ops.custom import CustomPrimitive
from ..ops.custom_derivatives import CustomFunction
from ..stage import tree
from ..stage.config import config
from ..stage.dtypes import is_float
from ..stage.errors import CheckError, DTypeError, MissingRuleError, ShapeError, SignatureTypeError
from ..stage.interpreter import as_array
from ..stage.primitive import Array
from ..stage.spec import spec_of
from ..stage.staging import stage
from .batching import vmap
from .products import jvp, vjp

KINDS: Final = ("abstract", "jvp", "transpose", "nested", "stage", "batch", "onnx")
_BATCH: Final = 3
# Of central differences: the step, and what they may be off, by the narrowest dtype among the operands.
_STEPS: Final = {"float64": (6e-6, 1e-6), "float32": (5e-3, 5e-3), "float16": (5e-2, 1e-1), "bfloat16": (1e-1, 2e-1)}
_EVERY_ELEMENT: Final = 256
_DIRECTIONS: Final = 16


def check_primitive(
    p: Any,
    primals: Sequence[Any],
    *,
    static: Mapping[str, Any] | None = None,
    check: str | Sequence[str] = ("abstract", "jvp", "transpose"),
    rtol: float | None = None,
    atol: float = 1e-8,
    seed: int = 0,
) -> None:
    """Check the rules of a user primitive at one call of it.

    primals: one value for each argument that is not static, in order; static: the static ones by name. check: "abstract" (the rule's tree,
    shapes and dtypes against the implementation's), "jvp" (against central differences), "transpose" (<ct, J t> = <J^T ct, t>),
    "nested" (second derivatives by all four modes), "stage" (the staged program and its gradient against the implementation), "batch" (vmap
    against a loop), "onnx" (ONNX Runtime with its optimiser off and at its highest level). rtol: by default a tolerance made for the
    dtypes of the operands; give float64 arrays for a sharp check.
    Raises CheckError (an AssertionError) naming the rule and by how much it is wrong, MissingRuleError for a rule that is needed and absent.
    """
    kinds = (check,) if isinstance(check, str) else tuple(check)
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"check_primitive: there is no check {kind!r}; there are {', '.join(KINDS)}")
    subject = _Subject(p, primals, dict(static or {}), rtol, atol, seed)
    for kind in kinds:
        _CHECKS[kind](subject)


class _Subject:
    """A primitive at one call: flat functions of its differentiable leaves."""

    def __init__(self, p: Any, primals: Sequence[Any], static: dict[str, Any], rtol: float | None, atol: float, seed: int) -> None:
        if isinstance(p, CustomFunction):
            p = p.primitive
        if not isinstance(p, CustomPrimitive):
            raise TypeError(
                f"check_primitive: a primitive of ons.primitive, onnx_op, custom_jvp or custom_vjp is needed, got {type(p).__name__}"
            )
        if not isinstance(primals, tuple | list):
            raise TypeError("check_primitive: primals is a tuple with one value for each argument that is not static")
        self.primitive = p
        self.static = static
        declaration = p.declaration
        if not declaration.variadic and len(primals) > len(declaration.dynamic):
            raise ValueError(f"check_primitive: {p.name} has {len(declaration.dynamic)} arguments that are not static, got {len(primals)}")
        leaves, self.in_tree = tree.flatten(tuple(primals))
        self.leaves: list[Any] = [as_array(x) for x in leaves]
        paths = self.in_tree.paths()
        names = [f"operand {path[0].index}" if declaration.variadic else declaration.dynamic[path[0].index] for path in paths]  # type: ignore[union-attr]
        self.paths = [tree.path_text(path[1:], name) for path, name in zip(paths, names, strict=True)]
        self.active = [
            i for i, (x, name) in enumerate(zip(self.leaves, names, strict=True)) if is_float(x.dtype) and name not in declaration.nondiff
        ]
        narrowest = min((self.leaves[i].dtype for i in self.active), key=lambda d: _PRECISION.index(d.name), default=np.dtype(np.float64))
        self.step, tolerance = _STEPS[narrowest.name]
        self.rtol = tolerance if rtol is None else rtol
        self.atol = atol
        self.rng: Any = np.random.default_rng(seed)
        output = self.call(*self.leaves)
        out_leaves, self.out_tree = tree.flatten(output)
        self.outputs = [as_array(x) for x in out_leaves]
        self.out_paths = [tree.path_text(path, "output") for path in self.out_tree.paths()]

    @property
    def name(self) -> str:
        return self.primitive.name

    def call(self, *leaves: Any) -> Any:
        """The primitive on flat operands."""
        values = tree.unflatten(self.in_tree, list(leaves))
        if self.primitive.declaration.variadic:
            return self.primitive(*values, **self.static)
        return self.primitive(**dict(zip(self.primitive.declaration.dynamic, values, strict=False)), **self.static)

    def flat(self, *leaves: Any) -> list[Any]:
        """The floating outputs."""
        return [x for x, y in zip(tree.leaves(self.call(*leaves)), self.outputs, strict=True) if is_float(y.dtype)]

    @property
    def float_paths(self) -> list[str]:
        return [path for path, y in zip(self.out_paths, self.outputs, strict=True) if is_float(y.dtype)]

    @property
    def float_outputs(self) -> list[Array]:
        return [y for y in self.outputs if is_float(y.dtype)]

    def along(self, chosen: Sequence[int]) -> Callable[..., list[Any]]:
        """The floating outputs as a function of the chosen leaves."""

        def function(*moved: Any) -> list[Any]:
            leaves = list(self.leaves)
            for i, x in zip(chosen, moved, strict=True):
                leaves[i] = x
            return self.flat(*leaves)

        return function

    def at(self, chosen: Sequence[int]) -> list[Array]:
        return [self.leaves[i] for i in chosen]

    def direction(self, arrays: Sequence[Array]) -> list[Array]:
        return [as_array(self.rng.uniform(-1.0, 1.0, x.shape)).astype(x.dtype) for x in arrays]

    def choices(self) -> list[tuple[int, ...]]:
        """Each differentiable leaf by itself, then all of them."""
        return [*((i,) for i in self.active), *([tuple(self.active)] if len(self.active) > 1 else [])]

    def described(self, chosen: Sequence[int]) -> str:
        return ", ".join(self.paths[i] for i in chosen)

    def compare(self, got: Any, expected: Any, rule: str, what: str, against: str, rtol: float | None = None) -> None:
        """CheckError unless two arrays agree."""
        problem = _difference(as_array(got), as_array(expected), self.rtol if rtol is None else rtol, self.atol)
        if problem is not None:
            raise CheckError(f"{self.name}: {rule} is wrong: {what} {problem}; expected is {against}")

    def require_active(self, kind: str) -> None:
        if not self.active or not self.float_outputs:
            raise ValueError(
                f"check_primitive: {self.name} has no differentiable operand or no floating output here, so {kind!r} checks nothing"
            )


_PRECISION: Final = ("bfloat16", "float16", "float32", "float64")


def _difference(got: Array, expected: Array, rtol: float, atol: float) -> str | None:
    """What differs between two arrays; None if they agree. NaN agrees with NaN."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"is {got.dtype.name}{list(got.shape)}, expected {expected.dtype.name}{list(expected.shape)}"
    if not got.size:
        return None
    a, b = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        scale = float(np.abs(np.where(np.isfinite(b), b, 0.0)).max())
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    worst = np.unravel_index(int(error.argmax()), error.shape)
    tolerance = atol + rtol * max(scale, 1e-3)
    if error[worst] <= tolerance:
        return None
    where = f" at {[int(i) for i in worst]}" if got.ndim else ""
    return f"is {a[worst]:.9g}{where}, expected {b[worst]:.9g}: off by {error[worst]:.3g} (tolerance {tolerance:.2g})"


def _central(function: Callable[..., list[Any]], at: Sequence[Array], tangents: Sequence[Array], step: float) -> list[Array]:
    """The directional derivative of flat outputs."""
    up, down = (function(*[(x + s * t).astype(x.dtype) for x, t in zip(at, tangents, strict=True)]) for s in (step, -step))
    return [
        ((as_array(a).astype(np.float64) - as_array(b).astype(np.float64)) / (2 * step)).astype(as_array(a).dtype)
        for a, b in zip(up, down, strict=True)
    ]


def _check_abstract(s: _Subject) -> None:
    op = s.primitive.op
    if s.primitive.declaration.variadic:
        values, params = s.primitive.bind_arguments(tree.unflatten(s.in_tree, s.leaves), s.static)
    else:
        arguments = dict(zip(s.primitive.declaration.dynamic, tree.unflatten(s.in_tree, s.leaves), strict=False))
        values, params = s.primitive.bind_arguments((), {**arguments, **s.static})
    operands, in_tree = tree.flatten(values)
    arrays = [as_array(x) for x in operands]
    if in_tree != tree.structure(tuple([0] * len(arrays))):
        params["in_tree"] = in_tree
    op.outcome([spec_of(x) for x in arrays], params)
    try:
        op.run(arrays, params)
    except (ShapeError, DTypeError, SignatureTypeError) as error:
        raise CheckError(f"{s.name}: the abstract rule is wrong: {error.message}") from error


def _check_jvp(s: _Subject) -> None:
    s.require_active("jvp")
    rule = "the jvp rule" if s.primitive.rules.jvp is not None else "the jvp of its decomposition"
    for chosen in s.choices():
        at = s.at(chosen)
        tangents = s.direction(at)
        function = s.along(chosen)
        _, found = jvp(function, tuple(at), tuple(tangents))
        for path, got, expected in zip(s.float_paths, found, _central(function, at, tangents, s.step), strict=True):
            s.compare(
                got,
                expected,
                rule,
                f"the tangent of {path} along {s.described(chosen)}",
                "what central differences of the implementation give",
            )


def _check_transpose(s: _Subject) -> None:
    s.require_active("transpose")
    rule = "the transpose rule" if s.primitive.rules.transpose is not None else "the transposed jvp rule"
    for chosen in s.choices():
        at = s.at(chosen)
        function = s.along(chosen)
        tangents = s.direction(at)
        cts = s.direction(s.float_outputs)
        moved, source = _moved(s, function, at, tangents)
        _, pullback = vjp(function, *at)
        cotangents = pullback(cts)
        for i, x, ct in zip(chosen, at, cotangents, strict=True):
            problem = _difference(np.zeros_like(as_array(ct)), np.zeros_like(x), 0.0, 0.0)
            if problem is not None:
                raise CheckError(f"{s.name}: {rule} is wrong: the cotangent of {s.paths[i]} {problem}")
        left, right = _dot(cts, moved), _dot(cotangents, tangents)
        size = max(_dot([np.abs(c) for c in cts], [np.abs(m) for m in moved]), 1e-3)
        if not abs(left - right) <= s.atol + s.rtol * size:
            raise CheckError(
                f"{s.name}: {rule} is wrong for {s.described(chosen)}: <ct, J t> = {left:.9g} by {source}, <J^T ct, t> = {right:.9g}: "
                f"off by {abs(left - right):.3g} (tolerance {s.atol + s.rtol * size:.2g})"
            )


def _moved(s: _Subject, function: Callable[..., list[Any]], at: Sequence[Array], tangents: Sequence[Array]) -> tuple[list[Array], str]:
    """J t, and by what."""
    try:
        return [as_array(x) for x in jvp(function, tuple(at), tuple(tangents))[1]], "the jvp rule"
    except MissingRuleError:
        return _central(function, at, tangents, s.step), "central differences"


def _dot(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    return float(sum(np.vdot(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in zip(xs, ys, strict=True)))


class _Second(NamedTuple):
    """A way to a second derivative: its value along two directions, weighted by cotangents."""

    name: str
    value: Callable[[], float]


def _check_nested(s: _Subject) -> None:
    s.require_active("nested")
    chosen = tuple(s.active)
    at, function = s.at(chosen), s.along(chosen)
    inner, outer, cts = s.direction(at), s.direction(at), s.direction(s.float_outputs)

    def forward(*xs: Any) -> list[Any]:
        return list(jvp(function, xs, tuple(inner))[1])

    def backward(*xs: Any) -> list[Any]:
        return list(vjp(function, *xs)[1](cts))

    ways = [
        _Second("forward over reverse", lambda: _dot(jvp(backward, tuple(at), tuple(outer))[1], inner)),
        _Second("reverse over reverse", lambda: _dot(vjp(backward, *at)[1](inner), outer)),
    ]
    if s.primitive.op.reverse_only({}) is None:
        ways += [
            _Second("forward over forward", lambda: _dot(cts, jvp(forward, tuple(at), tuple(outer))[1])),
            _Second("reverse over forward", lambda: _dot(vjp(forward, *at)[1](cts), outer)),
        ]
    numeric = _central(backward, at, outer, s.step)
    expected = _dot(numeric, inner)
    size = max(_dot([np.abs(x) for x in numeric], [np.abs(x) for x in inner]), 1e-3)
    for way in ways:
        got = way.value()
        if not abs(got - expected) <= s.atol + 10 * s.rtol * size:
            raise CheckError(
                f"{s.name}: the rules of second order are wrong: {way.name} gives {got:.9g}, central differences of the gradient {expected:.9g}: "
                f"off by {abs(got - expected):.3g} (tolerance {s.atol + 10 * s.rtol * size:.2g})"
            )


def _check_stage(s: _Subject) -> None:
    before = [x.copy() for x in s.leaves]
    outputs = tree.leaves(stage(s.call, *s.leaves)(*s.leaves))
    _compare_outputs(s, outputs, "the staged program", "what the implementation gives")
    for path, x, y in zip(s.paths, s.leaves, before, strict=True):
        s.compare(x, y, "the implementation", f"the argument {path} was changed: it", "what it was before the call", 0.0)
    if not s.active or not s.float_outputs or not _has_staged_gradient(s):
        return
    cts = s.direction(s.float_outputs)
    at, function = s.at(s.active), s.along(s.active)

    def gradient(*xs: Any) -> list[Any]:
        return list(vjp(function, *xs)[1](cts))

    staged: list[Any] = stage(gradient, *at)(*at)
    for i, got, expected in zip(s.active, staged, gradient(*at), strict=True):
        s.compare(
            got, expected, "the staged gradient", f"the cotangent of {s.paths[i]}", "what it is outside staging", _run_tolerance(expected)
        )


def _has_staged_gradient(s: _Subject) -> bool:
    op, rules = s.primitive.op, s.primitive.rules
    if op.wants_residual() and rules.abstract is not None:
        # An abstract rule that gives no residual specs says that the gradient is for use outside staging.
        outcomes = [eqn for eqn in stage(s.call, *s.leaves).program.equations if eqn.primitive is op]
        return all(eqn.params.get("residual") for eqn in outcomes)
    return rules.jvp is not None or rules.transpose is not None or rules.onnx is None


def _compare_outputs(s: _Subject, outputs: Sequence[Any], rule: str, against: str) -> None:
    for path, got, expected in zip(s.out_paths, outputs, s.outputs, strict=True):
        s.compare(got, expected, rule, path, against, _run_tolerance(expected))


def _run_tolerance(x: Array) -> float:
    """What another order of the same operations may change."""
    if not is_float(x.dtype):
        return 0.0
    return {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}[x.dtype.name]


def _check_onnx(s: _Subject) -> None:
    rule = "the onnx rule" if s.primitive.rules.onnx is not None else "the lowering of its implementation"
    for level, label in (("none", "ORT_DISABLE_ALL"), ("all", "ORT_ENABLE_ALL")):
        with config(optimization=level):
            outputs = tree.leaves(stage(s.call, *s.leaves)(*s.leaves))
        _compare_outputs(s, outputs, rule, f"what the implementation gives (ONNX Runtime at {label})")


def _check_batch(s: _Subject) -> None:
    rule = "the batch rule" if s.primitive.rules.batch is not None else "vmap"
    everything = tuple(range(len(s.leaves)))
    plans = [everything, *([(i,) for i in everything] if len(everything) > 1 else [])]
    for mapped in plans:
        axes = [int(s.rng.integers(s.leaves[i].ndim + 1)) if i in mapped else None for i in everything]
        examples = [[_varied(s, x) if i in mapped else x for i, x in enumerate(s.leaves)] for _ in range(_BATCH)]
        stacked = [
            x if a is None else np.stack([e[i] for e in examples], axis=a) for i, (x, a) in enumerate(zip(s.leaves, axes, strict=True))
        ]
        found = tree.leaves(vmap(s.call, in_axes=tuple(axes))(*stacked))
        loops = zip(*[tree.leaves(s.call(*e)) for e in examples], strict=True)
        for path, got, rows in zip(s.out_paths, found, loops, strict=True):
            expected = np.stack([as_array(x) for x in rows])
            s.compare(
                got,
                expected,
                rule,
                f"{path}, batched over {s.described(mapped)},",
                "what a loop over the examples gives",
                _run_tolerance(expected),
            )


def _varied(s: _Subject, x: Array) -> Array:
    """Another example near x; integers and booleans stay, since their values may be indices."""
    return as_array(x * s.rng.uniform(0.9, 1.1, x.shape)).astype(x.dtype) if is_float(x.dtype) else x


_CHECKS: Final[dict[str, Callable[[_Subject], None]]] = {
    "abstract": _check_abstract,
    "jvp": _check_jvp,
    "transpose": _check_transpose,
    "nested": _check_nested,
    "stage": _check_stage,
    "batch": _check_batch,
    "onnx": _check_onnx,
}


def check_gradient(f: Callable[..., Any], *args: Any, rtol: float = 1e-5, atol: float = 1e-8, seed: int = 0) -> None:
    """Compare the gradient of f at `args` with central differences, in float64.

    f returns a floating scalar, or a tree of floating arrays, which are then summed with random weights. Floating leaves of the arguments are
    taken as float64; every one of up to 256 elements is moved by itself, more of them along random directions.
    Raises CheckError (an AssertionError) naming the element that is wrong and by how much.
    """
    label = getattr(f, "__name__", type(f).__name__)
    leaves, treedef = tree.flatten(tuple(args))
    arrays: list[Any] = [as_array(x).astype(np.float64) if is_float(as_array(x).dtype) else x for x in leaves]
    chosen = [i for i, x in enumerate(arrays) if is_float(as_array(x).dtype)]
    if not chosen:
        raise ValueError(f"check_gradient: {label} has no floating argument here")
    rng: Any = np.random.default_rng(seed)

    def function(*moved: Any) -> list[Any]:
        full = list(arrays)
        for i, x in zip(chosen, moved, strict=True):
            full[i] = x
        return tree.leaves(f(*tree.unflatten(treedef, full)))

    at: list[Array] = [arrays[i] for i in chosen]
    value, pullback = vjp(function, *at)
    outputs = [as_array(x) for x in value]
    if not all(is_float(x.dtype) for x in outputs):
        raise DTypeError(f"check_gradient: {label} returns {', '.join(x.dtype.name for x in outputs)}; floating results are needed")
    weights: list[Array] = [
        np.ones_like(x) if len(outputs) == 1 and not x.ndim else as_array(rng.uniform(0.5, 1.5, x.shape)).astype(x.dtype) for x in outputs
    ]
    gradients = [as_array(g) for g in pullback(weights)]
    step = _STEPS["float64"][0]
    noise = 10 * np.finfo(np.float64).eps * max(1.0, sum(float(np.abs(w * x).sum()) for w, x in zip(weights, outputs, strict=True))) / step
    paths = treedef.paths()
    for direction, where in _directions(at, [tree.path_text(paths[i][1:], f"argument {paths[i][0].index}") for i in chosen], rng):  # type: ignore[union-attr]
        size = step * max(1.0, max((float(np.abs(x[d != 0]).max(initial=0.0)) for x, d in zip(at, direction, strict=True)), default=1.0))
        numeric = _dot(weights, _central(function, at, direction, size))
        got = _dot(gradients, direction)
        if not abs(got - numeric) <= atol + noise + rtol * max(abs(numeric), abs(got)):
            raise CheckError(
                f"check_gradient: the gradient of {label} is wrong {where}: grad gives {got:.9g}, central differences {numeric:.9g}: off by {abs(got - numeric):.3g}"
            )


def _directions(at: Sequence[Array], names: Sequence[str], rng: Any) -> Any:
    """(direction, what it is) one after the other."""
    if sum(x.size for x in at) > _EVERY_ELEMENT:
        for k in range(_DIRECTIONS):
            yield [rng.uniform(-1.0, 1.0, x.shape) for x in at], f"along random direction {k}"
        return
    for i, x in enumerate(at):
        for index in np.ndindex(x.shape):
            direction = [np.zeros_like(y) for y in at]
            direction[i][index] = 1.0
            yield direction, f"in {names[i]}{[int(k) for k in index] if index else ''}"
