"""TreeDef, the structure of a tree, and the kinds of containers it is made of; what users call is in tree.py."""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast


@dataclass(frozen=True, slots=True)
class DictKey:
    """A path entry: the item of a dict."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Index:
    """A path entry: the item of a list or tuple, or the child of a registered type."""

    index: int


@dataclass(frozen=True, slots=True)
class Attr:
    """A path entry: the field of a dataclass or named tuple."""

    name: str


Key: TypeAlias = DictKey | Index | Attr
Path: TypeAlias = tuple[Key, ...]
Flatten: TypeAlias = Callable[[Any], tuple[Iterable[Any], Hashable]]
Unflatten: TypeAlias = Callable[[Any, Sequence[Any]], Any]


class Kind:
    """How one container type is taken apart and built.

    name: none, dict, ordereddict, list, tuple, namedtuple, dataclass or registered. flatten: obj -> (children, aux,
    order); aux tells trees apart, order (the insertion order of a dict where it is not the sorted one) does not.
    """

    __slots__ = ("build", "cls", "fields", "flatten", "name")

    def __init__(
        self,
        name: str,
        cls: type[Any],
        flatten: Callable[[Any], tuple[Sequence[Any], Any, Any]],
        build: Callable[[Any, Any, list[Any]], Any],
        fields: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.cls = cls
        self.flatten = flatten
        self.build = build
        self.fields = fields

    @property
    def label(self) -> str:
        """`module:qualname` of the type."""
        return f"{self.cls.__module__}:{self.cls.__qualname__}"


class TreeDef:
    """The structure of a tree: immutable, hashable, and equal for equal structures whatever the order of dict items.

    kind is None for a leaf. Made by `flatten` and `structure`.
    """

    __slots__ = ("_hash", "aux", "children", "kind", "num_leaves", "order")
    kind: Kind | None
    aux: Any
    order: Any
    children: tuple[TreeDef, ...]
    num_leaves: int
    _hash: int | None

    def __init__(self, kind: Kind | None, aux: Any, order: Any, children: tuple[TreeDef, ...]) -> None:
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "aux", aux)
        put(self, "order", order)
        put(self, "children", children)
        put(self, "num_leaves", sum([c.num_leaves for c in children]) if kind is not None else 1)
        put(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a TreeDef is immutable")

    def __copy__(self) -> TreeDef:
        return self

    def __deepcopy__(self, memo: Any) -> TreeDef:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.kind is None:
            return (_leaf, ())
        return (_node, (self.kind.cls, self.aux, self.order, self.children))

    def __hash__(self) -> int:
        if self._hash is None:
            cls = None if self.kind is None else self.kind.cls
            object.__setattr__(self, "_hash", hash((cls, self.aux, self.children)))
        return cast(int, self._hash)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeDef):
            return NotImplemented
        return self.kind is other.kind and self.num_leaves == other.num_leaves and self.aux == other.aux and self.children == other.children

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        name = self.kind.name
        if name == "none":
            return "None"
        parts = [repr(c) for c in self.children]
        if name in ("dict", "ordereddict"):
            texts = dict(zip(self.aux, parts, strict=True))
            body = f"{{{', '.join(f'{k!r}: {texts[k]}' for k in self.order or self.aux)}}}"
            return body if name == "dict" else f"OrderedDict({body})"
        if name == "list":
            return f"[{', '.join(parts)}]"
        if name == "tuple":
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if name in ("namedtuple", "dataclass"):
            parts = [f"{k}={p}" for k, p in zip(self.aux, parts, strict=True)]
        return f"{self.kind.cls.__name__}({', '.join(parts)})"

    def keys(self) -> tuple[Key, ...]:
        """The path entries of the children."""
        name = "" if self.kind is None else self.kind.name
        if name in ("dict", "ordereddict"):
            return tuple(DictKey(k) for k in self.aux)
        if name in ("namedtuple", "dataclass"):
            return tuple(Attr(k) for k in self.aux)
        return tuple(Index(i) for i in range(len(self.children)))

    def paths(self) -> list[Path]:
        """The paths of the leaves, in their order."""
        return list(self._paths(()))

    def _paths(self, prefix: Path) -> Iterator[Path]:
        if self.kind is None:
            yield prefix
        for key, child in zip(self.keys(), self.children, strict=True):
            yield from child._paths((*prefix, key))

    def encode(self) -> Any:
        """JSON-able form, the same for equal trees; TypeError for dict keys or aux data that have none."""
        return _encode(self)

    @staticmethod
    def decode(obj: Any) -> TreeDef:
        """The tree of `encode`; ValueError for anything else, or a registered type that is not to be found here."""
        return _decode(obj)


LEAF: Final = TreeDef(None, None, None, ())


def _leaf() -> TreeDef:
    return LEAF


def _node(cls: type[Any], aux: Any, order: Any, children: tuple[TreeDef, ...]) -> TreeDef:
    kind = kind_of(cls)
    if kind is None:
        raise ValueError(f"{cls.__module__}:{cls.__qualname__} is not registered as a tree type here")
    return TreeDef(kind, aux, order, children)


# ---- kinds of containers


def _flatten_dict(obj: dict[Any, Any]) -> tuple[list[Any], Any, Any]:
    keys = list(obj)
    try:
        ordered = sorted(keys)
    except TypeError:  # keys that do not compare: any order will do that does not hang on insertion
        ordered = sorted(keys, key=lambda k: (type(k).__name__, repr(k)))
    aux = tuple(ordered)
    order = tuple(keys) if any(map(operator.is_not, ordered, keys)) else None
    return [obj[k] for k in aux], aux, order


def _build_dict(aux: Any, order: Any, children: list[Any]) -> dict[Any, Any]:
    items = dict(zip(aux, children, strict=True))
    return items if order is None else {k: items[k] for k in order}


def _namedtuple_kind(cls: type[Any]) -> Kind:
    fields = tuple(cls._fields)
    return Kind(
        "namedtuple",
        cls,
        lambda obj: (obj, fields, None),
        lambda aux, order, children: cls._make(children),
        fields,
    )


def _dataclass_kind(cls: type[Any]) -> Kind:
    fields = dataclasses.fields(cls)
    names = tuple(f.name for f in fields)
    has_init: bool = cls.__dataclass_params__.init

    def build(aux: Any, order: Any, children: list[Any]) -> Any:
        values = dict(zip(names, children, strict=True))
        if has_init:
            obj = cls(**{f.name: values.pop(f.name) for f in fields if f.init})
        else:
            obj = object.__new__(cls)
        for name, value in values.items():  # the class may be frozen
            object.__setattr__(obj, name, value)
        return obj

    return Kind("dataclass", cls, lambda obj: ([getattr(obj, n) for n in names], names, None), build, names)


BUILTIN: Final[tuple[Kind, ...]] = (
    Kind("none", type(None), lambda obj: ((), None, None), lambda aux, order, children: None),
    Kind("dict", dict, _flatten_dict, _build_dict),
    Kind(
        "ordereddict",
        OrderedDict,
        _flatten_dict,
        lambda aux, order, children: OrderedDict(_build_dict(aux, order, children)),
    ),
    Kind("list", list, lambda obj: (obj, None, None), lambda aux, order, children: list(children)),
    Kind("tuple", tuple, lambda obj: (obj, None, None), lambda aux, order, children: tuple(children)),
)
kinds: dict[type[Any], Kind | None] = {kind.cls: kind for kind in BUILTIN}


def kind_of(cls: Any) -> Kind | None:
    """The kind of a type, None for leaves; found once per type."""
    try:
        return kinds[cls]
    except KeyError:
        kind = None
        if issubclass(cls, tuple) and {"_fields", "_make"} <= set(dir(cast(Any, cls))):
            kind = _namedtuple_kind(cast(Any, cls))
        elif dataclasses.is_dataclass(cast(Any, cls)):
            kind = _dataclass_kind(cast(Any, cls))
        return kinds.setdefault(cast(Any, cls), kind)


def register(cls: type[Any], flatten: Flatten, unflatten: Unflatten) -> None:
    """Make a type a container: flatten(obj) -> (children, aux), unflatten(aux, children) -> obj.

    aux is hashable data that must be equal for trees to agree. Holds for the exact type, and goes before its being a
    dataclass or named tuple. ValueError for a built-in container, or a type that is registered already.
    """
    if any(cls is kind.cls for kind in BUILTIN):
        raise ValueError(f"register: {cls.__name__} is a tree type already")
    known = kinds.get(cls)
    if known is not None and known.name == "registered":
        raise ValueError(f"register: {known.label} is registered already")

    def flatten_obj(obj: Any) -> tuple[list[Any], Any, Any]:
        children, aux = flatten(obj)
        try:
            hash(aux)
        except TypeError as error:
            raise TypeError(f"tree type {kind.label}: aux must be hashable, got {type(aux).__name__}") from error
        return list(children), aux, None

    kind = Kind("registered", cls, flatten_obj, lambda aux, order, children: unflatten(aux, children))
    kinds[cls] = kind


# ---- encoding


def _encode_key(key: Any, what: str) -> Any:
    if key is None or type(key) in (str, int, bool):
        return key
    if type(key) is float:  # as text, since JSON has no nan and inf
        return {"float": repr(key)}
    if type(key) is tuple:
        return {"tuple": [_encode_key(k, what) for k in cast("tuple[Any, ...]", key)]}
    raise TypeError(f"{what} {key!r} of type {type(key).__name__} cannot be stored: use str, int, float, bool, None or tuples of them")


def _decode_key(obj: Any) -> Any:
    if obj is None or type(obj) in (str, int, bool):
        return obj
    match obj:
        case {"float": str(text)}:
            return float(text)
        case {"tuple": [*items]}:
            return tuple(_decode_key(item) for item in items)
        case _:
            raise ValueError(f"not an encoded dict key: {obj!r}")


def _encode(treedef: TreeDef) -> Any:
    kind = treedef.kind
    if kind is None:
        return "*"
    if kind.name == "none":
        return None
    children = [_encode(c) for c in treedef.children]
    if kind.name in ("dict", "ordereddict"):
        keys = [_encode_key(k, "dict key") for k in treedef.aux]
        return {kind.name: [list(item) for item in zip(keys, children, strict=True)]}
    if kind.name in ("list", "tuple"):
        return {kind.name: children}
    if kind.name == "registered":
        return {
            kind.name: kind.label,
            "aux": _encode_key(treedef.aux, f"aux of {kind.label}:"),
            "children": children,
        }
    return {kind.name: kind.label, "fields": list(treedef.aux), "children": children}


def _decode(obj: Any) -> TreeDef:
    match obj:
        case "*":
            return LEAF
        case None:
            return TreeDef(kinds[type(None)], None, None, ())
        case {"dict": [*items]}:
            return _decode_items(dict, items)
        case {"ordereddict": [*items]}:
            return _decode_items(OrderedDict, items)
        case {"list": [*items]}:
            return _node(list, None, None, tuple(_decode(c) for c in items))
        case {"tuple": [*items]}:
            return _node(tuple, None, None, tuple(_decode(c) for c in items))
        case {"registered": str(label), "aux": aux, "children": [*items]}:
            cls = _resolve(label)
            kind = None if cls is None else kind_of(cls)
            if cls is None or kind is None or kind.name != "registered":
                raise ValueError(f"tree type {label} is not registered here: import its module and register it first")
            return _node(cls, _decode_key(aux), None, tuple(_decode(c) for c in items))
        case {"namedtuple": str(label), "fields": [*fields], "children": [*items]}:
            return _decode_fields("namedtuple", label, tuple(fields), items)
        case {"dataclass": str(label), "fields": [*fields], "children": [*items]}:
            return _decode_fields("dataclass", label, tuple(fields), items)
        case _:
            raise ValueError(f"not an encoded tree: {obj!r}")


def _decode_items(cls: type[Any], items: list[Any]) -> TreeDef:
    tree: dict[Any, TreeDef] = {}
    for item in items:
        match item:
            case [key, child] if (decoded := _decode_key(key)) not in tree:
                tree[decoded] = _decode(child)
            case _:
                raise ValueError(f"not an encoded dict item: {item!r}")
    children, aux, _ = _flatten_dict(tree)
    return _node(cls, aux, None, tuple(children))


def _resolve(label: str) -> type[Any] | None:
    """The type that `module:qualname` names, None if there is none.

    Only modules that are imported already are asked: reading a file must not run code that the file names.
    """
    module, _, qualname = label.partition(":")
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) else None


_stand_ins: dict[tuple[str, str, tuple[str, ...]], type[Any]] = {}


def _decode_fields(name: str, label: str, fields: tuple[Any, ...], items: list[Any]) -> TreeDef:
    children = tuple(_decode(c) for c in items)
    cls = _resolve(label)
    kind = None if cls is None else kind_of(cls)
    if cls is None or kind is None or kind.name != name or kind.fields != fields:
        cls = _stand_in(name, label, fields)
    if len(fields) != len(children):
        raise ValueError(f"not an encoded {name}: {label} with {len(fields)} fields and {len(children)} children")
    return _node(cls, fields, None, children)


def _stand_in(name: str, label: str, fields: tuple[Any, ...]) -> type[Any]:
    """A type made on the spot for one that is not to be found here; the same one every time."""
    made = _stand_ins.get((name, label, fields))
    if made is None:
        module, _, qualname = label.partition(":")
        last = qualname.rpartition(".")[2]
        try:
            if name == "namedtuple":
                made = cast("type[Any]", cast(Any, namedtuple)(last, fields, rename=True))  # which `_1` needs
            else:
                made = dataclasses.make_dataclass(last, fields)
        except (TypeError, ValueError):
            made = None
        if made is None or not last.isidentifier() or _field_names(made) != fields:
            raise ValueError(f"not an encoded {name}: {label} with fields {fields!r}")
        made.__module__, made.__qualname__ = module, qualname  # so that it is encoded as it came
        made = _stand_ins.setdefault((name, label, fields), made)
    return made


def _field_names(cls: Any) -> tuple[str, ...]:
    kind = kind_of(cls)
    return () if kind is None else kind.fields
