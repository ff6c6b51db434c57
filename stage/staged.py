"""StagedProgram: a Program with its Python signature; called like the function it was staged from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from . import tree
from .backend import backend
from .dims import Dim, is_name
from .errors import MissingRuleError, ShapeError, SignatureTypeError, SignatureValueError
from .hashing import program_hash
from .names import OUTPUT, file_names
from .nesting import nested_programs
from .passes import run_passes
from .printer import program_text
from .program import Equation, Program, ProgramBuilder, constant, substitute_dims
from .signature import Signature
from .spec import ArraySpec, same_shape_key
from .trace import inline, is_tracing
from .tracer import Tracer, cast_tracer, settled


class StagedProgram:
    """A staged function: immutable, thread-safe, callable with the arguments it was staged for.

    program.program is the Program (before passes), `.hash` its structural hash (64 hex digits), `.in_specs` and `.out_specs` trees
    of ArraySpecs, `print(program)` its text form.
    """

    def __init__(
        self, program: Program, signature: Signature, out_tree: tree.TreeDef, *, donate: Sequence[str] = (), example: Any = None
    ) -> None:
        self.program = program
        self.signature = signature
        self.out_tree = out_tree
        self.donate = tuple(donate)
        self._example = example
        for inner in nested_programs(program):
            for eqn in inner.equations:
                if eqn.primitive.generation:
                    require_lowering(eqn)

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def example(self) -> list[Any] | None:
        """The flat arrays of the example it was staged with, where they are still known; verification runs on them."""
        return None if self._example is None else self._example.arrays()

    @property
    def in_names(self) -> tuple[str, ...]:
        """The inputs' names in a file, in the order of the flattened arguments."""
        return self.signature.file_names

    @cached_property
    def out_names(self) -> tuple[str, ...]:
        """The outputs' names in a file: `out`, `out.0`, `out.loss`."""
        return file_names([(OUTPUT, path) for path in self.out_tree.paths()])

    @property
    def in_specs(self) -> Any:
        """The arguments' specs: a tuple with one tree an argument."""
        leaves: list[Any] = list(self.signature.specs)
        for i in sorted(self.signature.statics):
            leaves.insert(i, self.signature.statics[i])
        return tree.unflatten(self.signature.tree, leaves)

    @property
    def out_specs(self) -> Any:
        """The result's specs, as a tree."""
        return tree.unflatten(self.out_tree, list(self.program.out_specs))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical Program: equal across processes and machines, free of names, lines and paths."""
        return program_hash(self.program)

    @cached_property
    def optimized(self) -> tuple[Program, Any]:
        """The Program after the passes, and what each of them did."""
        return run_passes(self.program)

    @cached_property
    def weak_ranges(self) -> dict[int, np.dtype[Any]]:
        """For inputs that are Python integers the narrowest integer dtype they take in the program: their values must fit it."""
        position = {v: i for i, v in enumerate(self.program.inputs) if v.spec.weak and v.spec.dtype.kind == "i"}
        found: dict[int, np.dtype[Any]] = {}
        for eqn in self.program.equations if position else ():
            index = position.get(eqn.inputs[0]) if len(eqn.inputs) == 1 else None  # type: ignore[call-overload]
            dtype = eqn.outputs[0].spec.dtype
            if index is None or dtype.kind not in "iu":
                continue
            if index not in found or np.iinfo(dtype).max < np.iinfo(found[index]).max:
                found[index] = dtype
        return found

    def _check_weak_ranges(self, arrays: Sequence[Any]) -> None:
        for index, dtype in self.weak_ranges.items():
            value, limits = int(arrays[index]), np.iinfo(dtype)
            if not limits.min <= value <= limits.max:
                raise OverflowError(f"{self.name}: {self.signature.paths[index]}: Python integer {value} out of bounds for {dtype.name}")

    @property
    def report(self) -> Any:
        """What each pass did."""
        return self.optimized[1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program: NumPy in gives fresh, writable NumPy arrays out; on tracers it is inlined into their trace.

        Raises SignatureTypeError for another tree or a leaf that is no array, SignatureValueError for another shape or dtype.
        """
        leaves = self.signature.flatten(args, kwargs)
        tracer = next((leaf for leaf in leaves if isinstance(leaf, Tracer)), None)
        if tracer is not None:
            if is_tracing() and not all(leaf._deferred for leaf in leaves if isinstance(leaf, Tracer)):
                return tree.unflatten(self.out_tree, self._inline([settled(leaf) for leaf in leaves]))
            outputs = backend().run(self, self.signature.arrays([settled(leaf) for leaf in leaves]))
            return tree.unflatten(self.out_tree, tracer._wrap(outputs))
        arrays = self.signature.arrays(leaves)
        if self.weak_ranges:
            self._check_weak_ranges(arrays)
        return tree.unflatten(self.out_tree, backend().run(self, arrays))

    def _inline(self, leaves: Sequence[Any]) -> list[Any]:
        sizes: dict[str, int | Dim] = {}
        operands: list[Any] = []
        for path, spec, leaf in zip(self.signature.paths, self.signature.specs, leaves, strict=True):
            operand = leaf if isinstance(leaf, Tracer) else self.signature.array_at(len(operands), leaf)
            have: ArraySpec = operand.spec if isinstance(operand, Tracer) else ArraySpec(operand.shape, operand.dtype)
            if have.dtype != spec.dtype and not have.weak:
                raise SignatureValueError(f"{self.name}: {path} has dtype {have.dtype.name}, staged for {spec.dtype.name}")
            if have.ndim != spec.ndim:
                raise SignatureValueError(f"{self.name}: {path} is {have!r}, staged for {spec!r}")
            for dim, size in zip(spec.shape, have.shape, strict=True):
                if is_name(dim) and not same_shape_key((sizes.setdefault(str(dim), size),), (size,)):
                    raise SignatureValueError(f"{self.name}: dim {dim} is {sizes[str(dim)]} and {size} at once in {path}")
            if isinstance(operand, Tracer) and (have.dtype != spec.dtype or have.weak != spec.weak):
                operand = cast_tracer(operand, spec)
            operands.append(operand)
        program = substitute_dims(self.program, sizes)
        for path, spec, operand in zip(self.signature.paths, program.in_specs, operands, strict=True):
            if not same_shape_key(spec.shape, tuple(operand.shape)):
                raise SignatureValueError(f"{self.name}: {path} has shape {list(operand.shape)}, staged for {spec!r}")
        return inline(program, operands)

    def freeze(self, values: Mapping[str, Any]) -> StagedProgram:
        """The program with some inputs made constants: `program.freeze({"params": params})`.

        Keys are paths of arguments or of parts of them (`params`, `params.w1`, `params['w1']`); values arrays or trees. The result is
        called with the arguments that remain; a part taken out of a dict leaves it, elsewhere None stands in its place.
        Raises SignatureValueError for an unknown path, SignatureTypeError for a tree that does not fit.
        """
        frozen: dict[int, Any] = {}
        for path, value in values.items():
            indices = self._indices(path)
            leaves = tree.leaves(value)
            if len(leaves) != len(indices):
                raise SignatureTypeError(f"{self.name}: {path} has {len(indices)} arrays, got {len(leaves)}")
            frozen.update(zip(indices, leaves, strict=True))
        arrays = {i: self.signature.array_at(i, leaf) for i, leaf in frozen.items()}
        sizes: dict[str, int | Dim] = {}
        for i, array in arrays.items():
            for dim, size in zip(self.signature.specs[i].shape, array.shape, strict=True):
                if is_name(dim) and sizes.setdefault(str(dim), size) != size:
                    raise ShapeError(f"{self.name}: frozen arrays disagree on dim {dim}: {sizes[str(dim)]} and {size}")
        program = substitute_dims(self.program, sizes)
        builder = ProgramBuilder()
        args = [constant(arrays[i], spec) if i in arrays else builder.add_input(spec) for i, spec in enumerate(program.in_specs)]
        outputs = builder.inline(program, args)
        return StagedProgram(
            builder.build(outputs, program.name), self.signature.without(set(arrays), program.in_specs), self.out_tree, donate=self.donate
        )

    def _indices(self, path: str) -> list[int]:
        names = (self.signature.paths, self.signature.file_names)
        found = [
            i for i in range(len(self.signature.specs)) if any(n[i] == path or n[i].startswith((path + ".", path + "[")) for n in names)
        ]
        if not found:
            raise SignatureValueError(f"{self.name}: no input {path!r} to freeze; there are {', '.join(self.signature.paths)}")
        return found

    def to_onnx(self, *, opset: int | None = None, target: str = "onnx") -> Any:
        """The program as an onnx.ModelProto, its inputs and outputs named by their pytree paths.

        opset: the lowest of 18, 21, 23, 24 that has every op used, 21 at least by default. target: "onnx" for standard operators only,
        "onnxruntime" allows its contrib operators.
        """
        return backend().to_onnx(self, opset=opset, target=target)

    def save(
        self,
        path: Any,
        *,
        verify: bool = True,
        samples: Any = None,
        rtol: float | None = None,
        atol: float | None = None,
        external: str = "auto",
        target: str = "onnx",
        opset: int | None = None,
    ) -> Any:
        """Verify the lowered program against the reference interpreter, then write it; gives the VerificationReport.

        samples: a list of argument tuples to verify on. rtol, atol: override the computed tolerances. external: "auto", "always" or
        "never" keep large constants in a file beside the model. target, opset: as for `to_onnx`. Also writes `path.report.json`. Raises VerificationError, and leaves
        no file, if an output differs.
        """
        return backend().save(
            self, path, verify=verify, samples=samples, rtol=rtol, atol=atol, external=external, target=target, opset=opset
        )

    def profile(self, *args: Any, **kwargs: Any) -> Any:
        """Run once with ONNX Runtime's profiler: a table of times by operator and by source line."""
        return backend().profile(self, self.signature.arrays(self.signature.flatten(args, kwargs)))

    def __str__(self) -> str:
        return program_text(self.program, names=self.in_names)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n}: {s!r}" for n, s in zip(self.signature.paths, self.signature.specs, strict=True))
        outputs = ", ".join(repr(s) for s in self.program.out_specs)
        return f"<StagedProgram {self.name}({inputs}) -> ({outputs}), {len(self.program.equations)} equations>"


def require_lowering(eqn: Equation) -> None:
    """MissingRuleError, at the user's line, for an equation that can run outside staging only."""
    try:
        eqn.primitive.require_lowering(tuple([a.spec for a in eqn.inputs]), eqn.params)
    except MissingRuleError as error:
        raise MissingRuleError(error.message, source=eqn.source) from error
