"""Pytrees: nested containers of arrays, taken apart into leaves and a TreeDef and put together again.

None, dict, OrderedDict, list, tuple, named tuples, dataclass instances and registered types are structure, by their
exact type; everything else is a leaf. Leaves come in the order of sorted keys for dicts, of fields or items for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, Final, cast

from .tree_def import BUILTIN, LEAF, Attr, DictKey, Index, Key, Kind, Path, TreeDef, kind_of, kinds, register

__all__ = [
    "LEAF", "Attr", "DictKey", "Index", "Key", "Path", "TreeDef", "broadcast_prefix", "difference", "flatten",
    "flatten_with_paths", "leaves", "map", "path_name", "path_text", "register", "structure", "unflatten",
]  # fmt: skip


# ---- flatten and unflatten

_type: Any = type  # hides the class of what is Any, of which pyright knows nothing

# Containers of leaves only are common (a dict of parameters, a tuple of arguments): their TreeDefs are shared.
_flat: dict[Any, TreeDef] = {}
_FLAT_LIMIT: Final = 4096


def _flatten(kind: Kind, tree: Any, out: list[Any]) -> TreeDef:
    children, aux, order = kind.flatten(tree)
    defs: list[TreeDef] | None = None
    for i, child in enumerate(children):
        cls = _type(child)
        try:
            inner = kinds[cls]
        except KeyError:
            inner = kind_of(cls)
        if inner is None:
            out.append(child)
            if defs is not None:
                defs.append(LEAF)
        else:
            if defs is None:
                defs = [LEAF] * i
            defs.append(_flatten(inner, child, out))
    if defs is not None:
        return TreeDef(kind, aux, order, tuple(defs))
    if aux is not None and not (_type(aux) is tuple and {str}.issuperset([_type(k) for k in aux])):
        # Not shared: True, 1 and 1.0 are equal keys, but print differently.
        return TreeDef(kind, aux, order, (LEAF,) * len(children))
    key = (kind, aux, order, len(children))
    found = _flat.get(key)
    if found is None:
        if len(_flat) > _FLAT_LIMIT:
            _flat.clear()
        found = _flat[key] = TreeDef(kind, aux, order, (LEAF,) * len(children))
    return found


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """(leaves, treedef) of a tree."""
    kind = kind_of(_type(tree))
    if kind is None:
        return [tree], LEAF
    out: list[Any] = []
    treedef = _flatten(kind, tree, out)
    return out, treedef


def _build(treedef: TreeDef, leaves: Iterator[Any]) -> Any:
    kind = treedef.kind
    if kind is None:
        return next(leaves)
    children = [next(leaves) if c is LEAF else _build(c, leaves) for c in treedef.children]
    return kind.build(treedef.aux, treedef.order, children)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree with these leaves, of the original types; ValueError unless there are as many as it has."""
    given = leaves if isinstance(leaves, list | tuple) else list(leaves)
    values = cast("Sequence[Any]", given)
    if len(values) != treedef.num_leaves:
        raise ValueError(f"unflatten: {treedef!r} has {treedef.num_leaves} leaves, got {len(values)}")
    return _build(treedef, iter(values))


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return flatten(tree)[0]


def structure(tree: Any) -> TreeDef:
    """The TreeDef of a tree."""
    return flatten(tree)[1]


def map(f: Callable[Concatenate[Any, ...], Any], tree: Any, *rest: Any) -> Any:
    """The tree of f(leaf, *leaves of rest). ValueError, naming the path, if the structures of rest differ."""
    first, treedef = flatten(tree)
    columns = [first]
    for i, other in enumerate(rest):
        values, got = flatten(other)
        if got != treedef:
            raise ValueError(f"map: tree {i + 2} differs from the first: {difference(treedef, got)}")
        columns.append(values)
    return unflatten(treedef, [f(*row) for row in zip(*columns, strict=True)])


def flatten_with_paths(tree: Any) -> tuple[list[tuple[Path, Any]], TreeDef]:
    """([(path, leaf)], treedef) of a tree."""
    values, treedef = flatten(tree)
    return list(zip(treedef.paths(), values, strict=True)), treedef


# ---- paths and differences


def path_text(path: Path, root: str = "") -> str:
    """A path as the user writes it after root: `params['w1']`, `xs[0]`, `cfg.lr`."""
    text = root
    for key in path:
        if isinstance(key, Attr):
            text += f".{key.name}" if text else key.name
        else:
            text += f"[{key.key!r}]" if isinstance(key, DictKey) else f"[{key.index}]"
    return text


def path_name(path: Path) -> str:
    r"""A path as files name it: `params.w1`, `xs.0`; `.` and `\` within keys are escaped with `\`."""
    parts: list[str] = []
    for key in path:
        text = key.name if isinstance(key, Attr) else str(key.key if isinstance(key, DictKey) else key.index)
        parts.append(text.replace("\\", "\\\\").replace(".", "\\."))
    return ".".join(parts)


def _describe(treedef: TreeDef) -> str:
    kind = treedef.kind
    if kind is None:
        return "a leaf"
    if kind.name == "none":
        return "None"
    names = {"ordereddict": "OrderedDict"}
    name = names.get(kind.name, kind.name) if kind in BUILTIN else kind.cls.__qualname__
    return f"{name} of {len(treedef.children)}"


def difference(expected: TreeDef, got: TreeDef, root: str = "") -> str | None:
    """What differs first between two trees, by its path after root: "params['w2'] is missing"; None if nothing does."""
    return None if expected == got else _difference(expected, got, (), root)


def _difference(expected: TreeDef, got: TreeDef, path: Path, root: str) -> str | None:
    if expected is got:
        return None
    at = f"{path_text(path, root)}: " if path or root else ""
    want, have = _describe(expected), _describe(got)
    if expected.kind is not got.kind:
        if want == have and expected.kind is not None and got.kind is not None:  # two types of one name
            want, have = f"{want} ({expected.kind.label})", f"{have} ({got.kind.label})"
        return f"{at}expected {want}, got {have}"
    if expected.kind is not None and expected.kind.name in ("dict", "ordereddict"):
        known, present = set(expected.aux), set(got.aux)
        for keys, others, problem in (
            (expected.aux, present, "is missing"),
            (got.aux, known, "was not expected"),
        ):
            for key in keys:
                if key not in others:
                    return f"{path_text((*path, DictKey(key)), root)} {problem}"
    if len(expected.children) != len(got.children):
        return f"{at}expected {want}, got {have}"
    if expected.aux != got.aux:
        return f"{at}expected {want} with {expected.aux!r}, got {got.aux!r}"
    for key, a, b in zip(expected.keys(), expected.children, got.children, strict=True):
        found = _difference(a, b, (*path, key), root)
        if found is not None:
            return found
    return None


def broadcast_prefix(prefix: Any, full: Any, is_leaf: Callable[[Any], bool] | None = None, root: str = "") -> list[Any]:
    """The leaves of prefix, each repeated for all leaves of full below it, as JAX's in_axes.

    None is a leaf of prefix, and so is what is_leaf says. full is a tree or a TreeDef. ValueError, naming the path
    after root, where prefix has structure that full has not.
    """
    out: list[Any] = []
    _broadcast(prefix, full if isinstance(full, TreeDef) else structure(full), is_leaf, (), root, out)
    return out


def _broadcast(prefix: Any, full: TreeDef, is_leaf: Callable[[Any], bool] | None, path: Path, root: str, out: list[Any]) -> None:
    kind = kind_of(_type(prefix))
    if prefix is None or kind is None or (is_leaf is not None and is_leaf(prefix)):
        out.extend([prefix] * full.num_leaves)
        return
    children, aux, order = kind.flatten(prefix)
    if kind is not full.kind or aux != full.aux or len(children) != len(full.children):
        shallow = TreeDef(kind, aux, order, tuple(LEAF for _ in children))
        cut = TreeDef(full.kind, full.aux, full.order, tuple(LEAF for _ in full.children))
        raise ValueError(_difference(cut if full.kind is not None else LEAF, shallow, path, root))
    for key, child, below in zip(full.keys(), children, full.children, strict=True):
        _broadcast(child, below, is_leaf, (*path, key), root, out)
