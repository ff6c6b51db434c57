from __future__ import annotations

import copy
import json
import pickle
import sys
import types
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onstage.stage import tree
from onstage.stage.tree import Attr, DictKey, Index, TreeDef


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Config:
    lr: Any
    layers: Any = None
    steps: Any = field(default=0, init=False)


class Box:
    def __init__(self, *items: Any, tag: Any = "box") -> None:
        self.items = items
        self.tag = tag

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.items == other.items and self.tag == other.tag

    __hash__ = None  # type: ignore[assignment]


tree.register(Box, lambda b: (b.items, b.tag), lambda tag, items: Box(*items, tag=tag))


def leaf() -> TreeDef:
    return tree.structure(1)


def test_leaves_come_in_order_of_sorted_keys() -> None:
    leaves, treedef = tree.flatten({"b": 1, "a": [2, (3, None)], "c": {}})
    assert leaves == [2, 3, 1] and treedef.num_leaves == 3
    assert repr(treedef) == "{'b': *, 'a': [*, (*, None)], 'c': {}}"
    assert list(tree.unflatten(treedef, "xyz")) == ["b", "a", "c"]
    assert tree.unflatten(treedef, (7, 8, 9)) == {"b": 9, "a": [7, (8, None)], "c": {}}
    assert tree.leaves({2: "two", 10: "ten", 1: "one"}) == ["one", "two", "ten"]


@pytest.mark.parametrize(
    ("value", "text", "leaves"),
    [
        (5, "*", [5]), (None, "None", []), ((), "()", []), ((1,), "(*,)", [1]), ([1, 2], "[*, *]", [1, 2]),
        ({"w": 0, "b": (1, 2)}, "{'w': *, 'b': (*, *)}", [1, 2, 0]),
        (Point(1, [2]), "Point(x=*, y=[*])", [1, 2]), (Config(1, {"a": 2}), "Config(lr=*, layers={'a': *}, steps=*)", [1, 2, 0]),
        (Box(1, 2), "Box(*, *)", [1, 2]), (OrderedDict(b=1, a=2), "OrderedDict({'b': *, 'a': *})", [2, 1]),
        ("text", "*", ["text"]), ({1, 2}, "*", [{1, 2}]), (Point, "*", [Point]), (types.MappingProxyType({"a": 1}), "*", None),
    ],
)  # fmt: skip
def test_structure_and_round_trip(value: Any, text: str, leaves: list[Any] | None) -> None:
    found, treedef = tree.flatten(value)
    assert repr(treedef) == text and (leaves is None or found == leaves)
    again = tree.unflatten(treedef, iter(found))
    assert again == value and type(again) is type(value)
    assert len(treedef.paths()) == treedef.num_leaves == len(found)


def test_only_exact_types_are_containers() -> None:
    class Names(list[Any]):
        pass

    class Table(dict[str, Any]):
        pass

    for value in (Names([1]), Table(a=1), np.ones(3), sys.version_info, "ab"):
        assert tree.structure(value) == leaf()


def test_equality_does_not_hang_on_insertion_order() -> None:
    a, b = tree.structure({"x": 1, "y": 2}), tree.structure({"y": 2, "x": 1})
    assert a == b and hash(a) == hash(b) and a.encode() == b.encode()
    mixed, shuffled = {1: "i", "s": "s", None: "n"}, {"s": "s", None: "n", 1: "i"}
    assert tree.structure(mixed) == tree.structure(shuffled) and tree.leaves(mixed) == tree.leaves(shuffled)
    assert list(tree.unflatten(tree.structure(shuffled), tree.leaves(shuffled))) == ["s", None, 1]
    assert repr(tree.structure({True: 1})) == "{True: *}" and repr(tree.structure({1: 1})) == "{1: *}"


def test_different_trees_are_different() -> None:
    Other = namedtuple("Point", "x y")
    trees = [1, None, (), [], {}, (1,), [1], (1, 2), {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"a": (1,)}, OrderedDict(a=1), Point(1, 2),
             Other(1, 2), Config(1), Box(1), Box(1, tag="other"), Box(1, 2)]  # fmt: skip
    defs = [tree.structure(t) for t in trees]
    assert len(set(defs)) == len(defs)
    for i, a in enumerate(defs):
        for j, b in enumerate(defs):
            assert (a == b) is (i == j) and (tree.difference(a, b) is None) is (i == j)
    assert defs[0] != "*"


def test_unflatten_wrong_count() -> None:
    with pytest.raises(ValueError, match=r"unflatten: \(\*, \*\) has 2 leaves, got 3"):
        tree.unflatten(tree.structure((1, 2)), [1, 2, 3])
    with pytest.raises(ValueError, match=r"unflatten: \* has 1 leaves, got 0"):
        tree.unflatten(leaf(), [])


def test_dataclasses_keep_all_fields() -> None:
    config = Config(1, (2, 3))
    object.__setattr__(config, "steps", 9)
    doubled = tree.map(lambda x: 2 * x, config)
    assert (doubled.lr, doubled.layers, doubled.steps) == (2, (4, 6), 18)

    @dataclass(init=False)
    class Manual:
        a: Any

        def __init__(self, start: int) -> None:
            self.a = start + 1

    assert tree.map(lambda x: -x, Manual(1)).a == -2


def test_map() -> None:
    assert tree.map(lambda a, b: a + b, {"w": 1, "b": (2, None)}, {"b": (20, None), "w": 10}) == {
        "w": 11,
        "b": (22, None),
    }
    assert tree.map(lambda x: None, [1, 2]) == [None, None]
    with pytest.raises(ValueError, match=r"map: tree 3 differs from the first: \['b'\]: expected tuple of 2, got list of 2"):
        tree.map(max, {"b": (1, 2)}, {"b": (1, 2)}, {"b": [1, 2]})


def test_paths() -> None:
    value = {"params": {"w1": 1, "a.b\\c": 2}, "xs": (3, [4]), "cfg": Config(5, Point(6, 7)), 3: 8}
    entries, treedef = tree.flatten_with_paths((value, Box(9)))
    paths = [path for path, _ in entries]
    assert paths == treedef.paths() and [x for _, x in entries] == tree.leaves((value, Box(9)))
    texts = {x: tree.path_text(path[1:], "args") for path, x in entries}
    assert [texts[i] for i in range(1, 10)] == [
        "args['params']['w1']", "args['params']['a.b\\\\c']", "args['xs'][0]", "args['xs'][1][0]", "args['cfg'].lr",
        "args['cfg'].layers.x", "args['cfg'].layers.y", "args[3]", "args[0]",
    ]  # fmt: skip
    names = {x: tree.path_name(path[1:]) for path, x in entries}
    assert [names[i] for i in range(1, 10)] == [
        "params.w1", "params.a\\.b\\\\c", "xs.0", "xs.1.0", "cfg.lr", "cfg.layers.x", "cfg.layers.y", "3", "0",
    ]  # fmt: skip
    assert tree.path_text((Attr("lr"), Index(0), DictKey(("a", 1)))) == "lr[0][('a', 1)]"
    assert tree.path_text((), "x") == "x" and tree.path_text(()) == "" == tree.path_name(())


@pytest.mark.parametrize(
    ("expected", "got", "root", "message"),
    [
        ({"w1": 1, "w2": 2}, {"w1": 1}, "params", "params['w2'] is missing"),
        ({"w1": 1}, {"w1": 1, "w3": 2}, "params", "params['w3'] was not expected"),
        ((1, 2), [1, 2], "xs", "xs: expected tuple of 2, got list of 2"),
        ((1, 2), (1, 2, 3), "", "expected tuple of 2, got tuple of 3"),
        ({"a": [1, (2,)]}, {"a": [1, 2]}, "x", "x['a'][1]: expected tuple of 1, got a leaf"),
        (1, None, "x", "x: expected a leaf, got None"),
        (Config(1, (2,)), Config(1, None), "cfg", "cfg.layers: expected tuple of 1, got None"),
        (Point(1, 2), (1, 2), "", "expected Point of 2, got tuple of 2"),
        (Box(1), Box(1, tag=2), "b", "b: expected Box of 1 with 'box', got 2"),
        ({"a": 1}, OrderedDict(a=1), "d", "d: expected dict of 1, got OrderedDict of 1"),
        ((1, [2]), (1, [2]), "x", None),
    ],
)
def test_difference(expected: Any, got: Any, root: str, message: str | None) -> None:
    assert tree.difference(tree.structure(expected), tree.structure(got), root) == message


def test_difference_of_two_types_of_one_name() -> None:
    other = tree.structure(namedtuple("Point", "x y", module="elsewhere")(1, 2))
    assert tree.difference(tree.structure(Point(1, 2)), other) == (
        f"expected Point of 2 ({Point.__module__}:Point), got Point of 2 (elsewhere:Point)"
    )


def test_broadcast_prefix() -> None:
    full = {"a": (1, [2, 3]), "b": 4}
    assert tree.broadcast_prefix(0, full) == [0, 0, 0, 0]
    assert tree.broadcast_prefix(None, full) == [None] * 4
    assert tree.broadcast_prefix({"a": (0, None), "b": 1}, full) == [0, None, None, 1]
    assert tree.broadcast_prefix({"a": 5, "b": None}, tree.structure(full)) == [5, 5, 5, None]
    assert tree.broadcast_prefix((7, 8), (None, 1)) == [8]
    assert tree.broadcast_prefix(((0, 1), 2), ((1, 2), 3), is_leaf=lambda x: x == (0, 1)) == [
        (0, 1),
        (0, 1),
        2,
    ]
    for prefix, message in [
        ({"a": [0, 1], "b": 2}, r"^in_axes\['a'\]: expected tuple of 2, got list of 2$"),
        ({"a": 0}, r"^in_axes\['b'\] is missing$"),
        ({"a": 0, "b": 1, "c": 2}, r"^in_axes\['c'\] was not expected$"),
        ({"a": 0, "b": (1,)}, r"^in_axes\['b'\]: expected a leaf, got tuple of 1$"),
        ((0, 1), r"^in_axes: expected dict of 2, got tuple of 2$"),
    ]:
        with pytest.raises(ValueError, match=message):
            tree.broadcast_prefix(prefix, full, root="in_axes")


def test_register_rejects() -> None:
    with pytest.raises(ValueError, match="register: dict is a tree type already"):
        tree.register(dict, lambda d: ((), None), lambda aux, children: {})
    with pytest.raises(ValueError, match=r"register: .*:Box is registered already"):
        tree.register(Box, lambda b: ((), None), lambda aux, children: Box())
    with pytest.raises(TypeError, match=r"tree type .*:Box: aux must be hashable, got list"):
        tree.flatten(Box(1, tag=[]))


def test_treedef_is_immutable_copyable_picklable() -> None:
    treedef = tree.structure({"b": [1, None], "a": Point(1, Config(2, Box(3)))})
    with pytest.raises(AttributeError, match="immutable"):
        treedef.aux = ()
    assert copy.copy(treedef) is treedef and copy.deepcopy([treedef])[0] is treedef
    again = pickle.loads(pickle.dumps(tree.structure({"b": [1, None], "a": (OrderedDict(z=1), 2)})))
    assert again == tree.structure({"b": [1, None], "a": (OrderedDict(z=1), 2)}) and repr(again).startswith("{'b'")


# ---- encoding


@pytest.fixture
def module() -> Any:
    """Types that encode finds by their module; pytest's own modules are no place to import from."""
    made: Any = types.ModuleType("onstage_test_tree_types")
    made.Pair = namedtuple("Pair", "a b", module=made.__name__)

    @dataclass
    class Settings:
        lr: Any
        size: Any

    class Bag:
        def __init__(self, items: Any) -> None:
            self.items = items

    for cls in (Settings, Bag):
        cls.__module__, cls.__qualname__ = made.__name__, cls.__name__
        setattr(made, cls.__name__, cls)
    tree.register(Bag, lambda b: (b.items, ("bag", len(b.items))), lambda aux, items: Bag(items))
    sys.modules[made.__name__] = made
    yield made
    sys.modules.pop(made.__name__, None)


def through_json(treedef: TreeDef) -> TreeDef:
    return TreeDef.decode(json.loads(json.dumps(treedef.encode())))


def test_encode_decode(module: Any) -> None:
    value = {
        "p": module.Pair(1, [2]),
        "s": module.Settings(3, None),
        "b": module.Bag([4, (5,)]),
        "o": OrderedDict(a=1),
    }
    treedef = tree.structure(value)
    assert through_json(treedef) == treedef
    assert tree.structure({"b": (1, None), "a": [2]}).encode() == {"dict": [["a", {"list": ["*"]}], ["b", {"tuple": ["*", None]}]]}
    assert tree.structure(module.Pair(1, 2)).encode() == {
        "namedtuple": "onstage_test_tree_types:Pair", "fields": ["a", "b"], "children": ["*", "*"],
    }  # fmt: skip
    keys = tree.structure({None: 1, True: 1, 2: 1, 2.5: 1, float("inf"): 1, "s": 1, ("a", (1, None)): 1})
    assert through_json(keys) == keys and repr(through_json(keys).aux) == repr(keys.aux)


def test_types_that_are_gone_decode_to_stand_ins(module: Any) -> None:
    encoded = tree.structure([module.Pair(1, 2), module.Settings(3, 4)]).encode()
    bag = tree.structure(module.Bag([1])).encode()
    del sys.modules[module.__name__]
    stand_in = TreeDef.decode(encoded)
    assert stand_in == TreeDef.decode(encoded) and stand_in.encode() == encoded
    pair, settings_ = tree.unflatten(stand_in, [1, 2, 3, 4])
    assert repr(pair) == "Pair(a=1, b=2)" and (settings_.lr, settings_.size) == (3, 4)
    assert tree.structure([pair, settings_]) == stand_in
    with pytest.raises(ValueError, match="tree type onstage_test_tree_types:Bag is not registered here"):
        TreeDef.decode(bag)


def test_a_type_with_other_fields_is_not_taken(module: Any) -> None:
    encoded = tree.structure(module.Pair(1, 2)).encode()
    module.Pair = namedtuple("Pair", "a c", module=module.__name__)
    assert tree.unflatten(TreeDef.decode(encoded), [1, 2])._fields == ("a", "b")
    module.Pair = 3
    assert tree.unflatten(TreeDef.decode(encoded), [1, 2])._fields == ("a", "b")


def test_what_cannot_be_encoded_or_decoded() -> None:
    for value, message in [
        ({frozenset(): 1}, r"dict key frozenset\(\) of type frozenset cannot be stored"),
        ({("a", 1j): 1}, r"dict key 1j of type complex cannot be stored"),
        (Box(1, tag=b"x"), r"aux of .*:Box: b'x' of type bytes cannot be stored"),
    ]:
        with pytest.raises(TypeError, match=message):
            tree.structure(value).encode()
    for wrong in (
        7, "x", {}, {"dict": [1]}, {"dict": [[{"x": 1}, "*"]]}, {"list": ["?"]}, {"set": []},
        {"namedtuple": "m:N", "fields": ["a"], "children": []}, {"namedtuple": "m:N", "fields": ["a b"], "children": ["*"]},
        {"dataclass": "m:N", "fields": [1], "children": ["*"]}, {"namedtuple": "m:1 2", "fields": ["a"], "children": ["*"]},
        {"namedtuple": "m:N", "fields": ["a", "a"], "children": ["*", "*"]}, {"dataclass": "m", "fields": ["a"], "children": ["*"]},
        {"namedtuple": "", "fields": ["class"], "children": ["*"]}, {"dict": [["a", "*"], ["a", "*"]]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"not an encoded (tree|dict|namedtuple|dataclass)"):
            TreeDef.decode(wrong)


# ---- laws

keys = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.none(), st.tuples(st.integers(0, 2), st.text(max_size=1)))
trees = st.recursive(
    st.one_of(st.integers(), st.just(None)),
    lambda t: st.one_of(
        st.lists(t, max_size=3),
        st.lists(t, max_size=3).map(tuple),
        st.dictionaries(keys, t, max_size=3),
        st.dictionaries(st.text(max_size=3), t, max_size=3).map(OrderedDict),
        st.builds(Point, t, t),
        st.builds(Config, t, t),
        st.lists(t, max_size=2).map(lambda items: Box(*items)),
    ),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_law_round_trips(value: Any) -> None:
    leaves, treedef = tree.flatten(value)
    again = tree.unflatten(treedef, leaves)
    assert (again == value and repr(again) == repr(value).replace(repr(Box), repr(Box))) or "Box" in repr(value)
    assert tree.structure(again) == treedef and hash(tree.structure(again)) == hash(treedef)
    assert tree.difference(treedef, tree.structure(again)) is None
    assert len(set(treedef.paths())) == len(leaves)
    assert tree.broadcast_prefix(0, value) == [0] * len(leaves)
    names = [tree.path_name(p) for p in treedef.paths()]
    assert len(names) == len(leaves)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_law_encoding_round_trips(value: Any) -> None:
    treedef = tree.structure(value)
    encoded = treedef.encode()
    assert json.loads(json.dumps(encoded)) == encoded
    stored = TreeDef.decode(encoded) if "Box" not in repr(treedef) else treedef
    assert stored.encode() == encoded and stored.num_leaves == treedef.num_leaves
    assert [tree.path_name(p) for p in stored.paths()] == [tree.path_name(p) for p in treedef.paths()]


@settings(max_examples=150, deadline=None)
@given(trees, trees)
def test_law_difference_is_none_exactly_for_equal_trees(a: Any, b: Any) -> None:
    x, y = tree.structure(a), tree.structure(b)
    assert (tree.difference(x, y, "t") is None) is (x == y)
