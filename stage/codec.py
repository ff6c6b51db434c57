"""Programs as JSON-able objects and back.

    {"format": 1,
     "primitives": [[name, version], ...],
     "specs":      [[dtype, [dim, ...], weak, sharding], ...]     a dim: an int, or the text of a symbolic one
     "constants":  [[spec, digest, base64 or null], ...]
     "programs":   [{"name", "inputs", "equations", "outputs"}, ...]}   each after those in its params, the whole one last

inputs: the spec of each. An equation: [primitive, [operand, ...], {param: value}, [output spec, ...]]. An operand or output is
the number of a value (inputs first, then the outputs of the equations), or -1 - k for constant k. All tables are in
order of first appearance, so equal Programs give equal objects. Lines of user code are kept apart (`encode_sources`).

Values of params: null, booleans, integers and strings stand for themselves; all others are ["kind", ...] (see `_KINDS`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np

from .dims import Dim, as_dim, dim_text
from .dtypes import as_dtype
from .errors import ArtifactError, ProgramError
from .nesting import nested_programs
from .primitive import Array, Primitive, find_primitive
from .program import Atom, Const, Equation, Program, Var
from .source import Source
from .spec import ArraySpec, DimLike, StaticSpec, make_spec
from .tree_def import TreeDef

FORMAT: Final = 1
INLINE_LIMIT: Final = 256
"""Constants of more bytes than this go to the table of constants."""

Json: TypeAlias = Any
DimEncoder: TypeAlias = Callable[[DimLike], "int | str"]


def canonical_text(encoded: Json) -> str:
    """The one text of a JSON-able object: sorted keys, no spaces, ASCII."""
    return json.dumps(encoded, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def constant_digest(const: Const) -> str:
    """SHA-256 over dtype, shape and bytes, 64 hex digits: the key of a constant in a table of constants."""
    return content_digest(const.spec, const.digest)


def content_digest(spec: ArraySpec, content: str) -> str:
    """`constant_digest` of a constant whose bytes have the SHA-256 `content`."""
    return hashlib.sha256(f"{spec.dtype.name}{list(spec.shape)}{content}".encode()).hexdigest()


def encode(program: Program, *, constants: MutableMapping[str, Array], inline_limit: int = INLINE_LIMIT) -> dict[str, Json]:
    """The JSON-able form of a Program, names included and source lines left out.

    constants: filled with the arrays of more than `inline_limit` bytes by their `constant_digest`; `decode` wants them again.
    A Program that stands in several params is written once. Raises ProgramError for a param value without such a form.
    """
    return Encoder(constants, inline_limit).encode(program)


def dim_json(dim: DimLike) -> int | str:
    return dim_text(dim) if isinstance(dim, Dim) else dim


class Encoder:
    """One encoding. dim: how dims are written. anonymous: without names, and Programs in params told apart by content
    rather than identity; constants then always by digest. The structural hash is taken of this form."""

    def __init__(
        self,
        constants: MutableMapping[str, Array],
        inline_limit: int = INLINE_LIMIT,
        *,
        dim: DimEncoder = dim_json,
        anonymous: bool = False,
    ) -> None:
        self.constants = constants
        self.inline_limit = inline_limit
        self.dim = dim
        self.anonymous = anonymous
        self.spec_rows: list[Json] = []
        self.constant_rows: list[Json] = []
        self.primitive_rows: list[Json] = []
        self.program_rows: list[Json] = []
        self.spec_numbers: dict[ArraySpec, int] = {}
        self.constant_numbers: dict[Any, int] = {}
        self.primitive_numbers: dict[Primitive, int] = {}
        self.program_numbers: dict[Program | str, int] = {}

    def encode(self, program: Program) -> dict[str, Json]:
        for inner in nested_programs(program):
            self.add_program(inner)
        return {
            "format": FORMAT,
            "primitives": self.primitive_rows,
            "specs": self.spec_rows,
            "constants": self.constant_rows,
            "programs": self.program_rows,
        }

    def add_program(self, program: Program) -> None:
        numbers: dict[Atom, int] = {var: i for i, var in enumerate(program.inputs)}
        inputs = [self.spec(v.spec) for v in program.inputs]
        equations: list[Json] = []
        for eqn in program.equations:
            operands = [numbers[a] if a in numbers else self.constant(a, eqn) for a in eqn.inputs]
            params = {k: self.param(eqn.primitive, k, eqn.params[k]) for k in sorted(eqn.params)}
            equations.append([self.primitive(eqn.primitive), operands, params, [self.spec(v.spec) for v in eqn.outputs]])
            for var in eqn.outputs:
                numbers[var] = len(numbers)
        outputs = [numbers[a] if a in numbers else self.constant(a, None) for a in program.outputs]
        row: Json = {"inputs": inputs, "equations": equations, "outputs": outputs}
        if self.anonymous:
            text = canonical_text(row)
            known = self.program_numbers.setdefault(text, len(self.program_rows))
            self.program_numbers[program] = known
            if known < len(self.program_rows):
                return
        else:
            row["name"] = program.name
            self.program_numbers[program] = len(self.program_rows)
        self.program_rows.append(row)

    def spec(self, spec: ArraySpec) -> int:
        number = self.spec_numbers.get(spec)
        if number is None:
            sharding = None if spec.sharding is None else self.value(spec.sharding, "a sharding")
            self.spec_rows.append([spec.dtype.name, [self.dim(d) for d in spec.shape], spec.weak, sharding])
            number = self.spec_numbers[spec] = len(self.spec_numbers)
        return number

    def primitive(self, primitive: Primitive) -> int:
        number = self.primitive_numbers.get(primitive)
        if number is None:
            self.primitive_rows.append([primitive.name, primitive.version])
            number = self.primitive_numbers[primitive] = len(self.primitive_numbers)
        return number

    def constant(self, atom: Atom, eqn: Equation | None) -> int:
        if not isinstance(atom, Const):
            where = "an output" if eqn is None else f"an operand of {eqn.primitive.name}"
            raise ProgramError(f"{where} ({atom.spec!r}) is not defined before it is used")
        number = self.constant_numbers.get(atom)
        if number is None:
            key = (self.spec(atom.spec), atom.digest)
            number = self.constant_numbers.get(key)
            if number is None:
                number = self.constant_numbers[key] = len(self.constant_rows)
                self.constant_rows.append(self.constant_row(key[0], atom))
            self.constant_numbers[atom] = number
        return -1 - number

    def constant_row(self, spec: int, const: Const) -> Json:
        digest = constant_digest(const)
        if not self.anonymous:
            if const.value.nbytes <= self.inline_limit:
                return [spec, digest, base64.b64encode(np.ascontiguousarray(const.value).tobytes()).decode("ascii")]
            self.constants[digest] = const.value
        return [spec, digest, None]

    def param(self, primitive: Primitive, name: str, value: Any) -> Json:
        return self.value(value, f"{primitive.name}: the param {name!r}")

    def value(self, value: Any, what: str) -> Json:
        kind = cast("type[Any]", type(value))
        if value is None or kind is int or kind is bool or kind is str:
            return value
        if kind is tuple:
            return ["tuple", *[self.value(v, what) for v in value]]
        if kind is float:
            return ["float", float_text(value)]
        if kind is Dim:
            return ["dim", self.dim(value)]
        if kind is Program:
            return ["program", self.program_numbers[value]]
        if kind is ArraySpec:
            return ["spec", self.spec(value)]
        if isinstance(value, np.dtype):
            return ["dtype", as_dtype(value, what).name]
        if kind is StaticSpec:
            return ["static", self.value(value.value, what)]
        if isinstance(value, Primitive):
            return ["primitive", self.primitive(value)]
        if kind is TreeDef:
            return ["tree", value.encode()]
        found = _registered_types.get(kind)
        if found is None:
            raise ProgramError(
                f"{what} is a {kind.__name__} ({value!r}), which has no canonical form; params are made of None, bool, int, float, "
                "str, tuple, np.dtype, Dim, Program, ArraySpec, StaticSpec and TreeDef"
            )
        tag, to_plain = found
        return [tag, self.value(to_plain(value), what)]


_registered_types: dict[type[Any], tuple[str, Callable[[Any], Any]]] = {}
_registered_tags: dict[str, Callable[[Any], Any]] = {}
_KINDS: Final = frozenset({"tuple", "float", "dim", "program", "spec", "dtype", "static", "primitive", "tree"})


def register_value(tag: str, cls: type[Any], to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]) -> None:
    """Let instances of exactly this class stand in params and as shardings: `to_plain` gives a value with a canonical form.

    Raises ValueError for a tag that is taken.
    """
    if tag in _KINDS or tag in _registered_tags:
        raise ValueError(f"register_value: the tag {tag!r} is taken")
    _registered_types[cls] = (tag, to_plain)
    _registered_tags[tag] = from_plain


def float_text(value: float) -> str:
    """Every float64 exactly: hexadecimal, `inf`, `-inf`, and NaNs with sign and payload."""
    return value.hex() if value == value else f"nan:{struct.pack('>d', value).hex()}"


def float_value(text: str) -> float:
    return struct.unpack(">d", bytes.fromhex(text[4:]))[0] if text.startswith("nan:") else float.fromhex(text)


def decode(encoded: Json, constants: Mapping[str, Array], *, sources: Json = None) -> Program:
    """The Program of `encode`. It is not type-checked: call `check` on what comes from outside.

    constants: the arrays by digest that `encode` put aside; their content is held against the digests.
    sources: what `encode_sources` gave. Raises ArtifactError for a damaged object, one of another format, or a primitive
    of another version; MissingRuleError for a primitive that is not registered.
    """
    version = cast("dict[str, Json]", encoded).get("format") if isinstance(encoded, dict) else None
    if version != FORMAT:
        raise ArtifactError(f"a program in format {version!r}; this onstage reads format {FORMAT}")
    try:
        return _Decoder(cast("dict[str, Json]", encoded), constants, sources).program()
    except ArtifactError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ArtifactError(f"the encoded program is damaged ({type(error).__name__}: {error})") from error


class _Decoder:
    def __init__(self, encoded: Mapping[str, Json], constants: Mapping[str, Array], sources: Json) -> None:
        self.programs: list[Program] = []
        self.rows: list[dict[str, Json]] = encoded["programs"]
        self.primitives = [_primitive(name, version) for name, version in encoded["primitives"]]
        self.specs = [self.spec(*row) for row in encoded["specs"]]
        self.constants = [_constant(self.spec_at(row[0]), row[1], row[2], constants) for row in encoded["constants"]]
        self.lines = None if sources is None else _sources(sources, self.rows)

    def spec(self, dtype: str, dims: Sequence[int | str], weak: bool, sharding: Json) -> ArraySpec:
        shape = tuple([as_dim(d) for d in dims])
        if sharding is None:
            return make_spec(shape, as_dtype(dtype), bool(weak))
        return ArraySpec(shape, dtype, weak=bool(weak), sharding=self.value(sharding))

    def spec_at(self, number: int) -> ArraySpec:
        return self.specs[number]

    def primitive_at(self, number: int) -> Primitive:
        return self.primitives[number]

    def program_at(self, number: int) -> Program:
        return self.programs[number]

    def atom(self, values: Sequence[Atom], number: int) -> Atom:
        return values[number] if number >= 0 else self.constants[-1 - number]

    def program(self) -> Program:
        for number, row in enumerate(self.rows):
            self.programs.append(self.one_program(row, None if self.lines is None else self.lines[number]))
        return self.programs[-1]

    def one_program(self, row: Mapping[str, Json], lines: Sequence[Source | None] | None) -> Program:
        inputs = [Var(self.spec_at(s)) for s in row["inputs"]]
        values: list[Atom] = list(inputs)
        equations: list[Equation] = []
        for position, (primitive, operands, params, outputs) in enumerate(row["equations"]):
            atoms = tuple([self.atom(values, i) for i in operands])
            decoded = {k: self.value(v) for k, v in params.items()}
            defined = tuple([Var(self.spec_at(s)) for s in outputs])
            source = None if lines is None else lines[position]
            equations.append(Equation(self.primitive_at(primitive), atoms, decoded, defined, source))
            values.extend(defined)
        results = [self.atom(values, i) for i in row["outputs"]]
        return Program(inputs, equations, results, str(row["name"]))

    def value(self, value: Json) -> Any:
        if not isinstance(value, list):
            if value is None or isinstance(value, bool | int | str):
                return value
            raise TypeError(f"{value!r} is no param value")
        items: list[Any] = [*value]
        kind = items[0]
        if kind == "tuple":
            return tuple([self.value(v) for v in items[1:]])
        _, content = items
        match kind:
            case "float":
                return float_value(content)
            case "dim":
                return as_dim(content)
            case "program":
                return self.program_at(content)
            case "spec":
                return self.spec_at(content)
            case "dtype":
                return as_dtype(content)
            case "static":
                return StaticSpec(self.value(content))
            case "primitive":
                return self.primitive_at(content)
            case "tree":
                return TreeDef.decode(content)
            case _:
                if kind not in _registered_tags:
                    raise ArtifactError(f"a param value of unknown kind {kind!r}")
                return _registered_tags[kind](self.value(content))


def _primitive(name: str, version: int) -> Primitive:
    primitive = find_primitive(name)
    if primitive.version != version:
        raise ArtifactError(f"the program uses version {version} of primitive {name!r}; here it has version {primitive.version}")
    return primitive


def _constant(spec: ArraySpec, digest: str, data: str | None, table: Mapping[str, Array]) -> Const:
    shape = tuple([int(d) for d in spec.shape])
    if data is not None:
        content = np.frombuffer(base64.b64decode(data, validate=True), dtype=spec.dtype).reshape(shape)
    elif digest in table:
        content = np.asarray(table[digest])
    else:
        raise ArtifactError(f"a constant is missing: {spec!r} with the digest {digest[:16]}...")
    if content.dtype != spec.dtype or content.shape != shape:
        raise ArtifactError(f"a constant is {content.dtype.name}{list(content.shape)}; the program wants {spec!r}")
    array = np.array(content, order="C", copy=True)
    array.flags.writeable = False
    const = Const(array, spec)
    if constant_digest(const) != digest:
        raise ArtifactError(f"a constant ({spec!r}) does not have the content that the program was made with")
    return const


def encode_sources(program: Program) -> dict[str, Json]:
    """The lines of user code of the equations: {"lines": [[file name, line, scope], ...], "programs": [[index or null, ...], ...]}.

    Directories are left out. Programs and equations stand in the order of `encode`.
    """
    numbers: dict[tuple[str, int, str], int] = {}
    programs: list[list[int | None]] = []
    for inner in nested_programs(program):
        row: list[int | None] = []
        for eqn in inner.equations:
            source = eqn.source
            if source is None:
                row.append(None)
            else:
                key = (os.path.basename(source.file), source.line, source.scope)
                row.append(numbers.setdefault(key, len(numbers)))
        programs.append(row)
    return {"lines": [list(key) for key in numbers], "programs": programs}


def _sources(sources: Mapping[str, Json], programs: Sequence[Mapping[str, Json]]) -> list[list[Source | None]]:
    lines = [Source(str(file), int(line), str(scope)) for file, line, scope in sources["lines"]]
    rows: list[list[int | None]] = sources["programs"]
    result = [[None if i is None else lines[i] for i in row] for row in rows]
    if [len(row) for row in result] != [len(p["equations"]) for p in programs]:
        raise ArtifactError("the source lines do not belong to this program")
    return result
